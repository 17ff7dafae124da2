package onnx

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/onnx/internal/onnxpb"
)

// FuzzDecode: no bytes make the reader panic; what is accepted is a sound
// graph, and is written as it was read.
func FuzzDecode(f *testing.F) {
	f.Add(seedModel())
	f.Add(withInit(floats("w", 1)))
	f.Add(withInit(external("w", 1, "location", "w.bin")))
	sub := &pb{Input: infos(info("x", 2)), Node: []*onnxpb.NodeProto{node("Add", "t x", "o"), node("Relu", "x", "t")}, Output: infos(info("o", 2))}
	f.Add(model(&pb{Node: []*onnxpb.NodeProto{node("Loop", "n _ x", "y", graphAttr("body", sub)), node("Relu", "in", "x")},
		Input: infos(info("in", "N"), info("n")), Output: infos(info("y", 2), info("in", "N"))}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, err := Decode(b, "", Options{})
		if err != nil {
			return
		}
		if err := ir.VerifyStructure(m.Graph); err != nil {
			t.Fatal(err)
		}
		for _, v := range m.Graph.Inits {
			_, _ = v.Init.Tensor()
		}
		out, err := Encode(m)
		if err != nil || !bytes.Equal(out, b) {
			t.Fatalf("written as %d bytes, read from %d (%v)", len(out), len(b), err)
		}
		if ir.Inline(m) == nil {
			if err := ir.VerifyStructure(m.Graph); err != nil {
				t.Fatal(err)
			}
		}
		// A changed graph is written, read again, and still sound.
		m.Graph.AddInit(m.Graph.Fresh("new"), ir.WeightOf(ir.FromInts(ir.Int64, []int64{1})))
		if out, err = Encode(m); err != nil {
			return
		}
		if _, _, err := Decode(out, "", Options{}); err != nil {
			t.Fatalf("what is written is not read: %v", err)
		}
	})
}

// FuzzTensor: any bytes are a tensor of the right size, or an error.
func FuzzTensor(f *testing.F) {
	for _, p := range []*onnxpb.TensorProto{
		floats("f", 1, 2),
		{DataType: proto.Int32(int32(ir.Int4)), Dims: []int64{3}, Int32Data: []int32{1, 2}},
		{DataType: proto.Int32(int32(ir.String)), Dims: []int64{1}, StringData: [][]byte{[]byte("s")}},
		{DataType: proto.Int32(int32(ir.Complex64)), Dims: []int64{1}, FloatData: []float32{1, 2}},
		{DataType: proto.Int32(int32(ir.BFloat16)), Dims: []int64{2}, RawData: []byte{1, 2, 3, 4}},
	} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, x, err := DecodeTensor(b)
		if err != nil {
			return
		}
		if x.DType == ir.String && int64(len(x.Strings)) != x.Len() ||
			x.DType != ir.String && int64(len(x.Data)) != (x.Len()*int64(x.DType.Bits())+7)/8 {
			t.Fatalf("%s holds %d bytes", x.Type(), len(x.Data))
		}
	})
}

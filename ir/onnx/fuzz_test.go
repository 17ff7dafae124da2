package onnx

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/mutate"
	"memoc/ir/onnx/internal/onnxpb"
)

func FuzzDecode(f *testing.F) { mutate.Explore(f, modelSeeds(), writtenAsRead) }

func TestDecodeMutated(t *testing.T) {
	mutate.Test(t, "FuzzDecode", modelSeeds(), 4000, writtenAsRead, mutate.Messages, mutate.Messages, mutate.Messages)
}

func modelSeeds() [][]byte {
	sub := &pb{Input: infos(info("x", 2)), Node: []*onnxpb.NodeProto{node("Add", "t x", "o"), node("Relu", "x", "t")}, Output: infos(info("o", 2))}
	return append(oddModels(),
		seedModel(),
		withInit(floats("w", 1)),
		withInit(external("w", 1, "location", "w.bin")),
		model(&pb{Node: []*onnxpb.NodeProto{node("Loop", "n _ x", "y", graphAttr("body", sub)), node("Relu", "in", "x")},
			Input: infos(info("in", "N"), info("n")), Output: infos(info("y", 2), info("in", "N"))}))
}

// oddModels are files in which reading settles something that the file leaves
// open or says twice, so that the graph is not word for word what stands in it.
func oddModels() [][]byte {
	untyped := func(name string) *onnxpb.ValueInfoProto { return &onnxpb.ValueInfoProto{Name: &name} }
	relu := []*onnxpb.NodeProto{node("Relu", "x", "y")}
	sparse := &onnxpb.SparseTensorProto{Values: floats("s", 1), Indices: &onnxpb.TensorProto{DataType: proto.Int32(int32(ir.Int64)), Dims: []int64{1},
		Int64Data: []int64{1}}, Dims: []int64{2}}
	old := func(m *onnxpb.ModelProto) { m.IrVersion = proto.Int64(3) }
	swapped := model(&pb{Node: relu, Initializer: []*onnxpb.TensorProto{floats("x", 1)}, Output: infos(info("y", 1))})
	second := model(&pb{SparseInitializer: []*onnxpb.SparseTensorProto{sparse}})
	return [][]byte{
		// An input without a type that is an output with one.
		model(&pb{Node: relu, Input: infos(untyped("x")), Output: infos(info("y", 2), info("x", 2))}),
		// The same, the output being that of a subgraph.
		model(&pb{Node: []*onnxpb.NodeProto{node("Loop", "n _ x", "y", graphAttr("body", &pb{Output: infos(info("x", 2))}))},
			Input: infos(info("n"), untyped("x")), Output: infos(info("y", 2))}),
		// Inputs whose defaults have another type, or the only one.
		model(&pb{Node: relu, Input: infos(info("x", 3), untyped("z")), Initializer: []*onnxpb.TensorProto{floats("x", 1, 2), floats("z", 1)}, Output: infos(info("y", 2))}),
		// Symbols with names that memoc gives to open dims.
		model(&pb{Node: relu, Input: infos(symbols("x", "", "_u1", "_u1+1", "_u1_0"), symbols("z", "_u1*_u2", "")), Output: infos(symbols("y", "", "_u1", "_u2", "_u3"))}),
		// Inputs that stand for initializers.
		model(&pb{Node: relu, Input: infos(info("x", 2), info("w", 1)), Initializer: []*onnxpb.TensorProto{floats("w", 1)}, Output: infos(info("y", 2))}, old),
		// Sparse initializers before dense ones.
		sparseFirst(swapped, second),
	}
}

// symbols is a float tensor with dims of these names, open where one is empty.
func symbols(name string, dims ...string) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, s := range dims {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: s}})
	}
	v := info(name)
	v.Type.GetTensorType().Shape = shape
	return v
}

// sparseFirst is the model dense with the initializers of sparse before its
// own.
func sparseFirst(dense, sparse []byte) []byte {
	graph := func(b []byte) (g record) {
		_ = each(b, 0, func(r record) error {
			if r.num == 7 {
				g = r
			}
			return nil
		})
		return g
	}
	var out rope
	_ = each(dense, 0, func(r record) error {
		if r.num != 7 {
			out.raw(r.raw)
			return nil
		}
		var g rope
		_ = each(graph(sparse).b, 0, func(r record) error {
			if r.num == 15 {
				g.raw(r.raw)
			}
			return nil
		})
		g.raw(r.b)
		out.message(7, &g)
		return nil
	})
	return out.flat()
}

// Every odd model is read, and written as it was read.
func TestWrittenAsRead(t *testing.T) {
	for i, b := range oddModels() {
		if ok, err := writtenAsRead(b); !ok || err != nil {
			t.Errorf("odd model %d: accepted %v, %v", i, ok, err)
		}
	}
}

// writtenAsRead: no bytes make the reader panic; what is accepted is a sound
// graph, and is written as it was read.
func writtenAsRead(b []byte) (accepted bool, wrong error) {
	m, _, err := Decode(b, "", Options{})
	if err != nil {
		return false, nil
	}
	if err := ir.VerifyStructure(m.Graph); err != nil {
		return true, err
	}
	for _, v := range m.Graph.Inits {
		_, _ = v.Init.Tensor()
	}
	out, err := Encode(m)
	if err != nil || !bytes.Equal(out, b) {
		return true, fmt.Errorf("written as %d bytes, read from %d (%v)", len(out), len(b), err)
	}
	if ir.Inline(m) == nil {
		if err := ir.VerifyStructure(m.Graph); err != nil {
			return true, err
		}
	}
	// A changed graph is written, read again, and still sound.
	m.Graph.AddInit(m.Graph.Fresh("new"), ir.WeightOf(ir.FromInts(ir.Int64, []int64{1})))
	if out, err = Encode(m); err != nil {
		return true, nil
	}
	if _, _, err := Decode(out, "", Options{}); err != nil {
		return true, fmt.Errorf("what is written is not read: %v", err)
	}
	return true, nil
}

func FuzzTensor(f *testing.F) { mutate.Explore(f, tensorSeeds(), tensorHolds) }

func TestTensorMutated(t *testing.T) {
	mutate.Test(t, "FuzzTensor", tensorSeeds(), 4000, tensorHolds, mutate.Messages)
}

func tensorSeeds() (seeds [][]byte) {
	for _, p := range []*onnxpb.TensorProto{
		floats("f", 1, 2),
		{DataType: proto.Int32(int32(ir.Int4)), Dims: []int64{3}, Int32Data: []int32{1, 2}},
		{DataType: proto.Int32(int32(ir.String)), Dims: []int64{1}, StringData: [][]byte{[]byte("s")}},
		{DataType: proto.Int32(int32(ir.Complex64)), Dims: []int64{1}, FloatData: []float32{1, 2}},
		{DataType: proto.Int32(int32(ir.BFloat16)), Dims: []int64{2}, RawData: []byte{1, 2, 3, 4}},
	} {
		b, err := proto.Marshal(p)
		if err != nil {
			panic(err)
		}
		seeds = append(seeds, b)
	}
	return seeds
}

// tensorHolds: any bytes are a tensor of the right size, or an error.
func tensorHolds(b []byte) (accepted bool, wrong error) {
	_, x, err := DecodeTensor(b)
	if err != nil {
		return false, nil
	}
	if x.DType == ir.String && int64(len(x.Strings)) != x.Len() ||
		x.DType != ir.String && int64(len(x.Data)) != (x.Len()*int64(x.DType.Bits())+7)/8 {
		return true, fmt.Errorf("%s holds %d bytes", x.Type(), len(x.Data))
	}
	return true, nil
}

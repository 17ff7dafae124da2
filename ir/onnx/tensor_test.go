package onnx

import (
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/onnx/internal/onnxpb"
)

// TestTypedData: where each element type may have its data, and what it means.
func TestTypedData(t *testing.T) {
	for _, c := range []struct {
		dtype ir.DType
		dims  []int64
		p     *onnxpb.TensorProto
		want  string // little-endian, hex
	}{
		{ir.Float, []int64{2}, &onnxpb.TensorProto{FloatData: []float32{1, -2}}, "0000803f000000c0"},
		{ir.Double, []int64{1}, &onnxpb.TensorProto{DoubleData: []float64{1}}, "000000000000f03f"},
		{ir.Complex64, []int64{1}, &onnxpb.TensorProto{FloatData: []float32{1, -2}}, "0000803f000000c0"},
		{ir.Complex128, []int64{1}, &onnxpb.TensorProto{DoubleData: []float64{1, 0}}, "000000000000f03f0000000000000000"},
		{ir.Int64, []int64{2}, &onnxpb.TensorProto{Int64Data: []int64{-1, 2}}, "ffffffffffffffff0200000000000000"},
		{ir.Int32, []int64{1}, &onnxpb.TensorProto{Int32Data: []int32{-2}}, "feffffff"},
		{ir.Int16, []int64{1}, &onnxpb.TensorProto{Int32Data: []int32{-2}}, "feff"},
		{ir.Int8, []int64{2}, &onnxpb.TensorProto{Int32Data: []int32{-2, 3}}, "fe03"},
		{ir.Uint8, []int64{2}, &onnxpb.TensorProto{Int32Data: []int32{254, 3}}, "fe03"},
		{ir.Uint16, []int64{1}, &onnxpb.TensorProto{Int32Data: []int32{0xfffe}}, "feff"},
		{ir.Uint32, []int64{1}, &onnxpb.TensorProto{Uint64Data: []uint64{0xfffffffe}}, "feffffff"},
		{ir.Uint64, []int64{1}, &onnxpb.TensorProto{Uint64Data: []uint64{1 << 63}}, "0000000000000080"},
		{ir.Bool, []int64{3}, &onnxpb.TensorProto{Int32Data: []int32{1, 0, 1}}, "010001"},
		{ir.Float16, []int64{2}, &onnxpb.TensorProto{Int32Data: []int32{0x3c00, 0xc000}}, "003c00c0"},
		{ir.BFloat16, []int64{1}, &onnxpb.TensorProto{Int32Data: []int32{0x3f80}}, "803f"},
		{ir.Float8E4M3FN, []int64{2}, &onnxpb.TensorProto{Int32Data: []int32{0x38, 0xb8}}, "38b8"},
		{ir.Int4, []int64{3}, &onnxpb.TensorProto{Int32Data: []int32{0x21, 0x0f}}, "210f"},
		{ir.Uint4, []int64{3}, &onnxpb.TensorProto{Int32Data: []int32{1, 2, 15}}, "210f"}, // one an entry
		{ir.Uint2, []int64{5}, &onnxpb.TensorProto{Int32Data: []int32{0xe4, 0x01}}, "e401"},
		{ir.Float, []int64{}, &onnxpb.TensorProto{RawData: []byte{0, 0, 0x80, 0x3f}}, "0000803f"},
		{ir.Float, []int64{0, 3}, &onnxpb.TensorProto{}, ""},
		{ir.Float, []int64{0, 3}, &onnxpb.TensorProto{RawData: []byte{}}, ""},
	} {
		c.p.DataType, c.p.Dims = proto.Int32(int32(c.dtype)), c.dims
		b, err := proto.Marshal(c.p)
		must(t, err)
		_, x, err := DecodeTensor(b)
		if err != nil {
			t.Errorf("%s: %v", c.dtype, err)
		} else if got := hex.EncodeToString(x.Data); got != c.want || x.Len()*int64(c.dtype.Bits()) > int64(len(x.Data))*8 {
			t.Errorf("%s%v: got %s, want %s", c.dtype, c.dims, got, c.want)
		}
	}
}

// TestUnpacked: older writers give repeated numbers a tag each.
func TestUnpacked(t *testing.T) {
	r := new(rope)
	r.varint(1, 2)
	r.varint(2, int64(ir.Float))
	for _, bits := range []uint32{0x3f800000, 0xc0000000} {
		r.own(func(b []byte) []byte {
			return protowire.AppendFixed32(protowire.AppendTag(b, 4, protowire.Fixed32Type), bits)
		})
	}
	_, x, err := DecodeTensor(r.flat())
	must(t, err)
	if f := x.Floats(); f[0] != 1 || f[1] != -2 {
		t.Error(f)
	}
}

func TestTensorsRefused(t *testing.T) {
	for _, c := range []struct {
		p    *onnxpb.TensorProto
		want string
	}{
		{&onnxpb.TensorProto{DataType: proto.Int32(99)}, "element type 99"},
		{&onnxpb.TensorProto{}, "element type 0"},
		{&onnxpb.TensorProto{DataType: proto.Int32(1), Dims: []int64{-1}}, "negative"},
		{&onnxpb.TensorProto{DataType: proto.Int32(1), Dims: []int64{1 << 40, 1 << 40}}, "overflows"},
		{&onnxpb.TensorProto{DataType: proto.Int32(1), Dims: []int64{2}, RawData: []byte{1, 2, 3}}, "holds 3 bytes"},
		{&onnxpb.TensorProto{DataType: proto.Int32(1), Dims: []int64{1}, Int64Data: []int64{1}}, "field 7"},
		{&onnxpb.TensorProto{DataType: proto.Int32(8), Dims: []int64{2}, StringData: [][]byte{nil}}, "holds 1 strings"},
	} {
		b, err := proto.Marshal(c.p)
		must(t, err)
		if _, _, err := DecodeTensor(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

package onnx

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx/internal/onnxpb"
)

// Models of the tests are built as messages and encoded by the protobuf
// library, which shares no code with the reader.

type pb = onnxpb.GraphProto

func node(op, in, out string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: &op, Input: names(in), Output: names(out), Attribute: attrs}
	return n
}

// named gives a node a name.
func named(name string, n *onnxpb.NodeProto) *onnxpb.NodeProto {
	n.Name = &name
	return n
}

// names splits "a b" and "a _ b", where _ is an absent value.
func names(s string) []string {
	fields := strings.Fields(s)
	for i, f := range fields {
		if f == "_" {
			fields[i] = ""
		}
	}
	return fields
}

// info is a float tensor; dims are numbers or symbols.
func info(name string, dims ...any) *onnxpb.ValueInfoProto {
	var ds []ir.Dim
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			ds = append(ds, ir.N(int64(d)))
		case string:
			ds = append(ds, ir.DimOf(d))
		}
	}
	t, err := typeProto(ir.TensorOf(ir.Float, ir.Dims(ds...)))
	if err != nil {
		panic(err)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: t}
}

func infos(vs ...*onnxpb.ValueInfoProto) []*onnxpb.ValueInfoProto { return vs }

func graphAttr(name string, g *pb) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, G: g, Type: proto.Int32(int32(ir.AttrGraph))}
}

func refAttr(name, ref string, kind ir.AttrKind) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, RefAttrName: &ref, Type: proto.Int32(int32(kind))}
}

func floatAttr(name string, f float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, F: &f, Type: proto.Int32(int32(ir.AttrFloat))}
}

func opset(domain string, version int64) *onnxpb.OperatorSetIdProto {
	return &onnxpb.OperatorSetIdProto{Domain: &domain, Version: &version}
}

func model(g *pb, change ...func(*onnxpb.ModelProto)) []byte {
	if g.Name == nil {
		g.Name = proto.String("g")
	}
	m := &onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: g, OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 17)}}
	for _, f := range change {
		f(m)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func load(t *testing.T, b []byte) (*ir.Model, []*diag.Diagnostic) {
	t.Helper()
	m, warnings, err := Decode(b, "", Options{Name: "m.onnx"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.VerifyStructure(m.Graph); err != nil {
		t.Fatal(err)
	}
	return m, warnings
}

// wantError decodes b, which must be refused with that ID and these words.
func wantError(t *testing.T, b []byte, dir, id string, words ...string) {
	t.Helper()
	_, _, err := Decode(b, dir, Options{Name: "m.onnx"})
	d, ok := err.(*diag.Diagnostic)
	if !ok || d.ID != id || d.Severity != diag.Error {
		t.Errorf("got %v, want an error %q", err, id)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func ids(ds []*diag.Diagnostic) string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return strings.Join(out, " ")
}

// order prints a graph's nodes as "Op(in,in)->out".
func order(g *ir.Graph) string {
	var out []string
	for _, n := range g.Nodes {
		var in, o []string
		for _, v := range n.In {
			in = append(in, nameOf(v))
		}
		for _, v := range n.Out {
			o = append(o, nameOf(v))
		}
		out = append(out, n.Op+"("+strings.Join(in, ",")+")->"+strings.Join(o, ","))
	}
	return strings.Join(out, " ")
}

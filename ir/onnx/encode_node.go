package onnx

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/onnx/internal/onnxpb"
)

// node writes a NodeProto with the names of the graph.
func (e *encoder) node(n *ir.Node) (*rope, error) {
	var r rope
	for _, v := range n.In {
		r.string(1, nameOf(v))
	}
	for _, v := range n.Out {
		r.string(2, nameOf(v))
	}
	r.string(3, n.Name)
	r.string(4, n.Op)
	for i := range n.Attrs {
		m, err := e.attr(&n.Attrs[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		r.message(5, m)
	}
	r.optional(6, n.Doc)
	r.optional(7, n.Domain)
	r.optional(8, n.Overload)
	for _, kv := range n.Meta {
		r.kv(9, kv.Key, kv.Value)
	}
	return &r, nil
}

func nameOf(v *ir.Value) string {
	if v == nil {
		return ""
	}
	return v.Name
}

// attr writes an AttributeProto, as it was read where that still says the
// same.
func (e *encoder) attr(a *ir.Attr) (*rope, error) {
	var r rope
	if a.G == nil && len(a.Graphs) == 0 && a.Raw != nil && sameAttr(a) {
		r.raw(a.Raw)
		return &r, nil
	}
	r.string(1, a.Name)
	if a.Ref == "" {
		if err := e.attrValue(&r, a); err != nil {
			return nil, err
		}
	}
	r.varint(20, int64(a.Kind))
	r.optional(21, a.Ref)
	return &r, nil
}

func (e *encoder) attrValue(r *rope, a *ir.Attr) error {
	switch a.Kind {
	case ir.AttrFloat:
		r.own(func(b []byte) []byte {
			return protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(a.F))
		})
	case ir.AttrInt:
		r.varint(3, a.I)
	case ir.AttrString:
		r.string(4, a.S)
	case ir.AttrFloats:
		for _, f := range a.Floats {
			r.own(func(b []byte) []byte {
				return protowire.AppendFixed32(protowire.AppendTag(b, 7, protowire.Fixed32Type), math.Float32bits(f))
			})
		}
	case ir.AttrInts:
		for _, i := range a.Ints {
			r.varint(8, i)
		}
	case ir.AttrStrings:
		for _, s := range a.Strings {
			r.string(9, s)
		}
	default:
		return e.attrMessages(r, a)
	}
	return nil
}

func (e *encoder) attrMessages(r *rope, a *ir.Attr) error {
	switch a.Kind {
	case ir.AttrTensor:
		if a.T == nil {
			return fmt.Errorf("attribute %q has no tensor", a.Name)
		}
		r.message(5, tensorRope("", a.T))
	case ir.AttrTensors:
		for _, t := range a.Tensors {
			r.message(10, tensorRope("", t))
		}
	case ir.AttrGraph:
		if a.G == nil {
			return fmt.Errorf("attribute %q has no graph", a.Name)
		}
		m, err := e.subgraph(a.G)
		if err != nil {
			return err
		}
		r.message(6, m)
	case ir.AttrGraphs:
		for _, g := range a.Graphs {
			m, err := e.subgraph(g)
			if err != nil {
				return err
			}
			r.message(11, m)
		}
	case ir.AttrType:
		b, err := marshalType(a.Type)
		if err != nil {
			return err
		}
		r.bytes(14, b)
	default:
		return fmt.Errorf("attribute %q has a form that is not written", a.Name)
	}
	return nil
}

func (e *encoder) subgraph(g *ir.Graph) (*rope, error) {
	m, _, err := e.graph(g, g.Raw, false)
	return m, err
}

// sameAttr reports whether the attribute still has the name and the plain
// values it was read with.
func sameAttr(a *ir.Attr) bool {
	p, err := plainParser().attr(a.Raw, 0)
	if err != nil {
		return false
	}
	b := &p.attr
	return a.Name == b.Name && a.Kind == b.Kind && a.I == b.I && a.S == b.S && a.Ref == b.Ref &&
		math.Float32bits(a.F) == math.Float32bits(b.F) && slices.Equal(a.Ints, b.Ints) && slices.Equal(a.Strings, b.Strings) &&
		slices.EqualFunc(a.Floats, b.Floats, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// plainParser reads types without a graph: a dim that is left open is the
// symbol openDim.
func plainParser() *parser {
	return &parser{unknown: func() ir.Dim { return ir.Sym(openDim) }, symbol: ir.DimOf}
}

const openDim = "_u0"

// isOpen reports whether d is a symbol that memoc made for an unknown dim.
func isOpen(d ir.Dim) bool {
	for _, s := range d.Symbols() {
		if rest, ok := strings.CutPrefix(s, "_u"); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			return true
		}
	}
	return false
}

func tensorRope(name string, t *ir.Tensor) *rope {
	var r rope
	for _, d := range t.Dims {
		r.varint(1, d)
	}
	r.varint(2, int64(t.DType))
	if t.DType == ir.String {
		for _, s := range t.Strings {
			r.string(6, s)
		}
	}
	r.optional(8, name)
	if t.DType != ir.String {
		r.bytes(9, t.Data)
	}
	return &r
}

// weightRope writes an initializer: what was read as it was (under its name),
// external data as a reference.
func weightRope(name string, w *ir.Weight) (num protowire.Number, r *rope, err error) {
	num = 5
	if w.Sparse {
		num = 15
	}
	if w.Raw != nil {
		r, err = renamed(name, w.Raw, w.Sparse)
		return num, r, err
	}
	if w.External == nil {
		t, err := w.Tensor()
		if err != nil {
			return num, nil, fmt.Errorf("initializer %q: %w", name, err)
		}
		return num, tensorRope(name, t), nil
	}
	r = &rope{}
	for _, d := range w.Type.Shape.Dims {
		n, ok := d.Int()
		if !ok {
			return num, nil, fmt.Errorf("initializer %q has the symbolic dim %s", name, d)
		}
		r.varint(1, n)
	}
	r.varint(2, int64(w.Type.DType))
	r.string(8, name)
	r.kv(13, "location", w.External.Location)
	if w.External.Offset != 0 || w.External.Length != 0 {
		r.kv(13, "offset", fmt.Sprint(w.External.Offset))
	}
	if w.External.Length != 0 {
		r.kv(13, "length", fmt.Sprint(w.External.Length))
	}
	if w.External.Checksum != "" {
		r.kv(13, "checksum", w.External.Checksum)
	}
	r.varint(14, 1)
	return num, r, nil
}

// renamed is a TensorProto (or the values of a SparseTensorProto) with the
// name changed, if it is another.
func renamed(name string, raw []byte, sparse bool) (*rope, error) {
	out := &rope{}
	found := false
	err := each(raw, 0, func(r record) error {
		switch {
		case sparse && r.num == 1 && r.isBytes():
			m, err := renamed(name, r.b, false)
			if err != nil {
				return err
			}
			out.message(1, m)
			return nil
		case !sparse && r.num == 8 && r.isBytes():
			if found = true; string(r.b) != name {
				out.string(8, name)
				return nil
			}
		}
		out.raw(r.raw)
		return nil
	})
	if !found && !sparse {
		out.string(8, name)
	}
	return out, err
}

// valueInfoRope writes a ValueInfoProto.
func valueInfoRope(v *ir.Value, t ir.Type) (*rope, error) {
	var r rope
	r.string(1, v.Name)
	if t.Kind != ir.NoType {
		b, err := marshalType(t)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", v.Name, err)
		}
		r.bytes(2, b)
	}
	r.optional(3, v.Doc)
	return &r, nil
}

func marshalType(t ir.Type) ([]byte, error) {
	m, err := typeProto(t)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func typeProto(t ir.Type) (*onnxpb.TypeProto, error) {
	var elem *onnxpb.TypeProto
	if t.Elem != nil {
		var err error
		if elem, err = typeProto(*t.Elem); err != nil {
			return nil, err
		}
	}
	d := proto.Int32(int32(t.DType))
	switch t.Kind {
	case ir.TensorKind:
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: d, Shape: shapeProto(t.Shape)}}}, nil
	case ir.SparseKind:
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SparseTensorType{SparseTensorType: &onnxpb.TypeProto_SparseTensor{ElemType: d, Shape: shapeProto(t.Shape)}}}, nil
	case ir.SequenceKind:
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: elem}}}, nil
	case ir.OptionalKind:
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: elem}}}, nil
	case ir.MapKind:
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_MapType{MapType: &onnxpb.TypeProto_Map{KeyType: d, ValueType: elem}}}, nil
	case ir.NoType:
		return &onnxpb.TypeProto{}, nil
	}
	return nil, fmt.Errorf("type %s is not written", t)
}

func shapeProto(s ir.Shape) *onnxpb.TensorShapeProto {
	if !s.Ranked {
		return nil
	}
	m := &onnxpb.TensorShapeProto{}
	for _, d := range s.Dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		if n, ok := d.Int(); ok {
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}
		} else if !isOpen(d) {
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: ir.DimName(d)}
		}
		m.Dim = append(m.Dim, dim)
	}
	return m
}

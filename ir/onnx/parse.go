package onnx

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/onnx/internal/onnxpb"
)

// The messages between file and graph: names are still strings, nothing is
// resolved. Spans are the encoded messages as they stand in the file.

type nodeProto struct {
	in, out                    []string
	name, op, domain, overload string
	doc                        string
	attrs                      []*attrProto
	meta                       []ir.KV
	span                       []byte
	off                        int64
	index                      int
}

type attrProto struct {
	attr    ir.Attr // all but tensors and graphs
	tensor  *tensorProto
	tensors []*tensorProto
	graph   *graphProto
	graphs  []*graphProto
}

type valueInfo struct {
	name string
	typ  ir.Type
	doc  string
	span []byte
}

type graphProto struct {
	name, doc  string
	nodes      []*nodeProto
	inits      []*tensorProto
	sparse     []*sparseProto
	inputs     []valueInfo
	outputs    []valueInfo
	valueInfos []valueInfo
	meta       []ir.KV
	span       []byte
	off        int64
}

// maxDepth bounds the nesting of subgraphs and types, so that hostile files
// cannot exhaust the stack.
const maxDepth = 100

// parser counts the nesting.
type parser struct {
	depth   int
	unknown func() ir.Dim // a new symbol for a dim the file leaves open
	symbol  func(name string) ir.Dim
}

func (p *parser) graph(b []byte, off int64) (*graphProto, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, &wireError{off, "subgraphs are nested too deeply"}
	}
	defer func() { p.depth-- }()
	g := &graphProto{span: b, off: off}
	err := each(b, off, func(r record) error {
		if !r.isBytes() {
			return nil
		}
		return p.graphField(g, r)
	})
	return g, err
}

func (p *parser) graphField(g *graphProto, r record) (err error) {
	switch r.num {
	case 1:
		var n *nodeProto
		if n, err = p.node(r.b, r.boff); err == nil {
			n.index = len(g.nodes)
			g.nodes = append(g.nodes, n)
		}
	case 2:
		g.name = string(r.b)
	case 5:
		var t *tensorProto
		if t, err = parseTensor(r.b, r.boff); err == nil {
			g.inits = append(g.inits, t)
		}
	case 10:
		g.doc = string(r.b)
	case 11:
		g.inputs, err = p.appendInfo(g.inputs, r)
	case 12:
		g.outputs, err = p.appendInfo(g.outputs, r)
	case 13:
		g.valueInfos, err = p.appendInfo(g.valueInfos, r)
	case 15:
		var s *sparseProto
		if s, err = parseSparse(r.b, r.boff); err == nil {
			g.sparse = append(g.sparse, s)
		}
	case 16:
		g.meta, err = appendKV(g.meta, r)
	}
	return err
}

func appendKV(kvs []ir.KV, r record) ([]ir.KV, error) {
	kv, err := parseKV(r)
	return append(kvs, kv), err
}

func (p *parser) appendInfo(infos []valueInfo, r record) ([]valueInfo, error) {
	v, err := p.valueInfo(r)
	return append(infos, v), err
}

func (p *parser) valueInfo(r record) (valueInfo, error) {
	var m onnxpb.ValueInfoProto
	if err := proto.Unmarshal(r.b, &m); err != nil {
		return valueInfo{}, &wireError{r.boff, "the type of a tensor (ValueInfoProto) is malformed"}
	}
	t, err := p.typ(m.GetType(), 0)
	if err != nil {
		return valueInfo{}, &wireError{r.boff, fmt.Sprintf("the type of %q: %v", m.GetName(), err)}
	}
	return valueInfo{name: m.GetName(), typ: t, doc: m.GetDocString(), span: r.b}, nil
}

func (p *parser) typ(m *onnxpb.TypeProto, depth int) (ir.Type, error) {
	if depth > maxDepth {
		return ir.Type{}, fmt.Errorf("types are nested too deeply")
	}
	elem := func(kind ir.Kind, key ir.DType, e *onnxpb.TypeProto) (ir.Type, error) {
		t, err := p.typ(e, depth+1)
		return ir.Type{Kind: kind, DType: key, Elem: &t}, err
	}
	switch v := m.GetValue().(type) {
	case *onnxpb.TypeProto_TensorType:
		return p.tensorType(ir.TensorKind, v.TensorType.GetElemType(), v.TensorType.GetShape())
	case *onnxpb.TypeProto_SparseTensorType:
		return p.tensorType(ir.SparseKind, v.SparseTensorType.GetElemType(), v.SparseTensorType.GetShape())
	case *onnxpb.TypeProto_SequenceType:
		return elem(ir.SequenceKind, 0, v.SequenceType.GetElemType())
	case *onnxpb.TypeProto_OptionalType:
		return elem(ir.OptionalKind, 0, v.OptionalType.GetElemType())
	case *onnxpb.TypeProto_MapType:
		key, err := dtypeOf(v.MapType.GetKeyType())
		if err != nil {
			return ir.Type{}, err
		}
		return elem(ir.MapKind, key, v.MapType.GetValueType())
	}
	return ir.Type{}, nil
}

func dtypeOf(n int32) (ir.DType, error) {
	if n == 0 {
		return ir.Undefined, nil
	}
	if n < 0 || n > 255 || !ir.DType(n).Valid() {
		return 0, fmt.Errorf("element type %d is not known to memoc", n)
	}
	return ir.DType(n), nil
}

func (p *parser) tensorType(kind ir.Kind, elem int32, s *onnxpb.TensorShapeProto) (ir.Type, error) {
	d, err := dtypeOf(elem)
	t := ir.Type{Kind: kind, DType: d}
	if err != nil || s == nil {
		return t, err
	}
	dims := make([]ir.Dim, len(s.GetDim()))
	for i, m := range s.GetDim() {
		switch v := m.GetValue().(type) {
		case *onnxpb.TensorShapeProto_Dimension_DimValue:
			if dims[i] = ir.N(v.DimValue); v.DimValue < 0 {
				dims[i] = p.unknown()
			}
		case *onnxpb.TensorShapeProto_Dimension_DimParam:
			if v.DimParam == "" {
				dims[i] = p.unknown()
			} else {
				dims[i] = p.symbol(v.DimParam)
			}
		default:
			dims[i] = p.unknown()
		}
	}
	t.Shape = ir.Dims(dims...)
	return t, nil
}

func (p *parser) node(b []byte, off int64) (*nodeProto, error) {
	n := &nodeProto{span: b, off: off}
	err := each(b, off, func(r record) (err error) {
		if !r.isBytes() {
			return nil
		}
		switch r.num {
		case 1:
			n.in = append(n.in, string(r.b))
		case 2:
			n.out = append(n.out, string(r.b))
		case 3:
			n.name = string(r.b)
		case 4:
			n.op = string(r.b)
		case 5:
			var a *attrProto
			if a, err = p.attr(r.b, r.boff); err == nil {
				n.attrs = append(n.attrs, a)
			}
		case 6:
			n.doc = string(r.b)
		case 7:
			n.domain = canonicalDomain(string(r.b))
		case 8:
			n.overload = string(r.b)
		case 9:
			n.meta, err = appendKV(n.meta, r)
		}
		return err
	})
	return n, err
}

// canonicalDomain maps the two spellings of the default domain to one.
func canonicalDomain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

func (p *parser) attr(b []byte, off int64) (*attrProto, error) {
	a := &attrProto{attr: ir.Attr{Raw: b}}
	kind, seen := ir.AttrKind(0), ir.AttrKind(0)
	err := each(b, off, func(r record) (err error) {
		if r.num == 20 && r.isVarint() {
			kind = ir.AttrKind(r.n)
			return nil
		}
		k, err := p.attrField(a, r)
		if k != 0 {
			seen = k
		}
		return err
	})
	if kind == 0 {
		kind = seen // files of IR version 1 do not state it
	}
	a.attr.Kind = kind
	a.settle()
	return a, err
}

// settle makes empty lists present, where the kind says that there is a list.
// PyTorch's exporter has written value_float with an integer.
func (a *attrProto) settle() {
	switch {
	case a.attr.Kind == ir.AttrInt && a.attr.Name == "value_float":
		a.attr.F = float32(a.attr.I)
	case a.attr.Ref != "":
	case a.attr.Kind == ir.AttrInts && a.attr.Ints == nil:
		a.attr.Ints = []int64{}
	case a.attr.Kind == ir.AttrFloats && a.attr.Floats == nil:
		a.attr.Floats = []float32{}
	case a.attr.Kind == ir.AttrStrings && a.attr.Strings == nil:
		a.attr.Strings = []string{}
	}
}

func (p *parser) attrField(a *attrProto, r record) (kind ir.AttrKind, err error) {
	switch {
	case r.num == 1 && r.isBytes():
		a.attr.Name = string(r.b)
	case r.num == 2 && r.typ == 5:
		a.attr.F = r.float()
		return ir.AttrFloat, nil
	case r.num == 3 && r.isVarint():
		a.attr.I = int64(r.n)
		return ir.AttrInt, nil
	case r.num == 4 && r.isBytes():
		a.attr.S = string(r.b)
		return ir.AttrString, nil
	case r.num == 7 && r.isFloats():
		a.attr.Floats, err = r.floats(a.attr.Floats)
		return ir.AttrFloats, err
	case r.num == 8 && r.isInts():
		a.attr.Ints, err = r.varints(a.attr.Ints)
		return ir.AttrInts, err
	case r.num == 9 && r.isBytes():
		a.attr.Strings = append(a.attr.Strings, string(r.b))
		return ir.AttrStrings, nil
	case r.num == 21 && r.isBytes():
		a.attr.Ref = string(r.b)
	case r.isBytes():
		return p.attrMessage(a, r)
	}
	return 0, nil
}

func (p *parser) attrMessage(a *attrProto, r record) (kind ir.AttrKind, err error) {
	switch r.num {
	case 5:
		a.tensor, err = parseTensor(r.b, r.boff)
		return ir.AttrTensor, err
	case 6:
		a.graph, err = p.graph(r.b, r.boff)
		return ir.AttrGraph, err
	case 10:
		var t *tensorProto
		t, err = parseTensor(r.b, r.boff)
		a.tensors = append(a.tensors, t)
		return ir.AttrTensors, err
	case 11:
		var g *graphProto
		g, err = p.graph(r.b, r.boff)
		a.graphs = append(a.graphs, g)
		return ir.AttrGraphs, err
	case 14:
		var m onnxpb.TypeProto
		if err := proto.Unmarshal(r.b, &m); err != nil {
			return 0, &wireError{r.boff, "a type attribute is malformed"}
		}
		a.attr.Type, err = p.typ(&m, 0)
		return ir.AttrType, err
	case 22:
		var s *sparseProto
		if s, err = parseSparse(r.b, r.boff); err == nil {
			a.attr.T, err = s.dense()
		}
		return ir.AttrSparse, err
	}
	return 0, nil
}

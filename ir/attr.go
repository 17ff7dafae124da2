package ir

// AttrKind tells the forms of an attribute apart; the numbers are those of
// ONNX's AttributeProto.AttributeType.
type AttrKind uint8

// The forms of an attribute.
const (
	AttrFloat   AttrKind = 1
	AttrInt     AttrKind = 2
	AttrString  AttrKind = 3
	AttrTensor  AttrKind = 4
	AttrGraph   AttrKind = 5
	AttrFloats  AttrKind = 6
	AttrInts    AttrKind = 7
	AttrStrings AttrKind = 8
	AttrTensors AttrKind = 9
	AttrGraphs  AttrKind = 10
	AttrSparse  AttrKind = 11
	AttrType    AttrKind = 13
)

// Attr is one attribute of a node; the field of its Kind holds the value.
type Attr struct {
	Name    string
	Kind    AttrKind
	F       float32
	I       int64
	S       string
	T       *Tensor
	G       *Graph
	Floats  []float32
	Ints    []int64
	Strings []string
	Tensors []*Tensor
	Graphs  []*Graph
	Type    Type
	Ref     string // in a function body: the function's attribute this one is
	Raw     []byte // the encoded AttributeProto it was read from, if any
}

// IntAttr, FloatAttr, … make attributes.
func IntAttr(name string, v int64) Attr      { return Attr{Name: name, Kind: AttrInt, I: v} }
func FloatAttr(name string, v float32) Attr  { return Attr{Name: name, Kind: AttrFloat, F: v} }
func StringAttr(name string, v string) Attr  { return Attr{Name: name, Kind: AttrString, S: v} }
func IntsAttr(name string, v ...int64) Attr  { return Attr{Name: name, Kind: AttrInts, Ints: v} }
func TensorAttr(name string, v *Tensor) Attr { return Attr{Name: name, Kind: AttrTensor, T: v} }
func FloatsAttr(name string, v []float32) Attr {
	return Attr{Name: name, Kind: AttrFloats, Floats: v}
}

// Attr finds an attribute by name, nil if the node has none.
func (n *Node) Attr(name string) *Attr {
	for i := range n.Attrs {
		if n.Attrs[i].Name == name {
			return &n.Attrs[i]
		}
	}
	return nil
}

// Int is the attribute's integer, or def where it is absent.
func (n *Node) Int(name string, def int64) int64 {
	if a := n.Attr(name); a != nil && a.Kind == AttrInt {
		return a.I
	}
	return def
}

// Float is the attribute's float, or def where it is absent.
func (n *Node) Float(name string, def float32) float32 {
	if a := n.Attr(name); a != nil && a.Kind == AttrFloat {
		return a.F
	}
	return def
}

// Str is the attribute's string, or def where it is absent.
func (n *Node) Str(name, def string) string {
	if a := n.Attr(name); a != nil && a.Kind == AttrString {
		return a.S
	}
	return def
}

// IntList is the attribute's integers; ok is false where it is absent. A
// single integer, as some exporters write a list of one, is one.
func (n *Node) IntList(name string) (v []int64, ok bool) {
	switch a := n.Attr(name); {
	case a != nil && a.Kind == AttrInts:
		return a.Ints, true
	case a != nil && a.Kind == AttrInt:
		return []int64{a.I}, true
	}
	return nil, false
}

// Subgraphs lists the graphs among the node's attributes, in order.
func (n *Node) Subgraphs() []*Graph {
	var gs []*Graph
	for i := range n.Attrs {
		if g := n.Attrs[i].G; g != nil {
			gs = append(gs, g)
		}
		gs = append(gs, n.Attrs[i].Graphs...)
	}
	return gs
}

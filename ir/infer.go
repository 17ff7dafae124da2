package ir

import (
	"fmt"

	"memoc/ir/diag"
)

// InferCtx is what a shape rule sees of a node: types and known integers of
// the inputs; and where it puts those of the outputs.
type InferCtx struct {
	Node    *Node
	Version int // the operator's since-version that applies
	graph   *Graph
	types   []Type
	ints    [][]Dim
	// Subgraph infers a subgraph whose inputs have the given types and
	// returns its output types; nil where the caller cannot.
	Subgraph func(g *Graph, in []Type) ([]Type, error)
}

// NewInferCtx prepares inference of n's outputs.
func NewInferCtx(g *Graph, n *Node) *InferCtx {
	c := &InferCtx{Node: n, graph: g, types: make([]Type, len(n.Out)), ints: make([][]Dim, len(n.Out))}
	if n.Decl != nil {
		c.Version = n.Decl.SinceVersion(n.Version)
	}
	return c
}

// Has reports whether input i is present.
func (c *InferCtx) Has(i int) bool { return i >= 0 && i < len(c.Node.In) && c.Node.In[i] != nil }

// HasOut reports whether output i is asked for.
func (c *InferCtx) HasOut(i int) bool { return i < len(c.Node.Out) && c.Node.Out[i] != nil }

// In is the type of input i; the zero Type if it is absent or unknown.
func (c *InferCtx) In(i int) Type {
	if !c.Has(i) {
		return Type{}
	}
	return c.Node.In[i].Type
}

// Shape is the shape of input i (unranked if unknown).
func (c *InferCtx) Shape(i int) Shape { return c.In(i).Shape }

// DType is the element type of input i.
func (c *InferCtx) DType(i int) DType { return c.In(i).DType }

// Ints is the elements of input i where inference knows them: a small integer
// constant, or a value computed from shapes. ok is false otherwise.
func (c *InferCtx) Ints(i int) (ds []Dim, ok bool) {
	if !c.Has(i) {
		return nil, false
	}
	v := c.Node.In[i]
	if v.Ints != nil {
		return v.Ints, true
	}
	t := v.assumed()
	if t == nil || !(t.DType.IsInt() || t.DType == Bool) {
		return nil, false
	}
	ds = make([]Dim, 0, t.Len())
	for _, n := range t.Ints() {
		ds = append(ds, N(n))
	}
	return ds, true
}

// StaticInts is Ints where all are integers.
func (c *InferCtx) StaticInts(i int) (ns []int64, ok bool) {
	ds, ok := c.Ints(i)
	if !ok {
		return nil, false
	}
	ns = make([]int64, len(ds))
	for j, d := range ds {
		if ns[j], ok = d.Int(); !ok {
			return nil, false
		}
	}
	return ns, true
}

// Const is input i's tensor where it is a small constant, else nil.
func (c *InferCtx) Const(i int) *Tensor {
	if !c.Has(i) {
		return nil
	}
	return c.Node.In[i].assumed()
}

// Set gives output i its type; absent outputs are ignored.
func (c *InferCtx) Set(i int, t Type) {
	if i < len(c.types) {
		c.types[i] = t
	}
}

// SetTensor is Set of a tensor type.
func (c *InferCtx) SetTensor(i int, d DType, s Shape) { c.Set(i, TensorOf(d, s)) }

// SetInts records the elements of output i, an integer tensor.
func (c *InferCtx) SetInts(i int, ds []Dim) {
	if i < len(c.ints) && len(ds) <= smallConst {
		c.ints[i] = ds
		if ds == nil {
			c.ints[i] = []Dim{}
		}
	}
}

// Result is what was set for output i.
func (c *InferCtx) Result(i int) (Type, []Dim) { return c.types[i], c.ints[i] }

// FreshDim is a new symbol.
func (c *InferCtx) FreshDim() Dim { return c.graph.FreshDim() }

// FreshShape is a shape of that rank with new symbols.
func (c *InferCtx) FreshShape(rank int) Shape {
	dims := make([]Dim, rank)
	for i := range dims {
		dims[i] = c.FreshDim()
	}
	return Dims(dims...)
}

// maxRank bounds what a tensor's extent may say of another's rank. A rank
// beyond it comes from a malformed file, and is not spelled out.
const maxRank = 64

// Length is the number of elements of input i, a list of extents or axes,
// where it is known and may be a rank.
func (c *InferCtx) Length(i int) (n int, ok bool) {
	dims, ok := c.Shape(i).Static()
	if !ok || len(dims) != 1 || dims[0] < 0 || dims[0] > maxRank {
		return 0, false
	}
	return int(dims[0]), true
}

// Axis reads an axis number: negative counts from the end; an error if it is
// not in [-rank, rank).
func (c *InferCtx) Axis(axis int64, rank int) (int, error) {
	a, ok := NormAxis(axis, rank)
	if !ok {
		return 0, c.Errorf("axis %d is out of range for rank %d", axis, rank)
	}
	return a, nil
}

// NormAxis maps an axis in [-rank, rank) to [0, rank).
func NormAxis(axis int64, rank int) (int, bool) {
	if axis < 0 {
		axis += int64(rank)
	}
	return int(axis), axis >= 0 && axis < int64(rank)
}

// Errorf is an error located at the node.
func (c *InferCtx) Errorf(format string, args ...any) error {
	return c.Node.Errorf("shape", format, args...)
}

// Errorf is a located error with a stable ID ("shape", "grad", …).
func (n *Node) Errorf(id, format string, args ...any) error {
	return &diag.Diagnostic{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Loc: n.DiagLoc()}
}

// DiagLoc is the node's place as diagnostics show it.
func (n *Node) DiagLoc() diag.Location {
	return diag.Location{File: n.Loc.File, Path: n.Loc.Path, Index: n.Loc.Index, Node: n.Name,
		Op: n.FullOp(), Opset: n.Version}
}

package ir

import (
	"fmt"
	"slices"
)

// Builder makes nodes whose types are inferred at once, in the form that the
// graph's own opset asks for. Its methods panic with an error that Catch
// turns back into one: rules read as formulas.
type Builder struct {
	Edit     *Edit
	At       *Node  // new nodes stand before it; nil: at the end
	Prefix   string // of new names
	Origin   string // of new nodes
	Backward bool
	Loc      Loc
	consts   map[string]*Value
}

// NewBuilder makes nodes through e.
func NewBuilder(e *Edit) *Builder { return &Builder{Edit: e, consts: map[string]*Value{}} }

type bailout struct{ err error }

// Fail aborts the rule with an error; see Catch.
func (b *Builder) Fail(err error) { panic(bailout{err}) }

// Catch turns a Builder's abort into an error; use with defer.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case bailout:
		*err = r.err
	default:
		panic(r)
	}
}

// Graph is the graph that receives the nodes.
func (b *Builder) Graph() *Graph { return b.Edit.g }

// Opset is the default domain's version the model imports.
func (b *Builder) Opset() int { return b.Edit.g.Opsets[OnnxDomain] }

// OpN makes a node of any domain with nOut outputs, all present.
func (b *Builder) OpN(domain string, op OpName, nOut int, in []*Value, attrs ...Attr) []*Value {
	out := make([]string, nOut)
	for i := range out {
		out[i] = b.Edit.g.Fresh(fmt.Sprintf("%s%s_out%d", b.Prefix, op, i))
	}
	return b.Node(domain, op, in, out, attrs...).Out
}

// Node makes a node with the given output names ("" for absent ones).
func (b *Builder) Node(domain string, op OpName, in []*Value, out []string, attrs ...Attr) *Node {
	n := b.Edit.InsertBefore(b.At, NodeSpec{
		Name: b.Edit.g.Fresh(b.Prefix + op), Domain: domain, Op: op, In: trimAbsent(in), Out: out, Attrs: attrs,
		Origin: b.Origin, Backward: b.Backward, Loc: b.Loc,
	})
	if n.Decl == nil {
		b.Fail(fmt.Errorf("BUG: operator %s is not registered", n.FullOp()))
	}
	if err := InferNode(b.Edit.g, n); err != nil {
		b.Fail(err)
	}
	return n
}

func trimAbsent(in []*Value) []*Value {
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	return slices.Clone(in)
}

// Op makes a node of the default domain with one output.
func (b *Builder) Op(op OpName, in []*Value, attrs ...Attr) *Value {
	return b.OpN(OnnxDomain, op, 1, in, attrs...)[0]
}

// Const is a constant; equal constants share one initializer.
func (b *Builder) Const(t *Tensor) *Value {
	k := fmt.Sprintf("%s %v %x", t.DType, t.Dims, t.Data)
	if v := b.consts[k]; v != nil {
		return v
	}
	v := b.Edit.g.AddInit(b.Edit.g.Fresh("memoc_const"), WeightOf(t))
	v.Init.Constant = true
	if t.DType.IsInt() {
		for _, n := range t.Ints() {
			v.Ints = append(v.Ints, N(n))
		}
	}
	if b.consts == nil {
		b.consts = map[string]*Value{}
	}
	b.consts[k] = v
	return v
}

// Scalar is a rank-0 constant of type d.
func (b *Builder) Scalar(d DType, x float64) *Value { return b.Const(FromFloats(d, []float64{x})) }

// Int64s is a 1-D int64 constant.
func (b *Builder) Int64s(ns ...int64) *Value { return b.Const(FromInts(Int64, ns, int64(len(ns)))) }

// The usual operators by their names.
func (b *Builder) Add(x, y *Value) *Value    { return b.Op("Add", []*Value{x, y}) }
func (b *Builder) Sub(x, y *Value) *Value    { return b.Op("Sub", []*Value{x, y}) }
func (b *Builder) Mul(x, y *Value) *Value    { return b.Op("Mul", []*Value{x, y}) }
func (b *Builder) Div(x, y *Value) *Value    { return b.Op("Div", []*Value{x, y}) }
func (b *Builder) MatMul(x, y *Value) *Value { return b.Op("MatMul", []*Value{x, y}) }
func (b *Builder) Neg(x *Value) *Value       { return b.Op("Neg", []*Value{x}) }
func (b *Builder) Identity(x *Value) *Value  { return b.Op("Identity", []*Value{x}) }

// MulScalar is x * s in x's type.
func (b *Builder) MulScalar(x *Value, s float64) *Value { return b.Mul(x, b.Scalar(x.Type.DType, s)) }

// AddScalar is x + s in x's type.
func (b *Builder) AddScalar(x *Value, s float64) *Value { return b.Add(x, b.Scalar(x.Type.DType, s)) }

// Cast is x as type d; x itself if it has that type.
func (b *Builder) Cast(x *Value, d DType) *Value {
	if x.Type.DType == d {
		return x
	}
	return b.Op("Cast", []*Value{x}, IntAttr("to", int64(d)))
}

// Transpose permutes the axes of x.
func (b *Builder) Transpose(x *Value, perm ...int64) *Value {
	return b.Op("Transpose", []*Value{x}, IntsAttr("perm", perm...))
}

// TransposeLast2 swaps the last two axes of x.
func (b *Builder) TransposeLast2(x *Value) *Value {
	rank := x.Type.Shape.Rank()
	perm := make([]int64, rank)
	for i := range perm {
		perm[i] = int64(i)
	}
	perm[rank-1], perm[rank-2] = perm[rank-2], perm[rank-1]
	return b.Transpose(x, perm...)
}

// axesForm puts axes where the model's opset wants them: an attribute before
// the version since, an input from it on.
func (b *Builder) axesForm(op OpName, since int, x *Value, axes []int64, attrs ...Attr) *Value {
	if b.Opset() < since {
		return b.Op(op, []*Value{x}, append(attrs, IntsAttr("axes", axes...))...)
	}
	return b.Op(op, []*Value{x, b.Int64s(axes...)}, attrs...)
}

// ReduceSum sums x over axes; with no axes it is x itself.
func (b *Builder) ReduceSum(x *Value, keepDims bool, axes ...int64) *Value {
	return b.reduce("ReduceSum", 13, x, keepDims, axes)
}

// ReduceMean averages x over axes; with no axes it is x itself.
func (b *Builder) ReduceMean(x *Value, keepDims bool, axes ...int64) *Value {
	return b.reduce("ReduceMean", 18, x, keepDims, axes)
}

// ReduceMax is the maximum of x over axes; with no axes it is x itself.
func (b *Builder) ReduceMax(x *Value, keepDims bool, axes ...int64) *Value {
	return b.reduce("ReduceMax", 18, x, keepDims, axes)
}

func (b *Builder) reduce(op OpName, since int, x *Value, keepDims bool, axes []int64) *Value {
	if len(axes) == 0 {
		return x
	}
	keep := int64(0)
	if keepDims {
		keep = 1
	}
	return b.axesForm(op, since, x, axes, IntAttr("keepdims", keep))
}

// Unsqueeze inserts axes of extent 1.
func (b *Builder) Unsqueeze(x *Value, axes ...int64) *Value {
	if len(axes) == 0 {
		return x
	}
	return b.axesForm("Unsqueeze", 13, x, axes)
}

// Squeeze drops axes of extent 1.
func (b *Builder) Squeeze(x *Value, axes ...int64) *Value {
	if len(axes) == 0 {
		return x
	}
	return b.axesForm("Squeeze", 13, x, axes)
}

// ShapeOf is the shape of x as an int64 tensor: a constant where it is
// static, a Shape node where it is not.
func (b *Builder) ShapeOf(x *Value) *Value {
	if ns, ok := x.Type.Shape.Static(); ok {
		return b.Int64s(ns...)
	}
	return b.Op("Shape", []*Value{x})
}

// Reshape gives x the static dims.
func (b *Builder) Reshape(x *Value, dims ...int64) *Value {
	return b.Op("Reshape", []*Value{x, b.Int64s(dims...)})
}

// ReshapeLike gives x the shape of like; x itself if it has it. An extent of 0
// must not be read as "copy".
func (b *Builder) ReshapeLike(x, like *Value) *Value {
	if x.Type.Shape.Ranked && x.Type.Shape.Equal(like.Type.Shape) {
		return x
	}
	if n, ok := like.Type.Shape.NumElements(); ok && n.Equal(N(0)) {
		return b.ZerosLike(like)
	}
	var attrs []Attr
	if _, static := like.Type.Shape.Static(); !static && b.Opset() >= 14 {
		attrs = append(attrs, IntAttr("allowzero", 1))
	}
	return b.keepShape(b.Op("Reshape", []*Value{x, b.ShapeOf(like)}, attrs...), like)
}

// ExpandLike broadcasts x to the shape of like; x itself if it has it.
func (b *Builder) ExpandLike(x, like *Value) *Value {
	if x.Type.Shape.Ranked && x.Type.Shape.Equal(like.Type.Shape) {
		return x
	}
	return b.keepShape(b.Op("Expand", []*Value{x, b.ShapeOf(like)}), like)
}

// keepShape records that v, made from like's run-time shape, has like's shape.
func (b *Builder) keepShape(v, like *Value) *Value {
	v.Type.Shape = like.Type.Shape
	return v
}

// SumTo undoes broadcasting: it sums x over the axes along which like was
// broadcast to x's shape, so that the result has like's shape. Two dims that
// are different symbols may or may not broadcast: that is an error naming
// them, since no static reduction is right for both.
func (b *Builder) SumTo(x, like *Value) *Value {
	xs, ls := x.Type.Shape, like.Type.Shape
	if !xs.Ranked || !ls.Ranked {
		b.Fail(fmt.Errorf("gradient of a broadcast needs known ranks (%q is %s, %q is %s)", x.Name, xs, like.Name, ls))
	}
	if xs.Equal(ls) {
		return x
	}
	lead := len(xs.Dims) - len(ls.Dims)
	var axes, keep []int64
	for i := range xs.Dims {
		if i < lead {
			axes = append(axes, int64(i))
			continue
		}
		xd, ld := xs.Dims[i], ls.Dims[i-lead]
		if xd.Equal(ld) {
			continue
		}
		if n, ok := ld.Int(); ok && n == 1 {
			keep = append(keep, int64(i))
			continue
		}
		b.Fail(fmt.Errorf("gradient of a broadcast: dim %s of %q against %s of %q may or may not broadcast; bind them with --dim", ld, like.Name, xd, x.Name))
	}
	x = b.ReduceSum(x, true, keep...)
	return b.ReduceSum(x, false, axes...)
}

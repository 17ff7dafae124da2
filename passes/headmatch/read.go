package headmatch

import (
	"math"
	"slices"

	"memoc/ir"
)

func is(n *ir.Node, op ir.OpName) bool {
	return n != nil && n.Domain == ir.OnnxDomain && n.Op == op
}

func used(v *ir.Value) bool { return v != nil && (len(v.Uses()) > 0 || v.IsOutput()) }

func single(v *ir.Value) bool { return len(v.Uses()) == 1 && !v.IsOutput() }

// reader is the only reader of v; nil where there is another, or v is an
// output or captured by a subgraph.
func reader(v *ir.Value) *ir.Node {
	if !single(v) || v.Uses()[0].Port < 0 {
		return nil
	}
	return v.Uses()[0].Node
}

// readersOf lists who reads v, past nodes that change nothing, and who reads
// more of it than the shape.
func readersOf(v *ir.Value) (out []*ir.Node) {
	for _, u := range v.Uses() {
		switch {
		case is(u.Node, "Identity") && !u.Node.Out[0].IsOutput():
			out = append(out, readersOf(u.Node.Out[0])...)
		case is(u.Node, "Shape") || is(u.Node, "CastLike") && u.Port == 1:
		default:
			out = append(out, u.Node)
		}
	}
	return out
}

// other is the operand beside v of two that begin at a port.
func other(n *ir.Node, v *ir.Value, port int) *ir.Value {
	if n.In[port] == v {
		return n.In[port+1]
	}
	return n.In[port]
}

// elements is the number of v's elements; -1 where it is not known.
func elements(v *ir.Value) int64 {
	dims, ok := v.Type.Shape.Static()
	if n, fits := ir.MulSizes(dims...); ok && fits {
		return n
	}
	return -1
}

func lastDim(v *ir.Value) ir.Dim { return v.Type.Shape.Dims[v.Type.Shape.Rank()-1] }

func sameShape(a, b *ir.Value) bool { return a.Type.Shape.Ranked && a.Type.Shape.Equal(b.Type.Shape) }

// plain is v before nodes that hand on its elements in their order.
func plain(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Domain == ir.OnnxDomain {
		switch v.Def.Op {
		case "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten":
		case "Cast", "CastLike":
			if v.Def.In[0].Type.DType != v.Type.DType {
				return v
			}
		case "Expand":
			if elements(v.Def.In[0]) != elements(v) {
				return v
			}
		default:
			return v
		}
		v = v.Def.In[0]
	}
	return v
}

// uncast is plain past casts as well.
func uncast(v *ir.Value) *ir.Value {
	for v = plain(v); is(v.Def, "Cast") || is(v.Def, "CastLike"); {
		v = plain(v.Def.In[0])
	}
	return v
}

// filled is the number that every element of v is.
func filled(v *ir.Value) (x float64, ok bool) {
	to := v.Type.DType
	for is(uncast(v).Def, "Expand") {
		v = uncast(v).Def.In[0]
	}
	v = uncast(v)
	t := v.Const()
	if t == nil && is(v.Def, "ConstantOfShape") {
		if t = ir.NewTensor(ir.Float, 1); v.Def.Attr("value") != nil {
			t = v.Def.Attr("value").T
		}
	}
	if t == nil || t.Len() == 0 || t.DType == ir.String || t.DType == ir.Bool || v.Init != nil && !v.Init.Constant && len(t.Dims) > 0 && t.DType.IsFloat() {
		return 0, false
	}
	vals := numbers(t)
	for _, y := range vals {
		if y != vals[0] {
			return 0, false
		}
	}
	if x = vals[0]; to.IsFloat() {
		return ir.FromFloats(to, []float64{x}).Floats()[0], !math.IsNaN(x)
	}
	return x, x == math.Trunc(x)
}

// stays is filled of a value that is not trained by request.
func (m *matcher) stays(v *ir.Value) (x float64, ok bool) {
	base := uncast(v)
	for is(base.Def, "Expand") {
		base = uncast(base.Def.In[0])
	}
	x, ok = filled(v)
	return x, ok && !m.trained[base.Name]
}

func numbers(t *ir.Tensor) []float64 {
	if t.DType.IsFloat() {
		return t.Floats()
	}
	var out []float64
	for _, n := range t.Ints() {
		out = append(out, float64(n))
	}
	return out
}

// factorOf takes x*c or x/c apart; x is nil where neither is a constant that
// stays one.
func (m *matcher) factorOf(n *ir.Node) (c float64, x *ir.Value) {
	constant := func(v *ir.Value) (float64, bool) {
		c, ok := m.stays(v)
		return c, ok && elements(v) == 1 && c != 0
	}
	if c, ok := constant(n.In[1]); ok {
		if n.Op == "Div" {
			return 1 / c, n.In[0]
		}
		return c, n.In[0]
	}
	if c, ok := constant(n.In[0]); ok && n.Op == "Mul" {
		return c, n.In[1]
	}
	return 0, nil
}

// keepsClasses reports whether n, which makes v, moves whole rows of scores.
func keepsClasses(n *ir.Node, v *ir.Value) bool {
	in := n.In[0]
	_, a := in.Type.Shape.Static()
	_, b := v.Type.Shape.Static()
	if !a || !b || in.Type.Shape.Rank() < 2 || v.Type.Shape.Rank() < 2 || !lastDim(in).Equal(lastDim(v)) {
		return false
	}
	last := in.Type.Shape.Rank() - 1
	switch n.Op {
	case "Reshape", "Squeeze", "Unsqueeze", "Flatten":
		return true // row-major order: what keeps the last extent keeps the rows
	case "Gather":
		axis, ok := ir.NormAxis(n.Int("axis", 0), last+1)
		return ok && axis != last
	case "Transpose":
		perm, ok := n.IntList("perm")
		return ok && len(perm) == last+1 && perm[last] == int64(last)
	case "Slice":
		return slicesRows(n, last)
	}
	return false
}

// slicesRows reports whether a Slice leaves the last axis alone.
func slicesRows(n *ir.Node, last int) bool {
	axes, ok := n.IntList("axes")
	if len(n.In) > 3 && n.In[3] != nil {
		axes, ok = (&ir.InferCtx{Node: n}).StaticInts(3)
	}
	return ok && !slices.ContainsFunc(axes, func(a int64) bool {
		k, ok := ir.NormAxis(a, last+1)
		return !ok || k == last
	})
}

// movesClasses reports whether a Transpose takes the last axis to that place
// and leaves the others in order.
func movesClasses(n *ir.Node, to int) bool {
	perm, ok := n.IntList("perm")
	if !ok {
		return len(n.In[0].Type.Shape.Dims) == 2
	}
	next := int64(0)
	for i, p := range perm {
		switch {
		case i == to && p != int64(len(perm)-1):
			return false
		case i != to && p != next:
			return false
		case i != to:
			next++
		}
	}
	return true
}

// swaps reports whether a Transpose of a matrix transposes it.
func swaps(n *ir.Node) bool {
	perm, ok := n.IntList("perm")
	return !ok || len(perm) == 2 && perm[0] == 1 && perm[1] == 0
}

// alike reports whether a and b hold the same elements in the same order, made
// by the same pointwise operators from the same values; tokens is the number
// of elements of what is not one number.
func alike(a, b *ir.Value, tokens int64) bool { return sameElements(a, b, tokens, 0) }

func sameElements(a, b *ir.Value, tokens int64, depth int) bool {
	a, b = plain(a), plain(b)
	if a == b {
		return true
	}
	if a.Type.DType != b.Type.DType || elements(a) != elements(b) || elements(a) != 1 && elements(a) != tokens || depth > 20 {
		return false
	}
	x, okX := filled(a)
	y, okY := filled(b)
	if okX && okY {
		return x == y
	}
	m, n := a.Def, b.Def
	if m == nil || n == nil || m.Domain != ir.OnnxDomain || n.Domain != ir.OnnxDomain || m.Op != n.Op || len(m.In) != len(n.In) {
		return false
	}
	switch m.Op {
	case "Equal", "Not", "And", "Or", "Where", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Cast":
	case "ReduceSum":
		return elements(a) == 1 && elements(m.In[0]) == tokens && sameElements(m.In[0], n.In[0], tokens, depth+1)
	default:
		return false
	}
	for i := range m.In {
		if !sameElements(m.In[i], n.In[i], tokens, depth+1) {
			return false
		}
	}
	return true
}

package ops

import "memoc/ir"

// countRatio is how many elements of x there are for one of y, as a rank-0
// value of type d: a constant where the shapes are static, else computed at
// run time (1 where y is empty, since then nobody reads it).
func countRatio(c *ir.GradCtx, d ir.DType, x, y *ir.Value) *ir.Value {
	nx, okX := x.Type.Shape.NumElements()
	ny, okY := y.Type.Shape.NumElements()
	if okX && okY {
		if q, ok := nx.Div(ny); ok {
			if n, ok := q.Int(); ok {
				return c.Scalar(d, float64(n))
			}
		}
	}
	size := func(v *ir.Value) *ir.Value { return c.Cast(c.Op("Size", []*ir.Value{v}), d) }
	return c.Div(size(x), size(y))
}

// reduceKept is a Reduce operator over axes, which are kept as 1s, in the form
// of the model's opset.
func reduceKept(c *ir.GradCtx, op ir.OpName, x *ir.Value, axes []int64) *ir.Value {
	if len(axes) == 0 {
		return x
	}
	if c.Opset() < 18 {
		return c.Op(op, []*ir.Value{x}, ir.IntsAttr("axes", axes...))
	}
	return c.Op(op, []*ir.Value{x, c.Int64s(axes...)})
}

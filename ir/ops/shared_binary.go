package ops

import "memoc/ir"

// binaryInfer is the shape rule of arithmetic with two operands of one type:
// broadcasting, and integer arithmetic on known elements.
func binaryInfer(c *ir.InferCtx) error {
	shape, err := broadcastShapes(c, c.Shape(0), c.Shape(1))
	if err != nil {
		return err
	}
	if a, b := c.DType(0), c.DType(1); a != b && a != ir.Undefined && b != ir.Undefined {
		return c.Errorf("operands are of different types %s and %s", a, b)
	}
	c.SetTensor(0, c.DType(0), shape)
	if c.DType(0).IsInt() {
		propagateInts(c, shape)
	}
	return nil
}

// propagateInts computes known integer elements through Add, Sub, Mul and Div.
func propagateInts(c *ir.InferCtx, shape ir.Shape) {
	a, okA := c.Ints(0)
	b, okB := c.Ints(1)
	dims, static := shape.Static()
	if !okA || !okB || !static || len(dims) > 1 {
		return
	}
	n := int(ir.Elems(dims))
	at := func(ds []ir.Dim, i int) ir.Dim {
		if len(ds) == 1 {
			return ds[0]
		}
		return ds[i]
	}
	out := make([]ir.Dim, n)
	for i := range out {
		d, ok := dimArithmetic(c.Node.Op, at(a, i), at(b, i))
		if !ok {
			return
		}
		out[i] = d
	}
	c.SetInts(0, out)
}

func dimArithmetic(op ir.OpName, a, b ir.Dim) (ir.Dim, bool) {
	switch op {
	case "Add":
		return a.Add(b), true
	case "Sub":
		return a.Sub(b), true
	case "Mul":
		return a.Mul(b), true
	case "Div":
		an, okA := a.Int()
		bn, okB := b.Int()
		if okA && okB && bn != 0 {
			return ir.N(an / bn), true
		}
		return a.Div(b)
	}
	return ir.Dim{}, false
}

// arithmeticEval evaluates a binary operator: integers in int64, the rest in
// float64 rounded to the type.
func arithmeticEval(f func(a, b float64) float64, g func(a, b int64) int64) func(*ir.EvalCtx) error {
	return func(c *ir.EvalCtx) error {
		d := c.In(0).DType
		if d.IsInt() {
			return broadcastEvalInt(c, d, func(x []int64) int64 { return g(x[0], x[1]) })
		}
		return broadcastEval(c, d, func(x []float64) float64 { return f(x[0], x[1]) })
	}
}

// binarySamples are operands of one shape, broadcast both ways, and integers.
func binarySamples() []ir.Sample {
	a := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
	return []ir.Sample{
		{Name: "same", In: []*ir.Tensor{a, floats([]int64{2, 3}, 1.5, 2, -0.5, 4, 0.25, -3)}},
		{Name: "broadcast", In: []*ir.Tensor{a, floats([]int64{3}, 2, -1.5, 0.5)}},
		{Name: "outer", In: []*ir.Tensor{floats([]int64{2, 1}, 1.5, -2), floats([]int64{3}, 2, -1.5, 0.5)}},
		{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{7, -3}, 2), ir.FromInts(ir.Int64, []int64{2}, 1)}},
	}
}

// floats is a double tensor: samples are in double so that central
// differences are sharp.
func floats(dims []int64, vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Double, vals, dims...) }

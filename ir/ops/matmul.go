package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "MatMul",
	Doc:   "Matrix product as numpy.matmul: batch dims broadcast, a 1-D operand is a row or a column.",
	Since: []int{1, 9, 13},
	In:    ir.Ports("A:T, B:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64)},
	Infer: func(c *ir.InferCtx) error {
		shape, err := matmulShape(c, c.Shape(0), c.Shape(1))
		if err != nil {
			return err
		}
		if a, b := c.DType(0), c.DType(1); a != b && a != ir.Undefined && b != ir.Undefined {
			return c.Errorf("operands are of different types %s and %s", a, b)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		ra, rb := inShapeOf(n, 0).Rank(), inShapeOf(n, 1).Rank()
		rowB, colB := rb-2, rb-1
		if rb == 1 {
			rowB, colB = 0, -1
		}
		return matmulAxes(n, ra-2, ra-1, rowB, colB)
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		a := c.InShape(0)
		return matmulCost(c, a[len(a)-1])
	},
	Grad:      ir.GradOf(matmulGrad),
	Recompute: ir.Pure,
	Eval:      func(c *ir.EvalCtx) error { return matmulEval(c, 1, plainView, plainView) },
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return denseMatMulKernel(c, false, false, 1)
	}),
	Samples: func() []ir.Sample {
		a := wave(1, 2, 3)
		return []ir.Sample{
			{Name: "matrices", In: []*ir.Tensor{a, wave(2, 3, 4)}},
			{Name: "weight", In: []*ir.Tensor{wave(1, 2, 2, 3), wave(2, 3, 4)}},
			{Name: "batch", In: []*ir.Tensor{wave(1, 2, 2, 3), wave(2, 2, 3, 4)}},
			{Name: "broadcast", In: []*ir.Tensor{wave(1, 2, 1, 2, 3), wave(2, 3, 3, 2)}},
			{Name: "batch against matrix", In: []*ir.Tensor{a, wave(2, 2, 3, 2)}},
			{Name: "row", In: []*ir.Tensor{wave(1, 3), wave(2, 2, 3, 2)}},
			{Name: "column", In: []*ir.Tensor{wave(1, 2, 2, 3), wave(2, 3)}},
			{Name: "inner product", In: []*ir.Tensor{wave(1, 3), wave(2, 3)}},
			{Name: "vector times matrix", In: []*ir.Tensor{wave(1, 3), wave(2, 3, 2)}},
			{Name: "matrix times vector", In: []*ir.Tensor{a, wave(2, 3)}},
			{Name: "no rows", In: []*ir.Tensor{wave(1, 0, 3), wave(2, 3, 4)}},
			{Name: "no inner", In: []*ir.Tensor{wave(1, 2, 0), wave(2, 0, 3)}},
			{Name: "integers", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, -2, 3, 4, 5, -6}, 2, 3), ir.FromInts(ir.Int32, []int64{7, 8, -9}, 3, 1)}},
		}
	},
})

// wave is a double tensor of varied values in about [-1.2, 1.2], none of them
// equal to another of the same tensor; seed tells tensors apart.
func wave(seed int64, dims ...int64) *ir.Tensor {
	vals := make([]float64, ir.Elems(dims))
	for i := range vals {
		// The golden ratio's multiples fill the unit interval evenly.
		x := 0.6180339887498949 * float64(int64(i)*3+seed*7+1)
		vals[i] = 2.4*(x-float64(int64(x))) - 1.2
	}
	return ir.FromFloats(ir.Double, vals, dims...)
}

// matmulGrad: dA = dY B^T, dB = A^T dY. Vectors become matrices first. Where B
// is a weight matrix, the leading axes of A and dY are one long axis, so that
// no product per batch element is ever stored.
func matmulGrad(c *ir.GradCtx) error {
	a, b, dy := c.In(0), c.In(1), c.OutGrad(0)
	ra, rb := a.Type.Shape.Rank(), b.Type.Shape.Rank()
	if ra < 1 || rb < 1 {
		return c.Node.Errorf("grad", "the gradient needs the ranks of both operands")
	}
	a2, b2, dy2 := a, b, dy
	if ra == 1 {
		a2 = c.Unsqueeze(a, 0)
		at := dy.Type.Shape.Rank()
		if rb > 1 {
			at--
		}
		dy2 = c.Unsqueeze(dy2, int64(at))
	}
	if rb == 1 {
		b2 = c.Unsqueeze(b, 1)
		dy2 = c.Unsqueeze(dy2, int64(dy2.Type.Shape.Rank()))
	}
	if c.Needs(0) {
		c.Set(0, squeezeTo(c, matmulGradA(c, a2, b2, dy2), a, 0))
	}
	if c.Needs(1) {
		c.Set(1, squeezeTo(c, matmulGradB(c, a2, b2, dy2), b, 1))
	}
	return nil
}

// squeezeTo drops the axis that made a vector a matrix.
func squeezeTo(c *ir.GradCtx, g, like *ir.Value, axis int64) *ir.Value {
	if like.Type.Shape.Rank() == 1 {
		return c.Squeeze(g, axis)
	}
	return g
}

func matmulGradA(c *ir.GradCtx, a, b, dy *ir.Value) *ir.Value {
	if b.Type.Shape.Rank() == 2 {
		g := gemmOf(c.Builder, flattenRows(c, dy), b, 0, 1, 1)
		return c.ReshapeLike(g, a)
	}
	return c.SumTo(c.MatMul(dy, c.TransposeLast2(b)), a)
}

func matmulGradB(c *ir.GradCtx, a, b, dy *ir.Value) *ir.Value {
	if b.Type.Shape.Rank() == 2 {
		return gemmOf(c.Builder, flattenRows(c, a), flattenRows(c, dy), 1, 0, 1)
	}
	return c.SumTo(c.MatMul(c.TransposeLast2(a), dy), b)
}

// flattenRows sees x as a matrix of its last axis by all others.
func flattenRows(c *ir.GradCtx, x *ir.Value) *ir.Value {
	r := x.Type.Shape.Rank()
	if r == 2 {
		return x
	}
	return c.Op("Flatten", []*ir.Value{x}, ir.IntAttr("axis", int64(r-1)))
}

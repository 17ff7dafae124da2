package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Add",
	Doc:   "Elementwise sum with broadcasting.",
	Since: []int{1, 6, 7, 13, 14},
	In:    ir.Ports("A:T, B:T"), Out: ir.Ports("C:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer: binaryInfer,
	Axes:  ir.FollowAll,
	Cost:  ir.PointwiseCost(1),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		for i := range 2 {
			if c.Needs(i) {
				c.Set(i, c.SumTo(c.OutGrad(0), c.In(i)))
			}
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: arithmeticEval(
		func(a, b float64) float64 { return a + b },
		func(a, b int64) int64 { return a + b }),
	Kernel:  ir.PointwiseKernel("x0 + x1"),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: binarySamples,
})

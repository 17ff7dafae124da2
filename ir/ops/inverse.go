package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "Inverse",
	Doc:    "Inverses of square matrices.",
	Since:  []int{1},
	In:     ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		_, err := squareInfer(c)
		sameTypeAs(c, 0, 0)
		return err
	},
	Axes: squareAxes,
	Cost: cubicCost,
	// dX = -Y^T dY Y^T.
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		yt := c.TransposeLast2(c.Out(0))
		c.Set(0, c.Neg(c.MatMul(c.MatMul(yt, c.OutGrad(0)), yt)))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		out := []float64{}
		err := matrices(c, func(a []float64, n int) error {
			b, ok := inverse(a, n)
			if !ok {
				return c.Errorf("a matrix is singular")
			}
			out = append(out, b...)
			return nil
		})
		if err != nil {
			return err
		}
		c.Set(0, ir.FromFloats(c.In(0).DType, out, c.In(0).Dims...))
		return nil
	},
	Kernel: ir.NoKernel("inverses have no device code yet"),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "one", In: []*ir.Tensor{floats([]int64{2, 2}, 4, 7, 2, 6)}, Want: []*ir.Tensor{floats([]int64{2, 2}, 0.6, -0.7, -0.2, 0.4)}},
			{Name: "batch", In: []*ir.Tensor{floats([]int64{2, 2, 2}, 0, 2, 1, 3, 2, 1, 1, 4)}},
		}
	},
})

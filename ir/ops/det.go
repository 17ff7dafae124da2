package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Det",
	Doc:   "Determinants of square matrices.",
	Since: []int{11, 22},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		batch, err := squareInfer(c)
		c.SetTensor(0, c.DType(0), batch)
		return err
	},
	Axes:      squareAxes,
	Cost:      cubicCost,
	Grad:      ir.NoGrad("not derived yet: det(X) times the inverse, which has no standard operator"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		out := []float64{}
		err := matrices(c, func(a []float64, n int) error {
			out = append(out, lu(append([]float64{}, a...), nil, n, 0))
			return nil
		})
		if err != nil {
			return err
		}
		c.Set(0, ir.FromFloats(c.In(0).DType, out, c.In(0).Dims[:len(c.In(0).Dims)-2]...))
		return nil
	},
	Kernel: ir.NoKernel("determinants have no device code yet"),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "one", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 2, 3, 4)}, Want: []*ir.Tensor{floats(nil, -2)}},
			{Name: "batch", In: []*ir.Tensor{floats([]int64{2, 2, 2}, 1, 2, 2, 1, 0, 3, 1, 5)}, Want: []*ir.Tensor{floats([]int64{2}, -3, -3)}},
			{Name: "singular", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 2, 2, 4)}, Want: []*ir.Tensor{floats(nil, 0)}},
		}
	},
})

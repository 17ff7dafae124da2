package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SequenceEmpty",
	Doc:   "A sequence of no tensors.",
	Since: []int{11},
	In:    nil, Out: ir.Ports("output:S"),
	Infer: func(c *ir.InferCtx) error {
		d := ir.DType(c.Node.Int("dtype", int64(ir.Float)))
		if !d.Valid() {
			return c.Errorf("dtype %d is no element type", c.Node.Int("dtype", 0))
		}
		c.Set(0, ir.SequenceOf(ir.TensorOf(d, ir.Shape{})))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad("it has no inputs"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		c.Set(0, ir.Sequence{})
		return nil
	},
	Kernel:  ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample { return []ir.Sample{{Name: "float"}} },
})

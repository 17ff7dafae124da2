package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Identity",
	Doc:   "The input as it is; also a sequence or an optional.",
	Since: []int{1, 13, 14, 16, 19, 21, 23, 24, 25},
	In:    ir.Ports("input:V"), Out: ir.Ports("output:V"),
	Types: map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		c.Set(0, c.In(0))
		keepInts(c)
		return nil
	},
	Axes: ir.FollowAll,
	Cost: ir.ViewCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		c.Set(0, c.OutGrad(0))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		c.Set(0, c.InDatum(0))
		return nil
	},
	Kernel: ir.KernelOf(copyKernel),
	View:   sharesInput0,
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "float", In: []*ir.Tensor{floats([]int64{2, 3}, iota64(6)...)}},
			{Name: "int", Version: 13, In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 2}, 2)}},
			{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 2)}},
		}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "SplitTraining",
	Doc:    "Split by sizes given as an input: the gradient of ConcatTraining.",
	Since:  []int{1},
	In:     ir.Ports("input:T, split:tensor(int64)"), Out: ir.Ports("outputs:T*"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     func(c *ir.InferCtx) error { return splitInfer(c, splitSizes) },
	Axes:      splitAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(splitGrad),
	Recompute: ir.Pure,
	Eval:      func(c *ir.EvalCtx) error { return splitEval(c, c.In(1).Ints(), true) },
	Kernel:    ir.KernelOf(splitKernel),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 6}, iota64(12)...)
		return []ir.Sample{{Name: "sizes", NumOut: 3, In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, 0, 5}, 3)},
			Attrs: []ir.Attr{ir.IntAttr("axis", -1)}}}
	},
})

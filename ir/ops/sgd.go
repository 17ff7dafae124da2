package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SGD",
	Doc:   "One step of gradient descent, W - lr * G, as Deeploy writes it into the default domain.",
	Since: []int{1},
	In:    ir.Ports("W:T, G:T"), Out: ir.Ports("W_new:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats},
	Infer:     binaryInfer,
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(2),
	Grad:      ir.NoGrad(noOptimizerGrad),
	Recompute: ir.Never(optimizerState),
	Eval: func(c *ir.EvalCtx) error {
		lr := float64(c.Node.Float("lr", 0.01))
		return broadcastEval(c, c.In(0).DType, func(x []float64) float64 { return x[0] - lr*x[1] })
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Pointwise: "x0 - " + literal(float64(c.Node.Float("lr", 0.01))) + " * x1"}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "step", In: []*ir.Tensor{floats([]int64{2, 2}, 1, -2, 3, 0.5), floats([]int64{2, 2}, 0.5, 4, -2, 0)},
			Attrs: []ir.Attr{ir.FloatAttr("lr", 0.25)},
			Want:  []*ir.Tensor{floats([]int64{2, 2}, 0.875, -3, 3.5, 0.5)}}}
	},
})

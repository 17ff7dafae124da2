package ops

import (
	"fmt"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "MSELossGrad",
	Doc:   "2 (prediction - target) / n: the gradient of MSELoss, as Deeploy writes it into the default domain.",
	Since: []int{1},
	In:    ir.Ports("prediction:T, target:T"), Out: ir.Ports("grad:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		sameTypeAs(c, 0, 0)
		return sameShapes(c)
	},
	Axes:      ir.NoAxes, // the divisor is the number of all elements
	Cost:      ir.PointwiseCost(2),
	Grad:      ir.NoGrad("not derived: a second derivative"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		n := float64(c.In(0).Len())
		return broadcastEval(c, c.In(0).DType, func(x []float64) float64 { return 2 * (x[0] - x[1]) / n })
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Pointwise: fmt.Sprintf("acc_t(2) * (x0 - x1) / acc_t(%d)", ir.Elems(c.InShape(0)))}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "grad", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 2, 3, 4), floats([]int64{2, 2}, 0, 4, 3, 1)},
			Want: []*ir.Tensor{floats([]int64{2, 2}, 0.5, -1, 0, 1.5)}}}
	},
})

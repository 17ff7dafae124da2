package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "LogSoftmax",
	Doc:   "x - max - log(sum(exp(x - max))) along an axis (before opset 13: over all axes from axis on).",
	Since: []int{1, 11, 13},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats},
	Infer:     softmaxInfer,
	Axes:      softmaxAxes,
	Cost:      ir.PointwiseCost(5),
	Grad:      ir.GradOf(logSoftmaxGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return evalLines(c, func(x, y []float64) {
			top := slicesMax(x)
			sum := 0.0
			for _, v := range x {
				sum += math.Exp(v - top)
			}
			for j, v := range x {
				y[j] = v - top - math.Log(sum)
			}
		})
	},
	Kernel:  ir.KernelOf(softmaxKernel(true)),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: softmaxSamples,
})

// logSoftmaxGrad: dx = dy - exp(y) * sum(dy).
func logSoftmaxGrad(c *ir.GradCtx) error {
	y, dy := c.Out(0), c.OutGrad(0)
	axis, many, err := softmaxGradAxes(c, y)
	if err != nil {
		return err
	}
	if len(many) == 0 {
		c.Set(0, c.OpN(ir.MemocDomain, "LogSoftmaxGrad", 1, []*ir.Value{dy, y}, ir.IntAttr("axis", axis))[0])
		return nil
	}
	sum := c.ReduceSum(dy, true, many...)
	c.Set(0, c.Sub(dy, c.Mul(c.Op("Exp", []*ir.Value{y}), sum)))
	return nil
}

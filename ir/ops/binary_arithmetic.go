package ops

import (
	"math"

	"memoc/ir"
)

var _ = registerBinary(
	binaryOp{name: "Sub", doc: "Elementwise difference with broadcasting.", since: []int{1, 6, 7, 13, 14}, types: ir.Numeric,
		f:    func(x, y float64) float64 { return x - y },
		g:    func(_ ir.DType, x, y int64) int64 { return x - y },
		expr: "x0 - x1",
		grad: binaryGrad(passGrad, func(c *ir.GradCtx, g *ir.Value) *ir.Value { return c.Neg(g) })},
	binaryOp{name: "Mul", doc: "Elementwise product with broadcasting.", since: []int{1, 6, 7, 13, 14}, types: ir.Numeric,
		f:    func(x, y float64) float64 { return x * y },
		g:    func(_ ir.DType, x, y int64) int64 { return x * y },
		expr: "x0 * x1",
		grad: binaryGrad(
			func(c *ir.GradCtx, g *ir.Value) *ir.Value { return c.Mul(g, c.In(1)) },
			func(c *ir.GradCtx, g *ir.Value) *ir.Value { return c.Mul(g, c.In(0)) })},
	binaryOp{name: "Div", doc: "Elementwise quotient with broadcasting; of integers truncated toward zero.",
		since: []int{1, 6, 7, 13, 14}, types: ir.Numeric, flops: 4,
		f: func(x, y float64) float64 { return x / y }, g: divInt, expr: "div_of(x0, x1)",
		grad: binaryGrad(
			func(c *ir.GradCtx, g *ir.Value) *ir.Value { return c.Div(g, c.In(1)) },
			func(c *ir.GradCtx, g *ir.Value) *ir.Value { return c.Neg(c.Mul(c.Div(g, c.In(1)), c.Out(0))) })},
)

// divInt truncates; as in the kernels, a division by zero gives 0.
func divInt(d ir.DType, x, y int64) int64 {
	switch {
	case y == 0:
		return 0
	case d == ir.Uint64:
		return int64(uint64(x) / uint64(y))
	case y == -1: // the lowest integer divided by -1 wraps
		return -x
	}
	return x / y
}

var _ = ir.Register(ir.Op{
	Name:  "Mod",
	Doc:   "Elementwise remainder: with fmod=0 the sign of the divisor, with fmod=1 that of the dividend (C's fmod).",
	Since: []int{10, 13, 28},
	In:    ir.Ports("A:T, B:T"), Out: ir.Ports("C:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer:     binaryInfer,
	Axes:      binaryAxes,
	Cost:      ir.PointwiseCost(6),
	Grad:      binaryGrad(passGrad, modGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		d := c.In(0).DType
		floor := c.Node.Int("fmod", 0) == 0
		if d.IsInt() {
			return broadcastEvalInt(c, d, func(x []int64) int64 { return modInt(d, floor, x[0], x[1]) })
		}
		return broadcastEval(c, d, func(x []float64) float64 {
			r := math.Mod(x[0], x[1])
			if floor && r != 0 && (r < 0) != (x[1] < 0) {
				r += x[1]
			}
			return r
		})
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if c.Node.Int("fmod", 0) == 0 {
			return ir.Kernel{Pointwise: "mod_of(x0, x1)"}, nil
		}
		return ir.Kernel{Pointwise: "fmod_of(x0, x1)"}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		fmod := []ir.Attr{ir.IntAttr("fmod", 1)}
		a := floats([]int64{2, 3}, 0.5, -1.25, 2.25, 3.5, -0.75, 1)
		return append(intBinarySamples(),
			ir.Sample{Name: "fmod", Attrs: fmod, In: []*ir.Tensor{a, floats([]int64{3}, 0.375, -0.5, 0.875)}},
			ir.Sample{Name: "floored floats", In: []*ir.Tensor{a, floats([]int64{3}, 0.375, -0.5, 0.875)}},
			ir.Sample{Name: "fmod ints", Attrs: fmod, In: intBinarySamples()[1].In})
	},
})

// modGrad: z = x - y*q with an integer q that does not vary, so dz/dy = -q =
// (z - x)/y.
func modGrad(c *ir.GradCtx, g *ir.Value) *ir.Value {
	return c.Mul(g, c.Div(c.Sub(c.Out(0), c.In(0)), c.In(1)))
}

func modInt(d ir.DType, floor bool, x, y int64) int64 {
	switch {
	case y == 0 || y == -1 && !d.IsUnsigned():
		return 0
	case d == ir.Uint64:
		return int64(uint64(x) % uint64(y))
	}
	r := x % y
	if floor && r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r
}

package ops

import (
	"math"

	"memoc/ir"
)

var negInf = math.Inf(-1)

var _ = ir.Register(ir.Op{
	Name:  "LpPool",
	Doc:   "The p-norm under a sliding window.",
	Since: []int{1, 2, 11, 18, 22},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := poolShape(c)
		c.SetTensor(0, c.DType(0), shape)
		return err
	},
	Axes:      poolAxes,
	Cost:      poolCost,
	Grad:      ir.NoGrad("not derived yet: the p-norm of a window"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		win, y, err := poolOf(c.Node, x.Dims)
		if err != nil {
			return err
		}
		p := lpPower(c.Node)
		in, vals := x.Floats(), make([]float64, ir.Elems(y))
		poolEach(x.Dims, y, func(i, plane int, o []int64) {
			win.each(o, x.Dims[2:], func(_, at int) { vals[i] += math.Pow(math.Abs(in[plane+at]), p) })
			vals[i] = math.Pow(vals[i], 1/p)
		})
		c.Set(0, ir.FromFloats(x.DType, vals, y...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		win, y, err := poolOf(c.Node, c.InShape(0))
		args := append([]ir.KernelArg{ir.InArg(0), ir.OutArg(0)}, poolArgs(win, c.InShape(0), y)...)
		return ir.Kernel{Func: "lp_pool", Source: poolInputCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append(args, ir.FloatArg(lpPower(c.Node)))}, err
	}),
	Samples: func() []ir.Sample {
		x := ramp(1, 2, 5, 4)
		ints := ir.IntsAttr
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 1), ints("pads", 1, 1, 1, 0)}},
			{Name: "p 3", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 2, 2), ir.IntAttr("p", 3)}},
		}
	},
})

// lpPower reads p, which version 1 gave as a float.
func lpPower(n *ir.Node) float64 {
	if a := n.Attr("p"); a != nil && a.Kind == ir.AttrFloat {
		return float64(a.F)
	}
	return float64(n.Int("p", 2))
}

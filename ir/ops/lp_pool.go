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
	Axes: poolAxes,
	Cost: poolCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		x := c.In(0)
		if !x.Type.Shape.Ranked {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
		}
		win, err := windowOf(c.Node, x.Type.Shape.Rank()-2, nil)
		if err == nil {
			win, err = gradResolve(c, win, x)
		}
		if err != nil {
			return err
		}
		c.Set(0, c.Mul(spreadWindows(c, win, normSlope(c), x), normDirection(c)))
		return nil
	}),
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

// normSlope and normDirection are the factors of the gradient of a p-norm
// y = (sum |x|^p)^(1/p):
//
//	dx = dy y^(1-p) * |x|^(p-1) sign(x)
//
// the first of each output (zero where y is), the second of each input.
func normSlope(c *ir.GradCtx) *ir.Value {
	y, d := c.Out(0), c.In(0).Type.DType
	if c.Opset() < 11 {
		c.Fail(c.Node.Errorf("grad", "the gradient compares floats, which came with opset 11; the model has %d", c.Opset()))
	}
	zero := c.Op("Equal", []*ir.Value{y, c.Scalar(d, 0)})
	safe := c.Op("Where", []*ir.Value{zero, c.Scalar(d, 1), y})
	slope := c.Mul(c.OutGrad(0), c.Op("Pow", []*ir.Value{safe, c.Scalar(d, 1-lpPower(c.Node))}))
	return c.Like(c.Op("Where", []*ir.Value{zero, c.Scalar(d, 0), slope}), y)
}

func normDirection(c *ir.GradCtx) *ir.Value {
	x, p := c.In(0), lpPower(c.Node)
	if p == 2 {
		return x
	}
	sign := c.Sign(x)
	if p == 1 {
		return sign
	}
	return c.Mul(c.Op("Pow", []*ir.Value{c.Op("Abs", []*ir.Value{x}), c.Scalar(x.Type.DType, p-1)}), sign)
}

// lpPower reads p, which version 1 gave as a float.
func lpPower(n *ir.Node) float64 {
	if a := n.Attr("p"); a != nil && a.Kind == ir.AttrFloat {
		return float64(a.F)
	}
	return float64(n.Int("p", 2))
}

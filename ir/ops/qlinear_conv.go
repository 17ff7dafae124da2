package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "QLinearConv",
	Doc:   "Convolution of quantized operands, quantized again.",
	Since: []int{10},
	In: ir.Ports("x:T, x_scale:tensor(float), x_zero_point:T, w:W, w_scale:tensor(float), w_zero_point:W, y_scale:tensor(float), " +
		"y_zero_point:Y, B:tensor(int32)?"),
	Out:   ir.Ports("y:Y"),
	Types: map[string]ir.DTypeSet{"T": byteTypes, "W": byteTypes, "Y": byteTypes},
	Infer: func(c *ir.InferCtx) error {
		shape, err := convShape(c, 0, 3)
		c.SetTensor(0, c.DType(7), shape)
		return err
	},
	Axes:      ir.NoAxes,
	Cost:      convCost(0, 3),
	Grad:      ir.NoGrad("integer operands"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		sums, dims, err := integerConv(c, c.In(0), c.In(3), c.In(2), c.In(5))
		if err != nil {
			return err
		}
		xs, ok1 := scalarOf(c.In(1))
		ys, ok2 := scalarOf(c.In(6))
		zero, ok3 := scalarOf(c.In(7))
		ws := c.In(4).Floats()
		if !ok1 || !ok2 || !ok3 || len(ws) != 1 && int64(len(ws)) != dims[1] {
			return c.Errorf("scales and zero points must have one element, w_scale one or one for each channel")
		}
		inner, d := ir.Elems(dims[2:]), c.In(7).DType
		for i := range sums {
			ch := int64(i) / max(inner, 1) % dims[1]
			if c.Has(8) {
				sums[i] += c.In(8).Ints()[ch]
			}
			scale := xs * ws[min(ch, int64(len(ws)-1))] / ys
			sums[i] = saturateTo(d, math.RoundToEven(float64(sums[i])*scale)+zero)
		}
		c.Set(0, ir.FromInts(d, sums, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convOf(c.Node, c.InShape(0), c.InShape(3))
		args := []ir.KernelArg{}
		for i := range 9 {
			args = append(args, ir.InArg(i))
		}
		args = append(args, ir.OutArg(0), ir.IntArg(ir.Elems(c.InShape(4))), ir.IntArg(ir.Elems(c.InShape(5))))
		return ir.Kernel{Func: "qlinear_conv", Source: convCUDA, Types: []ir.DType{c.InDType(0), c.InDType(3), c.OutDType(0)},
			Args: append(args, g.args()...)}, err
	}),
	Samples: func() []ir.Sample {
		f := func(v ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, v, int64(len(v))) }
		u := func(v ...int64) *ir.Tensor { return ir.FromInts(ir.Uint8, v, int64(len(v))) }
		x := u(255, 174, 162, 25, 203, 168, 58, 1, 90).Reshaped(1, 1, 3, 3)
		return []ir.Sample{
			{Name: "one channel", In: []*ir.Tensor{x, f(0.5), u(132), u(3).Reshaped(1, 1, 1, 1), f(0.25), u(5), f(0.125), u(123)}},
			{Name: "bias, by channel", In: []*ir.Tensor{x, f(0.5), u(132), u(3, 9).Reshaped(2, 1, 1, 1), f(0.25, 0.5), u(5, 7), f(2), u(100),
				ir.FromInts(ir.Int32, []int64{10, -20}, 2)}},
		}
	},
})

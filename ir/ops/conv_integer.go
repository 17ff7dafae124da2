package ops

import "memoc/ir"

var byteTypes = ir.SetOf(ir.Int8, ir.Uint8)

var _ = ir.Register(ir.Op{
	Name:  "ConvInteger",
	Doc:   "Convolution of integers less their zero points, in int32.",
	Since: []int{10},
	In:    ir.Ports("x:T, w:W, x_zero_point:T?, w_zero_point:W?"), Out: ir.Ports("y:Y"),
	Types: map[string]ir.DTypeSet{"T": byteTypes, "W": byteTypes, "Y": ir.SetOf(ir.Int32)},
	Infer: func(c *ir.InferCtx) error {
		shape, err := convShape(c, 0, 1)
		c.SetTensor(0, ir.Int32, shape)
		return err
	},
	Axes:      ir.NoAxes,
	Cost:      convCost(0, 1),
	Grad:      ir.NoGrad("integer operands"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		y, dims, err := integerConv(c, c.In(0), c.In(1), c.In(2), c.In(3))
		if err != nil {
			return err
		}
		c.Set(0, ir.FromInts(ir.Int32, y, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convOf(c.Node, c.InShape(0), c.InShape(1))
		return ir.Kernel{Func: "conv_integer", Source: convCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.OutArg(0),
				ir.IntArg(ir.Elems(c.InShape(3)))}, g.args()...)}, err
	}),
	Samples: func() []ir.Sample {
		x := ir.FromInts(ir.Uint8, []int64{2, 3, 4, 5, 6, 7, 8, 9, 10}, 1, 1, 3, 3)
		w := ir.FromInts(ir.Uint8, []int64{1, 1, 1, 1}, 1, 1, 2, 2)
		two := ir.FromInts(ir.Int8, []int64{1, -2, 3, 4, 5, 6, 7, -8}, 2, 1, 2, 2)
		return []ir.Sample{
			{Name: "zero point", In: []*ir.Tensor{x, w, ir.FromInts(ir.Uint8, []int64{1})},
				Want: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{12, 16, 24, 28}, 1, 1, 2, 2)}},
			{Name: "padded, by channel", In: []*ir.Tensor{x, two, ir.FromInts(ir.Uint8, []int64{3}), ir.FromInts(ir.Int8, []int64{1, -1}, 2)},
				Attrs: []ir.Attr{ir.IntsAttr("pads", 1, 1, 0, 0)}},
		}
	},
})

// integerConv convolves (x - xz) with (w - wz); wz may have one element for
// each channel. Sums below 2^53 are exact.
func integerConv(c *ir.EvalCtx, x, w, xz, wz *ir.Tensor) (y, dims []int64, err error) {
	g, err := convOf(c.Node, x.Dims, w.Dims)
	if err != nil {
		return nil, nil, err
	}
	if xz != nil && xz.Len() != 1 || wz != nil && wz.Len() != 1 && wz.Len() != w.Dims[0] {
		return nil, nil, c.Errorf("the zero points have neither one element nor one for each channel")
	}
	perChannel := int(ir.Elems(w.Dims[1:]))
	sums := g.forward(quantInts(x, xz, nil), quantInts(w, wz, func(i int) int { return i / perChannel }))
	y = make([]int64, len(sums))
	for i, v := range sums {
		y[i] = int64(v)
	}
	return y, g.y, nil
}

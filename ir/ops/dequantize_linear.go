package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "DequantizeLinear",
	Doc:   "(x - zero point) * scale; one scale, one for each channel or block.",
	Since: []int{10, 13, 19, 21, 23, 24, 25},
	In:    ir.Ports("x:Q, x_scale:S, x_zero_point:Q?"), Out: ir.Ports("y:Y"),
	Types: map[string]ir.DTypeSet{"Q": quantTypes, "S": quantScales, "Y": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		d := c.DType(1)
		if a := c.Node.Int("output_dtype", 0); a != 0 {
			d = ir.DType(a)
			if a < 0 || a > 255 || !d.IsFloat() {
				return c.Errorf("output_dtype %d is no floating-point type", a)
			}
		}
		c.SetTensor(0, d, c.Shape(0))
		return nil
	},
	Axes: quantAxes,
	Cost: ir.PointwiseCost(2),
	// dscale sums dy * (x - zero point) over what shares a scale; the integers
	// have no gradient.
	Grad:      ir.GradOf(dequantizeGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, scale := c.In(0), c.In(1)
		g, err := quantGridOf(c.Node, x.Dims, scale.Dims)
		if err != nil {
			return err
		}
		s := scale.Floats()
		vals := quantInts(x, c.In(2), g.at)
		for i := range vals {
			vals[i] *= s[g.at(i)]
		}
		d := scale.DType
		if a := c.Node.Int("output_dtype", 0); a != 0 {
			d = ir.DType(a)
		}
		c.Set(0, ir.FromFloats(d, vals, x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := quantGridOf(c.Node, c.InShape(0), c.InShape(1))
		if err != nil {
			return ir.Kernel{}, err
		}
		if !c.InDType(0).IsInt() || !c.InDType(1).IsFloat() {
			return ir.Kernel{}, c.Errorf("elements of %s with scales of %s have no device code", c.InDType(0), c.InDType(1))
		}
		return ir.Kernel{Func: "dequantize_linear", Source: quantIndexCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1), c.OutDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.IntArg(ir.Elems(c.InShape(0)))}, g.args()...)}, nil
	}),
	Samples: func() []ir.Sample {
		x := ir.FromInts(ir.Uint8, []int64{0, 3, 128, 255, 7, 9}, 3, 2)
		return []ir.Sample{
			{Name: "one scale", In: []*ir.Tensor{x, floats(nil, 2), ir.FromInts(ir.Uint8, []int64{128})},
				Want: []*ir.Tensor{floats([]int64{3, 2}, -256, -250, 0, 254, -242, -238)}},
			{Name: "no zero point", Version: 10, In: []*ir.Tensor{x, floats([]int64{1}, 0.5)}},
			{Name: "axis", In: []*ir.Tensor{x, floats([]int64{3}, 2, 4, 0.5), ir.FromInts(ir.Uint8, []int64{1, 2, 3}, 3)}, Attrs: []ir.Attr{ir.IntAttr("axis", 0)}},
			{Name: "blocks", In: []*ir.Tensor{x, floats([]int64{2, 2}, 2, 4, 0.5, 1)}, Attrs: []ir.Attr{ir.IntAttr("axis", 0), ir.IntAttr("block_size", 2)},
				NoGradCheck: map[int]string{1: "refused: scales of blocks"}},
		}
	},
})

func dequantizeGrad(c *ir.GradCtx) error {
	if !c.Needs(1) {
		return nil
	}
	x, scale, dy := c.In(0), c.In(1), c.OutGrad(0)
	rank := x.Type.Shape.Rank()
	if c.Node.Int("block_size", 0) != 0 || rank < 0 || !scale.Type.Shape.Ranked || !scale.Type.DType.IsFloat() {
		return c.Node.Errorf("grad", "the gradient of the scale %q (%s) is not derived yet but for one scale or one for each channel", scale.Name, scale.Type)
	}
	d := dy.Type.DType
	axis, ok := ir.NormAxis(c.Node.Int("axis", 1), rank)
	one, _ := scale.Type.Shape.NumElements()
	perAxis := !one.Equal(ir.N(1))
	if perAxis && !ok {
		return c.Node.Errorf("grad", "axis %d is out of range for %s", c.Node.Int("axis", 1), x.Type)
	}
	var axes, spread []int64
	for a := range rank {
		if !perAxis || a != axis {
			axes = append(axes, int64(a))
		}
		if perAxis && a > axis {
			spread = append(spread, int64(a-axis))
		}
	}
	v := c.Cast(x, d)
	if c.In(2) != nil {
		zero := c.Cast(c.In(2), d)
		if perAxis {
			zero = c.Unsqueeze(zero, spread...)
		}
		v = c.Sub(v, zero)
	}
	c.Set(1, c.Cast(c.ReshapeLike(c.ReduceSum(c.Mul(dy, v), false, axes...), scale), scale.Type.DType))
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Squeeze",
	Doc:   "Drops axes of extent 1: the given ones, or all.",
	Since: []int{1, 11, 13, 21, 23, 24, 25},
	In:    ir.Ports("data:T, axes:tensor(int64)?"), Out: ir.Ports("squeezed:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     squeezeInfer,
	Axes:      regroupAxes,
	Cost:      ir.ViewCost,
	Grad:      ir.GradOf(reshapeLikeGrad),
	Recompute: ir.Pure,
	Eval:      squeezeEval,
	Kernel:    ir.KernelOf(copyKernel),
	View:      sharesInput0,
	Samples: func() []ir.Sample {
		x := floats([]int64{1, 2, 1, 3}, iota64(6)...)
		axes := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "all", In: []*ir.Tensor{x}},
			{Name: "input", In: []*ir.Tensor{x, axes(0)}},
			{Name: "negative", In: []*ir.Tensor{x, axes(-2)}},
			{Name: "attribute", Version: 11, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntsAttr("axes", 0, 2)}},
			{Name: "scalar", In: []*ir.Tensor{floats([]int64{1, 1}, 3)}},
		}
	},
})

func squeezeInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	axes, given, known := axesOf(c.Node, 1)
	keepInts(c)
	switch {
	case !known:
		shape := ir.Shape{}
		if n, ok := c.Length(1); ok && in.Ranked && n <= in.Rank() {
			shape = c.FreshShape(in.Rank() - n)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	case !in.Ranked:
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	case !given:
		var drop []int
		for i, d := range in.Dims {
			n, isInt := d.Int()
			if !isInt {
				// A symbol may be 1 or not: the rank depends on it.
				c.SetTensor(0, c.DType(0), ir.Shape{})
				return nil
			}
			if n == 1 {
				drop = append(drop, i)
			}
		}
		c.SetTensor(0, c.DType(0), ir.Dims(dimsWithout(in.Dims, drop)...))
		return nil
	}
	drop, bad, ok := normAxes(axes, in.Rank())
	if !ok {
		return c.Errorf("axis %d is repeated or out of range for rank %d", bad, in.Rank())
	}
	for _, a := range drop {
		if n, isInt := in.Dims[a].Int(); isInt && n != 1 {
			return c.Errorf("axis %d has extent %d, not 1", a, n)
		}
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dimsWithout(in.Dims, drop)...))
	return nil
}

func squeezeEval(c *ir.EvalCtx) error {
	x := c.In(0)
	axes, given := evalInts(c, "axes", 1)
	if !given {
		for i, d := range x.Dims {
			if d == 1 {
				axes = append(axes, int64(i))
			}
		}
	}
	drop, bad, ok := normAxes(axes, len(x.Dims))
	if !ok {
		return c.Errorf("axis %d is repeated or out of range for rank %d", bad, len(x.Dims))
	}
	for _, a := range drop {
		if x.Dims[a] != 1 {
			return c.Errorf("axis %d has extent %d, not 1", a, x.Dims[a])
		}
	}
	c.Set(0, x.Reshaped(dimsWithout(x.Dims, drop)...))
	return nil
}

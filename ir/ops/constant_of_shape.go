package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ConstantOfShape",
	Doc:   "A tensor of the given shape filled with one value (0 in float by default).",
	Since: []int{9, 20, 21, 23, 24, 25},
	In:    ir.Ports("input:tensor(int64)"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		fill, msg := fillOf(c.Node)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		if d := c.DType(0); d != ir.Int64 && d != ir.Undefined {
			return c.Errorf("the shape must be int64, not %s", d)
		}
		shape, err := shapeFromInts(c, 0)
		if err != nil {
			return err
		}
		c.SetTensor(0, fill.DType, shape)
		dims, static := shape.Static()
		if n, ok := ir.MulSizes(dims...); static && ok && n <= 1024 && (fill.DType.IsInt() || fill.DType == ir.Bool) {
			ds := make([]ir.Dim, n)
			for i := range ds {
				ds[i] = ir.N(fill.Ints()[0])
			}
			c.SetInts(0, ds)
		}
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		_, write := c.Traffic()
		return ir.Cost{Write: write, DType: c.OutDType(0)}
	},
	Grad:      ir.NoGrad("the input is a shape"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		fill, msg := fillOf(c.Node)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		dims := c.In(0).Ints()
		if _, ok := ir.MulSizes(dims...); !ok {
			return c.Errorf("the shape %v is negative or too large", dims)
		}
		c.Set(0, filled(fill, dims))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		fill, msg := fillOf(c.Node)
		if msg != "" {
			return ir.Kernel{}, c.Errorf("%s", msg)
		}
		return fillKernel(c, fill)
	}),
	Samples: func() []ir.Sample {
		shape := ir.FromInts(ir.Int64, []int64{2, 3}, 2)
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{shape}},
			{Name: "half", In: []*ir.Tensor{shape}, Attrs: []ir.Attr{ir.TensorAttr("value", ir.FromFloats(ir.Float16, []float64{1.5}, 1))}},
			{Name: "int", In: []*ir.Tensor{shape}, Attrs: []ir.Attr{ir.TensorAttr("value", ir.FromInts(ir.Int64, []int64{1<<53 + 1}, 1))}},
			{Name: "bool", In: []*ir.Tensor{shape}, Attrs: []ir.Attr{ir.TensorAttr("value", ir.FromInts(ir.Bool, []int64{1}, 1))}},
			{Name: "scalar", In: []*ir.Tensor{ir.NewTensor(ir.Int64, 0)}},
			{Name: "empty", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{2, 0}, 2)}},
		}
	},
})

// fillOf is the one-element tensor that fills.
func fillOf(n *ir.Node) (fill *ir.Tensor, msg string) {
	a := n.Attr("value")
	switch {
	case a == nil:
		return ir.NewTensor(ir.Float, 1), ""
	case a.T == nil || a.T.Len() != 1:
		return nil, "the value must be a tensor of one element"
	}
	return a.T, ""
}

// fillKernel writes one value. It goes as a float64, or as an integer where it
// is one, so that no int64 loses bits.
func fillKernel(c *ir.NodeCtx, fill *ir.Tensor) (ir.Kernel, error) {
	if err := kernelDType(c, fill.DType); err != nil {
		return ir.Kernel{}, err
	}
	value, fn := ir.FloatArg(0), "fill_float"
	if fill.DType.IsFloat() {
		value = ir.FloatArg(fill.Floats()[0])
	} else {
		value, fn = ir.IntArg(fill.Ints()[0]), "fill_int"
	}
	return ir.Kernel{Func: fn, Source: fillCUDA, Types: []ir.DType{fill.DType},
		Args: []ir.KernelArg{ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0))), value}}, nil
}

const fillCUDA = `
template <class T>
void fill_float(Stream& s, T* y, int64_t n, double v) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<T>(v); });
}

template <class T>
void fill_int(Stream& s, T* y, int64_t n, int64_t v) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<T>(v); });
}`

// shapeFromInts is the shape whose extents are the elements of input i: fresh
// symbols where only their number is known.
func shapeFromInts(c *ir.InferCtx, i int) (ir.Shape, error) {
	if ds, ok := c.Ints(i); ok {
		if r := c.Shape(i).Rank(); r >= 0 && r != 1 {
			return ir.Shape{}, c.Errorf("the shape must be a list of integers, not a tensor of rank %d", r)
		}
		for _, d := range ds {
			if n, isInt := d.Int(); isInt && n < 0 {
				return ir.Shape{}, c.Errorf("the shape has a negative extent %d", n)
			}
		}
		return ir.Dims(ds...), nil
	}
	if n, ok := c.Length(i); ok {
		return c.FreshShape(n), nil
	}
	return ir.Shape{}, nil
}

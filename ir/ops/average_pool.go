package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "AveragePool",
	Doc:   "The mean under a sliding window; padding counts only where count_include_pad is set.",
	Since: []int{1, 7, 10, 11, 19, 22},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := poolShape(c)
		c.SetTensor(0, c.DType(0), shape)
		return err
	},
	Axes:      poolAxes,
	Cost:      poolCost,
	Grad:      ir.GradOf(averagePoolGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		win, y, err := poolOf(c.Node, x.Dims)
		if err != nil {
			return err
		}
		in, vals := x.Floats(), make([]float64, ir.Elems(y))
		counts := win.counts(x.Dims[2:], y[2:], c.Node.Int("count_include_pad", 0) != 0)
		poolEach(x.Dims, y, func(i, plane int, o []int64) {
			win.each(o, x.Dims[2:], func(_, at int) { vals[i] += in[plane+at] })
			vals[i] /= float64(counts[i%len(counts)])
		})
		c.Set(0, ir.FromFloats(x.DType, vals, y...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		win, y, err := poolOf(c.Node, c.InShape(0))
		args := append([]ir.KernelArg{ir.InArg(0), ir.OutArg(0)}, poolArgs(win, c.InShape(0), y)...)
		return ir.Kernel{Func: "average_pool", Source: poolInputCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append(args, ir.DimsArg(win.padHi...), ir.BoolArg(c.Node.Int("count_include_pad", 0) != 0))}, err
	}),
	Samples: func() []ir.Sample {
		x := ramp(2, 2, 5, 4)
		ints, pad := ir.IntsAttr, ir.IntAttr("count_include_pad", 1)
		window := []ir.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 3), ints("pads", 1, 0, 1, 1)}
		return []ir.Sample{
			{Name: "1d", In: []*ir.Tensor{ramp(1, 2, 5)}, Attrs: []ir.Attr{ints("kernel_shape", 2)}},
			{Name: "without pads", Version: 7, In: []*ir.Tensor{x}, Attrs: window},
			{Name: "with pads", In: []*ir.Tensor{x}, Attrs: append([]ir.Attr{pad}, window...)},
			{Name: "ceil", In: []*ir.Tensor{x}, Attrs: []ir.Attr{pad, ints("kernel_shape", 2, 3), ints("strides", 2, 2), ir.IntAttr("ceil_mode", 1)}},
			{Name: "dilated", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 2, 2), ints("dilations", 3, 2)}},
			{Name: "no batch", In: []*ir.Tensor{ramp(0, 2, 5)}, Attrs: []ir.Attr{ints("kernel_shape", 2)}},
			{Name: "same", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2), ir.StringAttr("auto_pad", "SAME_UPPER")}},
		}
	},
})

// counts is the divisor of each spatial position: the taps inside the input,
// or inside input and padding (rounding up may reach past both).
func (w window) counts(in, out []int64, includePad bool) []int64 {
	counts := make([]int64, ir.Elems(out))
	o := make([]int64, len(out))
	for i := range counts {
		counts[i] = 1
		for a := range o {
			n := int64(0)
			for k := range w.kernel[a] {
				p := o[a]*w.stride[a] - w.padLo[a] + k*w.dilation[a]
				if p < 0 && !includePad || p >= in[a] && !(includePad && p < in[a]+w.padHi[a]) {
					continue
				}
				n++
			}
			counts[i] *= n
		}
		next(o, out)
	}
	return counts
}

// averagePoolGrad spreads each output's gradient, divided by its count, over
// its window.
func averagePoolGrad(c *ir.GradCtx) error {
	x, dy := c.In(0), c.OutGrad(0)
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
	scaled, err := overCounts(c, win, x, dy)
	if err != nil {
		return err
	}
	c.Set(0, spreadWindows(c, win, scaled, x))
	return nil
}

// spreadWindows adds every element of y, an output of a pool over x, to all
// elements of its window: a transposed convolution with ones, one plane at a
// time, so that the number of channels need not be known.
func spreadWindows(c *ir.GradCtx, win window, y, x *ir.Value) *ir.Value {
	planes := func(v *ir.Value) *ir.Value {
		y := c.Op("Reshape", []*ir.Value{v, c.Op("Concat", []*ir.Value{c.Int64s(-1, 1), reshapeTail(c, v, 2)}, ir.IntAttr("axis", 0))})
		dims := append([]ir.Dim{y.Type.Shape.Dims[0], ir.N(1)}, v.Type.Shape.Dims[2:]...)
		y.Type.Shape = ir.Dims(dims...)
		return y
	}
	ones := make([]float64, ir.Elems(win.kernel))
	for i := range ones {
		ones[i] = 1
	}
	w := c.Const(ir.FromFloats(x.Type.DType, ones, append([]int64{1, 1}, win.kernel...)...))
	px := planes(x)
	return c.ReshapeLike(convDataGrad(c, win, 1, planes(y), w, px), x)
}

// overCounts divides dy by the number of elements each output is the mean of.
func overCounts(c *ir.GradCtx, win window, x, dy *ir.Value) (*ir.Value, error) {
	in, okIn := ir.Dims(x.Type.Shape.Dims[2:]...).Static()
	out, okOut := ir.Dims(dy.Type.Shape.Dims[2:]...).Static()
	includePad := c.Node.Int("count_include_pad", 0) != 0
	if !okIn || !okOut {
		if win.ceil || !includePad && !(allZero(win.padLo) && allZero(win.padHi)) {
			return nil, c.Node.Errorf("grad", "the gradient needs static extents where windows count differently, %q is %s", x.Name, x.Type.Shape)
		}
		return c.MulScalar(dy, 1/float64(ir.Elems(win.kernel))), nil
	}
	inverse := make([]float64, ir.Elems(out))
	for i, n := range win.counts(in, out, includePad) {
		inverse[i] = 1 / float64(n)
	}
	return c.Mul(dy, c.Const(ir.FromFloats(x.Type.DType, inverse, out...))), nil
}

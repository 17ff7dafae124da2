package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "MaxPool",
	Doc:   "The largest element under a sliding window, and optionally its position in the flattened input.",
	Since: []int{1, 8, 10, 11, 12, 22},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T, Indices:I?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int8, ir.Uint8), "I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		shape, err := poolShape(c)
		c.SetTensor(0, c.DType(0), shape)
		c.SetTensor(1, ir.Int64, shape)
		return err
	},
	Axes:      poolAxes,
	Cost:      poolCost,
	Grad:      ir.GradOf(maxPoolGrad),
	Recompute: ir.Pure,
	Eval:      maxPoolEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		win, y, err := poolOf(c.Node, c.InShape(0))
		args := append([]ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.OutArg(1)}, poolArgs(win, c.InShape(0), y)...)
		return ir.Kernel{Func: "max_pool", Source: poolInputCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append(args, ir.BoolArg(c.Node.Int("storage_order", 0) != 0))}, err
	}),
	Samples: func() []ir.Sample {
		x := ramp(2, 2, 5, 4)
		ints := ir.IntsAttr
		return []ir.Sample{
			{Name: "1d", In: []*ir.Tensor{ramp(1, 2, 5)}, NumOut: 2, Attrs: []ir.Attr{ints("kernel_shape", 2)}},
			{Name: "overlapping", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 1), ints("pads", 1, 1, 1, 0)}},
			{Name: "old overlapping", Version: 12, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 3, 2), ints("strides", 2, 1), ints("pads", 1, 1, 1, 0)}},
			{Name: "ceil", Version: 11, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 2, 3), ints("strides", 2, 2), ir.IntAttr("ceil_mode", 1)}},
			{Name: "dilated", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 2, 2), ints("dilations", 2, 2)}},
			{Name: "no batch", In: []*ir.Tensor{ramp(0, 2, 5)}, Attrs: []ir.Attr{ints("kernel_shape", 2)}},
			{Name: "same", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ints("kernel_shape", 3, 3), ints("strides", 2, 2), ir.StringAttr("auto_pad", "SAME_LOWER")}},
		}
	},
})

func maxPoolEval(c *ir.EvalCtx) error {
	x := c.In(0)
	win, y, err := poolOf(c.Node, x.Dims)
	if err != nil {
		return err
	}
	in := x.Floats()
	vals, index := make([]float64, ir.Elems(y)), make([]int64, ir.Elems(y))
	columns := c.Node.Int("storage_order", 0) != 0
	poolEach(x.Dims, y, func(i, plane int, o []int64) {
		best := -1
		win.each(o, x.Dims[2:], func(_, at int) {
			if best < 0 || in[plane+at] > in[plane+best] {
				best = at
			}
		})
		if best < 0 { // a window of padding alone
			vals[i], index[i] = lowestOf(x.DType), -1
			return
		}
		vals[i], index[i] = in[plane+best], int64(plane+best)
		if columns {
			index[i] = int64(plane) + columnMajor(int64(best), x.Dims[2:])
		}
	})
	c.Set(0, ir.FromFloats(x.DType, vals, y...))
	c.Set(1, ir.FromInts(ir.Int64, index, y...))
	return nil
}

// columnMajor is the linear index with the first axis fastest.
func columnMajor(at int64, dims []int64) int64 {
	step, out := ir.Elems(dims), int64(0)
	for a := len(dims) - 1; a >= 0; a-- {
		step /= dims[a]
		out += at % dims[a] * step
		at /= dims[a]
	}
	return out
}

// maxPoolGrad adds each output's gradient to the element that was the
// largest. Windows may overlap: the scatter adds where the opset has that,
// and else runs once for each class of windows that do not overlap.
func maxPoolGrad(c *ir.GradCtx) error {
	x, dy := c.In(0), c.OutGrad(0)
	switch {
	case dy == nil:
		return nil
	case c.Version < 8:
		return c.Node.Errorf("grad", "the gradient needs the positions of the maxima, which MaxPool gives from opset 8 on")
	case c.Opset() < 11:
		return c.Node.Errorf("grad", "the gradient needs ScatterElements, which came with opset 11; the model has %d", c.Opset())
	case c.Node.Int("storage_order", 0) != 0:
		return c.Node.Errorf("grad", "the gradient of column-major indices (storage_order 1) is not derived")
	case !x.Type.Shape.Ranked:
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
	}
	// A window of padding alone has no maximum: its index must not be used.
	win, err := windowOf(c.Node, x.Type.Shape.Rank()-2, nil)
	if err != nil {
		return err
	}
	for i := range win.kernel {
		if win.padLo[i] >= win.extent(i) || win.padHi[i] >= win.extent(i) {
			return c.Node.Errorf("grad", "windows may lie in the padding alone (pads %v and %v, kernel %v)", win.padLo, win.padHi, win.kernel)
		}
	}
	idx := c.Out(1)
	flat := c.Reshape(x, -1)
	if c.Opset() >= 16 {
		d, sum := x.Type.DType, x.Type.DType
		if d == ir.Float16 || d == ir.BFloat16 {
			sum = ir.Float // several windows may add to one element
		}
		g := c.Op("ScatterElements", []*ir.Value{c.Zeros(sum, c.ShapeOf(flat)), c.Reshape(idx, -1), c.Cast(c.Reshape(dy, -1), sum)},
			ir.IntAttr("axis", 0), ir.StringAttr("reduction", "add"))
		c.Set(0, c.ReshapeLike(c.Cast(g, d), x))
		return nil
	}
	zeros := c.ZerosLike(flat)
	var sum *ir.Value
	classes, class := windowClasses(win, dy.Type.Shape), make([]int64, len(win.kernel))
	for {
		at, d := everyNth(c, idx, class, classes), everyNth(c, dy, class, classes)
		g := c.Op("ScatterElements", []*ir.Value{zeros, c.Reshape(at, -1), c.Reshape(d, -1)}, ir.IntAttr("axis", 0))
		if sum == nil {
			sum = g
		} else {
			sum = c.Add(sum, g)
		}
		if !next(class, classes) {
			break
		}
	}
	c.Set(0, c.ReshapeLike(sum, x))
	return nil
}

// windowClasses is, for each spatial axis, a step in output positions after
// which windows do not overlap (no more steps than there are positions).
func windowClasses(win window, y ir.Shape) []int64 {
	out := make([]int64, len(win.kernel))
	for i := range out {
		out[i] = (win.extent(i) + win.stride[i] - 1) / win.stride[i]
		if n, ok := y.Dims[i+2].Int(); ok {
			out[i] = max(min(out[i], n), 1)
		}
	}
	return out
}

// everyNth keeps the spatial positions first, first + step, … of x.
func everyNth(c *ir.GradCtx, x *ir.Value, first, step []int64) *ir.Value {
	const end = 1<<63 - 1
	var axes, ends []int64
	for i := range first {
		axes, ends = append(axes, int64(i+2)), append(ends, end)
	}
	if len(axes) == 0 {
		return x
	}
	return c.Op("Slice", []*ir.Value{x, c.Int64s(first...), c.Int64s(ends...), c.Int64s(axes...), c.Int64s(step...)})
}

// lowestOf is the identity of max for a type.
func lowestOf(d ir.DType) float64 {
	switch d {
	case ir.Int8:
		return -128
	case ir.Uint8:
		return 0
	}
	return negInf
}

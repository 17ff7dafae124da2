package ops

import "memoc/ir"

// Gradients of convolutions in standard operators, so that any runtime runs
// them: the gradient of the data is a transposed convolution, that of the
// kernel a convolution with batch and channel exchanged and with strides and
// dilations exchanged.

// gradWindow is the geometry of the node with its pads spelled out.
func gradWindow(c *ir.GradCtx, x, w *ir.Value) (window, error) {
	xs, ws := x.Type.Shape, w.Type.Shape
	if !xs.Ranked || !ws.Ranked {
		return window{}, c.Node.Errorf("grad", "the gradient needs the ranks of %q and %q", x.Name, w.Name)
	}
	kernel, ok := ir.Dims(ws.Dims[2:]...).Static()
	if !ok {
		return window{}, c.Node.Errorf("grad", "the gradient needs the kernel's extents, %q is %s", w.Name, ws)
	}
	win, err := windowOf(c.Node, xs.Rank()-2, kernel)
	if err != nil {
		return win, err
	}
	return gradResolve(c, win, x)
}

// gradResolve spells out SAME pads, which depend on the input's extents.
func gradResolve(c *ir.GradCtx, win window, x *ir.Value) (window, error) {
	if !win.same() {
		return win, nil
	}
	in, ok := ir.Dims(x.Type.Shape.Dims[2:]...).Static()
	if !ok {
		return win, c.Node.Errorf("grad", "the gradient of auto_pad %s needs static extents, %q is %s", win.auto, x.Name, x.Type.Shape)
	}
	return win.resolve(in), nil
}

// channelSum sums [N, C, …] to [C].
func channelSum(c *ir.GradCtx, dy *ir.Value) *ir.Value {
	axes := []int64{0}
	for a := 2; a < dy.Type.Shape.Rank(); a++ {
		axes = append(axes, int64(a))
	}
	return c.ReduceSum(dy, false, axes...)
}

// convDataGrad is the transposed convolution of dy with w, of like's shape.
func convDataGrad(c *ir.GradCtx, win window, group int64, dy, w, like *ir.Value) *ir.Value {
	spatial := len(win.kernel)
	lo, hi := append([]int64{}, win.padLo...), append([]int64{}, win.padHi...)
	extra := make([]int64, spatial)
	needs, static := make([]int64, spatial), true
	for i := range spatial {
		// The positions the forward windows did not reach, at the far end.
		in, okIn := like.Type.Shape.Dims[i+2].Int()
		out, okOut := dy.Type.Shape.Dims[i+2].Int()
		rest := in - ((out-1)*win.stride[i] + win.extent(i) - lo[i] - hi[i])
		switch {
		case (!okIn || !okOut) && win.stride[i] == 1 && !win.ceil:
		case !okIn || !okOut:
			static = false
		case rest < 0:
			hi[i] -= rest // windows reached past the padding: crop
		case rest < win.stride[i]:
			extra[i] = rest
		default:
			needs[i] = rest
		}
	}
	attrs := append(window{kernel: win.kernel, stride: win.stride, dilation: win.dilation, padLo: lo, padHi: hi}.attrs(),
		ir.IntAttr("group", group))
	if !allZero(extra) {
		attrs = append(attrs, ir.IntsAttr("output_padding", extra...))
	}
	dx := c.Op("ConvTranspose", []*ir.Value{dy, w}, attrs...)
	if static && allZero(needs) {
		dx.Type.Shape = like.Type.Shape
		return dx
	}
	return padToLike(c, dx, like)
}

func allZero(ns []int64) bool {
	for _, n := range ns {
		if n != 0 {
			return false
		}
	}
	return true
}

// padToLike appends zeros at the far ends so that x has like's shape, which
// may be known at run time only.
func padToLike(c *ir.GradCtx, x, like *ir.Value) *ir.Value {
	if c.Opset() < 11 {
		c.Fail(c.Node.Errorf("grad", "the gradient pads to the run-time shape of %q, which needs opset 11, the model has %d", like.Name, c.Opset()))
	}
	zeros := c.Int64s(make([]int64, x.Type.Shape.Rank())...)
	pads := c.Op("Concat", []*ir.Value{zeros, c.Sub(c.ShapeOf(like), c.ShapeOf(x))}, ir.IntAttr("axis", 0))
	y := c.Op("Pad", []*ir.Value{x, pads})
	y.Type.Shape = like.Type.Shape
	return y
}

// convWeightGrad is sum over n and o of dy[n,m,o] * x[n,c,o*stride+k*dilation-pad].
func convWeightGrad(c *ir.GradCtx, win window, group int64, x, dy, w *ir.Value) *ir.Value {
	rank := x.Type.Shape.Rank()
	// x as [C/group, group*N, in…]: what was batch is summed over, each group
	// keeps to its own channels; dy as [M, N, out…].
	xt := swapFirstTwo(c, x)
	if group > 1 {
		xt = groupsToChannels(c, x, group)
	}
	conv := window{kernel: make([]int64, rank-2), stride: win.dilation, dilation: win.stride, padLo: win.padLo, padHi: win.padHi}
	attrs := conv.attrs()[1:] // the kernel is dy, whose extents may be symbolic
	g := c.Op("Conv", []*ir.Value{xt, swapFirstTwo(c, dy)}, append(attrs, ir.IntAttr("group", group))...)
	// Input positions that no window reached may have made it longer.
	for i, k := range win.kernel {
		if n, ok := g.Type.Shape.Dims[i+2].Int(); !ok || n != k {
			g = sliceTo(c, g, i+2, k)
		}
	}
	g = swapFirstTwo(c, g)
	g.Type.Shape = w.Type.Shape
	return g
}

// sliceTo keeps the first n positions of an axis.
func sliceTo(c *ir.GradCtx, x *ir.Value, axis int, n int64) *ir.Value {
	if c.Opset() < 10 {
		return c.Op("Slice", []*ir.Value{x}, ir.IntsAttr("axes", int64(axis)), ir.IntsAttr("starts", 0), ir.IntsAttr("ends", n))
	}
	return c.Op("Slice", []*ir.Value{x, c.Int64s(0), c.Int64s(n), c.Int64s(int64(axis))})
}

func swapFirstTwo(c *ir.GradCtx, x *ir.Value) *ir.Value {
	perm := make([]int64, x.Type.Shape.Rank())
	for i := range perm {
		perm[i] = int64(i)
	}
	perm[0], perm[1] = 1, 0
	return c.Transpose(x, perm...)
}

// groupsToChannels turns [N, group*C, …] into [C, group*N, …].
func groupsToChannels(c *ir.GradCtx, x *ir.Value, group int64) *ir.Value {
	dims := x.Type.Shape.Dims
	channels, ok := dims[1].Int()
	if !ok {
		c.Fail(c.Node.Errorf("grad", "the gradient of a grouped convolution needs the number of channels, %q is %s", x.Name, x.Type.Shape))
	}
	per := channels / group
	spatial := reshapeTail(c, x, 2)
	split := c.Op("Reshape", []*ir.Value{x, c.Op("Concat", []*ir.Value{c.Int64s(0, group, per), spatial}, ir.IntAttr("axis", 0))})
	perm := []int64{2, 1, 0}
	for a := 3; a <= len(dims); a++ {
		perm = append(perm, int64(a))
	}
	t := c.Transpose(split, perm...)
	return c.Op("Reshape", []*ir.Value{t, c.Op("Concat", []*ir.Value{c.Int64s(per, -1), spatial}, ir.IntAttr("axis", 0))})
}

// reshapeTail is the extents of x from axis on, as an int64 tensor: a constant
// where they are static.
func reshapeTail(c *ir.GradCtx, x *ir.Value, axis int) *ir.Value {
	if ns, ok := ir.Dims(x.Type.Shape.Dims[axis:]...).Static(); ok {
		return c.Int64s(ns...)
	}
	shape := c.Op("Shape", []*ir.Value{x})
	return c.Op("Slice", []*ir.Value{shape, c.Int64s(int64(axis)), c.Int64s(int64(x.Type.Shape.Rank())), c.Int64s(0)})
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ConvTranspose",
	Doc:   "Transposed convolution of [N, C, spatial…] with a kernel [C, M/group, spatial…]: the gradient of a convolution's input.",
	Since: []int{1, 11, 22},
	In:    ir.Ports("X:T, W:T, B:T?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := convTransposeShape(c)
		c.SetTensor(0, c.DType(0), shape)
		return err
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 {
			return ir.AxisMap{}
		}
		axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
		axes[0] = ir.OutAxis{{In: 0, Axis: 0}}
		return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		perIn := int64(0)
		if w := c.InShape(1); len(w) > 1 {
			perIn = ir.Elems(w[1:])
		}
		return ir.Cost{FLOPs: 2 * ir.Elems(c.InShape(0)) * perIn, Read: read, Write: write, Unit: ir.Matrix, DType: c.InDType(0)}
	},
	Grad:      ir.GradOf(convTransposeGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, w := c.In(0), c.In(1)
		g, err := convTransposeOf(c.Node, x.Dims, w.Dims)
		if err != nil {
			return err
		}
		y := g.dataGrad(x.Floats(), w.Floats())
		if c.Has(2) && len(y) > 0 {
			addBias(y, c.In(2).Floats(), g.x)
		}
		c.Set(0, ir.FromFloats(x.DType, y, g.x...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convTransposeOf(c.Node, c.InShape(0), c.InShape(1))
		return ir.Kernel{Func: "conv_data", Source: convCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0)}, g.args()...)}, err
	}),
	Samples: func() []ir.Sample {
		x := ramp(2, 2, 3, 2)
		ints := ir.IntsAttr
		return []ir.Sample{
			{Name: "1d bias", In: []*ir.Tensor{ramp(1, 2, 4), ramp(2, 3, 2), ramp(3)}},
			{Name: "strides and padding", In: []*ir.Tensor{x, ramp(2, 1, 3, 2)}, Attrs: []ir.Attr{ints("strides", 2, 3),
				ints("pads", 1, 0, 0, 1), ints("output_padding", 1, 2)}},
			{Name: "dilated", In: []*ir.Tensor{x, ramp(2, 2, 2, 2)}, Attrs: []ir.Attr{ints("dilations", 2, 3), ints("output_padding", 1, 1)}},
			{Name: "grouped", Version: 11, In: []*ir.Tensor{ramp(1, 4, 3), ramp(4, 1, 2), ramp(2)}, Attrs: []ir.Attr{ir.IntAttr("group", 2)}},
			{Name: "output shape", In: []*ir.Tensor{x, ramp(2, 1, 3, 3)}, Attrs: []ir.Attr{ints("strides", 2, 2), ints("output_shape", 6, 4)}},
			{Name: "no batch", In: []*ir.Tensor{ramp(0, 2, 4), ramp(2, 3, 2), ramp(3)}},
			{Name: "same lower", In: []*ir.Tensor{x, ramp(2, 1, 3, 3)}, Attrs: []ir.Attr{ints("strides", 2, 2), ir.StringAttr("auto_pad", "SAME_LOWER")}},
		}
	},
})

// convTransposeWindow reads the geometry; it is that of the convolution whose
// input is the output here. outPad is the extra extent at the far ends, out
// the attribute output_shape (nil: not given; its spatial part).
func convTransposeWindow(n *ir.Node, spatial int, kernel []int64) (w window, outPad, out []int64, err error) {
	if w, err = windowOf(n, spatial, kernel); err != nil {
		return w, nil, nil, err
	}
	if pads, _ := n.IntList("pads"); w.auto != "" && !allZero(pads) {
		return w, nil, nil, n.Errorf("shape", "auto_pad %s contradicts pads %v", w.auto, pads)
	}
	if outPad, err = windowList(n, "output_padding", spatial, 0); err != nil {
		return w, nil, nil, err
	}
	if s, ok := n.IntList("output_shape"); ok && len(s) > 0 {
		if len(s) != spatial && len(s) != spatial+2 {
			return w, nil, nil, n.Errorf("shape", "output_shape %v has not one entry for each of %d spatial axes", s, spatial)
		}
		out = s[len(s)-spatial:]
	}
	for i := range spatial {
		if outPad[i] < 0 || out != nil && out[i] < 0 {
			return w, nil, nil, n.Errorf("shape", "output_padding %v and output_shape %v must not be negative", outPad, out)
		}
	}
	return w, outPad, out, nil
}

// convTransposeExtent is the output extent of axis i for an input extent of
// in, and fixes the pads of w where they follow from it.
func convTransposeExtent(w window, outPad, out []int64, i int, in int64) int64 {
	full := w.stride[i]*(in-1) + outPad[i] + w.extent(i)
	if in == 0 {
		full = 0
	}
	switch {
	case out != nil:
		splitTransposePad(w, i, max(full-out[i], 0))
		return out[i]
	case w.same():
		n := in * w.stride[i]
		splitTransposePad(w, i, max(full-n, 0))
		return n
	}
	return max(full-w.padLo[i]-w.padHi[i], 0)
}

// splitTransposePad: the larger half goes to the front unless SAME_UPPER asks
// for the contrary.
func splitTransposePad(w window, i int, total int64) {
	w.padLo[i], w.padHi[i] = total-total/2, total/2
	if w.auto == "SAME_UPPER" {
		w.padLo[i], w.padHi[i] = total/2, total-total/2
	}
}

// convTransposeOf is the convolution that the node transposes.
func convTransposeOf(n *ir.Node, x, w []int64) (convGeometry, error) {
	g := convGeometry{group: n.Int("group", 1), y: x, w: w}
	if len(x) < 2 || len(w) != len(x) || g.group <= 0 || x[1] != w[0] || w[0]%g.group != 0 {
		return g, n.Errorf("shape", "input %v, kernel %v and group %d do not fit", x, w, g.group)
	}
	win, outPad, out, err := convTransposeWindow(n, len(x)-2, w[2:])
	if err != nil {
		return g, err
	}
	g.x = []int64{x[0], w[1] * g.group}
	for i, d := range x[2:] {
		g.x = append(g.x, convTransposeExtent(win, outPad, out, i, d))
	}
	win.auto = ""
	g.window = win
	return g, nil
}

func convTransposeShape(c *ir.InferCtx) (ir.Shape, error) {
	x, w := c.Shape(0), c.Shape(1)
	if !x.Ranked || !w.Ranked {
		return ir.Shape{}, nil
	}
	if x.Rank() < 2 || w.Rank() != x.Rank() || x.Dims[1].Differ(w.Dims[0]) {
		return ir.Shape{}, c.Errorf("input %s and kernel %s do not fit", x, w)
	}
	dims := []ir.Dim{x.Dims[0], w.Dims[1].Mul(ir.N(c.Node.Int("group", 1)))}
	kernel, _ := ir.Dims(w.Dims[2:]...).Static()
	if ks, ok := c.Node.IntList("kernel_shape"); kernel == nil && !(ok && len(ks) > 0) && x.Rank() > 2 {
		return ir.Dims(append(dims, c.FreshShape(x.Rank()-2).Dims...)...), nil
	}
	win, outPad, out, err := convTransposeWindow(c.Node, x.Rank()-2, kernel)
	if err != nil {
		return ir.Shape{}, err
	}
	for i, d := range x.Dims[2:] {
		n, static := d.Int()
		switch {
		case static:
			dims = append(dims, ir.N(convTransposeExtent(win, outPad, out, i, n)))
		case out != nil:
			dims = append(dims, ir.N(out[i]))
		case win.same():
			dims = append(dims, d.Mul(ir.N(win.stride[i])))
		default:
			k := win.extent(i) + outPad[i] - win.padLo[i] - win.padHi[i] - win.stride[i]
			dims = append(dims, d.Mul(ir.N(win.stride[i])).Add(ir.N(k)))
		}
	}
	return ir.Dims(dims...), nil
}

func convTransposeGrad(c *ir.GradCtx) error {
	x, w, dy := c.In(0), c.In(1), c.OutGrad(0)
	win, group, err := convTransposeGradWindow(c, x, w)
	if err != nil {
		return err
	}
	if c.Needs(0) {
		dx := c.Op("Conv", []*ir.Value{dy, w}, append(win.attrs(), ir.IntAttr("group", group))...)
		for i, d := range x.Type.Shape.Dims[2:] {
			// More output padding than a stride makes room for another window.
			if n, ok := d.Int(); ok && !dx.Type.Shape.Dims[i+2].Equal(d) {
				dx = sliceTo(c, dx, i+2, n)
			}
		}
		c.Set(0, dx)
	}
	if c.Needs(1) {
		c.Set(1, convWeightGrad(c, win, group, dy, x, w))
	}
	if c.Needs(2) {
		c.Set(2, channelSum(c, dy))
	}
	return nil
}

// convTransposeGradWindow is the geometry with its pads spelled out.
func convTransposeGradWindow(c *ir.GradCtx, x, w *ir.Value) (window, int64, error) {
	xs, ws := x.Type.Shape, w.Type.Shape
	if !xs.Ranked || !ws.Ranked {
		return window{}, 0, c.Node.Errorf("grad", "the gradient needs the ranks of %q and %q", x.Name, w.Name)
	}
	kernel, okK := ir.Dims(ws.Dims[2:]...).Static()
	in, okI := ir.Dims(xs.Dims[2:]...).Static()
	if !okK {
		return window{}, 0, c.Node.Errorf("grad", "the gradient needs the kernel's extents, %q is %s", w.Name, ws)
	}
	win, outPad, out, err := convTransposeWindow(c.Node, xs.Rank()-2, kernel)
	if err != nil {
		return win, 0, err
	}
	if !okI {
		for i := range win.kernel {
			if out != nil || win.same() || outPad[i] >= win.stride[i] {
				return win, 0, c.Node.Errorf("grad", "the gradient of this padding needs static extents, %q is %s", x.Name, xs)
			}
		}
	}
	for i, n := range in {
		convTransposeExtent(win, outPad, out, i, n)
	}
	win.auto = ""
	return win, c.Node.Int("group", 1), nil
}

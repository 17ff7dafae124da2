package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Col2Im",
	Doc:   "Adds columns [N, C * block, positions] up to an image [N, C, spatial…]: what a sliding window cut out goes back.",
	Since: []int{18},
	In:    ir.Ports("input:T, image_shape:I, block_shape:I"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric, "I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		x := c.Shape(0)
		if x.Ranked && x.Rank() != 3 {
			return c.Errorf("input %s is not [N, C * block, positions]", x)
		}
		image, okI := c.Ints(1)
		block, okB := c.StaticInts(2)
		axes := int64(-1)
		for _, i := range []int{1, 2} {
			if n, ok := c.Length(i); ok {
				axes = int64(n)
			}
		}
		if axes < 0 {
			c.SetTensor(0, c.DType(0), ir.Shape{})
			return nil
		}
		shape := c.FreshShape(int(axes) + 2)
		if x.Ranked {
			shape.Dims[0] = x.Dims[0]
		}
		if okI && int64(len(image)) == axes {
			copy(shape.Dims[2:], image)
		}
		if okB && x.Ranked && int64(len(block)) == axes {
			q, ok := x.Dims[1].Div(ir.N(ir.Elems(block)))
			if _, isInt := x.Dims[1].Int(); isInt && !ok {
				return c.Errorf("%s channels are no multiple of the block %v", x.Dims[1], block)
			}
			if ok {
				shape.Dims[1] = q
			}
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
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
		return ir.Cost{FLOPs: ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: cutting windows out of an image has no standard operator"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		win, out, err := col2imOf(c.Node, x.Dims, c.In(1).Ints(), c.In(2).Ints())
		if err != nil {
			return err
		}
		image := out[2:]
		taps, positions, plane := int(ir.Elems(win.kernel)), int(x.Dims[2]), int(ir.Elems(image))
		in, y := x.Floats(), make([]float64, ir.Elems(out))
		o, grid := make([]int64, len(image)), make([]int64, len(image))
		for i, d := range image {
			grid[i] = win.positions(i, d)
		}
		for pos := range positions {
			win.each(o, image, func(tap, at int) {
				for ch := range int(out[0] * out[1]) {
					y[ch*plane+at] += in[(ch*taps+tap)*positions+pos]
				}
			})
			next(o, grid)
		}
		t := ir.NewTensor(x.DType, out...)
		ir.SetFloats(t, y)
		c.Set(0, t)
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		image, okI := c.StaticInts(1)
		block, okB := c.StaticInts(2)
		if !okI || !okB {
			return ir.Kernel{}, c.Errorf("image_shape and block_shape are not known")
		}
		win, out, err := col2imOf(c.Node, c.InShape(0), image, block)
		if err != nil {
			return ir.Kernel{}, err
		}
		grid := []int64{out[0], out[1]}
		for i, d := range out[2:] {
			grid = append(grid, win.positions(i, d))
		}
		kernel := append([]int64{1, 1}, win.kernel...)
		return ir.Kernel{Func: "col2im", Source: convCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0),
			ir.DimsArg(out...), ir.DimsArg(kernel...), ir.DimsArg(grid...), ir.DimsArg(win.stride...), ir.DimsArg(win.padLo...), ir.DimsArg(win.dilation...)}}, nil
	}),
	Samples: func() []ir.Sample {
		i := func(v ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, v, int64(len(v))) }
		return []ir.Sample{
			{Name: "2d", In: []*ir.Tensor{ramp(2, 8, 6), i(3, 4), i(2, 2)}},
			{Name: "padded", In: []*ir.Tensor{ramp(1, 6, 8), i(3, 4), i(2, 3)}, Attrs: []ir.Attr{ir.IntsAttr("pads", 1, 0, 0, 2), ir.IntsAttr("strides", 1, 1),
				ir.IntsAttr("dilations", 2, 1)}},
		}
	},
})

// col2imOf is the window that cut the columns and the image's shape.
func col2imOf(n *ir.Node, x, image, block []int64) (win window, out []int64, err error) {
	if len(x) != 3 || len(image) != len(block) {
		return win, nil, n.Errorf("shape", "input %v, image_shape %v and block_shape %v do not fit", x, image, block)
	}
	if win, err = windowOf(n, len(image), block); err != nil {
		return win, nil, err
	}
	positions := int64(1)
	for i, d := range image {
		positions *= win.positions(i, d)
	}
	taps := ir.Elems(block)
	if x[2] != positions || x[1]%taps != 0 {
		return win, nil, n.Errorf("shape", "input %v does not hold blocks of %d at %d positions", x, taps, positions)
	}
	return win, append([]int64{x[0], x[1] / taps}, image...), nil
}

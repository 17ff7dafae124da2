package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Conv",
	Doc:   "Convolution of [N, C, spatial…] with a kernel [M, C/group, spatial…], any number of spatial axes.",
	Since: []int{1, 11, 22},
	In:    ir.Ports("X:T, W:T, B:T?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := convShape(c, 0, 1)
		c.SetTensor(0, c.DType(0), shape)
		return err
	},
	Axes:      convAxes,
	Cost:      convCost(0, 1),
	Grad:      ir.GradOf(convGradRule),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, w := c.In(0), c.In(1)
		g, err := convOf(c.Node, x.Dims, w.Dims)
		if err != nil {
			return err
		}
		y := g.forward(x.Floats(), w.Floats())
		if c.Has(2) {
			addBias(y, c.In(2).Floats(), g.y)
		}
		c.Set(0, ir.FromFloats(x.DType, y, g.y...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convOf(c.Node, c.InShape(0), c.InShape(1))
		return ir.Kernel{Func: "conv", Source: convCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0)}, g.args()...)}, err
	}),
	Samples: convSamples,
})

// convOf reads the convolution of a node for static extents of x and w.
func convOf(n *ir.Node, x, w []int64) (convGeometry, error) {
	g := convGeometry{group: n.Int("group", 1), x: x, w: w}
	if len(x) < 2 || len(w) != len(x) {
		return g, n.Errorf("shape", "input %v and kernel %v must have one rank, at least 2", x, w)
	}
	if g.group <= 0 || x[1] != w[1]*g.group || w[0]%g.group != 0 {
		return g, n.Errorf("shape", "channels do not fit: input %v, kernel %v, group %d", x, w, g.group)
	}
	win, err := windowOf(n, len(x)-2, w[2:])
	if err != nil {
		return g, err
	}
	g.window = win.resolve(x[2:])
	g.y = []int64{x[0], w[0]}
	for i, d := range x[2:] {
		g.y = append(g.y, g.positions(i, d))
	}
	return g, nil
}

// convShape is the shape of a convolution of inputs xi and wi.
func convShape(c *ir.InferCtx, xi, wi int) (ir.Shape, error) {
	x, w := c.Shape(xi), c.Shape(wi)
	if !x.Ranked || !w.Ranked {
		return ir.Shape{}, nil
	}
	if x.Rank() < 2 || w.Rank() != x.Rank() {
		return ir.Shape{}, c.Errorf("input %s and kernel %s must have one rank, at least 2", x, w)
	}
	group := c.Node.Int("group", 1)
	if group <= 0 || x.Dims[1].Differ(w.Dims[1].Mul(ir.N(group))) {
		return ir.Shape{}, c.Errorf("channels do not fit: input %s, kernel %s, group %d", x, w, group)
	}
	kernel, _ := ir.Dims(w.Dims[2:]...).Static()
	if ks, ok := c.Node.IntList("kernel_shape"); kernel == nil && !(ok && len(ks) > 0) && x.Rank() > 2 {
		return ir.Dims(append([]ir.Dim{x.Dims[0], w.Dims[0]}, c.FreshShape(x.Rank()-2).Dims...)...), nil
	}
	win, err := windowOf(c.Node, x.Rank()-2, kernel)
	if err != nil {
		return ir.Shape{}, err
	}
	dims := []ir.Dim{x.Dims[0], w.Dims[0]}
	for i, d := range x.Dims[2:] {
		dims = append(dims, win.positionsDim(c, i, d))
	}
	return ir.Dims(dims...), nil
}

// convAxes: the batch follows the input's, the channel the kernel's where all
// input channels are read, spatial axes are windows.
func convAxes(n *ir.Node) ir.AxisMap {
	if len(n.Out) == 0 || n.Out[0] == nil || !n.Out[0].Type.Shape.Ranked || !n.In[1].Type.Shape.Ranked {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
	if len(axes) < 2 {
		return ir.AxisMap{}
	}
	axes[0] = ir.OutAxis{{In: 0, Axis: 0}}
	if n.Int("group", 1) == 1 {
		axes[1] = ir.OutAxis{{In: 1, Axis: 0}}
		if len(n.In) > 2 && n.In[2] != nil {
			axes[1] = append(axes[1], ir.AxisLink{In: 2, Axis: 0})
		}
	}
	kernel, ok := ir.Dims(n.In[1].Type.Shape.Dims[2:]...).Static()
	win, err := windowOf(n, len(axes)-2, kernel)
	for i := range axes[2:] {
		if ok && err == nil && !win.same() {
			axes[i+2] = ir.OutAxis{win.link(0, i)}
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

// convCost: two operations for each product.
func convCost(xi, wi int) func(*ir.CostCtx) ir.Cost {
	return func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		w := c.InShape(wi)
		perOut := int64(0)
		if len(w) > 1 {
			perOut = ir.Elems(w[1:])
		}
		return ir.Cost{FLOPs: 2 * ir.Elems(c.OutShape(0)) * perOut, Read: read, Write: write, Unit: ir.Matrix, DType: c.InDType(xi)}
	}
}

func convGradRule(c *ir.GradCtx) error {
	x, w, dy := c.In(0), c.In(1), c.OutGrad(0)
	win, err := gradWindow(c, x, w)
	if err != nil {
		return err
	}
	group := c.Node.Int("group", 1)
	if c.Needs(0) {
		c.Set(0, convDataGrad(c, win, group, dy, w, x))
	}
	if c.Needs(1) {
		c.Set(1, convWeightGrad(c, win, group, x, dy, w))
	}
	if c.Needs(2) {
		c.Set(2, channelSum(c, dy))
	}
	return nil
}

func convSamples() []ir.Sample {
	x1 := ramp(1, 2, 5)
	x2 := ramp(2, 2, 5, 4)
	ints := ir.IntsAttr
	return []ir.Sample{
		{Name: "1d bias", In: []*ir.Tensor{x1, ramp(3, 2, 2), ramp(3)}},
		{Name: "pads and strides", In: []*ir.Tensor{x2, ramp(3, 2, 2, 3)}, Attrs: []ir.Attr{ints("pads", 1, 0, 0, 2), ints("strides", 2, 3)}},
		{Name: "dilated", In: []*ir.Tensor{x2, ramp(2, 2, 2, 2)}, Attrs: []ir.Attr{ints("dilations", 2, 3), ints("pads", 0, 1, 1, 0), ints("strides", 2, 2)}},
		{Name: "depthwise", In: []*ir.Tensor{x2, ramp(4, 1, 2, 2), ramp(4)}, Attrs: []ir.Attr{ir.IntAttr("group", 2), ints("strides", 3, 2)}},
		{Name: "grouped", In: []*ir.Tensor{ramp(2, 4, 4), ramp(2, 2, 3)}, Attrs: []ir.Attr{ir.IntAttr("group", 2), ints("pads", 1, 1)}},
		{Name: "same upper", In: []*ir.Tensor{x2, ramp(1, 2, 3, 2)}, Attrs: []ir.Attr{ir.StringAttr("auto_pad", "SAME_UPPER"), ints("strides", 2, 2)}},
		{Name: "valid", Version: 11, In: []*ir.Tensor{x1, ramp(1, 2, 3)}, Attrs: []ir.Attr{ir.StringAttr("auto_pad", "VALID")}},
		{Name: "no batch", In: []*ir.Tensor{ramp(0, 2, 5), ramp(3, 2, 2), ramp(3)}},
		{Name: "3d", In: []*ir.Tensor{ramp(1, 1, 2, 3, 2), ramp(2, 1, 2, 2, 1)}},
	}
}

// ramp is a double tensor of distinct, irregular, moderate values.
func ramp(dims ...int64) *ir.Tensor {
	n := ir.Elems(dims)
	vals := make([]float64, n)
	for i := range vals {
		vals[i] = float64((i*37+11)%101)/50 - 1 + float64(i)/1000
	}
	return floats(dims, vals...)
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "InstanceNormalization",
	Doc:   "(x - mean) / sqrt(variance + epsilon) * scale + B over the axes after the channel axis.",
	Since: []int{1, 6, 22},
	In:    ir.Ports("input:T, scale:T, B:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		x := c.Shape(0)
		if x.Ranked && x.Rank() < 3 {
			return c.Errorf("input of shape %s has no axis after batch and channel", x)
		}
		for i := 1; i < 3; i++ {
			if s := c.Shape(i); s.Ranked && (s.Rank() != 1 || x.Ranked && s.Dims[0].Differ(x.Dims[1])) {
				return c.Errorf("%s has shape %s; one number for each channel of %s is needed", c.Node.Decl.In[i].Name, s, x)
			}
		}
		c.SetTensor(0, c.DType(0), x)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap { return channelNormAxes(n, true) },
	Cost: ir.PointwiseCost(8),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		return channelNormGrad(c, func(x *ir.Value) *ir.Value { return x }, true, normEpsilon(c.Node))
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		if len(x.Dims) < 3 || c.In(1).Len() != x.Dims[1] || c.In(2).Len() != x.Dims[1] {
			return c.Errorf("input %v, scale %v and B %v do not fit", x.Dims, c.In(1).Dims, c.In(2).Dims)
		}
		y := instanceRegions(c.Node, x.Dims).eval(x.Floats(), c.In(1).Floats(), c.In(2).Floats())
		c.Set(0, ir.FromFloats(x.DType, y, x.Dims...))
		return nil
	},
	Kernel:  ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) { return instanceRegions(c.Node, c.InShape(0)).kernel(c) }),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "image", In: []*ir.Tensor{wave(1, 2, 3, 2, 2), wave(2, 3), wave(3, 3)}},
			{Name: "sequence", In: []*ir.Tensor{wave(4, 1, 2, 5), wave(2, 2), wave(3, 2)}, Attrs: []ir.Attr{ir.FloatAttr("epsilon", 0.25)}},
			{Name: "no batch", In: []*ir.Tensor{wave(4, 0, 2, 5), wave(2, 2), wave(3, 2)}},
		}
	},
})

func instanceRegions(n *ir.Node, dims []int64) regionNorm {
	r := regionNorm{dims: dims, eps: normEpsilon(n), group: dims[1], per: 1, inner: 1}
	for a := 2; a < len(dims); a++ {
		r.red = append(r.red, a)
	}
	return r
}

// channelNormAxes: the batch axis follows the input, and the channel axis
// everything where each channel is a region.
func channelNormAxes(n *ir.Node, channels bool) ir.AxisMap {
	x := inShapeOf(n, 0)
	if x.Rank() < 2 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	axes[0] = ir.OutAxis{{In: 0, Axis: 0}}
	if channels {
		axes[1] = ir.OutAxis{{In: 0, Axis: 1}, {In: 1, Axis: 0}, {In: 2, Axis: 0}}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

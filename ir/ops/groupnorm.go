package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "GroupNormalization",
	Doc:   "(X - mean) / sqrt(variance + epsilon) * scale + bias over groups of channels; scale and bias per group before opset 21, per channel from it on.",
	Since: []int{18, 21},
	In:    ir.Ports("X:T, scale:T, bias:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: groupNormInfer,
	Axes:  func(n *ir.Node) ir.AxisMap { return channelNormAxes(n, false) },
	Cost:  ir.PointwiseCost(8),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		groups := c.Node.Int("num_groups", 0)
		split := func(x *ir.Value) *ir.Value {
			if ns, ok := x.Type.Shape.Static(); ok && len(ns) > 1 {
				return c.Reshape(x, ns[0], groups, ir.Elems(ns[1:])/groups)
			}
			return c.Reshape(x, 0, groups, -1)
		}
		return channelNormGrad(c, split, c.Version >= 21, normEpsilon(c.Node))
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		r, ok := groupRegions(c.Node, c.Version, c.In(0).Dims)
		if !ok || c.In(1).Len() != r.group*r.per || c.In(2).Len() != r.group*r.per {
			return c.Errorf("X %v, scale %v, bias %v and num_groups %d do not fit", c.In(0).Dims, c.In(1).Dims, c.In(2).Dims, c.Node.Int("num_groups", 0))
		}
		c.Set(0, ir.FromFloats(c.In(0).DType, r.eval(c.In(0).Floats(), c.In(1).Floats(), c.In(2).Floats()), c.In(0).Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		r, ok := groupRegions(c.Node, c.Version, c.InShape(0))
		if !ok {
			return ir.Kernel{}, c.Errorf("num_groups %d does not fit %v", c.Node.Int("num_groups", 0), c.InShape(0))
		}
		return r.kernel(c)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		groups := func(n int64) []ir.Attr { return []ir.Attr{ir.IntAttr("num_groups", n)} }
		return []ir.Sample{
			{Name: "per channel", In: []*ir.Tensor{wave(1, 2, 4, 3), wave(2, 4), wave(3, 4)}, Attrs: groups(2)},
			{Name: "image", In: []*ir.Tensor{wave(1, 1, 6, 2, 2), wave(2, 6), wave(3, 6)}, Attrs: groups(3)},
			{Name: "per group", Version: 18, In: []*ir.Tensor{wave(1, 2, 4, 3), wave(2, 2), wave(3, 2)}, Attrs: groups(2)},
			{Name: "no batch", In: []*ir.Tensor{wave(1, 0, 4, 3), wave(2, 4), wave(3, 4)}, Attrs: groups(2)},
		}
	},
})

func groupNormInfer(c *ir.InferCtx) error {
	x, groups := c.Shape(0), c.Node.Int("num_groups", 0)
	if groups <= 0 {
		return c.Errorf("num_groups is %d; it must be positive", groups)
	}
	if x.Ranked {
		if x.Rank() < 2 {
			return c.Errorf("X of shape %s has no channel axis", x)
		}
		channels, known := x.Dims[1].Int()
		if known && channels%groups != 0 {
			return c.Errorf("%d channels cannot be split into %d groups", channels, groups)
		}
		want := x.Dims[1]
		if c.Version < 21 {
			want = ir.N(groups)
		}
		for i := 1; i < 3; i++ {
			if s := c.Shape(i); s.Ranked && (s.Rank() != 1 || s.Dims[0].Differ(want)) {
				return c.Errorf("%s has shape %s; [%s] is needed", c.Node.Decl.In[i].Name, s, want)
			}
		}
	}
	c.SetTensor(0, c.DType(0), x)
	return nil
}

// groupRegions sees x as [batch, group, channel of the group, rest].
func groupRegions(n *ir.Node, version int, dims []int64) (regionNorm, bool) {
	groups := n.Int("num_groups", 0)
	if len(dims) < 2 || groups <= 0 || dims[1]%groups != 0 {
		return regionNorm{}, false
	}
	per, inner := dims[1]/groups, ir.Elems(dims[2:])
	r := regionNorm{dims: []int64{dims[0], groups, per, inner}, red: []int{2, 3}, eps: normEpsilon(n), group: groups, per: per, inner: inner}
	if version < 21 {
		r.per, r.inner = 1, 1
	}
	return r, true
}

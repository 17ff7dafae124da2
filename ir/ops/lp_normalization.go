package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "LpNormalization",
	Doc:   "x over its p-norm (p 1 or 2) along an axis; 0 where the norm is 0.",
	Since: []int{1, 22},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if p := c.Node.Int("p", 2); p != 1 && p != 2 {
			return c.Errorf("p is %d; it must be 1 or 2", p)
		}
		if r := c.Shape(0).Rank(); r >= 0 {
			if _, err := c.Axis(c.Node.Int("axis", -1), r); err != nil {
				return err
			}
		}
		c.SetTensor(0, c.DType(0), c.Shape(0))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.FollowAll(n)
		if len(m.Out) == 0 || m.Out[0] == nil {
			return ir.AxisMap{}
		}
		axis, ok := ir.NormAxis(n.Int("axis", -1), len(m.Out[0]))
		if !ok {
			return ir.AxisMap{}
		}
		m.Out[0][axis] = nil
		return m
	},
	Cost:      ir.PointwiseCost(4),
	Grad:      ir.GradOf(lpNormGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		r, ok := lpRegions(c.Node, x.Dims)
		if !ok {
			return c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), len(x.Dims))
		}
		c.Set(0, ir.FromFloats(x.DType, r.eval(x.Floats(), nil, nil), x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		r, ok := lpRegions(c.Node, c.InShape(0))
		if !ok {
			return ir.Kernel{}, c.Errorf("axis %d is out of range", c.Node.Int("axis", -1))
		}
		return r.kernel(c)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := wave(1, 2, 3, 2)
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{x}},
			{Name: "p 1", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("p", 1), ir.IntAttr("axis", 1)}},
			{Name: "p 2", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("p", 2), ir.IntAttr("axis", 0)}},
			{Name: "zero", In: []*ir.Tensor{floats([]int64{2, 2}, 0, 0, 1, -2)}, NoGradCheck: map[int]string{0: "the norm of a zero vector has no derivative"}},
			{Name: "empty", In: []*ir.Tensor{wave(1, 0, 3)}},
		}
	},
})

func lpRegions(n *ir.Node, dims []int64) (regionNorm, bool) {
	axis, ok := ir.NormAxis(n.Int("axis", -1), len(dims))
	r := regionNorm{dims: dims, red: []int{axis}, mode: byL2}
	if n.Int("p", 2) == 1 {
		r.mode = byL1
	}
	return r, ok
}

// lpNormGrad: dx = (g - u * sum(g*y)) / norm with u = y for p 2 and the sign of
// x for p 1; 0 where the norm is 0.
func lpNormGrad(c *ir.GradCtx) error {
	axis, ok := ir.NormAxis(c.Node.Int("axis", -1), c.In(0).Type.Shape.Rank())
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.In(0).Name)
	}
	work := workType(c.In(0).Type.DType)
	x, g, y := c.Cast(c.In(0), work), c.Cast(c.OutGrad(0), work), c.Cast(c.Out(0), work)
	norm, u := c.Sqrt(c.ReduceSum(c.Mul(x, x), true, int64(axis))), y
	if c.Node.Int("p", 2) == 1 {
		norm, u = c.ReduceSum(c.Op("Abs", []*ir.Value{x}), true, int64(axis)), c.Sign(x)
	}
	inner := c.Sub(g, c.Mul(u, c.ReduceSum(c.Mul(g, y), true, int64(axis))))
	none := c.Same(norm, c.Zero(norm))
	dx := c.Where(none, c.Zero(norm), c.Div(inner, c.Where(none, c.Scalar(work, 1), norm)))
	c.Set(0, c.Cast(c.Like(dx, x), c.In(0).Type.DType))
	return nil
}

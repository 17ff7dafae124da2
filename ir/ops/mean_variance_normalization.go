package ops

import "memoc/ir"

const mvnEpsilon = 1e-9 // ONNX's function body adds it to the deviation

var _ = ir.Register(ir.Op{
	Name:  "MeanVarianceNormalization",
	Doc:   "(X - mean) / (standard deviation + 1e-9) over the given axes.",
	Since: []int{1, 9, 13},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if r := c.Shape(0).Rank(); r >= 0 {
			if _, bad, ok := normAxes(mvnAxes(c.Node), r); !ok {
				return c.Errorf("axis %d is out of range for rank %d, or given twice", bad, r)
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
		axes, _, ok := normAxes(mvnAxes(n), len(m.Out[0]))
		if !ok {
			return ir.AxisMap{}
		}
		for _, a := range axes {
			m.Out[0][a] = nil
		}
		return m
	},
	Cost:      ir.PointwiseCost(6),
	Grad:      ir.GradOf(mvnGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		axes, bad, ok := normAxes(mvnAxes(c.Node), len(x.Dims))
		if !ok {
			return c.Errorf("axis %d is out of range for rank %d, or given twice", bad, len(x.Dims))
		}
		r := regionNorm{dims: x.Dims, red: axes, mode: byPlainStddev, eps: mvnEpsilon}
		c.Set(0, ir.FromFloats(x.DType, r.eval(x.Floats(), nil, nil), x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		axes, bad, ok := normAxes(mvnAxes(c.Node), len(c.InShape(0)))
		if !ok {
			return ir.Kernel{}, c.Errorf("axis %d is out of range", bad)
		}
		return regionNorm{dims: c.InShape(0), red: axes, mode: byPlainStddev, eps: mvnEpsilon}.kernel(c)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{wave(1, 2, 3, 2, 2)}},
			{Name: "axes", In: []*ir.Tensor{wave(1, 2, 3, 4)}, Attrs: []ir.Attr{ir.IntsAttr("axes", -1, 0)}},
			{Name: "empty", In: []*ir.Tensor{wave(1, 0, 3, 2, 2)}},
		}
	},
})

func mvnAxes(n *ir.Node) []int64 {
	if axes, ok := n.IntList("axes"); ok {
		return axes
	}
	return []int64{0, 2, 3}
}

// mvnGrad: with d = x - mean, s = sqrt(mean(d*d)) and t = s + epsilon,
// dx = (g - mean(g)) / t - d * mean(g*d) / (t*t*s).
func mvnGrad(c *ir.GradCtx) error {
	axes, _, ok := normAxes(mvnAxes(c.Node), c.In(0).Type.Shape.Rank())
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.In(0).Name)
	}
	over := make([]int64, len(axes))
	for i, a := range axes {
		over[i] = int64(a)
	}
	work := workType(c.In(0).Type.DType)
	x, g := c.Cast(c.In(0), work), c.Cast(c.OutGrad(0), work)
	d := c.Sub(x, c.ReduceMean(x, true, over...))
	s := c.Sqrt(c.ReduceMean(c.Mul(d, d), true, over...))
	t := c.AddScalar(s, mvnEpsilon)
	first := c.Div(c.Sub(g, c.ReduceMean(g, true, over...)), t)
	// A region of equal elements has s = 0 and d = 0: the second term is 0.
	safe := c.Where(c.Same(s, c.Zero(s)), c.Scalar(work, 1), s)
	second := c.Div(c.Mul(d, c.ReduceMean(c.Mul(g, d), true, over...)), c.Mul(c.Mul(t, t), safe))
	c.Set(0, c.Cast(c.Sub(first, second), c.In(0).Type.DType))
	return nil
}

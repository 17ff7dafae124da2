package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "PRelu",
	Doc:   "x where x >= 0, slope*x elsewhere; the slope broadcasts to x (before opset 7: one for each channel, axis 1).",
	Since: []int{1, 6, 7, 9, 16},
	In:    ir.Ports("X:T, slope:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64)},
	Infer: func(c *ir.InferCtx) error {
		x, slope := c.Shape(0), c.Shape(1)
		if c.DType(0) != c.DType(1) && c.DType(0) != ir.Undefined && c.DType(1) != ir.Undefined {
			return c.Errorf("X is of type %s and the slope of type %s", c.DType(0), c.DType(1))
		}
		c.SetTensor(0, c.DType(0), x)
		if !x.Ranked || !slope.Ranked || preluByChannel(c.Node, c.Version) {
			return nil
		}
		_, err := broadcastShapes(c, x, slope)
		if err == nil && slope.Rank() > x.Rank() {
			return c.Errorf("the slope's shape %s does not broadcast to %s", slope, x)
		}
		return err
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if n.Decl != nil && preluByChannel(n, n.Decl.SinceVersion(n.Version)) {
			return ir.AxisMap{}
		}
		return ir.FollowAll(n)
	},
	Cost: ir.PointwiseCost(2),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		dy, x := c.OutGrad(0), c.In(0)
		if dy == nil {
			return nil
		}
		if preluByChannel(c.Node, c.Version) {
			return c.Node.Errorf("grad", "not derived for the slope by channel of opsets before 7; convert the model to opset 7 or later")
		}
		below := c.Less(x, c.Zero(x))
		if c.Needs(0) {
			c.Set(0, c.Where(below, c.Mul(dy, c.In(1)), dy))
		}
		if c.Needs(1) {
			c.Set(1, c.SumTo(c.Where(below, c.Mul(dy, x), c.Zero(x)), c.In(1)))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		d := c.In(0).DType
		in, err := preluOperands(c)
		if err != nil {
			return err
		}
		if d.IsInt() {
			return broadcastTensors(c, d, in, (*ir.Tensor).Ints, ir.SetInts, func(x []int64) int64 {
				if x[0] < 0 && !d.IsUnsigned() {
					return x[0] * x[1]
				}
				return x[0]
			})
		}
		return broadcastTensors(c, d, in, (*ir.Tensor).Floats, ir.SetFloats, func(x []float64) float64 {
			if x[0] < 0 {
				return x[0] * x[1]
			}
			return x[0]
		})
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if preluByChannel(c.Node, c.Version) {
			return ir.Kernel{}, c.Errorf("no device code for the slope by channel of opsets before 7; convert the model to opset 7 or later")
		}
		return ir.Kernel{Pointwise: "x0 < acc_t(0) ? x0 * x1 : x0"}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, -3.5, -0.75, 1)
		return []ir.Sample{
			{Name: "same", In: []*ir.Tensor{x, floats([]int64{2, 3}, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)}},
			{Name: "broadcast", In: []*ir.Tensor{x, floats([]int64{3}, 0.1, 0.2, 0.3)}},
			{Name: "one", In: []*ir.Tensor{x, floats([]int64{1, 1}, 0.25)}},
			{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{-2, 3}, 2), ir.FromInts(ir.Int32, []int64{4}, 1)}},
			{Name: "by channel", Version: 6, In: []*ir.Tensor{x.Reshaped(1, 2, 3), floats([]int64{2}, 0.1, 0.2)},
				Want: []*ir.Tensor{floats([]int64{1, 2, 3}, 0.5, -0.125, 2, -0.7, -0.15, 1)}},
		}
	},
})

// preluByChannel reports whether the slope has an element for each channel,
// which is not how it broadcasts today.
func preluByChannel(n *ir.Node, version int) bool {
	if version >= 7 || len(n.In) < 2 || n.In[0] == nil || n.In[1] == nil {
		return false
	}
	x, s := n.In[0].Type.Shape, n.In[1].Type.Shape
	return x.Rank() > 2 && s.Rank() == 1 && !s.Dims[0].Equal(ir.N(1))
}

func preluOperands(c *ir.EvalCtx) ([]*ir.Tensor, error) {
	x, s := c.In(0), c.In(1)
	if c.Version < 7 && len(x.Dims) > 2 && len(s.Dims) == 1 && s.Dims[0] != 1 {
		dims := []int64{s.Dims[0]}
		for range x.Dims[2:] {
			dims = append(dims, 1)
		}
		s = s.Reshaped(dims...)
	}
	dims, ok := broadcastDims(x.Dims, s.Dims)
	if !ok || len(dims) != len(x.Dims) {
		return nil, c.Errorf("the slope's shape %v does not broadcast to %v", s.Dims, x.Dims)
	}
	return []*ir.Tensor{x, s}, nil
}

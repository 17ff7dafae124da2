package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Expand",
	Doc:   "Broadcasts the input with a shape.",
	Since: []int{8, 13},
	In:    ir.Ports("input:T, shape:tensor(int64)"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: expandInfer,
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.FollowAll(&ir.Node{In: n.In[:1], Out: n.Out})
		return m
	},
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if c.Needs(0) {
			c.Set(0, c.SumTo(c.OutGrad(0), c.In(0)))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		dims, ok := broadcastDims(x.Dims, c.In(1).Ints())
		if !ok {
			return c.Errorf("shape %v does not broadcast with %v", x.Dims, c.In(1).Ints())
		}
		c.Set(0, pick(x.DType, dims, stridedIndex(dims, broadcastStrides(dims, x.Dims), 0), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return stridedKernel(c, broadcastStrides(c.OutShape(0), c.InShape(0)), 0)
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 1}, iota64(3)...)
		to := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "both ways", In: []*ir.Tensor{x, to(2, 1, 4)}},
			{Name: "one way", In: []*ir.Tensor{x, to(1)}},
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 3), to(2, 2)}},
			{Name: "empty", In: []*ir.Tensor{x, to(3, 0)}},
		}
	},
})

func expandInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	target, ok := c.Ints(1)
	if !ok {
		shape := ir.Shape{}
		if n, known := c.Length(1); known && in.Ranked {
			shape = c.FreshShape(max(n, in.Rank()))
			for i := range in.Dims { // an extent above 1 stays
				o := len(shape.Dims) - in.Rank() + i
				if d, isInt := in.Dims[i].Int(); isInt && d != 1 || o < len(shape.Dims)-n {
					shape.Dims[o] = in.Dims[i]
				}
			}
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	for _, d := range target {
		if n, isInt := d.Int(); isInt && n < 0 {
			return c.Errorf("the shape has a negative extent %d", n)
		}
	}
	out, err := broadcastShapes(c, in, ir.Dims(target...))
	if err != nil {
		return err
	}
	c.SetTensor(0, c.DType(0), out)
	moveInts(c, out, func(in, dims []int64) []int { return stridedIndex(dims, broadcastStrides(dims, in), 0) })
	return nil
}

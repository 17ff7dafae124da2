package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Flatten",
	Doc:   "A matrix of the axes before `axis` by the axes from it on.",
	Since: []int{1, 9, 11, 13, 21, 23, 24, 25},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if !in.Ranked {
			c.SetTensor(0, c.DType(0), c.FreshShape(2))
			return nil
		}
		axis, ok := flattenAxis(c.Node, in.Rank())
		if !ok {
			return c.Errorf("axis %d is out of range for rank %d", axis, in.Rank())
		}
		c.SetTensor(0, c.DType(0), ir.Dims(product(in.Dims[:axis]), product(in.Dims[axis:])))
		keepInts(c)
		return nil
	},
	Axes:      regroupAxes,
	Cost:      ir.ViewCost,
	Grad:      ir.GradOf(reshapeLikeGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		axis, ok := flattenAxis(c.Node, len(x.Dims))
		if !ok {
			return c.Errorf("axis %d is out of range for rank %d", axis, len(x.Dims))
		}
		c.Set(0, x.Reshaped(ir.Elems(x.Dims[:axis]), ir.Elems(x.Dims[axis:])))
		return nil
	},
	Kernel: ir.KernelOf(copyKernel),
	View:   sharesInput0,
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3, 4}, iota64(24)...)
		axis := func(a int64) []ir.Attr { return []ir.Attr{ir.IntAttr("axis", a)} }
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{x}},
			{Name: "zero", In: []*ir.Tensor{x}, Attrs: axis(0)},
			{Name: "rank", In: []*ir.Tensor{x}, Attrs: axis(3)},
			{Name: "negative", In: []*ir.Tensor{x}, Attrs: axis(-1)},
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 2)}, Attrs: axis(0)},
		}
	},
})

// flattenAxis is the first axis of the second group, in [0, rank].
func flattenAxis(n *ir.Node, rank int) (axis int, ok bool) {
	a := n.Int("axis", 1)
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a > int64(rank) {
		return int(n.Int("axis", 1)), false
	}
	return int(a), true
}

package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Unsqueeze",
	Doc:   "Inserts axes of extent 1.",
	Since: []int{1, 11, 13, 21, 23, 24, 25},
	In:    ir.Ports("data:T, axes:tensor(int64)?"), Out: ir.Ports("expanded:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     unsqueezeInfer,
	Axes:      regroupAxes,
	Cost:      ir.ViewCost,
	Grad:      ir.GradOf(reshapeLikeGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		axes, given := evalInts(c, "axes", 1)
		if !given {
			return c.Errorf("axes are missing")
		}
		rank := len(x.Dims) + len(axes)
		at, bad, ok := normAxes(axes, rank)
		if !ok {
			return c.Errorf("axis %d is repeated or out of range for rank %d", bad, rank)
		}
		c.Set(0, x.Reshaped(dimsWith(x.Dims, at, 1)...))
		return nil
	},
	Kernel: ir.KernelOf(copyKernel),
	View:   sharesInput0,
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, iota64(6)...)
		axes := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "input", In: []*ir.Tensor{x, axes(0, 2)}},
			{Name: "negative", In: []*ir.Tensor{x, axes(-1)}},
			{Name: "attribute", Version: 11, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntsAttr("axes", 1)}},
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 3), axes(0)}},
		}
	},
})

// dimsWith inserts one at the given positions of the result, which are sorted.
func dimsWith[E any](dims []E, at []int, one E) []E {
	out := make([]E, 0, len(dims)+len(at))
	for i := range len(dims) + len(at) {
		if slices.Contains(at, i) {
			out = append(out, one)
			continue
		}
		out, dims = append(out, dims[0]), dims[1:]
	}
	return out
}

func unsqueezeInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	axes, given, known := axesOf(c.Node, 1)
	if !given {
		return c.Errorf("axes are missing")
	}
	keepInts(c)
	if !known {
		shape := ir.Shape{}
		if n, ok := c.Length(1); ok && in.Ranked {
			shape = c.FreshShape(in.Rank() + n)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	rank := in.Rank() + len(axes)
	at, bad, ok := normAxes(axes, rank)
	if !ok {
		return c.Errorf("axis %d is repeated or out of range for rank %d", bad, rank)
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dimsWith(in.Dims, at, ir.N(1))...))
	return nil
}

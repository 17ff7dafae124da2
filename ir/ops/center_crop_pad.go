package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "CenterCropPad",
	Doc:   "Crops or pads with zeros, evenly on both sides, to the given extents.",
	Since: []int{18},
	In:    ir.Ports("input_data:T, shape:Tind"), Out: ir.Ports("output_data:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer: centerInfer,
	Axes: func(n *ir.Node) ir.AxisMap {
		in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
		return followAxes(n, func(a int) int {
			if in.Rank() == out.Rank() && in.Dims[a].Equal(out.Dims[a]) {
				return a
			}
			return -1
		})
	},
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		in, okIn := c.In(0).Type.Shape.Static()
		out, okOut := c.Node.Out[0].Type.Shape.Static()
		if !okIn || !okOut {
			return c.Node.Errorf("grad", "the gradient needs static extents; bind the dims with --dim")
		}
		before, after := centerAmounts(in, out)
		if c.Needs(0) {
			c.Set(0, c.Like(c.Pad(c.OutGrad(0), negated(before), negated(after)), c.In(0)))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		axes, some := c.Node.IntList("axes")
		dims, msg := centerDims(x.Dims, c.In(1).Ints(), axes, some)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		before, after := centerAmounts(x.Dims, dims)
		c.Set(0, pick(x.DType, dims, padIndex(x.Dims, dims, before, after, "constant"), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		in, out := c.InShape(0), c.OutShape(0)
		before, after := centerAmounts(in, out)
		return ir.Kernel{Func: "center_crop_pad", Source: centerCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.DimsArg(in...), ir.DimsArg(out...), ir.DimsArg(before...), ir.DimsArg(after...)}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 4}, iota64(12)...)
		to := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "crop", In: []*ir.Tensor{x, to(2, 1)}},
			{Name: "pad", In: []*ir.Tensor{x, to(6, 4)}},
			{Name: "axes", In: []*ir.Tensor{x, to(7)}, Attrs: []ir.Attr{ir.IntsAttr("axes", -1)}},
		}
	},
})

const centerCUDA = `
// Crops come as negative amounts.
template <class T>
void center_crop_pad(Stream& s, const T* x, T* y, Dims in, Dims out, Dims before, Dims after) {
  Dims strides = strides_of(in);
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    int64_t at = 0, rest = i;
    bool inside = true;
    for (int64_t a = out.rank - 1; a >= 0; a--) {
      int64_t p = rest % out.d[a] - before.d[a];
      rest /= out.d[a];
      inside = inside && p >= 0 && p < in.d[a];
      at += p * strides.d[a];
    }
    y[i] = inside ? x[at] : T();
  });
}`

// centerDims puts the wanted extents on their axes.
func centerDims[E any](in, want []E, axes []int64, some bool) (dims []E, msg string) {
	if !some {
		for a := range in {
			axes = append(axes, int64(a))
		}
	}
	if len(axes) != len(want) {
		return nil, "there must be one extent for each axis"
	}
	dims = append([]E{}, in...)
	for i, axis := range axes {
		a, ok := ir.NormAxis(axis, len(in))
		if !ok {
			return nil, "an axis is out of range"
		}
		dims[a] = want[i]
	}
	return dims, ""
}

// centerAmounts is what is added (cropped, if negative) on both sides: the
// smaller half before, rounded toward zero.
func centerAmounts(in, out []int64) (before, after []int64) {
	for a := range in {
		d := out[a] - in[a]
		before = append(before, d/2)
		after = append(after, d-d/2)
	}
	return before, after
}

func centerInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	axes, some := c.Node.IntList("axes")
	want, ok := c.Ints(1)
	if !ok {
		n := in.Rank()
		if some {
			n = len(axes)
		}
		want = c.FreshShape(n).Dims
	}
	for _, d := range want {
		if n, isInt := d.Int(); isInt && n < 0 {
			return c.Errorf("the shape has a negative extent %d", n)
		}
	}
	dims, msg := centerDims(in.Dims, want, axes, some)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Split",
	Doc:   "Cuts a tensor along an axis: by given sizes, or into equal parts (the last may be smaller).",
	Since: []int{1, 2, 11, 13, 18},
	In:    ir.Ports("input:T, split:tensor(int64)?"), Out: ir.Ports("outputs:T*"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     func(c *ir.InferCtx) error { return splitInfer(c, splitSizes) },
	Axes:      splitAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(splitGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		sizes, given := evalInts(c, "split", 1)
		return splitEval(c, sizes, given)
	},
	Kernel: ir.KernelOf(splitKernel),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 6}, iota64(12)...)
		axis := func(n int64, more ...ir.Attr) []ir.Attr { return append(more, ir.IntAttr("axis", n)) }
		sizes := ir.FromInts(ir.Int64, []int64{1, 0, 5}, 3)
		return []ir.Sample{
			{Name: "equal", Version: 13, NumOut: 3, In: []*ir.Tensor{x}, Attrs: axis(1)},
			{Name: "num_outputs", NumOut: 2, In: []*ir.Tensor{x}, Attrs: axis(-1, ir.IntAttr("num_outputs", 2))},
			{Name: "uneven", NumOut: 4, In: []*ir.Tensor{x}, Attrs: axis(1, ir.IntAttr("num_outputs", 4))},
			{Name: "sizes", NumOut: 3, In: []*ir.Tensor{x, sizes}, Attrs: axis(1)},
			{Name: "attribute", Version: 11, NumOut: 2, In: []*ir.Tensor{x}, Attrs: axis(1, ir.IntsAttr("split", 2, 4))},
			{Name: "one", Version: 13, NumOut: 1, In: []*ir.Tensor{x}},
		}
	},
})

// splitSizes is the extents of the parts, symbols among them; ok is false
// where they are not known.
func splitSizes(c *ir.InferCtx, extent ir.Dim) (sizes []ir.Dim, ok bool, err error) {
	n := len(c.Node.Out)
	if c.Has(1) {
		sizes, ok = c.Ints(1)
	} else if ns, given := c.Node.IntList("split"); given {
		sizes, ok = ir.Ints64(ns...).Dims, true
	} else {
		if k := c.Node.Int("num_outputs", int64(n)); k != int64(n) {
			return nil, false, c.Errorf("num_outputs is %d but the node has %d outputs", k, n)
		}
		return equalParts(c, extent, n)
	}
	if ok && len(sizes) != n {
		return nil, false, c.Errorf("%d sizes for %d outputs", len(sizes), n)
	}
	return sizes, ok, nil
}

// equalParts divides an extent; before opset 18 it must divide exactly.
func equalParts(c *ir.InferCtx, extent ir.Dim, n int) (sizes []ir.Dim, ok bool, err error) {
	if n == 0 {
		return nil, false, c.Errorf("there are no outputs")
	}
	if total, isInt := extent.Int(); isInt {
		parts, msg := evenParts(total, n, c.Version)
		if msg != "" {
			return nil, false, c.Errorf("%s (%d into %d)", msg, total, n)
		}
		return ir.Ints64(parts...).Dims, true, nil
	}
	part, exact := extent.Div(ir.N(int64(n)))
	if !exact {
		return nil, false, nil
	}
	sizes = make([]ir.Dim, n)
	for i := range sizes {
		sizes[i] = part
	}
	return sizes, true, nil
}

func evenParts(total int64, n, since int) (parts []int64, msg string) {
	if total%int64(n) != 0 && since < 18 {
		return nil, "the extent does not divide into equal parts"
	}
	size := (total + int64(n) - 1) / int64(n)
	for range n {
		parts = append(parts, min(size, total))
		total -= parts[len(parts)-1]
	}
	return parts, ""
}

func splitInfer(c *ir.InferCtx, sizesOf func(*ir.InferCtx, ir.Dim) ([]ir.Dim, bool, error)) error {
	in := c.Shape(0)
	if !in.Ranked {
		for o := range c.Node.Out {
			c.SetTensor(o, c.DType(0), ir.Shape{})
		}
		return nil
	}
	axis, err := c.Axis(c.Node.Int("axis", 0), in.Rank())
	if err != nil {
		return err
	}
	sizes, ok, err := sizesOf(c, in.Dims[axis])
	if err != nil {
		return err
	}
	sum := ir.N(0)
	for o := range c.Node.Out {
		dims := append([]ir.Dim{}, in.Dims...)
		dims[axis] = c.FreshDim()
		if ok {
			if n, isInt := sizes[o].Int(); isInt && n < 0 {
				return c.Errorf("size %d of part %d is negative", n, o)
			}
			dims[axis] = sizes[o]
			sum = sum.Add(sizes[o])
		}
		c.SetTensor(o, c.DType(0), ir.Dims(dims...))
	}
	if ok && sum.Differ(in.Dims[axis]) {
		return c.Errorf("the parts add up to %s but the axis has extent %s", sum, in.Dims[axis])
	}
	if ds, known := c.Ints(0); known && ok && in.Rank() == 1 {
		splitInts(c, ds, sizes)
	}
	return nil
}

func splitInts(c *ir.InferCtx, ds, sizes []ir.Dim) {
	at := int64(0)
	for o, s := range sizes {
		n, isInt := s.Int()
		if !isInt || at+n > int64(len(ds)) {
			return
		}
		c.SetInts(o, ds[at:at+n])
		at += n
	}
}

func splitAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	in := n.In[0].Type.Shape
	axis, ok := ir.NormAxis(n.Int("axis", 0), in.Rank())
	if !in.Ranked || !ok {
		return m
	}
	at, known := int64(0), true
	for o, v := range n.Out {
		if v == nil || !v.Type.Shape.Ranked {
			known = false
			continue
		}
		axes := make([]ir.OutAxis, in.Rank())
		for a := range axes {
			if a != axis || known {
				axes[a] = ir.OutAxis{{In: 0, Axis: a}}
			}
		}
		if known {
			axes[axis][0].Lo = at
		}
		m.Out[o] = axes
		size, static := v.Type.Shape.Dims[axis].Int()
		at += size
		known = known && static
	}
	return m
}

// splitGrad joins the parts' gradients; a part that none reaches is zero.
func splitGrad(c *ir.GradCtx) error {
	if !c.Needs(0) {
		return nil
	}
	parts := make([]*ir.Value, 0, len(c.Node.Out))
	for o := range c.Node.Out {
		g := c.OutGrad(o)
		if g == nil {
			v := c.Out(o)
			if !v.Type.Shape.Ranked {
				return c.Node.Errorf("grad", "the gradient needs the shape of %q", v.Name)
			}
			g = c.ZerosLike(v)
		}
		parts = append(parts, g)
	}
	c.Set(0, c.Like(c.Concat(c.Node.Int("axis", 0), parts...), c.In(0)))
	return nil
}

func splitEval(c *ir.EvalCtx, sizes []int64, given bool) error {
	x := c.In(0)
	axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims))
	if !ok {
		return c.Errorf("the axis is out of range")
	}
	n := len(c.Node.Out)
	if !given {
		var msg string
		if sizes, msg = evenParts(x.Dims[axis], n, c.Version); msg != "" {
			return c.Errorf("%s", msg)
		}
	}
	if len(sizes) != n {
		return c.Errorf("%d sizes for %d outputs", len(sizes), n)
	}
	at := int64(0)
	for o, size := range sizes {
		if size < 0 || at+size > x.Dims[axis] {
			return c.Errorf("the sizes %v do not fit the extent %d", sizes, x.Dims[axis])
		}
		c.Set(o, sliceOne(x, axis, at, size))
		at += size
	}
	if at != x.Dims[axis] {
		return c.Errorf("the sizes %v do not add up to the extent %d", sizes, x.Dims[axis])
	}
	return nil
}

// sliceOne is count positions of an axis from start on.
func sliceOne(x *ir.Tensor, axis int, start, count int64) *ir.Tensor {
	dims := append([]int64{}, x.Dims...)
	dims[axis] = count
	strides := rowMajor(x.Dims)
	return pick(x.DType, dims, stridedIndex(dims, strides, start*strides[axis]), x)
}

func splitKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.InDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	dims := c.InShape(0)
	axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
	inner := ir.Elems(dims[axis+1:])
	args := []ir.KernelArg{ir.InArg(0), ir.IntArg(ir.Elems(dims[:axis])), ir.IntArg(dims[axis] * inner), ir.IntArg(0)}
	for o := range c.Node.Out {
		n := int64(0)
		if c.HasOut(o) {
			n = c.OutShape(o)[axis] * inner
		} else if o < len(c.Node.Out)-1 {
			return ir.Kernel{}, c.Errorf("part %d is absent", o)
		}
		args = append(args, ir.OutArg(o), ir.IntArg(n))
	}
	return ir.Kernel{Func: "split", Source: splitCUDA, Types: []ir.DType{c.InDType(0)}, Args: args}, nil
}

const splitCUDA = `
// One launch for each part: rows of n elements come from offset at in rows of total elements.
template <class T>
void split_part(Stream& s, const T* x, int64_t outer, int64_t total, int64_t at, T* y, int64_t n) {
  parallel_for(s, outer * n, [=] MEMOC_DEVICE(int64_t i) { y[i] = x[i / n * total + at + i % n]; });
}

template <class T>
void split(Stream&, const T*, int64_t, int64_t, int64_t) {}

template <class T, class... Rest>
void split(Stream& s, const T* x, int64_t outer, int64_t total, int64_t at, T* y, int64_t n, Rest... rest) {
  split_part(s, x, outer, total, at, y, n);
  split<T>(s, x, outer, total, at + n, rest...);
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SplitToSequence",
	Doc:   "Cuts a tensor along an axis into a sequence: by sizes, by one size, or into single positions.",
	Since: []int{11, 24},
	In:    ir.Ports("input:T, split:I?"), Out: ir.Ports("output_sequence:S"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if !in.Ranked {
			c.Set(0, ir.SequenceOf(ir.TensorOf(c.DType(0), ir.Shape{})))
			return nil
		}
		axis, err := c.Axis(c.Node.Int("axis", 0), in.Rank())
		if err != nil {
			return err
		}
		if n, ok := c.StaticInts(1); ok && len(n) == 1 && c.Shape(1).Rank() == 0 && n[0] < 1 {
			return c.Errorf("the size %d of a part is not positive", n[0])
		}
		dims := append([]ir.Dim{}, in.Dims...)
		dims[axis] = c.FreshDim()
		if d, ok := commonPart(c, in.Dims[axis]); ok {
			dims[axis] = d
		}
		if !c.Has(1) && c.Node.Int("keepdims", 1) == 0 {
			dims = dimsWithout(dims, []int{axis})
		}
		c.Set(0, ir.SequenceOf(ir.TensorOf(c.DType(0), ir.Dims(dims...))))
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, _ := c.Traffic()
		return ir.Cost{Read: read, Write: 0, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad(noSequenceGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims))
		if !ok {
			return c.Errorf("the axis is out of range")
		}
		sizes, msg := sequenceSizes(x.Dims[axis], c.In(1))
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		seq, at := ir.Sequence{}, int64(0)
		for _, n := range sizes {
			part := sliceOne(x, axis, at, n)
			if !c.Has(1) && c.Node.Int("keepdims", 1) == 0 {
				part = part.Reshaped(dimsWithout(part.Dims, []int{axis})...)
			}
			seq = append(seq, part)
			at += n
		}
		c.Set(0, seq)
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 5}, iota64(10)...)
		axis := []ir.Attr{ir.IntAttr("axis", 1)}
		return []ir.Sample{
			{Name: "sizes", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{2, 3}, 2)}, Attrs: axis},
			{Name: "one size", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{2})}, Attrs: axis},
			{Name: "single", In: []*ir.Tensor{x}, Attrs: append(axis, ir.IntAttr("keepdims", 0))},
		}
	},
})

// sequenceSizes is the extents of the parts at run time.
func sequenceSizes(extent int64, split *ir.Tensor) (sizes []int64, msg string) {
	step := int64(1)
	if split != nil && len(split.Dims) == 1 {
		sum := int64(0)
		for _, n := range split.Ints() {
			if n < 0 {
				return nil, "a size is negative"
			}
			sum += n
		}
		if sum != extent {
			return nil, "the sizes do not add up to the extent"
		}
		return split.Ints(), ""
	}
	if split != nil {
		step = split.Ints()[0]
	}
	if step < 1 {
		return nil, "the size of a part is not positive"
	}
	for extent > 0 {
		sizes = append(sizes, min(step, extent))
		extent -= step
	}
	return sizes, ""
}

// commonPart is the extent that all parts share, if they do and it is known.
func commonPart(c *ir.InferCtx, extent ir.Dim) (ir.Dim, bool) {
	if !c.Has(1) {
		return ir.N(1), true
	}
	sizes, ok := c.Ints(1)
	if !ok || len(sizes) == 0 {
		return ir.Dim{}, false
	}
	if c.Shape(1).Rank() == 0 {
		n, isInt := extent.Int()
		k, isInt2 := sizes[0].Int()
		return sizes[0], isInt && isInt2 && k > 0 && n%k == 0
	}
	for _, s := range sizes {
		if !s.Equal(sizes[0]) {
			return ir.Dim{}, false
		}
	}
	return sizes[0], true
}

// splitPart is the extent of part at of a SplitToSequence node.
func splitPart(n *ir.Node, at int64) (ir.Dim, bool) {
	c := &ir.InferCtx{Node: n}
	if !c.Has(1) {
		return ir.N(1), n.Int("keepdims", 1) != 0
	}
	sizes, ok := c.Ints(1)
	if !ok || c.Shape(1).Rank() != 1 {
		return ir.Dim{}, false
	}
	p, ok := ir.NormAxis(at, len(sizes))
	if !ok {
		return ir.Dim{}, false
	}
	return sizes[p], true
}

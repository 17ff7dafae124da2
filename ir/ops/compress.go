package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Compress",
	Doc:   "The slices along an axis (or the elements of the flat tensor) that a condition names.",
	Since: []int{9, 11},
	In:    ir.Ports("input:T, condition:tensor(bool)"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if r := c.Shape(1).Rank(); r >= 0 && r != 1 {
			return c.Errorf("the condition must have one axis, not %d", r)
		}
		kept := c.FreshDim()
		if ns, ok := c.StaticInts(1); ok {
			kept = ir.N(int64(len(positions(ns))))
		}
		if c.Node.Attr("axis") == nil {
			c.SetTensor(0, c.DType(0), ir.Dims(kept))
			return nil
		}
		if !in.Ranked {
			c.SetTensor(0, c.DType(0), ir.Shape{})
			return nil
		}
		axis, err := c.Axis(c.Node.Int("axis", 0), in.Rank())
		if err != nil {
			return err
		}
		dims := append([]ir.Dim{}, in.Dims...)
		dims[axis] = kept
		c.SetTensor(0, c.DType(0), ir.Dims(dims...))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		axis, ok := ir.NormAxis(n.Int("axis", 0), n.In[0].Type.Shape.Rank())
		if !ok || n.Attr("axis") == nil {
			return ir.AxisMap{}
		}
		return followAxes(n, func(a int) int {
			if a == axis {
				return -1
			}
			return a
		})
	},
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(compressGrad),
	Recompute: ir.Never("the size of its result depends on the data"),
	Eval: func(c *ir.EvalCtx) error {
		x, keep := c.In(0), positions(c.In(1).Ints())
		axis, flat := 0, c.Node.Attr("axis") == nil
		if flat {
			x = x.Reshaped(x.Len())
		} else {
			var ok bool
			if axis, ok = ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims)); !ok {
				return c.Errorf("the axis is out of range")
			}
		}
		idx, bad, ok := gatherIndex(x.Dims, axis, keep)
		if !ok {
			return c.Errorf("the condition names position %d of an axis of extent %d", bad, x.Dims[axis])
		}
		c.Set(0, pick(x.DType, gatherDims(x.Dims, []int64{int64(len(keep))}, axis), idx, x))
		return nil
	},
	Kernel: ir.NoKernel("the size of its result depends on the data"),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 2}, iota64(6)...)
		cond := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Bool, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "rows", In: []*ir.Tensor{x, cond(0, 1, 1)}, Attrs: []ir.Attr{ir.IntAttr("axis", 0)}},
			{Name: "short condition", In: []*ir.Tensor{x, cond(1)}, Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
			{Name: "flat", In: []*ir.Tensor{x, cond(0, 1, 0, 0, 1)}},
		}
	},
})

// positions lists where ns is not 0.
func positions(ns []int64) []int64 {
	out := []int64{}
	for i, n := range ns {
		if n != 0 {
			out = append(out, int64(i))
		}
	}
	return out
}

func compressGrad(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	at := c.Reshape(c.Op("NonZero", []*ir.Value{c.In(1)}), -1)
	if c.Node.Attr("axis") != nil {
		axis, ok := ir.NormAxis(c.Node.Int("axis", 0), x.Type.Shape.Rank())
		if !ok {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
		}
		c.Set(0, c.Like(c.ScatterSum(dy, axis, at, x, true), x))
		return nil
	}
	n, ok := x.Type.Shape.NumElements()
	if _, static := n.Int(); !ok || !static {
		return c.Node.Errorf("grad", "the gradient without an axis needs a static shape; bind the dims with --dim")
	}
	flat := &ir.Value{Name: x.Name, Type: ir.TensorOf(x.Type.DType, ir.Dims(n))}
	c.Set(0, c.Like(c.ReshapeLike(c.ScatterSum(dy, 0, at, flat, true), x), x))
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ReverseSequence",
	Doc:   "Turns the first seq_lens[b] positions of the time axis round, for every b of the batch axis.",
	Since: []int{10},
	In:    ir.Ports("input:T, sequence_lens:tensor(int64)"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if in.Ranked && in.Rank() < 2 {
			return c.Errorf("the input must have at least 2 axes")
		}
		if r := c.Shape(1).Rank(); r >= 0 && r != 1 {
			return c.Errorf("the lengths must have one axis, not %d", r)
		}
		if in.Ranked {
			if _, _, ok := sequenceAxes(c.Node, in.Rank()); !ok {
				return c.Errorf("time and batch axis must be 0 and 1, one each")
			}
		}
		c.SetTensor(0, c.DType(0), in)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		time, batch, ok := sequenceAxes(n, n.In[0].Type.Shape.Rank())
		m := followAxes(n, func(a int) int {
			if !ok || a == time {
				return -1
			}
			return a
		})
		if ok && m.Out[0] != nil {
			m.Out[0][batch] = append(m.Out[0][batch], ir.AxisLink{In: 1, Axis: 0})
		}
		return m
	},
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		// The operator is its own inverse and its own transpose.
		if c.Needs(0) {
			c.Set(0, c.Op("ReverseSequence", []*ir.Value{c.OutGrad(0), c.In(1)}, c.Node.Attrs...))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		lens := c.In(1).Ints()
		time, batch, ok := sequenceAxes(c.Node, len(x.Dims))
		if !ok || int64(len(lens)) != x.Dims[batch] {
			return c.Errorf("%d lengths for shape %v", len(lens), x.Dims)
		}
		strides := rowMajor(x.Dims)
		idx := make([]int, x.Len())
		allIndices(x.Dims, func(i int, coord []int64) {
			idx[i] = i
			if n := lens[coord[batch]]; coord[time] < n && n <= x.Dims[time] {
				idx[i] += int((n - 1 - 2*coord[time]) * strides[time])
			}
		})
		c.Set(0, pick(x.DType, x.Dims, idx, x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		dims := c.InShape(0)
		time, _, ok := sequenceAxes(c.Node, len(dims))
		if !ok {
			return ir.Kernel{}, c.Errorf("the axes are out of range")
		}
		return ir.Kernel{Func: "reverse_sequence", Source: reverseSequenceCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(dims[0]), ir.IntArg(dims[1]), ir.IntArg(ir.Elems(dims[2:])), ir.BoolArg(time == 0)}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 2, 2}, iota64(12)...)
		return []ir.Sample{
			{Name: "time first", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{3, 2}, 2)}},
			{Name: "batch first", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, 2, 2}, 3)},
				Attrs: []ir.Attr{ir.IntAttr("time_axis", 1), ir.IntAttr("batch_axis", 0)}},
		}
	},
})

// sequenceAxes are the time and batch axes: 0 and 1 in either order.
func sequenceAxes(n *ir.Node, rank int) (time, batch int, ok bool) {
	t, b := n.Int("time_axis", 0), n.Int("batch_axis", 1)
	return int(t), int(b), rank >= 2 && t >= 0 && t <= 1 && b == 1-t
}

const reverseSequenceCUDA = `
template <class T>
void reverse_sequence(Stream& s, const T* x, const int64_t* lens, T* y, int64_t d0, int64_t d1, int64_t inner, bool time_first) {
  parallel_for(s, d0 * d1 * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t p0 = i / inner / d1, p1 = i / inner % d1;
    int64_t n = lens[time_first ? p1 : p0], extent = time_first ? d0 : d1;
    int64_t& t = time_first ? p0 : p1;
    if (t < n && n <= extent) t = n - 1 - t;
    y[i] = x[(p0 * d1 + p1) * inner + i % inner];
  });
}`

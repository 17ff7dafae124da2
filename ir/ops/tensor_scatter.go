package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "TensorScatter",
	Doc:   "A key/value cache with an update written from a start position on, one start for each batch entry.",
	Since: []int{24},
	In:    ir.Ports("past_cache:T, update:T, write_indices:tensor(int64)?"), Out: ir.Ports("present_cache:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: tensorScatterInfer,
	Axes: func(n *ir.Node) ir.AxisMap {
		past, update := n.In[0].Type.Shape, n.In[1].Type.Shape
		axis, ok := ir.NormAxis(n.Int("axis", -2), past.Rank())
		if !ok || update.Rank() != past.Rank() {
			return ir.AxisMap{}
		}
		m := followAxes(n, func(a int) int {
			if a == axis || a == 0 {
				return -1
			}
			return a
		})
		for a, links := range m.Out[0] {
			if links != nil {
				m.Out[0][a] = append(links, ir.AxisLink{In: 1, Axis: a})
			}
		}
		return m
	},
	Cost: ir.MoveCost,
	Grad: ir.NoGrad("not derived yet: a cache is not trained"),

	Recompute: ir.Pure,
	Eval:      tensorScatterEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.OutDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		past, update := c.InShape(0), c.InShape(1)
		axis, ok := ir.NormAxis(c.Node.Int("axis", -2), len(past))
		if !ok || axis == 0 || len(update) != len(past) {
			return ir.Kernel{}, c.Errorf("the axis or the shape of the update does not fit")
		}
		return ir.Kernel{Func: "tensor_scatter", Source: tensorScatterCUDA, Types: []ir.DType{c.OutDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.IntArg(past[0]), ir.IntArg(ir.Elems(past[1:axis])), ir.IntArg(past[axis]),
			ir.IntArg(update[axis]), ir.IntArg(ir.Elems(past[axis+1:])), ir.BoolArg(c.Node.Str("mode", "linear") == "circular")}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		past := floats([]int64{2, 1, 4, 2}, iota64(16)...)
		update := floats([]int64{2, 1, 2, 2}, 21, 22, 23, 24, 25, 26, 27, 28)
		at := ir.FromInts(ir.Int64, []int64{1, 2}, 2)
		return []ir.Sample{
			{Name: "linear", In: []*ir.Tensor{past, update, at}},
			{Name: "from the start", In: []*ir.Tensor{past, update}},
			{Name: "circular", In: []*ir.Tensor{past, update, ir.FromInts(ir.Int64, []int64{3, 7}, 2)}, Attrs: []ir.Attr{ir.StringAttr("mode", "circular")}},
			{Name: "axis", In: []*ir.Tensor{floats([]int64{1, 3}, 1, 2, 3), floats([]int64{1, 1}, 9)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
		}
	},
})

const tensorScatterCUDA = `
template <class T>
void tensor_scatter_write(Stream& s, const T* u, const int64_t* at, T* y, int64_t batch, int64_t outer, int64_t n,
                          int64_t count, int64_t inner, bool circular) {
  parallel_for(s, batch * outer * count * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t k = i % inner, p = i / inner % count, line = i / inner / count;
    int64_t to = p + (at ? at[line / outer] : 0);
    if (circular) to %= n;
    if (to >= 0 && to < n) y[(line * n + to) * inner + k] = u[i];
  });
}

template <class T>
void tensor_scatter(Stream& s, const T* x, const T* u, const int64_t* at, T* y, int64_t batch, int64_t outer, int64_t n,
                    int64_t count, int64_t inner, bool circular) {
  if (y != x) copy(s, y, x, batch * outer * n * inner * int64_t(sizeof(T)));
  tensor_scatter_write(s, u, at, y, batch, outer, n, count, inner, circular);
}`

func tensorScatterInfer(c *ir.InferCtx) error {
	past, update := c.Shape(0), c.Shape(1)
	if mode := c.Node.Str("mode", "linear"); mode != "linear" && mode != "circular" {
		return c.Errorf("mode %q is neither linear nor circular", mode)
	}
	if past.Ranked {
		axis, err := c.Axis(c.Node.Int("axis", -2), past.Rank())
		if err != nil {
			return err
		}
		if axis == 0 {
			return c.Errorf("the axis must not be the batch axis")
		}
		for a, d := range update.Dims {
			if update.Rank() != past.Rank() || a != axis && d.Differ(past.Dims[a]) {
				return c.Errorf("an update of shape %s does not fit a cache of shape %s", update, past)
			}
		}
	}
	c.SetTensor(0, c.DType(0), past)
	return nil
}

func tensorScatterEval(c *ir.EvalCtx) error {
	past, update := c.In(0), c.In(1)
	axis, ok := ir.NormAxis(c.Node.Int("axis", -2), len(past.Dims))
	if !ok || axis == 0 || len(update.Dims) != len(past.Dims) {
		return c.Errorf("the axis or the shape of the update does not fit")
	}
	n := past.Dims[axis]
	starts := make([]int64, past.Dims[0])
	if c.Has(2) {
		if starts = c.In(2).Ints(); int64(len(starts)) != past.Dims[0] {
			return c.Errorf("%d starts for %d batch entries", len(starts), past.Dims[0])
		}
	}
	from := make([]int, past.Len())
	for i := range from {
		from[i] = i
	}
	strides := rowMajor(past.Dims)
	bad := false
	allIndices(update.Dims, func(i int, coord []int64) {
		p := coord[axis] + starts[coord[0]]
		if c.Node.Str("mode", "linear") == "circular" {
			p %= n
		}
		if p < 0 || p >= n {
			bad = true
			return
		}
		at := p * strides[axis]
		for a, q := range coord {
			if a != axis {
				at += q * strides[a]
			}
		}
		from[at] = len(from) + i
	})
	if bad {
		return c.Errorf("the update reaches past the end of the cache")
	}
	c.Set(0, pick(past.DType, past.Dims, from, past, update))
	return nil
}

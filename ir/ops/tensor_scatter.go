package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "TensorScatter",
	Doc:   "Writes new positions into a cache, for each batch element from its own index on, around the end in circular mode.",
	Since: []int{24},
	In:    ir.Ports("past_cache:T, update:T, write_indices:I?"), Out: ir.Ports("present_cache:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		past, update := c.Shape(0), c.Shape(1)
		if m := c.Node.Str("mode", "linear"); m != "linear" && m != "circular" {
			return c.Errorf("unknown mode %q", m)
		}
		if past.Ranked {
			axis, err := c.Axis(c.Node.Int("axis", -2), past.Rank())
			if err != nil {
				return err
			}
			if axis == 0 {
				return c.Errorf("axis 0 is the batch; it cannot be the one that is written along")
			}
			for i := range past.Dims {
				if update.Ranked && (update.Rank() != past.Rank() || i != axis && update.Dims[i].Differ(past.Dims[i])) {
					return c.Errorf("update %s does not fit the cache %s along axis %d", update, past, axis)
				}
			}
		}
		sameTypeAs(c, 0, 0)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 {
			return ir.AxisMap{}
		}
		axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
		axis, ok := ir.NormAxis(n.Int("axis", -2), len(axes))
		for a := range axes {
			if !ok || a == axis {
				continue
			}
			axes[a] = ir.OutAxis{{In: 0, Axis: a}, {In: 1, Axis: a}}
			if a == 0 && len(n.In) > 2 && n.In[2] != nil {
				axes[a] = append(axes[a], ir.AxisLink{In: 2, Axis: 0})
			}
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
	},
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: caches are not trained"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		past, update := c.In(0), c.In(1)
		axis, ok := ir.NormAxis(c.Node.Int("axis", -2), len(past.Dims))
		if !ok || axis == 0 || len(update.Dims) != len(past.Dims) {
			return c.Errorf("cache %v and update %v do not fit", past.Dims, update.Dims)
		}
		for i := range past.Dims {
			if i != axis && past.Dims[i] != update.Dims[i] || past.Dims[i] < update.Dims[i] {
				return c.Errorf("cache %v and update %v do not fit", past.Dims, update.Dims)
			}
		}
		first := make([]int64, past.Dims[0])
		if c.Has(2) {
			if c.In(2).Len() != past.Dims[0] {
				return c.Errorf("%d write indices for %d batch elements", c.In(2).Len(), past.Dims[0])
			}
			copy(first, c.In(2).Ints())
		}
		index := make([]int, past.Len())
		for i := range index {
			index[i] = i
		}
		circular := c.Node.Str("mode", "linear") == "circular"
		outer, inner, n, l := ir.Elems(past.Dims[:axis]), ir.Elems(past.Dims[axis+1:]), past.Dims[axis], update.Dims[axis]
		for o := range outer {
			for t := range l {
				at := first[o/(outer/past.Dims[0])] + t
				if circular && n > 0 {
					at = (at%n + n) % n
				}
				if at < 0 || at >= n {
					return c.Errorf("position %d lies outside of a cache of %d", at, n)
				}
				for k := range inner {
					index[(o*n+at)*inner+k] = int(past.Len() + (o*l+t)*inner + k)
				}
			}
		}
		c.Set(0, pick(past.DType, past.Dims, index, past, update))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		past := c.InShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", -2), len(past))
		return ir.Kernel{Func: "tensor_scatter", Source: tensorScatterCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.IntArg(past[0]), ir.IntArg(ir.Elems(past[:axis])), ir.IntArg(past[axis]),
			ir.IntArg(c.InShape(1)[axis]), ir.IntArg(ir.Elems(past[axis+1:])), ir.BoolArg(c.Node.Str("mode", "linear") == "circular")}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		at := ir.FromInts(ir.Int64, []int64{1, 3}, 2)
		return []ir.Sample{
			{Name: "from zero", In: []*ir.Tensor{ramp(2, 2, 4, 3), ramp(2, 2, 2, 3)}},
			{Name: "circular", In: []*ir.Tensor{ramp(2, 4, 3), ramp(2, 2, 3), at}, Attrs: []ir.Attr{ir.StringAttr("mode", "circular"), ir.IntAttr("axis", 1)}},
			{Name: "linear", In: []*ir.Tensor{ramp(2, 4, 3), ramp(2, 1, 3), at}},
		}
	},
})

const tensorScatterCUDA = `
// y may be past: an element is either kept or replaced.
template <class T>
void tensor_scatter(Stream& s, const T* past, const T* update, const int64_t* first, T* y, int64_t batch, int64_t outer, int64_t n,
                    int64_t l, int64_t inner, bool circular) {
  parallel_for(s, outer * n * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t k = i % inner, at = i / inner % n, o = i / (inner * n);
    int64_t t = at - (first ? first[o / (outer / batch)] : 0);
    if (circular) t = (t % n + n) % n;
    y[i] = t >= 0 && t < l ? update[(o * l + t) * inner + k] : past[i];
  });
}`

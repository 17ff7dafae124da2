package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ScatterND",
	Doc:   "The data with slices written at index tuples, which the last axis of the indices holds.",
	Since: []int{11, 13, 16, 18},
	In:    ir.Ports("data:T, indices:tensor(int64), updates:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		data, ids := c.Shape(0), c.Shape(1)
		if data.Ranked && ids.Ranked {
			if ids.Rank() < 1 {
				return c.Errorf("the indices have no axis of tuples")
			}
			if w, ok := ids.Dims[ids.Rank()-1].Int(); ok && int(w) > data.Rank() {
				return c.Errorf("tuples of %d indices for data of rank %d", w, data.Rank())
			}
		}
		return scatterInfer(c)
	},
	Axes:      scatterNDAxes,
	Cost:      scatterNDCost,
	Grad:      ir.GradOf(scatterNDGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		idx, dims, err := tupleIndex(c, c.In(0).Dims, c.In(1), 0)
		if err != nil {
			return err
		}
		if c.In(2).Len() != int64(len(idx)) {
			return c.Errorf("updates have shape %v, the slices %v", c.In(2).Dims, dims)
		}
		code, _ := scatterReduction(c.Node)
		c.Set(0, scatterInto(c.In(0), c.In(2), idx, code))
		return nil
	},
	Kernel:  ir.KernelOf(scatterNDKernel),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 2}, iota64(6)...)
		ids := func(dims []int64, ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, dims...) }
		samples := []ir.Sample{
			{Name: "slices", In: []*ir.Tensor{x, ids([]int64{2, 1}, 2, -3), floats([]int64{2, 2}, 21, 22, 23, 24)}},
			{Name: "elements", In: []*ir.Tensor{x, ids([]int64{2, 2}, 2, 1, 0, 0), floats([]int64{2}, 21, 22)}},
			{Name: "old", Version: 11, In: []*ir.Tensor{x, ids([]int64{1, 1}, 1), floats([]int64{1, 2}, 21, 22)}},
			{Name: "no updates", In: []*ir.Tensor{x, ir.NewTensor(ir.Int64, 0, 1), ir.NewTensor(ir.Double, 0, 2)}},
		}
		twice := []*ir.Tensor{x, ids([]int64{3, 1}, 2, 0, 2), floats([]int64{3, 2}, 2, 3, -4, 7, 0.5, 9)}
		for _, r := range scatterReductions[1:] {
			s := ir.Sample{Name: r, In: twice, Attrs: []ir.Attr{ir.StringAttr("reduction", r)}}
			if r != "add" {
				s.In = []*ir.Tensor{asInts(twice[0]), twice[1], asInts(twice[2])}
			}
			samples = append(samples, s)
		}
		return samples
	},
})

// scatterNDAxes: the axes inside a slice follow data and updates.
func scatterNDAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	data, ids, updates := n.In[0].Type.Shape, n.In[1].Type.Shape, n.In[2].Type.Shape
	if !data.Ranked || !ids.Ranked || !updates.Ranked || ids.Rank() < 1 {
		return m
	}
	width, ok := ids.Dims[ids.Rank()-1].Int()
	if !ok {
		return m
	}
	axes := make([]ir.OutAxis, data.Rank())
	for a := int(width); a < len(axes); a++ {
		if u := updates.Rank() - data.Rank() + a; u >= ids.Rank()-1 && u < updates.Rank() {
			axes[a] = ir.OutAxis{{In: 0, Axis: a}, {In: 2, Axis: u}}
		}
	}
	m.Out[0] = axes
	return m
}

// scatterNDCost: sums of half types are kept in float until the end.
func scatterNDCost(c *ir.CostCtx) ir.Cost {
	cost := scatterCost(c)
	d := c.OutDType(0)
	if code, _ := scatterReduction(c.Node); code != 0 && (d == ir.Float16 || d == ir.BFloat16) {
		cost.Workspace = 4 * ir.Elems(c.OutShape(0))
	}
	return cost
}

func scatterNDGrad(c *ir.GradCtx) error {
	ids := c.In(1)
	return scatterGrad(c,
		func(dy *ir.Value) *ir.Value { return c.Op("GatherND", []*ir.Value{dy, ids}) },
		func(dy *ir.Value) *ir.Value { return c.Op("ScatterND", []*ir.Value{dy, ids, c.ZerosLike(c.In(2))}) })
}

func scatterNDKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.OutDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	code, _ := scatterReduction(c.Node)
	t := tupleArgs(c.OutShape(0), c.InShape(1), 0)
	return ir.Kernel{Func: "scatter_nd", Source: scatterNDCUDA, Types: []ir.DType{c.OutDType(0)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.WorkspaceArg(),
			ir.IntArg(ir.Elems(c.OutShape(0))), t[0], t[3], t[4], ir.IntArg(int64(code))}}, nil
}

const scatterNDCUDA = `
template <class A> MEMOC_FN A scatter_nd_combine(int64_t reduction, A a, A u) {
  switch (reduction) {
    case 1: return A(a + u);
    case 2: return A(a * u);
    case 3: return m::max(a, u);
    case 4: return m::min(a, u);
  }
  return u;
}

MEMOC_FN int64_t scatter_nd_row(const int64_t* ids, int64_t r, const Dims& dims) {
  int64_t at = 0;
  for (int64_t k = 0; k < dims.rank; k++) {
    int64_t id = ids[r * dims.rank + k];
    if (id < 0) id += dims.d[k];
    if (id < 0 || id >= dims.d[k]) return -1;
    at = at * dims.d[k] + id;
  }
  return at;
}

// Without a reduction no tuple may be repeated, so all elements go at once.
template <class T>
void scatter_nd_write(Stream& s, const int64_t* ids, const T* u, T* y, int64_t rows, Dims dims, int64_t inner) {
  parallel_for(s, rows * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t at = scatter_nd_row(ids, i / inner, dims);
    if (at >= 0) y[at * inner + i % inner] = u[i];
  });
}

// With one, a thread takes one position of the slices through all tuples in order. A is where sums are kept. On a GPU the
// rows of the result are dealt out to groups of threads, each of which passes over the tuples of the others.
template <class T, class A>
void scatter_nd_reduce(Stream& s, const int64_t* ids, const T* u, A* y, int64_t rows, Dims dims, int64_t inner,
                       int64_t reduction) {
  int64_t groups = !MEMOC_CUDA || inner > 131072 ? 1 : inner < 4096 ? 64 : 262144 / inner;
  parallel_for(s, inner * groups, [=] MEMOC_DEVICE(int64_t t) {
    int64_t i = t % inner, group = t / inner;
    for (int64_t r = 0; r < rows; r++) {
      int64_t at = scatter_nd_row(ids, r, dims);
      if (at < 0 || at % groups != group) continue;
      y[at * inner + i] = scatter_nd_combine(reduction, y[at * inner + i], to<A>(u[r * inner + i]));
    }
  });
}

template <class T, class A>
void scatter_nd_convert(Stream& s, const T* x, A* y, int64_t n) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<A>(x[i]); });
}

template <class T>
void scatter_nd(Stream& s, const T* x, const int64_t* ids, const T* u, T* y, void* workspace, int64_t n, int64_t rows,
                Dims dims, int64_t inner, int64_t reduction) {
  bool wide = is_small_float<T>::value && reduction != 0;
  if (wide) {
    Acc<T>* w = static_cast<Acc<T>*>(workspace);
    scatter_nd_convert(s, x, w, n);
    scatter_nd_reduce(s, ids, u, w, rows, dims, inner, reduction);
    scatter_nd_convert(s, w, y, n);
    return;
  }
  if (y != x) copy(s, y, x, n * int64_t(sizeof(T)));
  if (reduction == 0) scatter_nd_write(s, ids, u, y, rows, dims, inner);
  else scatter_nd_reduce(s, ids, u, reinterpret_cast<Acc<T>*>(y), rows, dims, inner, reduction);
}`

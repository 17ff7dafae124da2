package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "GatherGrad",
	Doc:    "Gradient of Gather: every slice of dY is added where the index says, in zeros of the given shape.",
	Since:  []int{1},
	In:     ir.Ports("shape:tensor(int64), indices:Tind, dY:T"), Out: ir.Ports("dX:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "Tind": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		shape, err := shapeFromInts(c, 0)
		if err != nil {
			return err
		}
		c.SetTensor(0, c.DType(2), shape)
		return nil
	},
	Axes: ir.NoAxes,
	Cost: scatterSumCost,
	Grad: ir.NoGrad("not derived yet: second derivatives of Gather"),

	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dims, ids, dy := c.In(0).Ints(), c.In(1), c.In(2)
		axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
		if !ok {
			return c.Errorf("the axis is out of range")
		}
		idx, bad, ok := gatherIndex(dims, axis, ids.Ints())
		if !ok || len(idx) != int(dy.Len()) {
			return c.Errorf("index %d is out of range for shape %v, or dY has another shape", bad, dims)
		}
		c.Set(0, scatterInto(ir.NewTensor(dy.DType, dims...), dy, idx, 1))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims := c.OutShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
		return scatterSumKernel(c, c.InDType(1), ir.InArg(2), ir.InArg(1), ir.Elems(dims[:axis]), dims[axis],
			ir.Elems(dims[axis+1:]), ir.Elems(c.InShape(1)), -1<<63)
	}),
	Samples: func() []ir.Sample {
		shape := ir.FromInts(ir.Int64, []int64{3, 2}, 2)
		ids := ir.FromInts(ir.Int64, []int64{0, 0, -1}, 3)
		return []ir.Sample{
			{Name: "rows", In: []*ir.Tensor{shape, ids, floats([]int64{3, 2}, 1, 2, 3, 4, 5, 6)},
				Want: []*ir.Tensor{floats([]int64{3, 2}, 4, 6, 0, 0, 5, 6)}},
			{Name: "columns", In: []*ir.Tensor{shape, ir.FromInts(ir.Int32, []int64{1}), floats([]int64{3}, 1, 2, 3)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)},
				Want: []*ir.Tensor{floats([]int64{3, 2}, 0, 1, 0, 2, 0, 3)}},
		}
	},
})

// scatterSumCost: all of the result is written, and every row of the gradient
// read and added; half types are summed in float in a workspace.
func scatterSumCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	cost := ir.Cost{FLOPs: ir.Elems(c.OutShape(0)), Read: read, Write: write, DType: c.OutDType(0)}
	if d := c.OutDType(0); d == ir.Float16 || d == ir.BFloat16 {
		cost.Workspace = 4 * ir.Elems(c.OutShape(0))
	}
	return cost
}

// scatterSumKernel adds dy, seen as [outer, count, inner], into zeros of
// [outer, n, inner] at ids; slices of index skip are left out.
func scatterSumKernel(c *ir.NodeCtx, idType ir.DType, dy, ids ir.KernelArg, outer, n, inner, count, skip int64) (ir.Kernel, error) {
	if !c.OutDType(0).IsFloat() {
		return ir.Kernel{}, c.Errorf("elements of type %s have no device code", c.OutDType(0))
	}
	return ir.Kernel{Func: "scatter_sum", Source: scatterSumCUDA, Types: []ir.DType{c.OutDType(0), idType}, Args: []ir.KernelArg{
		dy, ids, ir.OutArg(0), ir.WorkspaceArg(), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner), ir.IntArg(count), ir.IntArg(skip)}}, nil
}

const scatterSumCUDA = `
// A thread takes one position of the slices through all indices in order, so that sums do not depend on the schedule. On
// a GPU the rows of the result are dealt out to groups of threads, each of which passes over the indices of the others.
template <class T, class I, class A>
void scatter_sum_rows(Stream& s, const T* dy, const I* ids, A* acc, int64_t outer, int64_t n, int64_t inner, int64_t count,
                      int64_t skip) {
  int64_t lanes = outer * inner;
  int64_t groups = !MEMOC_CUDA || lanes > 131072 ? 1 : lanes < 4096 ? 64 : 262144 / lanes;
  parallel_for(s, lanes * groups, [=] MEMOC_DEVICE(int64_t t) {
    int64_t o = t % lanes / inner, k = t % inner, group = t / lanes;
    for (int64_t j = 0; j < count; j++) {
      int64_t id = int64_t(ids[j]);
      if (id == skip) continue;
      if (id < 0) id += n;
      if (id >= 0 && id < n && id % groups == group) acc[(o * n + id) * inner + k] += to<A>(dy[(o * count + j) * inner + k]);
    }
  });
}

template <class T, class A>
void scatter_sum_round(Stream& s, const A* acc, T* dx, int64_t n) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { dx[i] = to<T>(acc[i]); });
}

template <class T, class I>
void scatter_sum(Stream& s, const T* dy, const I* ids, T* dx, void* workspace, int64_t outer, int64_t n, int64_t inner,
                 int64_t count, int64_t skip) {
  int64_t size = outer * n * inner;
  Acc<T>* acc = is_small_float<T>::value ? static_cast<Acc<T>*>(workspace) : reinterpret_cast<Acc<T>*>(dx);
  fill_zero(s, acc, size * int64_t(sizeof(Acc<T>)));
  scatter_sum_rows(s, dy, ids, acc, outer, n, inner, count, skip);
  if (is_small_float<T>::value) scatter_sum_round(s, acc, dx, size);
}`

package ops

import (
	"math"

	"memoc/ir"
)

// The gradient of Gather, in ONNX Runtime's spelling and in memoc's own, which
// gradients in half types use: ScatterND would need the whole result in float.
var _ = []*ir.Op{gatherGradOp(ir.MsDomain), gatherGradOp(ir.MemocDomain)}

func gatherGradOp(domain string) *ir.Op {
	op := ir.Op{
		Domain: domain,
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
		Axes: gatherGradAxes,
		Cost: func(c *ir.CostCtx) ir.Cost {
			axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(c.OutShape(0)))
			return rowSumCost(c, c.OutShape(0)[axis], ir.Elems(c.InShape(1)))
		},
		Grad:      ir.NoGrad("not derived yet: second derivatives of Gather"),
		Recompute: ir.Pure,
		Eval:      gatherGradEval,
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			dims := c.OutShape(0)
			axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
			if !ok {
				return ir.Kernel{}, c.Errorf("the axis is out of range")
			}
			return rowSumKernel(c, c.InDType(1), ir.InArg(2), ir.InArg(1), ir.Elems(dims[:axis]), dims[axis],
				ir.Elems(dims[axis+1:]), ir.Elems(c.InShape(1)), math.MinInt64)
		}),
		Samples: gatherGradSamples,
	}
	if domain == ir.MemocDomain {
		op.Function = functionOf(gatherGradFunction)
	}
	return ir.Register(op)
}

// gatherGradAxes: axes that are not indexed follow dY; along the indices it is
// a sum.
func gatherGradAxes(n *ir.Node) ir.AxisMap {
	x, ids := outShapeOf(n, 0), inShapeOf(n, 1)
	axis, ok := ir.NormAxis(n.Int("axis", 0), x.Rank())
	if !ok || !ids.Ranked {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	for a := range axes {
		switch {
		case a < axis:
			axes[a] = ir.OutAxis{{In: 2, Axis: a}}
		case a > axis:
			axes[a] = ir.OutAxis{{In: 2, Axis: a + ids.Rank() - 1}}
		}
	}
	m := ir.AxisMap{Out: [][]ir.OutAxis{axes}}
	for a := range ids.Rank() {
		m.Sum = append(m.Sum, ir.AxisRef{In: 1, Axis: a}, ir.AxisRef{In: 2, Axis: axis + a})
	}
	return m
}

func gatherGradSamples() []ir.Sample {
	shape := ir.FromInts(ir.Int64, []int64{3, 2}, 2)
	ids := ir.FromInts(ir.Int64, []int64{0, 0, -1}, 3)
	return []ir.Sample{
		{Name: "rows", In: []*ir.Tensor{shape, ids, floats([]int64{3, 2}, 1, 2, 3, 4, 5, 6)},
			Want: []*ir.Tensor{floats([]int64{3, 2}, 4, 6, 0, 0, 5, 6)}},
		{Name: "columns", In: []*ir.Tensor{shape, ir.FromInts(ir.Int32, []int64{1}), floats([]int64{3}, 1, 2, 3)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)},
			Want: []*ir.Tensor{floats([]int64{3, 2}, 0, 1, 0, 2, 0, 3)}},
		{Name: "matrix of indices", In: []*ir.Tensor{shape, ir.FromInts(ir.Int64, []int64{1, -1, 1, 0}, 2, 2), floats([]int64{3, 2, 2}, iota64(12)...)},
			Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
		{Name: "many", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{5, 3}, 2), ir.FromInts(ir.Int64, []int64{4, 0, 4, 2, 2, 4, 0}, 7), floats([]int64{7, 3}, iota64(21)...)}},
		{Name: "none", In: []*ir.Tensor{shape, ir.NewTensor(ir.Int64, 0), ir.NewTensor(ir.Double, 0, 2)}, Want: []*ir.Tensor{ir.NewTensor(ir.Double, 3, 2)}},
	}
}

func gatherGradEval(c *ir.EvalCtx) error {
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
}

// gatherGradFunction is ScatterND with the indexed axis in front, summing half
// types in float.
func gatherGradFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	b.NeedOpset(16, "a sum by index")
	shape, ids, dy := in[0], in[1], in[2]
	idRank := ids.Type.Shape.Rank()
	rank := dy.Type.Shape.Rank() - idRank + 1
	axis, ok := ir.NormAxis(n.Int("axis", 0), rank)
	if !ok {
		b.Fail(n.Errorf("function", "the axis is out of range"))
	}
	front, back, rows := []int64{}, make([]int64, rank), []int64{int64(axis)}
	for a := range idRank {
		front = append(front, int64(axis+a))
	}
	for a := range rank {
		switch {
		case a < axis:
			front = append(front, int64(a))
			rows = append(rows, int64(a))
		case a > axis:
			front = append(front, int64(a+idRank-1))
			rows = append(rows, int64(a))
		}
	}
	for i, a := range rows {
		back[a] = int64(i)
	}
	work := workType(dy.Type.DType)
	zeros := b.Zeros(work, b.Op("Gather", []*ir.Value{shape, b.Int64s(rows...)}))
	at := b.Unsqueeze(b.Cast(ids, ir.Int64), int64(idRank))
	sum := b.Op("ScatterND", []*ir.Value{zeros, at, b.Transpose(b.Cast(dy, work), front...)}, ir.StringAttr("reduction", "add"))
	return []*ir.Value{b.Cast(b.Transpose(sum, back...), dy.Type.DType)}
}

// rowSumCost: all of the result is written, every row of the gradient read and
// added. The workspace lists, for every row of the result, the positions whose
// index names it.
func rowSumCost(c *ir.CostCtx, rows, count int64) ir.Cost {
	read, write := c.Traffic()
	return ir.Cost{FLOPs: ir.Elems(c.OutShape(0)), Read: read, Write: write, Workspace: 8 * (rows + 1 + count), DType: c.OutDType(0)}
}

// rowSumKernel adds dy, seen as [outer, count, inner], into zeros of
// [outer, rows, inner] at ids; slices of index skip are left out.
func rowSumKernel(c *ir.NodeCtx, idType ir.DType, dy, ids ir.KernelArg, outer, rows, inner, count, skip int64) (ir.Kernel, error) {
	if !c.OutDType(0).IsFloat() {
		return ir.Kernel{}, c.Errorf("elements of type %s have no device code", c.OutDType(0))
	}
	return ir.Kernel{Func: "row_sum", Source: rowSumCUDA, Types: []ir.DType{c.OutDType(0), idType}, Args: []ir.KernelArg{
		dy, ids, ir.OutArg(0), ir.WorkspaceArg(), ir.IntArg(outer), ir.IntArg(rows), ir.IntArg(inner), ir.IntArg(count), ir.IntArg(skip)}}, nil
}

const rowSumCUDA = `
// The positions of every row are listed in order (a counting sort whose steps depend on no schedule), then every element
// of the result adds its own and rounds once.
template <class I>
MEMOC_FN bool row_sum_names(const I* ids, int64_t j, int64_t row, int64_t n, int64_t skip) {
  int64_t id = int64_t(ids[j]);
  return id != skip && (id < 0 ? id + n : id) == row;
}

template <class I>
void row_sum_count(Stream& s, const I* ids, int64_t* start, int64_t n, int64_t count, int64_t skip) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t row) {
    int64_t k = 0;
    for (int64_t j = 0; j < count; j++) k += row_sum_names(ids, j, row, n, skip);
    start[row] = k;
  });
}

// row_sum_offsets turns the n counts into where each row's list starts; start[n] is the end of the last.
inline void row_sum_offsets(Stream& s, int64_t* start, int64_t n) {
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    int64_t* part = c.shared<int64_t>();
    int64_t chunk = (n + c.size - 1) / c.size;
    int64_t lo = c.tid * chunk < n ? c.tid * chunk : n, hi = lo + chunk < n ? lo + chunk : n, base = 0;
    for (int64_t v = lo; v < hi; v++) base += start[v];
    part[c.tid] = base;
    c.sync();
    base = 0;
    for (int64_t t = 0; t < c.tid; t++) base += part[t];
    for (int64_t v = lo; v < hi; v++) {
      int64_t k = start[v];
      start[v] = base;
      base += k;
    }
    if (c.tid == c.size - 1) start[n] = base;
  }, 1024 * int64_t(sizeof(int64_t)));
}

template <class I>
void row_sum_list(Stream& s, const I* ids, const int64_t* start, int64_t* list, int64_t n, int64_t count, int64_t skip) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t row) {
    int64_t at = start[row], end = start[row + 1];
    for (int64_t j = 0; j < count && at < end; j++)
      if (row_sum_names(ids, j, row, n, skip)) list[at++] = j;
  });
}

template <class T>
void row_sum_add(Stream& s, const T* dy, const int64_t* start, const int64_t* list, T* dx, int64_t outer, int64_t n,
                 int64_t inner, int64_t count) {
  parallel_for(s, outer * n * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t k = i % inner, row = i / inner % n, o = i / inner / n;
    Acc<T> sum = Acc<T>(0);
    for (int64_t p = start[row]; p < start[row + 1]; p++) sum += to<Acc<T>>(dy[(o * count + list[p]) * inner + k]);
    dx[i] = to<T>(sum);
  });
}

template <class T, class I>
void row_sum(Stream& s, const T* dy, const I* ids, T* dx, void* workspace, int64_t outer, int64_t n, int64_t inner,
             int64_t count, int64_t skip) {
  int64_t* start = static_cast<int64_t*>(workspace);
  int64_t* list = start + n + 1;
  row_sum_count(s, ids, start, n, count, skip);
  row_sum_offsets(s, start, n);
  row_sum_list(s, ids, start, list, n, count, skip);
  row_sum_add(s, dy, start, list, dx, outer, n, inner, count);
}`

package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Gather",
	Doc:   "Slices of the data along an axis, by index; negative indices count from the end.",
	Since: []int{1, 11, 13},
	In:    ir.Ports("data:T, indices:Tind"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer:     gatherInfer,
	Axes:      gatherAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(gatherGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, ids := c.In(0), c.In(1)
		axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims))
		if !ok {
			return c.Errorf("the axis is out of range")
		}
		idx, bad, ok := gatherIndex(x.Dims, axis, ids.Ints())
		if !ok {
			return c.Errorf("index %d is out of range for extent %d", bad, x.Dims[axis])
		}
		c.Set(0, pick(x.DType, gatherDims(x.Dims, ids.Dims, axis), idx, x))
		return nil
	},
	Kernel: ir.KernelOf(gatherKernel),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 4}, iota64(12)...)
		ids := func(dims []int64, ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, dims...) }
		axis := func(n int64) []ir.Attr { return []ir.Attr{ir.IntAttr("axis", n)} }
		return []ir.Sample{
			{Name: "repeated and negative", In: []*ir.Tensor{x, ids([]int64{3}, 0, 0, -1)}},
			{Name: "matrix of indices", In: []*ir.Tensor{x, ids([]int64{2, 2}, 2, 0, 1, 2)}},
			{Name: "scalar", In: []*ir.Tensor{x, ids(nil, -2)}, Attrs: axis(1)},
			{Name: "last axis", In: []*ir.Tensor{x, ids([]int64{1, 3}, 3, 3, -4)}, Attrs: axis(-1)},
			{Name: "old", Version: 11, In: []*ir.Tensor{x, ids([]int64{3}, 0, 0, -1)}},
			{Name: "old, last axis", Version: 13, In: []*ir.Tensor{floats([]int64{2, 3, 2}, iota64(12)...), ids([]int64{2, 2}, 1, 1, 0, -1)}, Attrs: axis(1)},
			{Name: "old, distinct", Version: 13, In: []*ir.Tensor{x, ids([]int64{2}, 0, -1)}},
			{Name: "int32", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{1}, 1)}},
			{Name: "vector", In: []*ir.Tensor{floats([]int64{3}, 1, 2, 3), ids([]int64{2}, 2, 2)}},
			{Name: "no indices", In: []*ir.Tensor{x, ids([]int64{0})}},
		}
	},
})

// gatherDims replaces an axis by the axes of the indices.
func gatherDims[E any](data, ids []E, axis int) []E {
	return slices.Concat(data[:axis], ids, data[axis+1:])
}

// gatherIndex lists which element of the data each output element is; bad is
// an index out of range.
func gatherIndex(dims []int64, axis int, ids []int64) (idx []int, bad int64, ok bool) {
	outer, n, inner := int(ir.Elems(dims[:axis])), dims[axis], int(ir.Elems(dims[axis+1:]))
	idx = make([]int, 0, outer*len(ids)*inner)
	for o := range outer {
		for _, id := range ids {
			j, ok := ir.NormAxis(id, int(n))
			if !ok {
				return nil, id, false
			}
			for k := range inner {
				idx = append(idx, (o*int(n)+j)*inner+k)
			}
		}
	}
	return idx, 0, true
}

func gatherInfer(c *ir.InferCtx) error {
	data, ids := c.Shape(0), c.Shape(1)
	if !data.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	axis, err := c.Axis(c.Node.Int("axis", 0), data.Rank())
	if err != nil {
		return err
	}
	if !ids.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	out := ir.Dims(gatherDims(data.Dims, ids.Dims, axis)...)
	c.SetTensor(0, c.DType(0), out)
	ns, known := c.StaticInts(1)
	dims, static := data.Static()
	if known && static && ir.Elems(dims) <= 1024 {
		idx, bad, ok := gatherIndex(dims, axis, ns)
		if !ok {
			return c.Errorf("index %d is out of range for extent %d", bad, dims[axis])
		}
		moveInts(c, out, func(_, _ []int64) []int { return idx })
	}
	return nil
}

func gatherAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	data, ids := n.In[0].Type.Shape, n.In[1].Type.Shape
	axis, ok := ir.NormAxis(n.Int("axis", 0), data.Rank())
	if !data.Ranked || !ids.Ranked || !ok {
		return m
	}
	axes := make([]ir.OutAxis, data.Rank()+ids.Rank()-1)
	for a := range axes {
		switch {
		case a < axis:
			axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		case a < axis+ids.Rank():
			axes[a] = ir.OutAxis{{In: 1, Axis: a - axis}}
		default:
			axes[a] = ir.OutAxis{{In: 0, Axis: a - ids.Rank() + 1}}
		}
	}
	m.Out[0] = axes
	return m
}

// gatherGrad adds every slice of the gradient to the slice it was taken from:
// an index that occurs twice gets the sum.
func gatherGrad(c *ir.GradCtx) error {
	dy, x, ids := c.OutGrad(0), c.In(0), c.In(1)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	axis, ok := ir.NormAxis(c.Node.Int("axis", 0), x.Type.Shape.Rank())
	if !ok || !ids.Type.Shape.Ranked {
		return c.Node.Errorf("grad", "the gradient needs the ranks of %q and %q", x.Name, ids.Name)
	}
	c.Set(0, c.Like(gatherTransposed(c.Builder, dy, ids, x, axis), x))
	return nil
}

// gatherTransposed is the gradient of Gather(x, ids, axis).
func gatherTransposed(b *ir.Builder, dy, ids, x *ir.Value, axis int) *ir.Value {
	if d := dy.Type.DType; b.Opset() >= 16 && (d == ir.Float16 || d == ir.BFloat16) {
		return b.OpN(ir.MemocDomain, "GatherGrad", 1, []*ir.Value{b.ShapeOf(x), ids, dy}, ir.IntAttr("axis", int64(axis)))[0]
	}
	in, rank := x.Type.Shape.Dims, ids.Type.Shape.Rank()
	if rank != 1 { // one axis of positions
		dims := append([]ir.Dim{}, in...)
		dims[axis] = ir.N(1)
		if rank > 1 {
			dims[axis] = flatExtent(ids.Type.Shape)
		}
		shape, _ := b.DimsValue(dims, dy, x)
		dy = b.Op("Reshape", []*ir.Value{dy, shape})
		ids = b.Reshape(ids, -1)
	}
	return b.ScatterSum(dy, axis, b.Cast(ids, ir.Int64), x, distinctInts(ids, in[axis]))
}

// flatExtent is the number of elements where it is a number, else -1 for
// Reshape to find.
func flatExtent(s ir.Shape) ir.Dim {
	if n, ok := s.NumElements(); ok {
		if _, isInt := n.Int(); isInt {
			return n
		}
	}
	return ir.N(-1)
}

// distinctInts reports whether v is known to hold no index of an axis of
// extent n twice.
func distinctInts(v *ir.Value, n ir.Dim) bool {
	if k, ok := v.Type.Shape.NumElements(); ok && k.Equal(ir.N(1)) {
		return true
	}
	ds, ok := (&ir.InferCtx{Node: &ir.Node{In: []*ir.Value{v}}}).Ints(0)
	if !ok {
		return false
	}
	seen := map[int64]bool{}
	extent, static := n.Int()
	for _, d := range ds {
		i, isInt := d.Int()
		if isInt && i < 0 && static {
			i += extent
		}
		if !isInt || i < 0 || seen[i] {
			return false
		}
		seen[i] = true
	}
	return true
}

func gatherKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.InDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	dims := c.InShape(0)
	axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
	return ir.Kernel{Func: "gather", Source: gatherCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(ir.Elems(dims[:axis])), ir.IntArg(dims[axis]),
		ir.IntArg(ir.Elems(dims[axis+1:])), ir.IntArg(ir.Elems(c.InShape(1)))}}, nil
}

const gatherCUDA = `
// An index out of range reads NaN (0 for integers), never foreign memory.
template <class T> MEMOC_FN T gather_outside() {
  if constexpr (std::is_integral<T>::value) return T(0);
  else return to<T>(quiet_nan<Acc<T>>());
}

template <class T, class I>
void gather(Stream& s, const T* x, const I* ids, T* y, int64_t outer, int64_t n, int64_t inner, int64_t count) {
  parallel_for(s, outer * count * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t k = i % inner, row = i / inner;
    int64_t id = int64_t(ids[row % count]);
    if (id < 0) id += n;
    y[i] = id >= 0 && id < n ? x[(row / count * n + id) * inner + k] : gather_outside<T>();
  });
}`

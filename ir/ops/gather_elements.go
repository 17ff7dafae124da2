package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "GatherElements",
	Doc:   "For every position of the indices, the element of the data whose coordinate along the axis is the index.",
	Since: []int{11, 13},
	In:    ir.Ports("data:T, indices:Tind"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		data, ids := c.Shape(0), c.Shape(1)
		if data.Ranked {
			if _, err := c.Axis(c.Node.Int("axis", 0), data.Rank()); err != nil {
				return err
			}
			if ids.Ranked && ids.Rank() != data.Rank() {
				return c.Errorf("data has %d axes and indices %d, which must be equal", data.Rank(), ids.Rank())
			}
		}
		c.SetTensor(0, c.DType(0), ids)
		return nil
	},
	Axes:      gatherElementsAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(gatherElementsGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		idx, err := elementIndex(c, c.In(0).Dims, c.In(1))
		if err != nil {
			return err
		}
		c.Set(0, pick(c.In(0).DType, c.In(1).Dims, idx, c.In(0)))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		dims := c.InShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
		return ir.Kernel{Func: "gather_elements", Source: gatherElementsCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)},
			Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.DimsArg(c.InShape(1)...),
				ir.DimsArg(rowMajor(dims)...), ir.IntArg(int64(axis)), ir.IntArg(dims[axis])}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{3, 3}, iota64(9)...)
		return []ir.Sample{
			{Name: "rows", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, 2, 0, 1, -1, 0}, 2, 3)}},
			{Name: "columns", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{1, 1, -3, 0, 2, 2}, 3, 2)}, Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
			{Name: "one for each row", Version: 13, In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, -1}, 2, 1)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
			{Name: "old", Version: 13, In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, 1, -3, 0, 2, 2}, 3, 2)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
			{Name: "empty", In: []*ir.Tensor{x, ir.NewTensor(ir.Int64, 0, 3)}},
		}
	},
})

const gatherElementsCUDA = `
template <class T, class I>
void gather_elements(Stream& s, const T* x, const I* ids, T* y, Dims shape, Dims strides, int64_t axis, int64_t n) {
  Dims rest = strides;
  rest.d[axis] = 0;
  int64_t step = strides.d[axis];
  parallel_for(s, shape.numel(), [=] MEMOC_DEVICE(int64_t i) {
    int64_t id = int64_t(ids[i]);
    if (id < 0) id += n;
    y[i] = id >= 0 && id < n ? x[offset_of(i, shape, rest) + id * step] : T();
  });
}`

// elementIndex lists, for every element of ids, which element of a tensor of
// shape dims it names.
func elementIndex(c *ir.EvalCtx, dims []int64, ids *ir.Tensor) ([]int, error) {
	axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
	if !ok || len(ids.Dims) != len(dims) {
		return nil, c.Errorf("the axis is out of range, or data and indices differ in rank")
	}
	for a, n := range ids.Dims {
		if a != axis && n > dims[a] {
			return nil, c.Errorf("the indices have extent %d on axis %d, the data %d", n, a, dims[a])
		}
	}
	strides := rowMajor(dims)
	step := strides[axis]
	strides[axis] = 0
	idx := stridedIndex(ids.Dims, strides, 0)
	for i, id := range ids.Ints() {
		j, ok := ir.NormAxis(id, int(dims[axis]))
		if !ok {
			return nil, c.Errorf("index %d is out of range for extent %d", id, dims[axis])
		}
		idx[i] += j * int(step)
	}
	return idx, nil
}

// gatherElementsAxes: axes other than the indexed one follow data and indices
// where both have that extent.
func gatherElementsAxes(n *ir.Node) ir.AxisMap {
	data, ids := n.In[0].Type.Shape, n.In[1].Type.Shape
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	axis, ok := ir.NormAxis(n.Int("axis", 0), data.Rank())
	if !ok || !ids.Ranked || ids.Rank() != data.Rank() {
		return m
	}
	axes := make([]ir.OutAxis, ids.Rank())
	for a := range axes {
		axes[a] = ir.OutAxis{{In: 1, Axis: a}}
		if a != axis {
			axes[a] = append(axes[a], ir.AxisLink{In: 0, Axis: a})
		}
	}
	m.Out[0] = axes
	return m
}

// gatherElementsGrad adds every element of the gradient to the one it was
// taken from.
func gatherElementsGrad(c *ir.GradCtx) error {
	dy, x, ids := c.OutGrad(0), c.In(0), c.In(1)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	axis := c.Node.Int("axis", 0)
	if a, ok := ir.NormAxis(axis, ids.Type.Shape.Rank()); ok && ids.Type.Shape.Dims[a].Equal(ir.N(1)) {
		// One index for each line: nothing meets, so nothing has to be added.
		c.Set(0, c.Like(c.Op("ScatterElements", []*ir.Value{c.ZerosLike(x), ids, dy}, ir.IntAttr("axis", axis)), x))
		return nil
	}
	if c.Opset() < 16 {
		return gatherElementsGradByOneHot(c, axis)
	}
	d := dy.Type.DType
	sum := d
	if d == ir.Float16 || d == ir.BFloat16 {
		sum = ir.Float
	}
	zeros := c.Like(c.Zeros(sum, c.ShapeOf(x)), withDType(x, sum))
	g := c.Op("ScatterElements", []*ir.Value{zeros, ids, c.Cast(dy, sum)}, ir.IntAttr("axis", axis), ir.StringAttr("reduction", "add"))
	c.Set(0, c.Like(c.Cast(g, d), x))
	return nil
}

// withDType stands for a value like v of another element type.
func withDType(v *ir.Value, d ir.DType) *ir.Value {
	return &ir.Value{Type: ir.TensorOf(d, v.Type.Shape)}
}

// gatherElementsGradByOneHot is the sum over the indices j of
// dy_j * (index_j == position), for opsets whose ScatterElements cannot add.
func gatherElementsGradByOneHot(c *ir.GradCtx, axis int64) error {
	if c.Opset() < 11 { // OneHot takes a negative index for out of range there
		return c.Node.Errorf("grad", "the gradient needs OneHot as it came with opset 11; the model has %d", c.Opset())
	}
	dy, x, ids := c.OutGrad(0), c.In(0), c.In(1)
	rank := x.Type.Shape.Rank()
	a, ok := ir.NormAxis(axis, rank)
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
	}
	for i := range rank {
		if i != a && !x.Type.Shape.Dims[i].Equal(ids.Type.Shape.Dims[i]) {
			return c.Node.Errorf("grad", "the gradient where indices are smaller than the data (axis %d) needs opset 16", i)
		}
	}
	depth := c.Op("Reshape", []*ir.Value{c.DimOf(x, a), c.Int64s()})
	hot := c.Op("OneHot", []*ir.Value{c.Cast(ids, ir.Int64), depth, c.Const(ir.FromFloats(ir.Float, []float64{0, 1}, 2))}, ir.IntAttr("axis", int64(a)))
	prod := c.Mul(c.Cast(hot, dy.Type.DType), c.Unsqueeze(dy, int64(a)))
	c.Set(0, c.Like(c.ReduceSum(prod, false, int64(a)+1), x))
	return nil
}

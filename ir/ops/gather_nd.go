package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "GatherND",
	Doc:   "Slices of the data at index tuples, which the last axis of the indices holds.",
	Since: []int{11, 12, 13},
	In:    ir.Ports("data:T, indices:tensor(int64)"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     gatherNDInfer,
	Axes:      gatherNDAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(gatherNDGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, ids := c.In(0), c.In(1)
		batch := int(c.Node.Int("batch_dims", 0))
		idx, dims, err := tupleIndex(c, x.Dims, ids, batch)
		if err != nil {
			return err
		}
		c.Set(0, pick(x.DType, dims, idx, x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		return ir.Kernel{Func: "gather_nd", Source: gatherNDCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.OutArg(0)}, tupleArgs(c.InShape(0), c.InShape(1), int(c.Node.Int("batch_dims", 0)))...)}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 2, 2}, iota64(8)...)
		ids := func(dims []int64, ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, dims...) }
		batch := []ir.Attr{ir.IntAttr("batch_dims", 1)}
		return []ir.Sample{
			{Name: "slices", In: []*ir.Tensor{x, ids([]int64{3, 2}, 0, 1, 0, 1, -1, -2)}},
			{Name: "elements", In: []*ir.Tensor{x, ids([]int64{1, 2, 3}, 0, 1, 1, 1, 1, 0)}},
			{Name: "batch", In: []*ir.Tensor{x, ids([]int64{2, 1}, 1, -1)}, Attrs: batch},
			{Name: "batch, twice", In: []*ir.Tensor{x, ids([]int64{2, 2, 1}, 1, 1, 0, -1)}, Attrs: batch},
			{Name: "old", Version: 13, In: []*ir.Tensor{x, ids([]int64{2, 2, 1}, 1, 1, 0, -1)}, Attrs: batch},
			{Name: "one tuple", In: []*ir.Tensor{x, ids([]int64{1}, 1)}},
		}
	},
})

const gatherNDCUDA = `
// Row r of the output is the slice of inner elements at tuple r of width entries over the extents dims.
template <class T>
void gather_nd(Stream& s, const T* x, const int64_t* ids, T* y, int64_t rows, int64_t per_batch, int64_t batch_stride,
               Dims dims, int64_t inner) {
  int64_t width = dims.rank;
  parallel_for(s, rows * inner, [=] MEMOC_DEVICE(int64_t i) {
    int64_t r = i / inner, at = 0;
    bool ok = true;
    for (int64_t k = 0; k < width; k++) {
      int64_t id = ids[r * width + k];
      if (id < 0) id += dims.d[k];
      ok = ok && id >= 0 && id < dims.d[k];
      at = at * dims.d[k] + id;
    }
    y[i] = ok ? x[r / per_batch * batch_stride + at * inner + i % inner] : T();
  });
}`

// tupleArgs are the numbers that kernels over index tuples need: tuples, those
// of one batch, elements of one batch, indexed extents, elements of a slice.
func tupleArgs(data, ids []int64, batch int) []ir.KernelArg {
	last := len(ids) - 1
	width := int(ids[last])
	inner := ir.Elems(data[batch+width:])
	return []ir.KernelArg{ir.IntArg(ir.Elems(ids[:last])), ir.IntArg(ir.Elems(ids[batch:last])), ir.IntArg(ir.Elems(data[batch:])),
		ir.DimsArg(data[batch : batch+width]...), ir.IntArg(inner)}
}

// tupleShape checks ranks and extents of data and indices; width is the
// number of axes a tuple indexes.
func tupleShape(dataRank int, ids []int64, batch int) (width int, ok bool) {
	if len(ids) == 0 || batch < 0 || batch >= len(ids) {
		return 0, false
	}
	width = int(ids[len(ids)-1])
	return width, width >= 1 && batch+width <= dataRank
}

// tupleIndex lists which data element each element of the slices is, and the
// shape of the slices together.
func tupleIndex(c *ir.EvalCtx, data []int64, ids *ir.Tensor, batch int) (idx []int, dims []int64, err error) {
	width, ok := tupleShape(len(data), ids.Dims, batch)
	if !ok {
		return nil, nil, c.Errorf("indices of shape %v do not fit data of shape %v with batch_dims %d", ids.Dims, data, batch)
	}
	last := len(ids.Dims) - 1
	for a := range batch {
		if ids.Dims[a] != data[a] {
			return nil, nil, c.Errorf("batch axis %d has extents %d and %d", a, data[a], ids.Dims[a])
		}
	}
	inner := int(ir.Elems(data[batch+width:]))
	rows, perBatch := int(ir.Elems(ids.Dims[:last])), int(ir.Elems(ids.Dims[batch:last]))
	vals := ids.Ints()
	idx = make([]int, 0, rows*inner)
	for r := range rows {
		at := r / max(perBatch, 1)
		for k := range width {
			id, ok := ir.NormAxis(vals[r*width+k], int(data[batch+k]))
			if !ok {
				return nil, nil, c.Errorf("index %d is out of range for extent %d", vals[r*width+k], data[batch+k])
			}
			at = at*int(data[batch+k]) + id
		}
		for i := range inner {
			idx = append(idx, at*inner+i)
		}
	}
	dims = append(append([]int64{}, ids.Dims[:last]...), data[batch+width:]...)
	return idx, dims, nil
}

func gatherNDInfer(c *ir.InferCtx) error {
	data, ids := c.Shape(0), c.Shape(1)
	batch := int(c.Node.Int("batch_dims", 0))
	c.SetTensor(0, c.DType(0), ir.Shape{})
	if !data.Ranked || !ids.Ranked {
		return nil
	}
	if ids.Rank() < 1 || batch < 0 || batch >= ids.Rank() || batch > data.Rank() {
		return c.Errorf("batch_dims %d does not fit indices of shape %s and data of shape %s", batch, ids, data)
	}
	last := ids.Rank() - 1
	width, ok := ids.Dims[last].Int()
	if !ok {
		return nil
	}
	if width < 1 || batch+int(width) > data.Rank() {
		return c.Errorf("tuples of %d indices do not fit data of shape %s with batch_dims %d", width, data, batch)
	}
	dims := append(append([]ir.Dim{}, ids.Dims[:last]...), data.Dims[batch+int(width):]...)
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

func gatherNDAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	data, ids, out := n.In[0].Type.Shape, n.In[1].Type.Shape, n.Out[0].Type.Shape
	batch := int(n.Int("batch_dims", 0))
	if !data.Ranked || !ids.Ranked || !out.Ranked {
		return m
	}
	axes := make([]ir.OutAxis, out.Rank())
	for a := range axes {
		switch {
		case a < batch:
			axes[a] = ir.OutAxis{{In: 0, Axis: a}, {In: 1, Axis: a}}
		case a < ids.Rank()-1:
			axes[a] = ir.OutAxis{{In: 1, Axis: a}}
		default:
			axes[a] = ir.OutAxis{{In: 0, Axis: data.Rank() - out.Rank() + a}}
		}
	}
	m.Out[0] = axes
	return m
}

// gatherNDGrad adds every slice of the gradient to the slice it was taken
// from: tuples become row numbers of the data seen as a matrix.
func gatherNDGrad(c *ir.GradCtx) error {
	dy, x, ids := c.OutGrad(0), c.In(0), c.In(1)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	data, is := x.Type.Shape, ids.Type.Shape
	batch := int(c.Node.Int("batch_dims", 0))
	if !data.Ranked || !is.Ranked {
		return c.Node.Errorf("grad", "the gradient needs the ranks of %q and %q", x.Name, ids.Name)
	}
	width64, ok := is.Dims[is.Rank()-1].Int()
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs to know how many axes %q indexes", ids.Name)
	}
	width := int(width64)
	rows := tupleRows(c, x, ids, batch, width)
	outer := product(data.Dims[:batch+width])
	inner := data.Dims[batch+width:]
	dims := append([]ir.Dim{flatExtent(ir.Dims(is.Dims[:is.Rank()-1]...))}, inner...)
	shape, _ := c.DimsValue(dims, dy, x)
	flat := c.Op("Reshape", []*ir.Value{dy, shape})
	n, static := outer.Int()
	if !static && batch+width > 1 {
		return c.Node.Errorf("grad", "the gradient needs the extents %s to be numbers; bind them with --dim", ir.Dims(data.Dims[:batch+width]...))
	}
	like := x
	if static {
		like = &ir.Value{Name: x.Name, Type: ir.TensorOf(x.Type.DType, ir.Dims(append([]ir.Dim{ir.N(n)}, inner...)...))}
	}
	g := c.ScatterSum(flat, 0, rows, like, false)
	c.Set(0, c.Like(c.ReshapeLike(g, x), x))
	return nil
}

// tupleRows is the row number of every tuple, as a 1-D value.
func tupleRows(c *ir.GradCtx, x, ids *ir.Value, batch, width int) *ir.Value {
	dims := x.Type.Shape.Dims
	tuples := c.Op("Reshape", []*ir.Value{ids, c.Int64s(-1, int64(width))})
	column := func(k int) *ir.Value {
		col := c.Reshape(c.SliceAxis(tuples, 1, int64(k), int64(k)+1, 1), -1)
		extent := c.DimOf(x, batch+k)
		negative := c.Op("Less", []*ir.Value{col, c.Int64s(0)})
		return c.Op("Where", []*ir.Value{negative, c.Add(col, extent), col})
	}
	rows := column(0)
	for k := 1; k < width; k++ {
		rows = c.Add(c.Mul(rows, c.DimOf(x, batch+k)), column(k))
	}
	if batch == 0 {
		return rows
	}
	// Each batch has rows of its own: number the batches, one for each tuple.
	is := ids.Type.Shape.Dims
	perBatch, ok1 := product(is[batch : len(is)-1]).Int()
	batches, ok2 := product(dims[:batch]).Int()
	span, ok3 := product(dims[batch : batch+width]).Int()
	if !ok1 || !ok2 || !ok3 {
		c.Fail(c.Node.Errorf("grad", "the gradient with batch_dims needs static extents; bind them with --dim"))
	}
	offsets := make([]int64, 0, batches*perBatch)
	for b := range batches {
		for range perBatch {
			offsets = append(offsets, b*span)
		}
	}
	return c.Add(rows, c.Int64s(offsets...))
}

package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "TopK",
	Doc:   "The k largest (or smallest) elements along an axis and where they are, in order; of equal ones the first.",
	Since: []int{1, 10, 11, 24},
	In:    ir.Ports("X:T, K:tensor(int64)?"), Out: ir.Ports("Values:T, Indices:tensor(int64)"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer: topKInfer,
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
		rank := n.In[0].Type.Shape.Rank()
		axis, ok := ir.NormAxis(n.Int("axis", -1), rank)
		for o, v := range n.Out {
			if v == nil || !ok {
				continue
			}
			m.Out[o] = make([]ir.OutAxis, rank)
			for a := range rank {
				if a != axis {
					m.Out[o][a] = ir.OutAxis{{In: 0, Axis: a}}
				}
			}
		}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		dims := c.InShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", -1), len(dims))
		n, _ := ir.MulSizes(ir.Elems(dims), dims[axis])
		return ir.Cost{FLOPs: n, Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if c.OutGrad(0) == nil || !c.Needs(0) {
			return nil
		}
		op := ir.OpName("ScatterElements")
		if c.Opset() < 11 {
			op = "Scatter"
		}
		x := c.In(0)
		// Indices along one line are distinct: nothing is written twice.
		c.Set(0, c.Like(c.Op(op, []*ir.Value{c.ZerosLike(x), c.Out(1), c.OutGrad(0)}, ir.IntAttr("axis", c.Node.Int("axis", -1))), x))
		return nil
	}),
	Recompute: ir.Never("it decides by comparison: a clone on rounded inputs may choose otherwise"),
	Eval:      topKEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims := c.InShape(0)
		axis, ok := ir.NormAxis(c.Node.Int("axis", -1), len(dims))
		if !ok {
			return ir.Kernel{}, c.Errorf("the axis is out of range")
		}
		k := int64(0)
		for o := range 2 {
			if c.HasOut(o) {
				k = c.OutShape(o)[axis]
			}
		}
		return ir.Kernel{Func: "top_k", Source: topKCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.OutArg(1), ir.IntArg(ir.Elems(dims)), ir.IntArg(dims[axis]),
			ir.IntArg(ir.Elems(dims[axis+1:])), ir.IntArg(k), ir.BoolArg(c.Node.Int("largest", 1) != 0)}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 4}, 0.5, 3, -1, 2, 7, 1, 4, -2)
		k := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}, 1) }
		return []ir.Sample{
			{Name: "last", In: []*ir.Tensor{x, k(2)}},
			{Name: "first, smallest", In: []*ir.Tensor{x, k(1)}, Attrs: []ir.Attr{ir.IntAttr("axis", 0), ir.IntAttr("largest", 0)}},
			{Name: "ties", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3, 1, 3, 3}, 4), k(3)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3, 3, 3}, 3), ir.FromInts(ir.Int64, []int64{0, 2, 3}, 3)}},
			{Name: "attribute", Version: 9, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("k", 3)}},
		}
	},
})

const topKCUDA = `
// The place of an element is the number of elements of its line that go before it.
template <class T>
void top_k(Stream& s, const T* x, T* values, int64_t* indices, int64_t count, int64_t n, int64_t inner, int64_t k,
           bool largest) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    int64_t self = i / inner % n, base = i - self * inner, place = 0;
    A v = to<A>(x[i]);
    for (int64_t j = 0; j < n && place < k; j++) {
      A w = to<A>(x[base + j * inner]);
      if (w == v ? j < self : (largest ? w > v : w < v)) place++;
    }
    if (place >= k) return;
    int64_t at = (i / inner / n * k + place) * inner + i % inner;
    if (values) values[at] = x[i];
    if (indices) indices[at] = self;
  });
}`

func topKInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		c.SetTensor(1, ir.Int64, ir.Shape{})
		return nil
	}
	axis, err := c.Axis(c.Node.Int("axis", -1), in.Rank())
	if err != nil {
		return err
	}
	k := c.FreshDim()
	if ds, ok := c.Ints(1); ok && len(ds) == 1 {
		k = ds[0]
	} else if ok {
		return c.Errorf("K must be one number")
	} else if !c.Has(1) {
		if k = ir.N(c.Node.Int("k", -1)); k.Equal(ir.N(-1)) {
			return c.Errorf("k is missing")
		}
	}
	n, isInt := k.Int()
	if extent, static := in.Dims[axis].Int(); isInt && (n < 0 || static && n > extent) {
		return c.Errorf("k is %d for an axis of extent %s", n, in.Dims[axis])
	}
	dims := append([]ir.Dim{}, in.Dims...)
	dims[axis] = k
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	c.SetTensor(1, ir.Int64, ir.Dims(dims...))
	return nil
}

func topKEval(c *ir.EvalCtx) error {
	x := c.In(0)
	axis, ok := ir.NormAxis(c.Node.Int("axis", -1), len(x.Dims))
	k := c.Node.Int("k", -1)
	if c.Has(1) && c.In(1).Len() == 1 {
		k = c.In(1).Ints()[0]
	}
	if !ok || k < 0 || k > x.Dims[axis] {
		return c.Errorf("axis or k (%d) is out of range for shape %v", k, x.Dims)
	}
	sign := 1
	if c.Node.Int("largest", 1) != 0 {
		sign = -1
	}
	before := func(i, j int) int { return 0 }
	if x.DType.IsFloat() {
		vals := x.Floats()
		before = func(i, j int) int { return sign * compareNumbers(vals[i], vals[j]) }
	} else {
		vals := x.Ints()
		before = func(i, j int) int { return sign * compareNumbers(vals[i], vals[j]) }
	}
	dims := slices.Clone(x.Dims)
	dims[axis] = k
	n, inner := int(x.Dims[axis]), int(ir.Elems(dims[axis+1:]))
	idx := make([]int, ir.Elems(dims))
	at := make([]int64, len(idx))
	line := make([]int, n)
	for o := range int(ir.Elems(dims[:axis])) {
		for i := range inner {
			for j := range line {
				line[j] = (o*n+j)*inner + i
			}
			slices.SortStableFunc(line, before)
			for p := range int(k) {
				to := (o*int(k)+p)*inner + i
				idx[to], at[to] = line[p], int64(line[p]/inner%n)
			}
		}
	}
	c.Set(0, pick(x.DType, dims, idx, x))
	c.Set(1, ir.FromInts(ir.Int64, at, dims...))
	return nil
}

func compareNumbers[E int64 | float64](a, b E) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

package ops

import "memoc/ir"

// extremum is ArgMax or ArgMin.
type extremum struct {
	name ir.OpName
	doc  string
	max  bool
}

var _ = registerExtrema(
	extremum{"ArgMax", "Index of the largest element along an axis, the first (or last) of equals.", true},
	extremum{"ArgMin", "Index of the smallest element along an axis, the first (or last) of equals.", false},
)

func registerExtrema(es ...extremum) bool {
	for _, e := range es {
		ir.Register(ir.Op{
			Name: e.name, Doc: e.doc, Since: []int{1, 11, 12, 13},
			In: ir.Ports("data:T"), Out: ir.Ports("reduced:tensor(int64)"),
			Types: map[string]ir.DTypeSet{"T": ir.Numeric},
			Infer: argInfer,
			Axes:  argAxes,
			Cost: func(c *ir.CostCtx) ir.Cost {
				read, write := c.Traffic()
				return ir.Cost{FLOPs: ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
			},
			Grad:      ir.NoGrad("integer result"),
			Recompute: ir.Never("an integer decision: the indices are kept, as a clone might break a tie of rounded values otherwise"),
			Eval:      e.eval,
			Kernel:    ir.KernelOf(e.kernel),
			Samples:   argSamples,
		})
	}
	return true
}

func argInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if !x.Ranked {
		c.SetTensor(0, ir.Int64, ir.Shape{})
		return nil
	}
	if x.Rank() == 0 {
		c.SetTensor(0, ir.Int64, x)
		return nil
	}
	axis, err := c.Axis(c.Node.Int("axis", 0), x.Rank())
	if err != nil {
		return err
	}
	if x.Dims[axis].Equal(ir.N(0)) {
		return c.Errorf("axis %d has no elements to choose from", axis)
	}
	c.SetTensor(0, ir.Int64, reducedShape(x, []int{axis}, keepsDims(c.Node)))
	return nil
}

func argAxes(n *ir.Node) ir.AxisMap {
	x := n.In[0].Type.Shape
	axis, ok := ir.NormAxis(n.Int("axis", 0), x.Rank())
	if !ok {
		return ir.AxisMap{}
	}
	out := []ir.OutAxis{}
	for a := range x.Rank() {
		switch {
		case a != axis:
			out = append(out, ir.OutAxis{{In: 0, Axis: a}})
		case keepsDims(n):
			out = append(out, nil)
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{out}}
}

// lines sees a tensor as [outer, n, inner] along an axis.
func lines(dims []int64, axis int64) (outer, n, inner int64, ok bool) {
	if len(dims) == 0 {
		return 1, 1, 1, axis == 0 || axis == -1
	}
	a, ok := ir.NormAxis(axis, len(dims))
	if !ok {
		return 0, 0, 0, false
	}
	return ir.Elems(dims[:a]), dims[a], ir.Elems(dims[a+1:]), true
}

func (e extremum) eval(c *ir.EvalCtx) error {
	x := c.In(0)
	outer, n, inner, ok := lines(x.Dims, c.Node.Int("axis", 0))
	if !ok || n == 0 {
		return c.Errorf("axis %d of %v has no elements to choose from", c.Node.Int("axis", 0), x.Dims)
	}
	last := c.Node.Int("select_last_index", 0) != 0
	out := make([]int64, 0, outer*inner)
	pick := func(better func(i, j int64) bool) {
		for o := range outer {
			for i := range inner {
				base, best := o*n*inner+i, int64(0)
				for k := int64(1); k < n; k++ {
					a, b := base+k*inner, base+best*inner
					if better(a, b) || last && !better(b, a) {
						best = k
					}
				}
				out = append(out, best)
			}
		}
	}
	if x.DType.IsInt() {
		v := x.Ints()
		pick(func(i, j int64) bool { return lessInt(x.DType, v[j], v[i]) == e.max && v[i] != v[j] })
	} else {
		v := x.Floats()
		// NaN counts as the extremum, as in numpy.
		pick(func(i, j int64) bool {
			return v[j] == v[j] && (v[i] != v[i] || (v[i] > v[j]) == e.max && v[i] != v[j])
		})
	}
	dims := []int64{}
	if len(x.Dims) > 0 {
		a, _ := ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims))
		dims, _ = reducedShape(x.Type().Shape, []int{a}, keepsDims(c.Node)).Static()
	}
	c.Set(0, ir.FromInts(ir.Int64, out, dims...))
	return nil
}

func (e extremum) kernel(c *ir.NodeCtx) (ir.Kernel, error) {
	outer, n, inner, ok := lines(c.InShape(0), c.Node.Int("axis", 0))
	if !ok {
		return ir.Kernel{}, c.Errorf("axis %d is out of range", c.Node.Int("axis", 0))
	}
	return ir.Kernel{Func: "arg_extremum", Source: argCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner), ir.BoolArg(e.max),
		ir.BoolArg(c.Node.Int("select_last_index", 0) != 0)}}, nil
}

const argCUDA = `
// arg_better orders values for arg_extremum; NaN is better than any number.
template <class A> MEMOC_FN bool arg_better(A a, A b, bool top) {
  if (b != b) return false;
  return a != a || (top ? a > b : a < b);
}

// One thread walks the n elements of a line.
template <class T>
void arg_extremum(Stream& s, const T* x, int64_t* y, int64_t outer, int64_t n, int64_t inner, bool top, bool last) {
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    using A = Acc<T>;
    const T* p = x + line / inner * n * inner + line % inner;
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++) {
      A a = to<A>(p[k * inner]), b = to<A>(p[best * inner]);
      if (arg_better(a, b, top) || (last && !arg_better(b, a, top))) best = k;
    }
    y[line] = best;
  });
}`

func argSamples() []ir.Sample {
	x := floats([]int64{2, 3, 2}, 0.5, 1.25, 2, 3.5, 2, 1, -1.5, 2.5, -1.5, -3, 1.75, -3)
	last := ir.IntAttr("select_last_index", 1)
	drop := ir.IntAttr("keepdims", 0)
	return []ir.Sample{
		{Name: "first axis", In: []*ir.Tensor{x}},
		{Name: "middle axis", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", 1), drop}},
		{Name: "last of equals", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", 1), last}},
		{Name: "last axis", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", -1), drop}},
		{Name: "nan", In: []*ir.Tensor{floats([]int64{4}, 1, nan, 2, nan)}},
		{Name: "uint64", In: []*ir.Tensor{ir.FromInts(ir.Uint64, []int64{1, -1, 0}, 3)}},
		{Name: "no lines", In: []*ir.Tensor{floats([]int64{3, 0})}},
	}
}

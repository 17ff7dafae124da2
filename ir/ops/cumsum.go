package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "CumSum",
	Doc:   "Running sum along an axis, from its start or (reverse) its end, with or without (exclusive) the element itself.",
	Since: []int{11, 14},
	In:    ir.Ports("x:T, axis:T2"), Out: ir.Ports("y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64), "T2": ir.Indices},
	Infer: cumInfer,
	Axes:  cumAxes,
	Cost:  ir.PointwiseCost(1),
	Grad: gradOfInput0(func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
		return c.Op("CumSum", []*ir.Value{dy, c.In(1)},
			ir.IntAttr("exclusive", c.Node.Int("exclusive", 0)), ir.IntAttr("reverse", 1-min(c.Node.Int("reverse", 0), 1)))
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		y := ir.NewTensor(x.DType, x.Dims...)
		if x.DType.IsInt() {
			out, err := cumulate(c, x.Ints())
			ir.SetInts(y, out)
			c.Set(0, y)
			return err
		}
		out, err := cumulate(c, x.Floats())
		if err != nil {
			return err
		}
		ir.SetFloats(y, out)
		c.Set(0, y)
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		axis, ok := c.StaticInts(1)
		if !ok || len(axis) != 1 {
			return ir.Kernel{}, c.Errorf("the axis is a run-time value; device code needs it at compile time")
		}
		outer, n, inner, ok := lines(c.InShape(0), axis[0])
		if !ok {
			return ir.Kernel{}, c.Errorf("axis %d is out of range", axis[0])
		}
		return ir.Kernel{Func: "cumsum", Source: cumsumCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner),
			ir.BoolArg(c.Node.Int("exclusive", 0) != 0), ir.BoolArg(c.Node.Int("reverse", 0) != 0)}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
		axis := func(a int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{a}) }
		exclusive, reverse := ir.IntAttr("exclusive", 1), ir.IntAttr("reverse", 1)
		return []ir.Sample{
			{Name: "rows", In: []*ir.Tensor{x, axis(1)}},
			{Name: "columns", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{-2}, 1)}},
			{Name: "exclusive", In: []*ir.Tensor{x, axis(1)}, Attrs: []ir.Attr{exclusive},
				Want: []*ir.Tensor{floats([]int64{2, 3}, 0, 0.5, -0.75, 0, 3.5, 2.75)}},
			{Name: "reverse", In: []*ir.Tensor{x, axis(-1)}, Attrs: []ir.Attr{reverse}},
			{Name: "both", In: []*ir.Tensor{x, axis(1)}, Attrs: []ir.Attr{exclusive, reverse},
				Want: []*ir.Tensor{floats([]int64{2, 3}, 0.75, 2, 0, 0.25, 1, 0)}},
			{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 2, 3}, 3), axis(0)}},
			{Name: "empty", In: []*ir.Tensor{floats([]int64{2, 0}), axis(1)}},
		}
	},
})

const cumsumCUDA = `
// One thread adds up a line. A sum reads an element before it writes it, so that y may be x.
template <class T>
void cumsum(Stream& s, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, bool exclusive, bool reverse) {
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    using A = Acc<T>;
    int64_t base = line / inner * n * inner + line % inner;
    A sum = A(0);
    for (int64_t k = 0; k < n; k++) {
      int64_t at = base + (reverse ? n - 1 - k : k) * inner;
      A v = to<A>(x[at]);
      y[at] = to<T>(exclusive ? sum : A(sum + v));
      sum = A(sum + v);
    }
  });
}`

func cumInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if n, ok := c.Shape(1).NumElements(); ok && n.Differ(ir.N(1)) {
		return c.Errorf("axis must have one element but has shape %s", c.Shape(1))
	}
	if axis, ok := c.StaticInts(1); ok && x.Ranked {
		if len(axis) != 1 {
			return c.Errorf("axis must have one element, not %d", len(axis))
		}
		if _, err := c.Axis(axis[0], x.Rank()); err != nil {
			return err
		}
	}
	c.SetTensor(0, c.DType(0), x)
	return nil
}

// cumAxes: other axes follow; a sum from the start needs the elements up to
// its own.
func cumAxes(n *ir.Node) ir.AxisMap {
	axis, ok := (&ir.InferCtx{Node: n}).StaticInts(1)
	rank := n.In[0].Type.Shape.Rank()
	if !ok || len(axis) != 1 || rank < 0 {
		return ir.AxisMap{}
	}
	a, ok := ir.NormAxis(axis[0], rank)
	if !ok {
		return ir.AxisMap{}
	}
	out := make([]ir.OutAxis, rank)
	for i := range out {
		out[i] = ir.OutAxis{{In: 0, Axis: i}}
	}
	switch {
	case n.Int("reverse", 0) != 0:
		out[a] = ir.OutAxis{{In: 0, Axis: a, Rel: ir.Whole}}
	case n.Int("exclusive", 0) != 0:
		out[a] = ir.OutAxis{{In: 0, Axis: a, Rel: ir.Prefix, Hi: -1}}
	default:
		out[a] = ir.OutAxis{{In: 0, Axis: a, Rel: ir.Prefix}}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{out}}
}

func cumulate[E int64 | float64](c *ir.EvalCtx, x []E) ([]E, error) {
	if c.In(1).Len() != 1 {
		return nil, c.Errorf("axis must have one element, not %d", c.In(1).Len())
	}
	axis := c.In(1).Ints()[0]
	outer, n, inner, ok := lines(c.In(0).Dims, axis)
	if !ok {
		return nil, c.Errorf("axis %d is out of range for %v", axis, c.In(0).Dims)
	}
	exclusive, reverse := c.Node.Int("exclusive", 0) != 0, c.Node.Int("reverse", 0) != 0
	out := make([]E, len(x))
	for o := range outer {
		for i := range inner {
			var sum E
			for k := range n {
				at := k
				if reverse {
					at = n - 1 - k
				}
				at = o*n*inner + at*inner + i
				if exclusive {
					out[at] = sum
				}
				sum += x[at]
				if !exclusive {
					out[at] = sum
				}
			}
		}
	}
	return out, nil
}

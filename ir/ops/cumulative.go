package ops

import "memoc/ir"

// cumulative is CumSum or CumProd.
type cumulative struct {
	name, doc string
	since     []int
	product   bool
	grad      ir.Grad
}

var _ = registerCumulative(
	cumulative{name: "CumSum", since: []int{11, 14}, grad: gradOfInput0(cumSumGrad),
		doc: "Running sum along an axis, from its start or (reverse) its end, with or without (exclusive) the element itself."},
	cumulative{name: "CumProd", since: []int{26}, product: true, grad: ir.NoGrad("not derived yet: where factors are zero it is no quotient of the product"),
		doc: "Running product along an axis, from its start or (reverse) its end, with or without (exclusive) the element itself."},
)

func registerCumulative(ks ...cumulative) bool {
	for _, k := range ks {
		ir.Register(ir.Op{
			Name: k.name, Doc: k.doc, Since: k.since,
			In: ir.Ports("x:T, axis:T2"), Out: ir.Ports("y:T"),
			Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64), "T2": ir.Indices},
			Infer: cumInfer,
			Axes:  cumAxes,
			Cost: func(c *ir.CostCtx) ir.Cost {
				read, write := c.Traffic()
				return ir.Cost{FLOPs: ir.Elems(c.OutShape(0)), Read: read, Write: write, DType: c.OutDType(0)}
			},
			Grad:      k.grad,
			Recompute: ir.Pure,
			Eval:      k.eval,
			Kernel:    ir.KernelOf(k.kernel),
			InPlace:   []ir.Alias{{In: 0, Out: 0}},
			Samples:   cumSamples,
		})
	}
	return true
}

// cumSumGrad: element i is in the sums of all later ones.
func cumSumGrad(c *ir.GradCtx, dy *ir.Value) *ir.Value {
	return c.Op("CumSum", []*ir.Value{dy, c.In(1)},
		ir.IntAttr("exclusive", c.Node.Int("exclusive", 0)), ir.IntAttr("reverse", 1-min(c.Node.Int("reverse", 0), 1)))
}

func (k cumulative) eval(c *ir.EvalCtx) error {
	x := c.In(0)
	y := ir.NewTensor(x.DType, x.Dims...)
	c.Set(0, y)
	if x.DType.IsInt() {
		out, err := cumulate(c, x.Ints(), k.product)
		ir.SetInts(y, out)
		return err
	}
	out, err := cumulate(c, x.Floats(), k.product)
	ir.SetFloats(y, out)
	return err
}

func (k cumulative) kernel(c *ir.NodeCtx) (ir.Kernel, error) {
	axis, ok := c.StaticInts(1)
	if !ok || len(axis) != 1 {
		return ir.Kernel{}, c.Errorf("the axis is a run-time value; device code needs it at compile time")
	}
	outer, n, inner, ok := lines(c.InShape(0), axis[0])
	if !ok {
		return ir.Kernel{}, c.Errorf("axis %d is out of range", axis[0])
	}
	return ir.Kernel{Func: "cumulate", Source: cumulateCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner), ir.BoolArg(k.product),
		ir.BoolArg(c.Node.Int("exclusive", 0) != 0), ir.BoolArg(c.Node.Int("reverse", 0) != 0)}}, nil
}

func cumSamples() []ir.Sample {
	x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
	axis := func(a int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{a}) }
	exclusive, reverse := ir.IntAttr("exclusive", 1), ir.IntAttr("reverse", 1)
	return []ir.Sample{
		{Name: "rows", In: []*ir.Tensor{x, axis(1)}},
		{Name: "columns", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{-2}, 1)}},
		{Name: "exclusive", In: []*ir.Tensor{x, axis(1)}, Attrs: []ir.Attr{exclusive}},
		{Name: "reverse", In: []*ir.Tensor{x, axis(-1)}, Attrs: []ir.Attr{reverse}},
		{Name: "both", In: []*ir.Tensor{x, axis(1)}, Attrs: []ir.Attr{exclusive, reverse}},
		{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 2, 3}, 3), axis(0)}},
		{Name: "empty", In: []*ir.Tensor{floats([]int64{2, 0}), axis(1)}},
	}
}

const cumulateCUDA = `
// One thread goes along a line. It reads an element before it writes it, so that y may be x.
template <class T>
void cumulate(Stream& s, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, bool product, bool exclusive, bool reverse) {
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    using A = Acc<T>;
    int64_t base = line / inner * n * inner + line % inner;
    A all = product ? A(1) : A(0);
    for (int64_t k = 0; k < n; k++) {
      int64_t at = base + (reverse ? n - 1 - k : k) * inner;
      A v = to<A>(x[at]), next = product ? A(all * v) : A(all + v);
      y[at] = to<T>(exclusive ? all : next);
      all = next;
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

func cumulate[E int64 | float64](c *ir.EvalCtx, x []E, product bool) ([]E, error) {
	out := make([]E, len(x))
	if c.In(1).Len() != 1 {
		return out, c.Errorf("axis must have one element, not %d", c.In(1).Len())
	}
	axis := c.In(1).Ints()[0]
	outer, n, inner, ok := lines(c.In(0).Dims, axis)
	if !ok {
		return out, c.Errorf("axis %d is out of range for %v", axis, c.In(0).Dims)
	}
	exclusive, reverse := c.Node.Int("exclusive", 0) != 0, c.Node.Int("reverse", 0) != 0
	for line := range outer * inner {
		var all E
		if product {
			all = 1
		}
		for k := range n {
			if reverse {
				k = n - 1 - k
			}
			at := line/inner*n*inner + k*inner + line%inner
			next := all + x[at]
			if product {
				next = all * x[at]
			}
			out[at] = next
			if exclusive {
				out[at] = all
			}
			all = next
		}
	}
	return out, nil
}

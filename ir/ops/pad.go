package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Pad",
	Doc:   "Adds elements around a tensor (constant, reflect, edge or wrap); negative amounts crop.",
	Since: []int{1, 2, 11, 13, 18, 19, 21, 23, 24, 25},
	In:    ir.Ports("data:T, pads:tensor(int64)?, constant_value:T?, axes:Tind?"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer:     padInfer,
	Axes:      padAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(padGrad),
	Recompute: ir.Pure,
	Eval:      padEval,
	Kernel:    ir.KernelOf(padKernel),
	Samples:   padSamples,
})

func padSamples() []ir.Sample {
	x := floats([]int64{3, 4}, iota64(12)...)
	ints := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
	mode := func(m string) []ir.Attr { return []ir.Attr{ir.StringAttr("mode", m)} }
	return []ir.Sample{
		{Name: "zeros", In: []*ir.Tensor{x, ints(1, 0, 2, 3)}},
		{Name: "value", In: []*ir.Tensor{x, ints(1, 0, 2, 3), floats(nil, 2.5)}},
		{Name: "crop", In: []*ir.Tensor{x, ints(-1, 2, 0, -1), floats(nil, 2.5)}},
		{Name: "axes", In: []*ir.Tensor{x, ints(1, 2), nil, ints(-1)}, Absent: []int{2}},
		{Name: "reflect", In: []*ir.Tensor{x, ints(2, 0, 1, 3)}, Attrs: mode("reflect")},
		{Name: "edge", In: []*ir.Tensor{x, ints(2, 0, 1, 5)}, Attrs: mode("edge")},
		{Name: "wrap", In: []*ir.Tensor{x, ints(2, 0, 4, 6)}, Attrs: mode("wrap")},
		{Name: "attributes", Version: 2, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntsAttr("pads", 0, 1, 1, 0), ir.FloatAttr("value", 1.5)}},
		{Name: "paddings", Version: 1, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntsAttr("paddings", 0, 1, 1, 0)}},
		{Name: "int", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 2}, 2), ints(1, 1), ir.FromInts(ir.Int32, []int64{7})}},
		{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 2), ints(1, 0, 1, 0)}},
	}
}

// padsOf is how much is added before and after every axis; known is false
// where it is computed at run time.
func padsOf(n *ir.Node, rank int) (before, after []int64, known bool, msg string) {
	pads, given, known := intsOf(n, "pads", 1)
	if !given {
		if pads, given = n.IntList("paddings"); !given {
			return nil, nil, false, "the amounts are missing"
		}
	}
	axes, hasAxes, knownAxes := axesOf(n, 3)
	if !known || !knownAxes {
		return nil, nil, false, ""
	}
	before, after, msg = padsForAxes(pads, axes, hasAxes, rank)
	return before, after, msg == "", msg
}

func padsForAxes(pads, axes []int64, hasAxes bool, rank int) (before, after []int64, msg string) {
	if !hasAxes {
		for a := range rank {
			axes = append(axes, int64(a))
		}
	}
	if len(pads) != 2*len(axes) {
		return nil, nil, "there must be two amounts for each axis"
	}
	before, after = make([]int64, rank), make([]int64, rank)
	for i, axis := range axes {
		a, ok := ir.NormAxis(axis, rank)
		if !ok {
			return nil, nil, "an axis is out of range"
		}
		before[a], after[a] = pads[i], pads[len(axes)+i]
	}
	return before, after, ""
}

func padInfer(c *ir.InferCtx) error {
	switch mode := c.Node.Str("mode", "constant"); mode {
	case "constant", "reflect", "edge", "wrap":
	default:
		return c.Errorf("mode %q is none of constant, reflect, edge and wrap", mode)
	}
	in := c.Shape(0)
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	dims, err := padSymbolic(c, in)
	if err != nil {
		return err
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

// padSymbolic adds amounts, of which some may be symbols.
func padSymbolic(c *ir.InferCtx, in ir.Shape) ([]ir.Dim, error) {
	axes, hasAxes, knownAxes := axesOf(c.Node, 3)
	pads, known := boundsOf(c, "pads", 1)
	if ns, old := c.Node.IntList("paddings"); old && !known {
		pads, known = ir.Ints64(ns...).Dims, true
	}
	switch {
	case !known && !c.Has(1):
		return nil, c.Errorf("the amounts are missing")
	case !knownAxes:
		return c.FreshShape(in.Rank()).Dims, nil
	}
	n := int64(in.Rank())
	if hasAxes {
		n = int64(len(axes))
	}
	numbers := make([]int64, 2*n)
	if known {
		numbers = make([]int64, len(pads))
	}
	for i := range numbers { // positions, to see which axis each is for
		numbers[i] = int64(i) + 1
	}
	before, after, msg := padsForAxes(numbers, axes, hasAxes, in.Rank())
	if msg != "" {
		return nil, c.Errorf("%s", msg)
	}
	dims := append([]ir.Dim{}, in.Dims...)
	for a := range dims {
		switch {
		case before[a] == 0: // not among the axes
		case !known:
			dims[a] = c.FreshDim()
		default:
			added, ok1 := addExtents(pads[before[a]-1], pads[after[a]-1])
			sum, ok2 := addExtents(dims[a], added)
			if !ok1 || !ok2 {
				return nil, c.Errorf("axis %d overflows 64 bits", a)
			}
			dims[a] = sum
			if size, isInt := dims[a].Int(); isInt && size < 0 {
				return nil, c.Errorf("axis %d is cropped to a negative extent", a)
			}
		}
	}
	return dims, nil
}

// padAxes: an axis that nothing is added to follows; a padded one is shifted
// where the mode is constant.
func padAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	in := n.In[0].Type.Shape
	before, after, known, _ := padsOf(n, in.Rank())
	if !in.Ranked || !known {
		return m
	}
	axes := make([]ir.OutAxis, in.Rank())
	for a := range axes {
		switch {
		case before[a] == 0 && after[a] == 0:
			axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		case n.Str("mode", "constant") == "constant":
			axes[a] = ir.OutAxis{{In: 0, Axis: a, Rel: ir.Window, Stride: 1, Lo: -before[a], Hi: -before[a]}}
		}
	}
	m.Out[0] = axes
	return m
}

// padSource is the input position that output position p of an axis shows, -1
// for the constant. Cropping comes first: what is cropped is not reflected.
func padSource(p, before, after, n int64, mode string) int64 {
	lo, hi := max(-before, 0), n-max(-after, 0) // kept positions [lo,hi)
	p = p - before
	if p >= lo && p < hi {
		return p
	}
	size := hi - lo
	switch {
	case mode == "constant" || size <= 0:
		return -1
	case mode == "edge":
		return min(max(p, lo), hi-1)
	case mode == "wrap":
		return lo + ((p-lo)%size+size)%size
	case size == 1:
		return lo
	}
	period := 2 * (size - 1)
	q := ((p-lo)%period + period) % period
	return lo + min(q, period-q)
}

// padIndex lists which input element each output element is, -1 for the
// constant.
func padIndex(in, out, before, after []int64, mode string) []int {
	strides := rowMajor(in)
	idx := make([]int, ir.Elems(out))
	allIndices(out, func(i int, coord []int64) {
		for a, p := range coord {
			q := padSource(p, before[a], after[a], in[a], mode)
			if q < 0 {
				idx[i] = -1
				return
			}
			idx[i] += int(q * strides[a])
		}
	})
	return idx
}

func padEval(c *ir.EvalCtx) error {
	x := c.In(0)
	pads, given := evalInts(c, "pads", 1)
	if !given {
		pads, _ = c.Node.IntList("paddings")
	}
	axes, hasAxes := evalInts(c, "axes", 3)
	before, after, msg := padsForAxes(pads, axes, hasAxes, len(x.Dims))
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	dims := make([]int64, len(x.Dims))
	for a := range dims {
		if dims[a] = x.Dims[a] + before[a] + after[a]; dims[a] < 0 {
			return c.Errorf("axis %d is cropped to a negative extent", a)
		}
	}
	fill := ir.NewTensor(x.DType, 1)
	switch {
	case c.Has(2) && c.In(2).Len() == 1:
		fill = c.In(2)
	case x.DType.IsFloat():
		fill = ir.FromFloats(x.DType, []float64{float64(c.Node.Float("value", 0))}, 1)
	}
	idx := padIndex(x.Dims, dims, before, after, c.Node.Str("mode", "constant"))
	for i, j := range idx {
		if j < 0 {
			idx[i] = int(x.Len())
		}
	}
	c.Set(0, pick(x.DType, dims, idx, x, fill))
	return nil
}

// padGrad: of a constant pad, the gradient is the part that shows the input
// (and zero where the input was cropped); of the other modes, the sum over all
// places that show an element.
func padGrad(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	if dy == nil {
		return nil
	}
	before, after, known, msg := padsOf(c.Node, x.Type.Shape.Rank())
	if !known {
		return c.Node.Errorf("grad", "the gradient needs to know the amounts %s", msg)
	}
	if c.Node.Str("mode", "constant") != "constant" {
		return padFoldGrad(c, dy, before, after)
	}
	dx := c.Like(c.Pad(dy, negated(before), negated(after)), x)
	if c.Needs(0) {
		c.Set(0, dx)
	}
	if c.Needs(2) {
		rest := c.Sub(sumAll(c, dy), sumAll(c, dx))
		c.Set(2, c.ReshapeLike(rest, c.In(2)))
	}
	return nil
}

func negated(ns []int64) []int64 {
	out := make([]int64, len(ns))
	for i, n := range ns {
		out[i] = -n
	}
	return out
}

func sumAll(c *ir.GradCtx, v *ir.Value) *ir.Value {
	axes := make([]int64, v.Type.Shape.Rank())
	for a := range axes {
		axes[a] = int64(a)
	}
	return c.ReduceSum(v, false, axes...)
}

// padFoldGrad takes the axes one by one: padding an axis is a Gather with
// known indices.
func padFoldGrad(c *ir.GradCtx, dy *ir.Value, before, after []int64) error {
	x := c.In(0)
	for a := range before {
		if before[a] == 0 && after[a] == 0 {
			continue
		}
		n, ok := x.Type.Shape.Dims[a].Int()
		if !ok {
			return c.Node.Errorf("grad", "the gradient in mode %q needs extent %s to be a number; bind it with --dim",
				c.Node.Str("mode", ""), x.Type.Shape.Dims[a])
		}
		idx := make([]int64, n+before[a]+after[a])
		for p := range idx {
			if idx[p] = padSource(int64(p), before[a], after[a], n, c.Node.Str("mode", "constant")); idx[p] < 0 {
				return c.Node.Errorf("grad", "mode %q has nothing to show of an empty axis", c.Node.Str("mode", ""))
			}
		}
		ids := c.Int64s(idx...)
		dy = c.ScatterSum(dy, a, ids, x, distinctInts(ids, ir.N(n)))
	}
	if c.Needs(0) {
		c.Set(0, c.Like(dy, x))
	}
	return nil
}

func padKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.InDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	in := c.InShape(0)
	before, after, known, msg := padsOf(c.Node, len(in))
	if !known {
		return ir.Kernel{}, c.Errorf("the amounts are computed at run time %s", msg)
	}
	mode := map[string]int64{"constant": 0, "edge": 1, "wrap": 2, "reflect": 3}[c.Node.Str("mode", "constant")]
	return ir.Kernel{Func: "pad", Source: padCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(2), ir.OutArg(0), ir.DimsArg(in...), ir.DimsArg(c.OutShape(0)...), ir.DimsArg(before...),
		ir.DimsArg(after...), ir.IntArg(mode), ir.FloatArg(float64(c.Node.Float("value", 0)))}}, nil
}

const padCUDA = `
// pad_source is the input position that output position p of an axis shows, -1 for the constant.
MEMOC_FN int64_t pad_source(int64_t p, int64_t before, int64_t after, int64_t n, int64_t mode) {
  int64_t lo = before < 0 ? -before : 0, hi = n - (after < 0 ? -after : 0), size = hi - lo;
  p -= before;
  if (p >= lo && p < hi) return p;
  if (mode == 0 || size <= 0) return -1;
  if (mode == 1) return p < lo ? lo : hi - 1;
  if (mode == 2) return lo + ((p - lo) % size + size) % size;
  if (size == 1) return lo;
  int64_t period = 2 * (size - 1), q = ((p - lo) % period + period) % period;
  return lo + (q < period - q ? q : period - q);
}

template <class T>
void pad(Stream& s, const T* x, const T* value, T* y, Dims in, Dims out, Dims before, Dims after, int64_t mode, double fill) {
  Dims strides = strides_of(in);
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    int64_t at = 0, rest = i;
    bool inside = true;
    for (int64_t a = out.rank - 1; a >= 0; a--) {
      int64_t p = pad_source(rest % out.d[a], before.d[a], after.d[a], in.d[a], mode);
      rest /= out.d[a];
      inside = inside && p >= 0;
      at += p * strides.d[a];
    }
    y[i] = inside ? x[at] : value ? *value : to<T>(fill);
  });
}`

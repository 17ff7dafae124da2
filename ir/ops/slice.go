package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Slice",
	Doc:   "A range with step of some axes; bounds count from the end if negative and are clamped.",
	Since: []int{1, 10, 11, 13},
	In:    ir.Ports("data:T, starts:Tind?, ends:Tind?, axes:Tind?, steps:Tind?"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer:     sliceInfer,
	Axes:      sliceAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(sliceGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		var args sliceArgs
		args.starts, _ = evalInts(c, "starts", 1)
		args.ends, _ = evalInts(c, "ends", 2)
		args.axes, args.hasAxes = evalInts(c, "axes", 3)
		args.steps, args.hasSteps = evalInts(c, "steps", 4)
		rs, msg := args.ranges(x.Dims)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		dims, strides, offset := slicePlan(x.Dims, rs)
		c.Set(0, pick(x.DType, dims, stridedIndex(dims, strides, offset), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		args, known := sliceArgsOf(c.Node)
		if !known {
			return ir.Kernel{}, c.Errorf("the bounds are computed at run time")
		}
		rs, msg := args.ranges(c.InShape(0))
		if msg != "" {
			return ir.Kernel{}, c.Errorf("%s", msg)
		}
		_, strides, offset := slicePlan(c.InShape(0), rs)
		return stridedKernel(c, strides, offset)
	}),
	Samples: sliceSamples,
})

func sliceSamples() []ir.Sample {
	x := floats([]int64{8, 4}, iota64(32)...)
	ints := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
	small := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int32, ns, int64(len(ns))) }
	const lo, hi = math.MinInt64, math.MaxInt64
	return []ir.Sample{
		{Name: "all", In: []*ir.Tensor{x, ints(0), ints(hi), ints(0), ints(1)}},
		{Name: "reverse", In: []*ir.Tensor{x, ints(7), ints(lo), ints(0), ints(-1)}},
		{Name: "none", In: []*ir.Tensor{x, ints(-1), ints(hi), ints(0), ints(-1)}},
		{Name: "huge step", In: []*ir.Tensor{x, ints(0), ints(hi), ints(0), ints(1e9)}},
		{Name: "default axes", In: []*ir.Tensor{x, ints(1, 1), ints(-1, 3)}},
		{Name: "steps", In: []*ir.Tensor{x, small(1, -1), small(7, 0), small(0, -1), small(3, -2)}},
		{Name: "no steps", In: []*ir.Tensor{x, ints(1), ints(3), ints(-1)}},
		{Name: "attributes", Version: 9, In: []*ir.Tensor{x}, Attrs: []ir.Attr{
			ir.IntsAttr("starts", 2, 0), ir.IntsAttr("ends", 5, -1), ir.IntsAttr("axes", 0, 1)}},
		{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 3), ints(-1), ints(lo), ints(0), ints(-1)}},
		{Name: "no axes input", In: []*ir.Tensor{x, ints(1), ints(6), nil, ints(2)}, Absent: []int{3}},
	}
}

// sliceArgs are the bounds as a node gives them.
type sliceArgs struct {
	starts, ends, axes, steps []int64
	hasAxes, hasSteps         bool
}

// sliceArgsOf reads the bounds of a node; known is false where one is computed
// at run time.
func sliceArgsOf(n *ir.Node) (a sliceArgs, known bool) {
	var k1, k2, k3, k4 bool
	a.starts, _, k1 = intsOf(n, "starts", 1)
	a.ends, _, k2 = intsOf(n, "ends", 2)
	a.axes, a.hasAxes, k3 = intsOf(n, "axes", 3)
	a.steps, a.hasSteps, k4 = intsOf(n, "steps", 4)
	return a, k1 && k2 && k3 && k4
}

// sliceRange is positions start, start+step, … (count of them) of an axis.
type sliceRange struct{ start, step, count int64 }

// ranges is the bounds clamped to dims, one range for each axis.
func (a sliceArgs) ranges(dims []int64) (rs []sliceRange, msg string) {
	rs = make([]sliceRange, len(dims))
	for i, n := range dims {
		rs[i] = sliceRange{0, 1, n}
	}
	at, msg := a.axesFor(len(dims))
	for i, axis := range at {
		step := int64(1)
		if a.hasSteps {
			step = a.steps[i]
		}
		if step == 0 {
			return nil, "a step is 0"
		}
		rs[axis] = clampRange(dims[axis], a.starts[i], a.ends[i], step)
	}
	return rs, msg
}

// axesFor lists the axes of that rank the bounds are for.
func (a sliceArgs) axesFor(rank int) (at []int, msg string) {
	n := len(a.starts)
	if len(a.ends) != n || a.hasAxes && len(a.axes) != n || a.hasSteps && len(a.steps) != n {
		return nil, "starts, ends, axes and steps differ in length"
	}
	seen := map[int]bool{}
	for i := range n {
		axis := i
		ok := i < rank
		if a.hasAxes {
			axis, ok = ir.NormAxis(a.axes[i], rank)
		}
		if !ok || seen[axis] {
			return nil, "an axis is repeated or out of range"
		}
		seen[axis] = true
		at = append(at, axis)
	}
	return at, ""
}

// clampRange is ONNX's clamping: to [0,n] going up, to [0,n-1] for the start
// and [-1,n-1] for the end going down. Nothing overflows at the ends of int64.
func clampRange(n, start, end, step int64) sliceRange {
	if start < 0 {
		start = max(start, -n-1) + n
	}
	if end < 0 {
		end = max(end, -n-1) + n
	}
	if n == 0 {
		return sliceRange{0, step, 0}
	}
	if step > 0 {
		start, end = min(max(start, 0), n), min(max(end, 0), n)
		if end <= start {
			return sliceRange{start, step, 0}
		}
		return sliceRange{start, step, (end-start-1)/step + 1}
	}
	start, end = min(max(start, 0), n-1), min(max(end, -1), n-1)
	if end >= start {
		return sliceRange{start, step, 0}
	}
	// -step overflows for the lowest int64, whose magnitude fits uint64.
	return sliceRange{start, step, int64(uint64(start-end-1)/uint64(-step)) + 1}
}

// slicePlan turns ranges into a strided read.
func slicePlan(in []int64, rs []sliceRange) (dims, strides []int64, offset int64) {
	strides = rowMajor(in)
	for a, r := range rs {
		dims = append(dims, r.count)
		if r.count > 0 {
			offset += r.start * strides[a]
		}
		if r.count > 1 {
			strides[a] *= r.step
		} else {
			strides[a] = 0
		}
	}
	return append([]int64{}, dims...), strides, offset
}

func sliceInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	args, known := sliceArgsOf(c.Node)
	if dims, static := in.Static(); static && known {
		rs, msg := args.ranges(dims)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		out, strides, offset := slicePlan(dims, rs)
		c.SetTensor(0, c.DType(0), ir.Ints64(out...))
		moveInts(c, ir.Ints64(out...), func(_, _ []int64) []int { return stridedIndex(out, strides, offset) })
		return nil
	}
	return sliceSymbolic(c, in, args)
}

// sliceSymbolic infers what it can where extents or bounds are symbols.
func sliceSymbolic(c *ir.InferCtx, in ir.Shape, args sliceArgs) error {
	starts, okStarts := boundsOf(c, "starts", 1)
	ends, okEnds := boundsOf(c, "ends", 2)
	_, _, axesKnown := intsOf(c.Node, "axes", 3)
	_, _, stepsKnown := intsOf(c.Node, "steps", 4)
	if !axesKnown || !okStarts && !okEnds && !args.hasAxes {
		c.SetTensor(0, c.DType(0), c.FreshShape(in.Rank()))
		return nil
	}
	n := max(len(starts), len(ends))
	if args.hasAxes {
		n = len(args.axes)
	}
	check := sliceArgs{starts: make([]int64, n), ends: make([]int64, n), axes: args.axes, hasAxes: args.hasAxes}
	at, msg := check.axesFor(in.Rank())
	if msg != "" || okStarts && len(starts) != n || okEnds && len(ends) != n || stepsKnown && args.hasSteps && len(args.steps) != n {
		return c.Errorf("starts, ends, axes and steps do not agree with each other or with rank %d", in.Rank())
	}
	dims := append([]ir.Dim{}, in.Dims...)
	for i, axis := range at {
		step := int64(1)
		if args.hasSteps && stepsKnown {
			step = args.steps[i]
		}
		if step == 0 {
			return c.Errorf("a step is 0")
		}
		d, ok := ir.Dim{}, false
		if okStarts && okEnds && stepsKnown {
			d, ok = sliceDim(in.Dims[axis], starts[i], ends[i], step)
		}
		if !ok {
			d = c.FreshDim()
		}
		dims[axis] = d
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

// boundsOf is the known bounds, symbols among them.
func boundsOf(c *ir.InferCtx, attr string, port int) ([]ir.Dim, bool) {
	if c.Has(port) {
		return c.Ints(port)
	}
	ns, ok := c.Node.IntList(attr)
	return ir.Ints64(ns...).Dims, ok
}

// sliceEnd is the size from which a bound means "as far as it goes".
const sliceEnd = math.MaxInt32

// sliceDim is the extent of a slice of an axis of extent d; ok is false where
// it depends on what a symbol stands for. It takes a symbolic axis to be at
// least as long as what a bound cuts off: where it is not, the result becomes
// negative when the symbol is bound, which is refused, never a wrong size.
func sliceDim(d, start, end ir.Dim, step int64) (ir.Dim, bool) {
	if n, ok := d.Int(); ok {
		s, ok1 := start.Int()
		e, ok2 := end.Int()
		if ok1 && ok2 {
			return ir.N(clampRange(n, s, e, step).count), true
		}
	}
	var span ir.Dim
	var ok1, ok2 bool
	if step > 0 {
		start, ok1 = sliceStart(d, start)
		end, ok2 = sliceLimit(d, end)
		span = end.Sub(start)
	} else {
		start, ok1 = sliceTop(d, start)
		end, ok2 = sliceBottom(d, end)
		span = start.Sub(end)
	}
	if !ok1 || !ok2 {
		return ir.Dim{}, false
	}
	if n, ok := span.Int(); ok {
		if n <= 0 {
			return ir.N(0), true
		}
		return ir.N(int64(uint64(n-1)/magnitude(step)) + 1), true
	}
	if magnitude(step) == 1 {
		return span, true
	}
	if magnitude(step) > sliceEnd {
		return ir.Dim{}, false
	}
	return span.Div(ir.N(int64(magnitude(step))))
}

func magnitude(step int64) uint64 {
	if step < 0 {
		return uint64(-step)
	}
	return uint64(step)
}

// sliceStart is the start of an upward slice.
func sliceStart(d, b ir.Dim) (ir.Dim, bool) {
	n, ok := b.Int()
	switch {
	case !ok:
		return b, b.NonNegative() && d.Sub(b).NonNegative()
	case n <= -sliceEnd:
		return ir.N(0), true
	case n < 0:
		return d.Add(b), !isInt(d)
	case n >= sliceEnd:
		return d, true
	}
	return b, n == 0 || !isInt(d)
}

// sliceLimit is the end of an upward slice. A positive number is the end only
// if the axis is at least that long, which a symbol does not tell.
func sliceLimit(d, b ir.Dim) (ir.Dim, bool) {
	n, ok := b.Int()
	switch {
	case !ok:
		return b, b.NonNegative() && d.Sub(b).NonNegative() || b.Sub(d).Equal(ir.N(0))
	case n <= -sliceEnd || n == 0:
		return ir.N(0), true
	case n < 0:
		return d.Add(b), !isInt(d)
	case n >= sliceEnd:
		return d, true
	}
	return b, d.Sub(b).NonNegative()
}

// sliceTop is the start of a downward slice.
func sliceTop(d, b ir.Dim) (ir.Dim, bool) {
	n, ok := b.Int()
	switch {
	case !ok:
		return b, b.NonNegative() && d.Sub(b).Sub(ir.N(1)).NonNegative()
	case n >= sliceEnd:
		return d.Sub(ir.N(1)), true
	case n < 0 && n > -sliceEnd:
		return d.Add(b), true
	}
	return b, n == 0
}

// sliceBottom is the end of a downward slice, -1 for all of it.
func sliceBottom(d, b ir.Dim) (ir.Dim, bool) {
	n, ok := b.Int()
	switch {
	case !ok:
		return b, b.NonNegative() && d.Sub(b).Sub(ir.N(1)).NonNegative()
	case n <= -sliceEnd:
		return ir.N(-1), true
	case n < 0:
		return d.Add(b), true
	case n >= sliceEnd:
		return d.Sub(ir.N(1)), true
	}
	return b, n == 0
}

func isInt(d ir.Dim) bool {
	_, ok := d.Int()
	return ok
}

// sliceAxes: axes that are not cut follow; one cut with step 1 follows at an
// offset.
func sliceAxes(n *ir.Node) ir.AxisMap {
	in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	args, known := sliceArgsOf(n)
	if !in.Ranked || !out.Ranked || !known {
		return m
	}
	at, msg := args.axesFor(in.Rank())
	if msg != "" {
		return m
	}
	axes := make([]ir.OutAxis, in.Rank())
	for a := range axes {
		axes[a] = ir.OutAxis{{In: 0, Axis: a}}
	}
	for i, a := range at {
		step := int64(1)
		if args.hasSteps {
			step = args.steps[i]
		}
		axes[a] = nil
		switch d, static := in.Dims[a].Int(); {
		case in.Dims[a].Equal(out.Dims[a]) && step == 1:
			axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		case static && step == 1:
			axes[a] = ir.OutAxis{{In: 0, Axis: a, Lo: clampRange(d, args.starts[i], args.ends[i], 1).start}}
		case step == 1 && args.starts[i] >= 0:
			axes[a] = ir.OutAxis{{In: 0, Axis: a, Lo: args.starts[i]}}
		}
	}
	m.Out[0] = axes
	return m
}

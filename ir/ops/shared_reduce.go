package ops

import (
	"slices"

	"memoc/ir"
)

// reduction is y = finish(sum over the axes of step(x)): what the family of
// Reduce operators has in common.
type reduction struct {
	name  ir.OpName
	doc   string
	since []int
	types ir.DTypeSet
	flops int64 // per input element

	// axesInput is the opset from which the axes are an input instead of an
	// attribute.
	axesInput int
	// sums says that partial results over slices add up to the result.
	sums bool

	// eval reduces the elements of one line in float64, evalInt in int64.
	eval    func(x []float64) float64
	evalInt func(d ir.DType, x []int64) int64

	kernel string // the C++ function in reduceCUDA
	// linewise says that the kernel cannot put together partial results.
	linewise bool

	// grad is dx of r.dy, the gradient with the reduced axes kept.
	grad func(c *ir.GradCtx, r reduceGrad) *ir.Value
}

func registerReductions(rs ...reduction) bool {
	for _, r := range rs {
		ir.Register(r.op())
	}
	return true
}

func (r reduction) op() ir.Op {
	return ir.Op{
		Name: r.name, Doc: r.doc, Since: r.since,
		In: ir.Ports("data:T, axes:tensor(int64)?"), Out: ir.Ports("reduced:T"),
		Types: map[string]ir.DTypeSet{"T": r.types},
		Infer: r.infer,
		Axes:  func(n *ir.Node) ir.AxisMap { return r.axes(n) },
		Cost: func(c *ir.CostCtx) ir.Cost {
			read, write := c.Traffic()
			cost := ir.Cost{FLOPs: r.flops * ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
			if p, ok, err := r.plan(c); ok && err == nil {
				cost.Workspace = p.workspace
			}
			return cost
		},
		Grad:      ir.GradOf(r.gradRule),
		Recompute: ir.Pure,
		Eval:      r.evalRule,
		Kernel:    ir.KernelOf(r.kernelRule),
		Samples:   r.samples,
	}
}

// reduceAxes lists the reduced axes of a node, sorted. known is false where
// they are a run-time value. rank is that of the data.
//
// The axes are looked for in both places whatever the opset: files in the
// wild have the attribute at opsets whose form is the input.
func reduceAxes(n *ir.Node, rank int) (axes []int, known bool, err error) {
	raw, ok := n.IntList("axes")
	if len(n.In) > 1 && n.In[1] != nil {
		if raw, ok = (&ir.InferCtx{Node: n}).StaticInts(1); !ok {
			return nil, false, nil
		}
	}
	return normalizeAxes(n, raw, rank)
}

func normalizeAxes(n *ir.Node, raw []int64, rank int) (axes []int, known bool, err error) {
	if len(raw) == 0 {
		if n.Int("noop_with_empty_axes", 0) != 0 {
			return nil, true, nil
		}
		for a := range rank {
			axes = append(axes, a)
		}
		return axes, true, nil
	}
	for _, r := range raw {
		a, ok := ir.NormAxis(r, rank)
		if !ok {
			return nil, true, n.Errorf("shape", "axis %d is out of range for rank %d", r, rank)
		}
		axes = append(axes, a)
	}
	slices.Sort(axes)
	return slices.Compact(axes), true, nil
}

func keepsDims(n *ir.Node) bool { return n.Int("keepdims", 1) != 0 }

func (r reduction) infer(c *ir.InferCtx) error {
	if c.Has(1) && c.DType(1) != ir.Int64 && c.DType(1) != ir.Undefined {
		return c.Errorf("axes are of type %s, must be int64", c.DType(1))
	}
	x := c.Shape(0)
	if !x.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	axes, known, err := reduceAxes(c.Node, x.Rank())
	if err != nil {
		return err
	}
	if !known {
		c.SetTensor(0, c.DType(0), unknownAxesShape(c, x))
		return nil
	}
	c.SetTensor(0, c.DType(0), reducedShape(x, axes, keepsDims(c.Node)))
	r.propagate(c, axes)
	return nil
}

func reducedShape(x ir.Shape, axes []int, keep bool) ir.Shape {
	dims := []ir.Dim{}
	for a, d := range x.Dims {
		switch {
		case !slices.Contains(axes, a):
			dims = append(dims, d)
		case keep:
			dims = append(dims, ir.N(1))
		}
	}
	return ir.Dims(dims...)
}

// unknownAxesShape is what is known where the axes are a run-time value: the
// rank, if dims are kept or the number of axes is known and not zero (zero
// stands for all).
func unknownAxesShape(c *ir.InferCtx, x ir.Shape) ir.Shape {
	if keepsDims(c.Node) {
		return c.FreshShape(x.Rank())
	}
	s := c.Shape(1)
	if s.Rank() != 1 {
		return ir.Shape{}
	}
	if k, ok := s.Dims[0].Int(); ok && k > 0 && k <= int64(x.Rank()) {
		// Repeated axes would count once; they are not valid.
		return c.FreshShape(x.Rank() - int(k))
	}
	return ir.Shape{}
}

// propagate reduces a vector of known integers: ReduceProd(Shape(x)) is how
// exporters count elements.
func (r reduction) propagate(c *ir.InferCtx, axes []int) {
	ds, ok := c.Ints(0)
	if d := c.DType(0); !ok || len(axes) != 1 || c.Shape(0).Rank() != 1 || d != ir.Int64 && d != ir.Int32 {
		return
	}
	var out ir.Dim
	switch r.name {
	case "ReduceProd":
		out = ir.N(1)
		for _, d := range ds {
			out = out.Mul(d)
		}
	case "ReduceSum":
		for _, d := range ds {
			out = out.Add(d)
		}
	case "ReduceMax", "ReduceMin":
		if len(ds) == 0 {
			return
		}
		out = ds[0]
		for _, d := range ds[1:] {
			if out, ok = foldDims(map[string]string{"ReduceMax": "Max", "ReduceMin": "Min"}[r.name], out, d); !ok {
				return
			}
		}
	default:
		return
	}
	c.SetInts(0, []ir.Dim{out})
}

// axes: kept axes follow; reduced ones add up where the operator is a sum.
func (r reduction) axes(n *ir.Node) ir.AxisMap {
	x := n.In[0].Type.Shape
	if !x.Ranked {
		return ir.AxisMap{}
	}
	axes, known, err := reduceAxes(n, x.Rank())
	if !known || err != nil {
		return ir.AxisMap{}
	}
	var m ir.AxisMap
	out := []ir.OutAxis{}
	for a := range x.Rank() {
		switch {
		case !slices.Contains(axes, a):
			out = append(out, ir.OutAxis{{In: 0, Axis: a}})
		case keepsDims(n):
			out = append(out, nil)
		}
		if r.sums && slices.Contains(axes, a) {
			m.Sum = append(m.Sum, ir.AxisRef{In: 0, Axis: a})
		}
	}
	m.Out = [][]ir.OutAxis{out}
	return m
}

// reduceGrad is what the gradient rules of reductions share: the input, and
// gradient and output with the reduced axes kept as 1s, so that they broadcast.
type reduceGrad struct {
	x, dy, y *ir.Value
	axes     []int64
}

func (r reduction) gradRule(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	if !x.Type.Shape.Ranked {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
	}
	axes, known, err := reduceAxes(c.Node, x.Type.Shape.Rank())
	if err != nil {
		return err
	}
	if !known {
		return c.Node.Errorf("grad", "the gradient needs to know the axes, but %q is a run-time value", c.In(1).Name)
	}
	g := reduceGrad{x: x, dy: dy, y: c.Out(0)}
	for _, a := range axes {
		g.axes = append(g.axes, int64(a))
	}
	if !keepsDims(c.Node) {
		g.dy = c.Unsqueeze(g.dy, g.axes...)
	}
	c.Set(0, r.grad(c, g))
	return nil
}

// keptY is the output with the reduced axes kept.
func (g reduceGrad) keptY(c *ir.GradCtx) *ir.Value {
	if keepsDims(c.Node) {
		return g.y
	}
	return c.Unsqueeze(g.y, g.axes...)
}

func (r reduction) evalRule(c *ir.EvalCtx) error {
	x := c.In(0)
	raw, _ := c.Node.IntList("axes")
	if c.Has(1) {
		raw = c.In(1).Ints()
	}
	axes, _, err := normalizeAxes(c.Node, raw, len(x.Dims))
	if err != nil {
		return err
	}
	shape, _ := reducedShape(x.Type().Shape, axes, keepsDims(c.Node)).Static()
	y := ir.NewTensor(x.DType, shape...)
	if x.DType.IsInt() || x.DType == ir.Bool {
		out := reduceLines(x.Ints(), x.Dims, axes, func(line []int64) int64 { return r.evalInt(x.DType, line) })
		ir.SetInts(y, out)
	} else {
		ir.SetFloats(y, reduceLines(x.Floats(), x.Dims, axes, r.eval))
	}
	c.Set(0, y)
	return nil
}

// reduceLines gathers, for each output element, the elements that reduce to
// it, in row-major order.
func reduceLines[E any](x []E, dims []int64, axes []int, f func([]E) E) []E {
	kept, red := partAxes(dims, axes)
	out := make([]E, 0, ir.Elems(kept.dims))
	inner := red.offsets()
	line := make([]E, len(inner))
	for _, base := range kept.offsets() {
		for i, o := range inner {
			line[i] = x[base+o]
		}
		out = append(out, f(line))
	}
	return out
}

// axisGroup is some axes of a dense tensor: extents and strides in elements.
type axisGroup struct{ dims, strides []int64 }

// partAxes parts the axes of a dense tensor into kept and reduced ones.
// Neighbours of one kind are merged, axes of extent 1 left out.
func partAxes(dims []int64, axes []int) (kept, red axisGroup) {
	steps := make([]int64, len(dims))
	step := int64(1)
	for a := len(dims) - 1; a >= 0; a-- {
		steps[a] = step
		step *= dims[a]
	}
	for a, n := range dims {
		s := &kept
		if slices.Contains(axes, a) {
			s = &red
		}
		last := len(s.dims) - 1
		switch {
		case n == 1:
		case last >= 0 && s.strides[last] == steps[a]*n:
			s.dims[last] *= n
			s.strides[last] = steps[a]
		default:
			s.dims = append(s.dims, n)
			s.strides = append(s.strides, steps[a])
		}
	}
	return kept, red
}

// offsets lists the offsets of all elements in row-major order.
func (s axisGroup) offsets() []int {
	out := make([]int, 0, ir.Elems(s.dims))
	idx := make([]int64, len(s.dims))
	off := int64(0)
	for range ir.Elems(s.dims) {
		out = append(out, int(off))
		for a := len(idx) - 1; a >= 0; a-- {
			idx[a]++
			off += s.strides[a]
			if idx[a] < s.dims[a] {
				break
			}
			off -= s.strides[a] * s.dims[a]
			idx[a] = 0
		}
	}
	return out
}

// reducePlan is how a kernel shares out the work. Where the innermost axis is
// reduced a block of threads makes one output element (rows); else one thread
// does, so that neighbouring threads read neighbouring addresses. Where that
// leaves a device idle, lines are cut into chunks whose partial results a
// second launch puts together, in an order that the shapes alone decide.
type reducePlan struct {
	kept, red axisGroup
	rows      bool
	chunks    int64
	workspace int64 // bytes for the partial results
}

// Enough blocks, or threads, to fill a large device a few times, and the
// elements below which a chunk is not worth its share of the second launch.
const (
	reduceBlocks, reduceBlockElems   = 512, 512
	reduceThreads, reduceThreadElems = 65536, 64
)

// plan is not ok where the axes are a run-time value.
func (r reduction) plan(c *ir.NodeCtx) (p reducePlan, ok bool, err error) {
	dims := c.InShape(0)
	axes, known, err := reduceAxes(c.Node, len(dims))
	if err != nil || !known {
		return p, false, err
	}
	p.kept, p.red = partAxes(dims, axes)
	last := len(p.red.strides) - 1
	p.rows = len(p.kept.strides) == 0 || last >= 0 && p.red.strides[last] == 1
	units, elems := int64(reduceThreads), int64(reduceThreadElems)
	if p.rows {
		units, elems = reduceBlocks, reduceBlockElems
	}
	lines, length := ir.Elems(p.kept.dims), ir.Elems(p.red.dims)
	p.chunks = 1
	if !r.linewise && lines > 0 && length > 0 {
		p.chunks = max(1, min(length/elems, units/lines))
	}
	if p.chunks > 1 {
		acc := int64(4)
		if c.InDType(0).Bits() == 64 {
			acc = 8
		}
		p.workspace = p.chunks * lines * acc
	}
	return p, true, nil
}

func (r reduction) kernelRule(c *ir.NodeCtx) (ir.Kernel, error) {
	p, ok, err := r.plan(c)
	if err != nil {
		return ir.Kernel{}, err
	}
	if !ok {
		return ir.Kernel{}, c.Errorf("the axes are a run-time value; device code needs them at compile time")
	}
	args := []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.DimsArg(p.kept.dims...), ir.DimsArg(p.kept.strides...),
		ir.DimsArg(p.red.dims...), ir.DimsArg(p.red.strides...), ir.BoolArg(p.rows)}
	if !r.linewise {
		args = append(args, ir.IntArg(p.chunks), ir.WorkspaceArg())
	}
	return ir.Kernel{Func: r.kernel, Source: reduceCUDA, Types: []ir.DType{c.InDType(0)}, Args: args}, nil
}

func (r reduction) samples() []ir.Sample {
	x := floats([]int64{2, 3, 2}, 0.5, 1.25, 2, 3.5, 0.75, 1, -1.5, 2.5, 0.25, -3, 1.75, 4)
	if r.name == "ReduceLogSum" {
		x = floats([]int64{2, 3, 2}, 0.5, 1.25, 2, 3.5, 0.75, 1, 1.5, 2.5, 0.25, 3, 1.75, 4)
	}
	axes := func(ns ...int64) ir.Sample {
		s := ir.Sample{In: []*ir.Tensor{x, ir.FromInts(ir.Int64, ns, int64(len(ns)))}}
		if last := r.since[len(r.since)-1]; last < r.axesInput {
			panic("BUG: no version of " + r.name + " takes axes as an input")
		}
		return s
	}
	with := func(s ir.Sample, name string, attrs ...ir.Attr) ir.Sample {
		s.Name, s.Attrs = name, attrs
		return s
	}
	drop := ir.IntAttr("keepdims", 0)
	one := []*ir.Tensor{x}
	out := []ir.Sample{
		with(axes(-1), "last axis"),
		with(axes(0), "first axis", drop),
		with(axes(1), "middle axis", drop),
		with(axes(2, 0), "outer axes", drop),
		with(axes(1, 2), "inner axes"),
		{Name: "all", In: one, Attrs: []ir.Attr{drop}},
		with(axes(), "noop", ir.IntAttr("noop_with_empty_axes", 1)),
		with(axes(), "empty axes are all"),
		{Name: "attribute", Version: 11, In: one, Attrs: []ir.Attr{ir.IntsAttr("axes", 1)}},
		{Name: "attribute late", Version: r.axesInput, In: one, Attrs: []ir.Attr{ir.IntsAttr("axes", -2), drop}},
		{Name: "scalar", In: []*ir.Tensor{floats(nil, 1.5)}},
		{Name: "no lines", In: []*ir.Tensor{floats([]int64{0, 3}), ir.FromInts(ir.Int64, []int64{1}, 1)}},
		{Name: "empty lines", In: []*ir.Tensor{floats([]int64{2, 0}), ir.FromInts(ir.Int64, []int64{1}, 1)}, Attrs: []ir.Attr{drop}},
	}
	long := map[int]string{0: "thousands of elements"}
	out = append(out,
		ir.Sample{Name: "chunked rows", In: []*ir.Tensor{spreadFloats(2, 1100), ir.FromInts(ir.Int64, []int64{1}, 1)}, NoGradCheck: long},
		ir.Sample{Name: "chunked columns", In: []*ir.Tensor{spreadFloats(300, 3), ir.FromInts(ir.Int64, []int64{0}, 1)}, NoGradCheck: long})
	if r.types.Has(ir.Int32) {
		out = append(out, ir.Sample{Name: "ints", Attrs: []ir.Attr{drop},
			In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{7, 3, 2, 5, 1, -6}, 2, 3), ir.FromInts(ir.Int64, []int64{1}, 1)}})
	}
	if r.types.Has(ir.Bool) {
		out = append(out, ir.Sample{Name: "bools", Attrs: []ir.Attr{drop},
			In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0, 1, 1, 0, 0}, 3, 2), ir.FromInts(ir.Int64, []int64{1}, 1)}})
	}
	return out
}

// spreadFloats is a tensor of numbers between 1/2 and 3/2.
func spreadFloats(dims ...int64) *ir.Tensor {
	vals := make([]float64, ir.Elems(dims))
	for i := range vals {
		vals[i] = 0.5 + float64(i*7919%1009)/1009
	}
	return ir.FromFloats(ir.Double, vals, dims...)
}

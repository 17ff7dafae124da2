package ops

import (
	"math"

	"memoc/ir"
)

// binaryOp is z = f(x, y), element by element with broadcasting: what a family
// of operators has in common, so that each is one readable entry of a table.
type binaryOp struct {
	name  ir.OpName
	doc   string
	since []int
	types ir.DTypeSet
	flops int64 // per element; 1 if unset

	// f is the reference for floating-point types, g for integers and bool
	// (uint64 arrives as its bits); nil where the operator takes none.
	f func(x, y float64) float64
	g func(d ir.DType, x, y int64) int64

	expr    string // C++ expression over x0 and x1
	grad    ir.Grad
	samples func() []ir.Sample // binarySamples if unset
}

func registerBinary(bs ...binaryOp) bool {
	for _, b := range bs {
		ir.Register(b.op())
	}
	return true
}

func (b binaryOp) op() ir.Op {
	if b.samples == nil {
		b.samples = binarySamples
	}
	return ir.Op{
		Name: b.name, Doc: b.doc, Since: b.since,
		In: ir.Ports("A:T, B:T"), Out: ir.Ports("C:T"),
		Types:     map[string]ir.DTypeSet{"T": b.types},
		Infer:     binaryInfer,
		Axes:      binaryAxes,
		Cost:      ir.PointwiseCost(max(b.flops, 1)),
		Grad:      b.grad,
		Recompute: ir.Pure,
		Eval: func(c *ir.EvalCtx) error {
			d := c.In(0).DType
			if b.f == nil || d.IsInt() || d == ir.Bool {
				return broadcastEvalInt(c, d, func(x []int64) int64 { return b.g(d, x[0], x[1]) })
			}
			return broadcastEval(c, d, func(x []float64) float64 { return b.f(x[0], x[1]) })
		},
		Kernel:  binaryKernel(b.expr),
		InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
		Samples: b.samples,
	}
}

// binaryKernel is a Pointwise kernel; the broadcasting of opsets before 7 has
// none where it is not today's.
func binaryKernel(expr string) ir.KernelRule {
	return ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if legacyMoved(c.Node, c.Version) {
			return ir.Kernel{}, c.Errorf("no device code for the axis attribute of opsets before 7; convert the model to opset 7 or later")
		}
		return ir.Kernel{Pointwise: expr}, nil
	})
}

// binaryAxes is FollowAll, but for the broadcasting of opsets before 7.
func binaryAxes(n *ir.Node) ir.AxisMap {
	if n.Decl != nil && legacyMoved(n, n.Decl.SinceVersion(n.Version)) {
		return ir.AxisMap{}
	}
	return ir.FollowAll(n)
}

// binaryGrad is the rule of two operands: dx and dy get the gradient of the
// output in the output's shape; broadcasting is undone here. A nil function
// is a zero gradient.
func binaryGrad(dx, dy func(c *ir.GradCtx, g *ir.Value) *ir.Value) ir.Grad {
	return ir.GradOf(func(c *ir.GradCtx) error {
		g := c.OutGrad(0)
		if g == nil {
			return nil
		}
		if legacyMoved(c.Node, c.Version) {
			return c.Node.Errorf("grad", "not derived for the axis attribute of opsets before 7; convert the model to opset 7 or later")
		}
		for i, rule := range []func(*ir.GradCtx, *ir.Value) *ir.Value{dx, dy} {
			if rule != nil && c.Needs(i) {
				c.Set(i, c.SumTo(rule(c, g), c.In(i)))
			}
		}
		return nil
	})
}

// binaryInfer is the shape rule of operators with two operands of one type:
// broadcasting, and integer arithmetic on known elements.
func binaryInfer(c *ir.InferCtx) error {
	shape, err := binaryShape(c)
	if err != nil {
		return err
	}
	d := c.DType(0)
	if d == ir.Undefined {
		d = c.DType(1)
	}
	c.SetTensor(0, d, shape)
	propagateInts(c, d, shape)
	return nil
}

// binaryShape checks that the operands have one type and broadcasts them.
func binaryShape(c *ir.InferCtx) (ir.Shape, error) {
	if !c.Has(0) || !c.Has(1) {
		return ir.Shape{}, c.Errorf("needs two operands")
	}
	if a, b := c.DType(0), c.DType(1); a != b && a != ir.Undefined && b != ir.Undefined {
		return ir.Shape{}, c.Errorf("operands are of different types %s and %s", a, b)
	}
	a := c.Shape(0)
	b, ok := legacyShape(c.Node, c.Version, a, c.Shape(1))
	if !ok {
		return ir.Shape{}, c.Errorf("shape %s does not fit into %s at axis %d", c.Shape(1), a, c.Node.Int("axis", 0))
	}
	return broadcastShapes(c, a, b)
}

// propagateInts computes known elements of an output of type d (int64, int32
// or bool) and rank 0 or 1 from known operands; an element that arithmetic of
// dims cannot express leaves the whole output unknown.
func propagateInts(c *ir.InferCtx, d ir.DType, shape ir.Shape) {
	dims, static := shape.Static()
	if !static || len(dims) > 1 || d != ir.Int64 && d != ir.Int32 && d != ir.Bool {
		return
	}
	in := make([][]ir.Dim, len(c.Node.In))
	for i := range in {
		ds, ok := c.Ints(i)
		// Constants of uint64 arrive as their bits, which order otherwise.
		if !ok || c.DType(i) == ir.Uint64 || len(ds) != 1 && int64(len(ds)) != ir.Elems(dims) {
			return
		}
		in[i] = ds
	}
	out := make([]ir.Dim, ir.Elems(dims))
	args := make([]ir.Dim, len(in))
	for i := range out {
		for k, ds := range in {
			args[k] = ds[min(i, len(ds)-1)]
		}
		r, ok := dimArithmetic(c.Node, args)
		if n, known := r.Int(); !ok || known && d == ir.Int32 && n != int64(int32(n)) {
			return
		}
		out[i] = r
	}
	c.SetInts(0, out)
}

// dimArithmetic is an elementwise operator on dims; ok is false where the
// result is no polynomial, or a comparison depends on the symbols.
func dimArithmetic(n *ir.Node, x []ir.Dim) (d ir.Dim, ok bool) {
	switch n.Op {
	case "Min", "Max", "Sum":
		d = x[0]
		for _, e := range x[1:] {
			if d, ok = foldDims(n.Op, d, e); !ok {
				return d, false
			}
		}
		return d, true
	case "Where":
		if b, known := x[0].Int(); known {
			return x[2-min(b, 1)], true
		}
		return ir.Dim{}, false
	}
	if len(x) != 2 {
		return ir.Dim{}, false
	}
	a, b := x[0], x[1]
	if overflows(n.Op, a, b) {
		return ir.Dim{}, false
	}
	switch n.Op {
	case "Add":
		return a.Add(b), true
	case "Sub":
		return a.Sub(b), true
	case "Mul":
		return a.Mul(b), true
	case "Div", "Mod":
		return divideDims(n, a, b)
	case "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual":
		return compareDims(n.Op, a, b)
	case "And", "Or", "Xor":
		return boolDims(n.Op, a, b)
	}
	return ir.Dim{}, false
}

// overflows reports whether integers leave int64, where dims would wrap.
func overflows(op ir.OpName, a, b ir.Dim) bool {
	x, okX := a.Int()
	y, okY := b.Int()
	if !okX || !okY {
		return false
	}
	switch op {
	case "Add":
		return (x+y > x) != (y > 0) && y != 0
	case "Sub":
		return (x-y < x) != (y > 0) && y != 0
	case "Mul":
		return x != 0 && (x*y/x != y || x == -1 && y == math.MinInt64)
	}
	return false
}

func foldDims(op ir.OpName, a, b ir.Dim) (ir.Dim, bool) {
	switch {
	case op == "Sum":
		return a.Add(b), true
	case a.Sub(b).NonNegative() == (op == "Max") && a.Sub(b).NonNegative() != b.Sub(a).NonNegative():
		return a, true
	case b.Sub(a).NonNegative() == (op == "Max") && a.Sub(b).NonNegative() != b.Sub(a).NonNegative():
		return b, true
	case a.Equal(b):
		return a, true
	}
	return ir.Dim{}, false
}

// divideDims is truncating division (Div) or its floored remainder (Mod).
func divideDims(n *ir.Node, a, b ir.Dim) (ir.Dim, bool) {
	x, okX := a.Int()
	y, okY := b.Int()
	if okX && okY && y != 0 {
		if n.Op == "Div" {
			return ir.N(x / y), true
		}
		r := x % y
		if r != 0 && (r < 0) != (y < 0) && n.Int("fmod", 0) == 0 {
			r += y
		}
		return ir.N(r), true
	}
	q, ok := a.Div(b)
	if ok && n.Op == "Mod" {
		q = ir.N(0)
	}
	return q, ok
}

// compareDims compares for every binding of the symbols to sizes.
func compareDims(op ir.OpName, a, b ir.Dim) (ir.Dim, bool) {
	diff := a.Sub(b)
	more, notLess := diff.Add(ir.N(-1)).NonNegative(), diff.NonNegative()
	less, notMore := diff.Neg().Add(ir.N(-1)).NonNegative(), diff.Neg().NonNegative()
	var yes, no bool
	switch op {
	case "Equal":
		yes, no = a.Equal(b), more || less || a.Differ(b)
	case "Greater":
		yes, no = more, notMore
	case "GreaterOrEqual":
		yes, no = notLess, less
	case "Less":
		yes, no = less, notLess
	case "LessOrEqual":
		yes, no = notMore, more
	}
	return dimOfBool(yes), yes || no
}

func boolDims(op ir.OpName, a, b ir.Dim) (ir.Dim, bool) {
	x, okX := a.Int()
	y, okY := b.Int()
	if !okX || !okY {
		return ir.Dim{}, false
	}
	switch op {
	case "And":
		return dimOfBool(x != 0 && y != 0), true
	case "Or":
		return dimOfBool(x != 0 || y != 0), true
	}
	return dimOfBool((x != 0) != (y != 0)), true
}

func dimOfBool(b bool) ir.Dim {
	if b {
		return ir.N(1)
	}
	return ir.N(0)
}

// binarySamples are operands of one shape, broadcast each way, empty, and
// integers.
func binarySamples() []ir.Sample {
	a := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
	return append([]ir.Sample{
		{Name: "same", In: []*ir.Tensor{a, floats([]int64{2, 3}, 1.5, 2, -0.5, 4, 0.25, -3)}},
		{Name: "broadcast", In: []*ir.Tensor{a, floats([]int64{3}, 2, -1.5, 0.5)}},
		{Name: "outer", In: []*ir.Tensor{floats([]int64{2, 1}, 1.5, -2), floats([]int64{3}, 2, -1.5, 0.5)}},
		{Name: "scalar first", In: []*ir.Tensor{floats(nil, 1.5), a}},
		{Name: "empty", In: []*ir.Tensor{floats([]int64{0, 3}), floats([]int64{3}, 2, -1.5, 0.5)}},
		{Name: "legacy axis", Version: 6, In: []*ir.Tensor{a, floats([]int64{2}, 2, -1.5)},
			Attrs: []ir.Attr{ir.IntAttr("broadcast", 1), ir.IntAttr("axis", 0)}},
	}, intBinarySamples()...)
}

// intBinarySamples have quotients of every sign.
func intBinarySamples() []ir.Sample {
	return []ir.Sample{
		{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{7, -3}, 2), ir.FromInts(ir.Int64, []int64{2}, 1)}},
		{Name: "int32", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{7, -7, 7, -7}, 4), ir.FromInts(ir.Int32, []int64{2, 2, -2, -2}, 4)}},
		{Name: "uint8", In: []*ir.Tensor{ir.FromInts(ir.Uint8, []int64{200, 3}, 2), ir.FromInts(ir.Uint8, []int64{100, 7}, 2)}},
	}
}

// floats is a double tensor: samples are in double so that central
// differences are sharp.
func floats(dims []int64, vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Double, vals, dims...) }

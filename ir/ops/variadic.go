package ops

import (
	"strings"

	"memoc/ir"
)

// variadic is an elementwise operator on any number of operands of one type.
type variadic struct {
	name  ir.OpName
	doc   string
	since []int
	types ir.DTypeSet

	f    func(x []float64) float64
	g    func(d ir.DType, x []int64) int64
	expr func(n int) string // C++ expression over x0 … x(n-1)

	// grad is the gradient for operand i in the output's shape.
	grad func(c *ir.GradCtx, dy *ir.Value, i int) *ir.Value
	// extremum says that ties share the gradient, which only a tie of two
	// shows in central differences.
	extremum bool
}

var _ = registerVariadic(
	variadic{name: "Sum", doc: "Elementwise sum of any number of tensors, with broadcasting.", since: []int{1, 6, 8, 13}, types: ir.Floats,
		f:    sumOf,
		expr: func(n int) string { return operandsJoined(n, " + ") },
		grad: func(_ *ir.GradCtx, dy *ir.Value, _ int) *ir.Value { return dy }},
	variadic{name: "Mean", doc: "Elementwise mean of any number of tensors, with broadcasting.", since: []int{1, 6, 8, 13}, types: ir.Floats,
		f:    func(x []float64) float64 { return sumOf(x) / float64(len(x)) },
		expr: func(n int) string { return "(" + operandsJoined(n, " + ") + ") / " + accLiteral(float64(n)) },
		grad: func(c *ir.GradCtx, dy *ir.Value, _ int) *ir.Value {
			return c.Div(dy, c.Scalar(dy.Type.DType, float64(len(c.Node.In))))
		}},
	variadic{name: "Max", doc: "Elementwise maximum of any number of tensors, with broadcasting.", since: []int{1, 6, 8, 12, 13}, types: ir.Numeric,
		f: maxOfLine, g: maxIntOfLine, extremum: true,
		expr: func(n int) string { return operandsNested(n, "max_of") }, grad: shareOfExtremum},
	variadic{name: "Min", doc: "Elementwise minimum of any number of tensors, with broadcasting.", since: []int{1, 6, 8, 12, 13}, types: ir.Numeric,
		f: minOfLine, g: minIntOfLine, extremum: true,
		expr: func(n int) string { return operandsNested(n, "min_of") }, grad: shareOfExtremum},
)

func registerVariadic(vs ...variadic) bool {
	for _, v := range vs {
		ir.Register(ir.Op{
			Name: v.name, Doc: v.doc, Since: v.since,
			In: ir.Ports("data:T*"), Out: ir.Ports("result:T"),
			Types: map[string]ir.DTypeSet{"T": v.types},
			Infer: variadicInfer,
			Axes:  ir.FollowAll,
			Cost: func(c *ir.CostCtx) ir.Cost {
				return ir.PointwiseCost(int64(len(c.Node.In)))(c)
			},
			Grad:      ir.GradOf(v.gradRule),
			Recompute: ir.Pure,
			Eval: func(c *ir.EvalCtx) error {
				if d := c.In(0).DType; d.IsInt() {
					return broadcastEvalInt(c, d, func(x []int64) int64 { return v.g(d, x) })
				}
				return broadcastEval(c, c.In(0).DType, v.f)
			},
			Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
				return ir.Kernel{Pointwise: v.expr(len(c.Node.In))}, nil
			}),
			InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
			Samples: v.samples,
		})
	}
	return true
}

func variadicInfer(c *ir.InferCtx) error {
	if !c.Has(0) {
		return c.Errorf("needs at least one operand")
	}
	var shapes []ir.Shape
	d := ir.Undefined
	for i := range c.Node.In {
		if !c.Has(i) {
			return c.Errorf("operand %d is absent", i)
		}
		shapes = append(shapes, c.Shape(i))
		switch e := c.DType(i); {
		case d == ir.Undefined:
			d = e
		case e != d && e != ir.Undefined:
			return c.Errorf("operands are of different types %s and %s", d, e)
		}
	}
	shape, err := broadcastShapes(c, shapes...)
	if err != nil {
		return err
	}
	c.SetTensor(0, d, shape)
	propagateInts(c, d, shape)
	return nil
}

func (v variadic) gradRule(c *ir.GradCtx) error {
	dy := c.OutGrad(0)
	if dy == nil {
		return nil
	}
	for i := range c.Node.In {
		if c.Needs(i) {
			c.Set(i, c.SumTo(v.grad(c, dy, i), c.In(i)))
		}
	}
	return nil
}

// shareOfExtremum: operands equal to the result share its gradient.
func shareOfExtremum(c *ir.GradCtx, dy *ir.Value, i int) *ir.Value {
	y, d := c.Out(0), dy.Type.DType
	if len(c.Node.In) == 1 {
		return dy
	}
	var count *ir.Value
	for _, x := range c.Node.In {
		hit := c.Cast(c.Same(x, y), d)
		if count == nil {
			count = hit
		} else {
			count = c.Add(count, hit)
		}
	}
	return c.Where(c.Same(c.In(i), y), c.Div(dy, count), c.Zero(dy))
}

func operandsJoined(n int, sep string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = operandName(i)
	}
	return strings.Join(parts, sep)
}

func operandsNested(n int, f string) string {
	s := operandName(0)
	for i := 1; i < n; i++ {
		s = f + "(" + s + ", " + operandName(i) + ")"
	}
	return s
}

func (v variadic) samples() []ir.Sample {
	a := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
	b := floats([]int64{2, 3}, 1.5, 2, -0.5, 4, 0.25, -3)
	row := floats([]int64{3}, 2, -1.5, 0.625)
	out := []ir.Sample{
		{Name: "one", In: []*ir.Tensor{a}},
		{Name: "two", In: []*ir.Tensor{a, b}},
		{Name: "three", In: []*ir.Tensor{row, a, floats([]int64{2, 1}, 0.25, 3)}},
		{Name: "empty", In: []*ir.Tensor{floats([]int64{0, 3}), row}},
		{Name: "legacy", Version: 6, In: []*ir.Tensor{a, b}},
	}
	if v.extremum {
		out = append(out,
			ir.Sample{Name: "tie", In: []*ir.Tensor{a, floats([]int64{3}, 0.5, -1, 1)}},
			ir.Sample{Name: "nan", In: []*ir.Tensor{floats([]int64{3}, nan, 1, 2), floats([]int64{3}, 0, nan, 3)},
				NoGradCheck: map[int]string{0: "NaN", 1: "NaN"}})
	}
	if v.types.Has(ir.Int32) {
		out = append(out,
			ir.Sample{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{7, -3}, 2), ir.FromInts(ir.Int32, []int64{2}, 1)}},
			ir.Sample{Name: "uint64", In: []*ir.Tensor{ir.FromInts(ir.Uint64, []int64{-1, 3}, 2), ir.FromInts(ir.Uint64, []int64{4}, 1)}})
	}
	return out
}

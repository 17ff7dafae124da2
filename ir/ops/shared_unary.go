package ops

import (
	"fmt"
	"math"

	"memoc/ir"
)

// unaryOp is y = f(x), element by element: what a family of operators has in
// common, so that each is one readable entry of a table.
type unaryOp struct {
	domain string
	name   ir.OpName
	doc    string
	since  []int
	types  ir.DTypeSet // Floats if unset
	flops  int64       // per element; 1 if unset

	// f is the reference for floating-point types, g for integers (nil: the
	// operator takes none). attrs reads attributes once.
	f func(x float64) float64
	g func(d ir.DType, x int64) int64

	// expr is the C++ expression over x0.
	expr string

	// grad is dx of x, y = f(x) and dy.
	grad func(c *ir.GradCtx, dy *ir.Value) *ir.Value

	// points are the samples' elements: away from where f has no derivative.
	points []float64
}

// registerUnary declares a family.
func registerUnary(us ...unaryOp) bool {
	for _, u := range us {
		ir.Register(u.op())
	}
	return true
}

func (u unaryOp) op() ir.Op {
	if u.types == 0 {
		u.types = ir.Floats
	}
	return ir.Op{
		Domain: u.domain, Name: u.name, Doc: u.doc, Since: u.since,
		In: ir.Ports("X:T"), Out: ir.Ports("Y:T"),
		Types:     map[string]ir.DTypeSet{"T": u.types},
		Infer:     sameTypeInfer,
		Axes:      ir.FollowAll,
		Cost:      ir.PointwiseCost(max(u.flops, 1)),
		Grad:      gradOfInput0(u.grad),
		Recompute: ir.Pure,
		Eval: func(c *ir.EvalCtx) error {
			x := c.In(0)
			if u.g != nil && x.DType.IsInt() {
				return evalElementsInt(c, x.DType, func(v int64) int64 { return u.g(x.DType, v) })
			}
			return evalElements(c, x.DType, u.f)
		},
		Kernel:  ir.PointwiseKernel(u.expr),
		InPlace: []ir.Alias{{In: 0, Out: 0}},
		Samples: func() []ir.Sample { return unarySamples(u.g != nil, u.points...) },
	}
}

// sameTypeInfer is the shape rule of operators whose first output has the
// type and shape of the first input.
func sameTypeInfer(c *ir.InferCtx) error {
	c.SetTensor(0, c.DType(0), c.Shape(0))
	return nil
}

// gradOfInput0 is a rule for the first input alone; dy is the gradient of the
// first output.
func gradOfInput0(dx func(c *ir.GradCtx, dy *ir.Value) *ir.Value) ir.Grad {
	return ir.GradOf(func(c *ir.GradCtx) error {
		if dy := c.OutGrad(0); dy != nil && c.Needs(0) {
			c.Set(0, dx(c, dy))
		}
		return nil
	})
}

// zeroGrad is the rule of piecewise constant operators: their derivative is
// zero wherever it exists, and zero is what training frameworks use at the
// steps too.
var zeroGrad = ir.GradOf(func(*ir.GradCtx) error { return nil })

// evalElements applies f to the elements of the first input in float64.
func evalElements(c *ir.EvalCtx, d ir.DType, f func(x float64) float64) error {
	x := c.In(0)
	in := x.Floats()
	out := make([]float64, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	c.Set(0, ir.FromFloats(d, out, x.Dims...))
	return nil
}

// evalElementsInt applies f to the elements of the first input in int64.
func evalElementsInt(c *ir.EvalCtx, d ir.DType, f func(x int64) int64) error {
	x := c.In(0)
	in := x.Ints()
	out := make([]int64, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	c.Set(0, ir.FromInts(d, out, x.Dims...))
	return nil
}

// unarySamples are a matrix of the points, a scalar, an empty tensor and, for
// operators on integers, integers of three widths.
func unarySamples(ints bool, points ...float64) []ir.Sample {
	n := int64(len(points))
	out := []ir.Sample{
		{Name: "matrix", In: []*ir.Tensor{floats([]int64{n / 2, 2}, points[:n/2*2]...)}},
		{Name: "scalar", In: []*ir.Tensor{floats(nil, points[0])}},
		{Name: "empty", In: []*ir.Tensor{floats([]int64{0, 3})}},
	}
	if ints {
		out = append(out,
			ir.Sample{Name: "int64", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{-7, 0, 1 << 40}, 3)}},
			ir.Sample{Name: "int32", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{-7, 0, 7}, 3)}},
			ir.Sample{Name: "int8", In: []*ir.Tensor{ir.FromInts(ir.Int8, []int64{-7, 0, 100}, 3)}})
	}
	return out
}

// accLiteral is a C++ literal of type acc_t with exactly the value x.
func accLiteral(x float64) string {
	switch {
	case x != x:
		return "memoc::quiet_nan<acc_t>()"
	case x > maxFloat:
		return "memoc::infinity<acc_t>()"
	case x < -maxFloat:
		return "(-memoc::infinity<acc_t>())"
	}
	return fmt.Sprintf("acc_t(%x)", x)
}

const maxFloat = math.MaxFloat64

var nan = math.NaN()

// operandName is the C++ name of present input i in a Pointwise expression.
func operandName(i int) string { return fmt.Sprintf("x%d", i) }

// hexFloat is a C++ literal of type double with exactly the value x.
func hexFloat(x float64) string { return fmt.Sprintf("%x", x) }

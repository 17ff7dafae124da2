package ops

import (
	"math"

	"memoc/ir"
)

// Elementary functions. A gradient reads the output where it can (Exp, Tanh):
// the input may then be freed, or overwritten in place.
var _ = registerUnary(
	unaryOp{name: "Abs", doc: "Absolute value.", since: []int{1, 6, 13}, types: ir.Numeric,
		f: math.Abs, g: absInt, expr: "abs_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Sign(c.In(0))) }},
	unaryOp{name: "Neg", doc: "-x.", since: []int{1, 6, 13}, types: ir.Signed,
		f: func(x float64) float64 { return -x }, g: func(_ ir.DType, x int64) int64 { return -x },
		expr: "-x0", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Neg(dy) }},
	unaryOp{name: "Exp", doc: "e to the power of x.", since: []int{1, 6, 13}, flops: 8,
		f: math.Exp, expr: "exp_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Out(0)) }},
	unaryOp{name: "Log", doc: "Natural logarithm.", since: []int{1, 6, 13}, flops: 8,
		f: math.Log, expr: "log_of(x0)", points: positivePoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Div(dy, c.In(0)) }},
	unaryOp{name: "Sqrt", doc: "Square root.", since: []int{1, 6, 13}, flops: 4,
		f: math.Sqrt, expr: "sqrt_of(x0)", points: positivePoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Div(c.MulScalar(dy, 0.5), c.Out(0)) }},
	unaryOp{name: "Reciprocal", doc: "1 / x.", since: []int{1, 6, 13}, flops: 4,
		f: func(x float64) float64 { return 1 / x }, expr: "acc_t(1) / x0", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			y := c.Out(0)
			return c.Neg(c.Mul(c.Mul(dy, y), y))
		}},
	unaryOp{name: "Erf", doc: "Gauss error function.", since: []int{9, 13}, flops: 12,
		f: math.Erf, expr: "erf_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // 2/sqrt(pi) * exp(-x^2)
			x := c.In(0)
			return c.Mul(dy, c.MulScalar(c.Exp(c.Neg(c.Mul(x, x))), 2/math.SqrtPi))
		}},
)

// Trigonometric and hyperbolic functions and their inverses.
var _ = registerUnary(
	unaryOp{name: "Sin", doc: "Sine.", since: []int{7, 22}, flops: 10,
		f: math.Sin, expr: "sin_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Op("Cos", []*ir.Value{c.In(0)})) }},
	unaryOp{name: "Cos", doc: "Cosine.", since: []int{7, 22}, flops: 10,
		f: math.Cos, expr: "cos_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return c.Neg(c.Mul(dy, c.Op("Sin", []*ir.Value{c.In(0)})))
		}},
	unaryOp{name: "Tan", doc: "Tangent.", since: []int{7, 22}, flops: 12,
		f: math.Tan, expr: "tan_of(x0)", points: unitPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // 1 + tan^2
			y := c.Out(0)
			return c.Mul(dy, c.AddScalar(c.Mul(y, y), 1))
		}},
	unaryOp{name: "Asin", doc: "Arc sine.", since: []int{7, 22}, flops: 12,
		f: math.Asin, expr: "asin_of(x0)", points: unitPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Div(dy, c.Sqrt(oneMinusSquare(c, c.In(0)))) }},
	unaryOp{name: "Acos", doc: "Arc cosine.", since: []int{7, 22}, flops: 12,
		f: math.Acos, expr: "acos_of(x0)", points: unitPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return c.Neg(c.Div(dy, c.Sqrt(oneMinusSquare(c, c.In(0)))))
		}},
	unaryOp{name: "Atan", doc: "Arc tangent.", since: []int{7, 22}, flops: 12,
		f: math.Atan, expr: "atan_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			x := c.In(0)
			return c.Div(dy, c.AddScalar(c.Mul(x, x), 1))
		}},
	unaryOp{name: "Sinh", doc: "Hyperbolic sine.", since: []int{9, 22}, flops: 12,
		f: math.Sinh, expr: "sinh_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Op("Cosh", []*ir.Value{c.In(0)})) }},
	unaryOp{name: "Cosh", doc: "Hyperbolic cosine.", since: []int{9, 22}, flops: 12,
		f: math.Cosh, expr: "cosh_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Op("Sinh", []*ir.Value{c.In(0)})) }},
	unaryOp{name: "Tanh", doc: "Hyperbolic tangent.", since: []int{1, 6, 13}, flops: 10,
		f: math.Tanh, expr: "tanh_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, oneMinusSquare(c, c.Out(0))) }},
	unaryOp{name: "Asinh", doc: "Inverse hyperbolic sine.", since: []int{9, 22}, flops: 12,
		f: math.Asinh, expr: "asinh_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			x := c.In(0)
			return c.Div(dy, c.Sqrt(c.AddScalar(c.Mul(x, x), 1)))
		}},
	unaryOp{name: "Acosh", doc: "Inverse hyperbolic cosine.", since: []int{9, 22}, flops: 12,
		f: math.Acosh, expr: "acosh_of(x0)", points: []float64{1.25, 2, 3.5, 1.0625, 10, 1.5},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // 1/sqrt(x^2-1), factored to keep digits near 1
			x := c.In(0)
			return c.Div(dy, c.Sqrt(c.Mul(c.AddScalar(x, -1), c.AddScalar(x, 1))))
		}},
	unaryOp{name: "Atanh", doc: "Inverse hyperbolic tangent.", since: []int{9, 22}, flops: 12,
		f: math.Atanh, expr: "atanh_of(x0)", points: unitPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Div(dy, oneMinusSquare(c, c.In(0))) }},
)

// oneMinusSquare is (1-v)(1+v), which keeps digits near v = 1.
func oneMinusSquare(c *ir.GradCtx, v *ir.Value) *ir.Value {
	one := c.Scalar(v.Type.DType, 1)
	return c.Mul(c.Sub(one, v), c.Add(one, v))
}

func absInt(d ir.DType, x int64) int64 {
	if x < 0 && !d.IsUnsigned() {
		return -x
	}
	return x
}

var (
	signedPoints   = []float64{0.5, -1.25, 2, -3.5, -0.75, 1}
	positivePoints = []float64{0.5, 1.25, 2, 3.5, 0.0625, 1}
	unitPoints     = []float64{0.5, -0.25, 0.75, -0.875, 0.125, 0.0625}
)

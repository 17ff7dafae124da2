package ops

import (
	"math"

	"memoc/ir"
)

// Activations without attributes.
var _ = registerUnary(
	unaryOp{name: "Relu", doc: "max(x, 0).", since: []int{1, 6, 13, 14}, types: ir.Signed,
		f: func(x float64) float64 { return maxOf(x, 0) }, g: func(_ ir.DType, x int64) int64 { return max(x, 0) },
		expr: "max_of(x0, acc_t(0))", points: signedPoints,
		// y > 0 where x > 0: the output is enough.
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			y := c.Out(0)
			return c.Where(c.Greater(y, c.Zero(y)), dy, c.Zero(y))
		}},
	unaryOp{name: "Sigmoid", doc: "1 / (1 + exp(-x)).", since: []int{1, 6, 13}, flops: 10,
		f: sigmoid, expr: "sigmoid_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			y := c.Out(0)
			return c.Mul(dy, c.Mul(y, c.Sub(c.Scalar(y.Type.DType, 1), y)))
		}},
	unaryOp{name: "Softplus", doc: "log(1 + exp(x)).", since: []int{1, 22}, flops: 16,
		f: softplus, expr: "softplus_of(x0)", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, c.Sigmoid(c.In(0))) }},
	unaryOp{name: "Softsign", doc: "x / (1 + |x|).", since: []int{1, 22}, flops: 4,
		f: func(x float64) float64 { return x / (1 + math.Abs(x)) }, expr: "x0 / (acc_t(1) + abs_of(x0))", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // 1 / (1 + |x|)^2
			d := c.AddScalar(c.Op("Abs", []*ir.Value{c.In(0)}), 1)
			return c.Div(c.Div(dy, d), d)
		}},
	unaryOp{name: "HardSwish", doc: "x * max(0, min(1, x/6 + 1/2)).", since: []int{14, 22}, flops: 5,
		f:    func(x float64) float64 { return x * maxOf(0, minOf(1, x/6+0.5)) },
		expr: "x0 * max_of(acc_t(0), min_of(acc_t(1), x0 / acc_t(6) + acc_t(0.5)))", points: []float64{0.5, -1.25, 2, -3.5, 4.5, 2.75},
		grad: hardSwishGrad},
	unaryOp{name: "Mish", doc: "x * tanh(log(1 + exp(x))).", since: []int{18, 22}, flops: 28,
		f: func(x float64) float64 { return x * math.Tanh(softplus(x)) }, expr: "x0 * tanh_of(softplus_of(x0))", points: signedPoints,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // t + x * (1 - t^2) * sigmoid(x), t = tanh(softplus(x))
			x := c.In(0)
			t := c.Tanh(c.Op("Softplus", []*ir.Value{x}))
			return c.Mul(dy, c.Add(t, c.Mul(c.Mul(x, c.Sigmoid(x)), oneMinusSquare(c, t))))
		}},
)

// Piecewise constant functions.
var _ = registerConstantPieces(
	unaryOp{name: "Sign", doc: "-1, 0 or 1.", since: []int{9, 13}, types: ir.Numeric,
		f: sign, g: func(d ir.DType, x int64) int64 { return signInt(d, x) }, expr: "sign_of(x0)", points: signedPoints},
	unaryOp{name: "Floor", doc: "Largest integer not above x.", since: []int{1, 6, 13},
		f: math.Floor, expr: "floor_of(x0)", points: fractions},
	unaryOp{name: "Ceil", doc: "Smallest integer not below x.", since: []int{1, 6, 13},
		f: math.Ceil, expr: "ceil_of(x0)", points: fractions},
	unaryOp{name: "Round", doc: "Nearest integer, halves to even.", since: []int{11, 22},
		f: math.RoundToEven, expr: "round_even_of(x0)", points: fractions},
)

func registerConstantPieces(us ...unaryOp) bool {
	for _, u := range us {
		op := u.op()
		op.Grad = zeroGrad
		ir.Register(op)
	}
	return true
}

var fractions = []float64{0.25, -1.25, 2.75, -3.375, -0.75, 1.125}

// hardSwishGrad: 0 below -3, 1 above 3, x/3 + 1/2 between.
func hardSwishGrad(c *ir.GradCtx, dy *ir.Value) *ir.Value {
	x := c.In(0)
	d := x.Type.DType
	slope := c.AddScalar(c.Div(x, c.Scalar(d, 3)), 0.5)
	slope = c.Where(c.Less(c.Scalar(d, 3), x), c.Scalar(d, 1), slope)
	slope = c.Where(c.Less(x, c.Scalar(d, -3)), c.Scalar(d, 0), slope)
	return c.Mul(dy, slope)
}

func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

func softplus(x float64) float64 { return maxOf(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// maxOf and minOf hand a NaN on, whichever side it is on, and order zeros as
// C's comparison does, not by their sign.
func maxOf(a, b float64) float64 {
	if a > b || a != a {
		return a
	}
	return b
}

func minOf(a, b float64) float64 {
	if a < b || a != a {
		return a
	}
	return b
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	case x != x:
		return x
	}
	return 0
}

func signInt(d ir.DType, x int64) int64 {
	switch {
	case x == 0:
		return 0
	case x < 0 && !d.IsUnsigned():
		return -1
	}
	return 1
}

package ops

import (
	"math"

	"memoc/ir"
)

// The Gaussian error linear unit in its forms: x * Phi(x), Phi the normal
// distribution function, or its approximation by tanh; and the ones with
// sigmoid.
var _ = registerActivations(
	activationOp{name: "Gelu", doc: "x * Phi(x), with approximate=tanh the tanh form.", since: []int{20}, flops: 16,
		f: func(n *ir.Node) func(float64) float64 {
			if n.Str("approximate", "none") == "tanh" {
				return geluTanh
			}
			return geluErf
		},
		expr: func(n *ir.Node) string {
			if n.Str("approximate", "none") == "tanh" {
				return geluTanhExpr("x0")
			}
			return geluErfExpr("x0")
		},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			if c.Node.Str("approximate", "none") == "tanh" {
				return c.Mul(dy, geluTanhSlope(c, c.In(0)))
			}
			return c.Mul(dy, geluErfSlope(c, c.In(0)))
		},
		points: signedPoints, attrs: [][]ir.Attr{{ir.StringAttr("approximate", "tanh")}}},
	activationOp{domain: ir.MsDomain, name: "Gelu", doc: "x * Phi(x).", since: []int{1}, flops: 16,
		f:      func(*ir.Node) func(float64) float64 { return geluErf },
		expr:   func(*ir.Node) string { return geluErfExpr("x0") },
		grad:   func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Mul(dy, geluErfSlope(c, c.In(0))) },
		points: signedPoints},
	activationOp{domain: ir.MsDomain, name: "QuickGelu", doc: "x * sigmoid(alpha*x).", since: []int{1}, flops: 12,
		f: func(n *ir.Node) func(float64) float64 { return swish(attrF(n, "alpha", 1.702)) },
		expr: func(n *ir.Node) string {
			return "x0 * sigmoid_of(" + attrLiteral(n, "alpha", 1.702) + " * x0)"
		},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return swishGrad(c, dy, attrF(c.Node, "alpha", 1.702))
		},
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 1)}}},
	activationOp{name: "Swish", doc: "x * sigmoid(alpha*x).", since: []int{24}, flops: 12,
		f: func(n *ir.Node) func(float64) float64 { return swish(attrF(n, "alpha", 1)) },
		expr: func(n *ir.Node) string {
			return "x0 * sigmoid_of(" + attrLiteral(n, "alpha", 1) + " * x0)"
		},
		grad:   func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return swishGrad(c, dy, attrF(c.Node, "alpha", 1)) },
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 1.5)}}},
)

// Constants of the tanh form: sqrt(2/pi) and the cubic coefficient
// (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
const (
	geluScale = 0.7978845608028654
	geluCubic = 0.044715
)

func geluErf(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }

func geluTanh(x float64) float64 { return 0.5 * x * (1 + math.Tanh(geluScale*(x+geluCubic*x*x*x))) }

func geluErfExpr(x string) string {
	return "acc_t(0.5) * (" + x + ") * (acc_t(1) + erf_of((" + x + ") * " + accLiteral(1/math.Sqrt2) + "))"
}

func geluTanhExpr(x string) string {
	inner := accLiteral(geluScale) + " * ((" + x + ") + " + accLiteral(geluCubic) + " * (" + x + ") * (" + x + ") * (" + x + "))"
	return "acc_t(0.5) * (" + x + ") * (acc_t(1) + tanh_of(" + inner + "))"
}

// geluErfSlope is Phi(x) + x*phi(x), phi the normal density.
func geluErfSlope(c *ir.GradCtx, x *ir.Value) *ir.Value {
	erf := c.Op("Erf", []*ir.Value{c.MulScalar(x, 1/math.Sqrt2)})
	phi := c.Exp(c.MulScalar(c.Mul(x, x), -0.5))
	return c.Add(
		c.MulScalar(c.AddScalar(erf, 1), 0.5),
		c.Mul(x, c.MulScalar(phi, 1/math.Sqrt(2*math.Pi))))
}

// geluTanhSlope is (1+t)/2 + x/2 * (1-t^2) * u', t = tanh(u),
// u = geluScale*(x + geluCubic*x^3).
func geluTanhSlope(c *ir.GradCtx, x *ir.Value) *ir.Value {
	square := c.Mul(x, x)
	u := c.MulScalar(c.Mul(x, c.AddScalar(c.MulScalar(square, geluCubic), 1)), geluScale)
	t := c.Tanh(u)
	du := c.MulScalar(c.AddScalar(c.MulScalar(square, 3*geluCubic), 1), geluScale)
	return c.Add(
		c.MulScalar(c.AddScalar(t, 1), 0.5),
		c.Mul(c.MulScalar(x, 0.5), c.Mul(oneMinusSquare(c, t), du)))
}

func swish(alpha float64) func(x float64) float64 {
	return func(x float64) float64 { return x * sigmoid(alpha*x) }
}

// swishGrad: s + alpha*x*s*(1-s), s = sigmoid(alpha*x).
func swishGrad(c *ir.GradCtx, dy *ir.Value, alpha float64) *ir.Value {
	z := c.In(0)
	if alpha != 1 {
		z = c.MulScalar(z, alpha)
	}
	s := c.Sigmoid(z)
	rest := c.Sub(c.Scalar(z.Type.DType, 1), s)
	return c.Mul(dy, c.Mul(s, c.AddScalar(c.Mul(z, rest), 1)))
}

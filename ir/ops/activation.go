package ops

import (
	"math"

	"memoc/ir"
)

var _ = registerActivations(
	activationOp{name: "LeakyRelu", doc: "x where x >= 0, alpha*x elsewhere.", since: []int{1, 6, 16}, flops: 2,
		f: func(n *ir.Node) func(float64) float64 {
			alpha := attrF(n, "alpha", 0.01)
			return func(x float64) float64 {
				if x < 0 {
					return alpha * x
				}
				return x
			}
		},
		expr: func(n *ir.Node) string { return "x0 < acc_t(0) ? " + attrLiteral(n, "alpha", 0.01) + " * x0 : x0" },
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			x := c.In(0)
			return c.Where(c.Less(x, c.Zero(x)), c.MulScalar(dy, attrF(c.Node, "alpha", 0.01)), dy)
		},
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 0.25)}, {ir.FloatAttr("alpha", -0.5)}}},
	activationOp{name: "Elu", doc: "x where x >= 0, alpha*(exp(x) - 1) elsewhere.", since: []int{1, 6, 22}, flops: 10,
		f: func(n *ir.Node) func(float64) float64 { return eluOf(1, attrF(n, "alpha", 1), 1) },
		expr: func(n *ir.Node) string {
			return "x0 < acc_t(0) ? " + attrLiteral(n, "alpha", 1) + " * expm1_of(x0) : x0"
		},
		grad:   func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return eluGrad(c, dy, 1, attrF(c.Node, "alpha", 1), 1) },
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 0.25)}, {ir.FloatAttr("alpha", -0.5)}}},
	activationOp{name: "Selu", doc: "gamma*x where x >= 0, gamma*alpha*(exp(x) - 1) elsewhere.", since: []int{1, 6, 22}, flops: 11,
		f: func(n *ir.Node) func(float64) float64 { return eluOf(seluGamma(n), seluAlpha(n), 1) },
		expr: func(n *ir.Node) string {
			return accLiteral(seluGamma(n)) + " * (x0 < acc_t(0) ? " + accLiteral(seluAlpha(n)) + " * expm1_of(x0) : x0)"
		},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			return eluGrad(c, dy, seluGamma(c.Node), seluAlpha(c.Node), 1)
		},
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 0.25), ir.FloatAttr("gamma", 2)}}},
	activationOp{name: "Celu", doc: "x where x >= 0, alpha*(exp(x/alpha) - 1) elsewhere.", since: []int{12, 28}, flops: 12,
		f: func(n *ir.Node) func(float64) float64 {
			alpha := attrF(n, "alpha", 1)
			return eluOf(1, alpha, alpha)
		},
		expr: func(n *ir.Node) string {
			alpha := attrLiteral(n, "alpha", 1)
			return "x0 < acc_t(0) ? " + alpha + " * expm1_of(x0 / " + alpha + ") : x0"
		},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			alpha := attrF(c.Node, "alpha", 1)
			return eluGrad(c, dy, 1, alpha, alpha)
		},
		points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 0.25)}}},
	activationOp{name: "HardSigmoid", doc: "max(0, min(1, alpha*x + beta)).", since: []int{1, 6, 22}, flops: 4,
		f: func(n *ir.Node) func(float64) float64 {
			alpha, beta := attrF(n, "alpha", 0.2), attrF(n, "beta", 0.5)
			return func(x float64) float64 { return maxOf(0, minOf(1, alpha*x+beta)) }
		},
		expr: func(n *ir.Node) string {
			return "max_of(acc_t(0), min_of(acc_t(1), " + attrLiteral(n, "alpha", 0.2) + " * x0 + " + attrLiteral(n, "beta", 0.5) + "))"
		},
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value { // alpha where 0 < y < 1
			y := c.Out(0)
			inside := c.And(c.Greater(y, c.Zero(y)), c.Less(y, c.Scalar(y.Type.DType, 1)))
			return c.Where(inside, c.MulScalar(dy, attrF(c.Node, "alpha", 0.2)), c.Zero(dy))
		},
		points: []float64{0.5, -1.25, 2, -3.5, 4, 1}, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", 0.75), ir.FloatAttr("beta", 0.125)}}},
	activationOp{name: "ThresholdedRelu", doc: "x where x > alpha, 0 elsewhere.", since: []int{10, 22}, flops: 1,
		f: func(n *ir.Node) func(float64) float64 {
			alpha := attrF(n, "alpha", 1)
			return func(x float64) float64 {
				if x > alpha {
					return x
				}
				return 0
			}
		},
		expr: func(n *ir.Node) string { return "x0 > " + attrLiteral(n, "alpha", 1) + " ? x0 : acc_t(0)" },
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			x := c.In(0)
			return c.Where(c.Greater(x, c.Scalar(x.Type.DType, attrF(c.Node, "alpha", 1))), dy, c.Zero(dy))
		},
		points: []float64{0.5, -1.25, 2, -3.5, -0.75, 1.5}, attrs: [][]ir.Attr{{ir.FloatAttr("alpha", -1)}}},
	activationOp{name: "Shrink", doc: "x + bias below -lambd, x - bias above lambd, 0 between.", since: []int{9}, types: ir.Numeric, flops: 3,
		f:    shrinkOf,
		expr: shrinkExpr,
		grad: func(c *ir.GradCtx, dy *ir.Value) *ir.Value {
			far := c.Greater(c.Op("Abs", []*ir.Value{c.In(0)}), c.Scalar(dy.Type.DType, attrF(c.Node, "lambd", 0.5)))
			return c.Where(far, dy, c.Zero(dy))
		},
		points: []float64{0.25, -1.25, 2, -0.125, -0.75, 1}, attrs: [][]ir.Attr{{ir.FloatAttr("lambd", 1.5), ir.FloatAttr("bias", 0.75)}}},
)

// eluOf is scale * (x, or alpha*(exp(x/width) - 1) below 0).
func eluOf(scale, alpha, width float64) func(x float64) float64 {
	return func(x float64) float64 {
		if x < 0 {
			return scale * alpha * math.Expm1(x/width)
		}
		return scale * x
	}
}

// eluGrad: scale above 0; below, scale*alpha/width*exp(x/width) with the
// exponential from the output, y/scale + alpha = alpha*exp(x/width). The sign
// is the output's too, where the function rises, so that x need not be kept.
func eluGrad(c *ir.GradCtx, dy *ir.Value, scale, alpha, width float64) *ir.Value {
	y := c.Out(0)
	signed := y
	if scale <= 0 || alpha/width <= 0 {
		signed = c.In(0)
	}
	below := c.MulScalar(c.AddScalar(y, scale*alpha), 1/width)
	return c.Mul(dy, c.Where(c.Less(signed, c.Zero(y)), below, c.Scalar(y.Type.DType, scale)))
}

func seluAlpha(n *ir.Node) float64 {
	if n.Version > 0 && n.Version < 6 {
		return attrF(n, "alpha", 1.6732)
	}
	return attrF(n, "alpha", 1.67326319217681884765625)
}

func seluGamma(n *ir.Node) float64 {
	if n.Version > 0 && n.Version < 6 {
		return attrF(n, "gamma", 1.0507)
	}
	return attrF(n, "gamma", 1.05070102214813232421875)
}

func shrinkOf(n *ir.Node) func(float64) float64 {
	lambd, bias := attrF(n, "lambd", 0.5), attrF(n, "bias", 0)
	return func(x float64) float64 {
		switch {
		case x < -lambd:
			return x + bias
		case x > lambd:
			return x - bias
		}
		return 0
	}
}

func shrinkExpr(n *ir.Node) string {
	lambd, bias := attrF(n, "lambd", 0.5), attrLiteral(n, "bias", 0)
	if n.In[0].Type.DType.IsInt() { // the comparison must not round the bound to an integer
		l := "double(" + hexFloat(lambd) + ")"
		b := "double(" + hexFloat(attrF(n, "bias", 0)) + ")"
		return "memoc::to<acc_t>(double(x0) < -" + l + " ? double(x0) + " + b + " : double(x0) > " + l + " ? double(x0) - " + b + " : 0.0)"
	}
	l := accLiteral(lambd)
	return "x0 < -" + l + " ? x0 + " + bias + " : x0 > " + l + " ? x0 - " + bias + " : acc_t(0)"
}

package ops

import (
	"math"

	"memoc/ir"
)

// Gradients of activations as operators of their own, as training exports hold
// them: dX = dY * slope, the slope of the input X or of the output Y. Some
// files write them in the default domain.
var (
	bothDomains = []string{ir.MsDomain, ir.OnnxDomain}
	msDomain    = []string{ir.MsDomain}
)

var _ = registerFused(
	slopeOp(bothDomains, "GeluGrad", "dY times the slope of Gelu at X.", "dY:T, X:T", 20,
		func(*ir.Node) func(float64) float64 { return geluErfSlopeAt }, func(*ir.Node) string { return geluErfSlopeExpr("x1") }),
	slopeOp(msDomain, "FastGeluGrad", "dY times the slope of the tanh form of Gelu at X.", "dY:T, X:T", 20,
		func(*ir.Node) func(float64) float64 { return geluTanhSlopeAt }, func(*ir.Node) string { return geluTanhSlopeExpr("x1") }),
	slopeOp(msDomain, "BiasGeluGrad_dX", "dY times the slope of Gelu at X + B.", "dY:T, X:T, B:T", 20,
		func(*ir.Node) func(float64) float64 { return geluErfSlopeAt }, func(*ir.Node) string { return geluErfSlopeExpr("(x1 + x2)") }),
	slopeOp(msDomain, "BiasFastGeluGrad_dX", "dY times the slope of the tanh form of Gelu at X + B.", "dY:T, X:T, B:T", 20,
		func(*ir.Node) func(float64) float64 { return geluTanhSlopeAt }, func(*ir.Node) string { return geluTanhSlopeExpr("(x1 + x2)") }),
	slopeOp(msDomain, "QuickGeluGrad", "dY times the slope of x*sigmoid(alpha*x) at X.", "dY:T, X:T", 14,
		func(n *ir.Node) func(float64) float64 {
			alpha := attrF(n, "alpha", 1.702)
			return func(x float64) float64 {
				s := sigmoid(alpha * x)
				return s * (1 + alpha*x*(1-s))
			}
		},
		func(n *ir.Node) string {
			z := attrLiteral(n, "alpha", 1.702) + " * x1"
			s := "sigmoid_of(" + z + ")"
			return s + " * (acc_t(1) + " + z + " * (acc_t(1) - " + s + "))"
		}),
	slopeOp(bothDomains, "SigmoidGrad", "dY * Y * (1 - Y).", "dY:T, Y:T", 3,
		func(*ir.Node) func(float64) float64 { return func(y float64) float64 { return y * (1 - y) } },
		func(*ir.Node) string { return "x1 * (acc_t(1) - x1)" }),
	slopeOp(bothDomains, "TanhGrad", "dY * (1 - Y*Y).", "dY:T, Y:T", 3,
		func(*ir.Node) func(float64) float64 { return func(y float64) float64 { return 1 - y*y } },
		func(*ir.Node) string { return "acc_t(1) - x1 * x1" }),
	slopeOp(bothDomains, "LeakyReluGrad", "dY where Y > 0, alpha*dY elsewhere.", "dY:T, Y:T", 2,
		func(n *ir.Node) func(float64) float64 {
			alpha := attrF(n, "alpha", 0.01)
			return func(y float64) float64 {
				if y > 0 {
					return 1
				}
				return alpha
			}
		},
		func(n *ir.Node) string { return "x1 > acc_t(0) ? acc_t(1) : " + attrLiteral(n, "alpha", 0.01) }),
	slopeOp([]string{ir.OnnxDomain}, "SinGrad", "dY * cos(X).", "dY:T, X:T", 11,
		func(*ir.Node) func(float64) float64 { return math.Cos }, func(*ir.Node) string { return "cos_of(x1)" }),
	fusedOp{domains: bothDomains, name: "ReluGrad", doc: "dY where X > 0, 0 elsewhere; X may be Relu's input or output.",
		ports: "dY:T, X:T", flops: 1, grad: noSecondGrad, samples: func() []ir.Sample { return slopeSamples(2) },
		f: func(*ir.Node) func([]float64) float64 {
			return func(x []float64) float64 {
				if x[1] > 0 {
					return x[0]
				}
				return 0
			}
		},
		expr: func(*ir.Node) string { return "x1 > acc_t(0) ? x0 : acc_t(0)" }},
)

// slopeOp is dY times the slope at the sum of the other inputs.
func slopeOp(domains []string, name, doc, ports string, flops int64, slope func(n *ir.Node) func(float64) float64, expr func(n *ir.Node) string) fusedOp {
	return fusedOp{domains: domains, name: name, doc: doc, ports: ports, flops: flops, grad: noSecondGrad,
		f: func(n *ir.Node) func([]float64) float64 {
			at := slope(n)
			return func(x []float64) float64 { return x[0] * at(sumOf(x[1:])) }
		},
		expr:    func(n *ir.Node) string { return "x0 * (" + expr(n) + ")" },
		samples: func() []ir.Sample { return slopeSamples(len(ir.Ports(ports))) }}
}

func geluErfSlopeAt(x float64) float64 {
	return 0.5*(1+math.Erf(x/math.Sqrt2)) + x*math.Exp(-0.5*x*x)/math.Sqrt(2*math.Pi)
}

func geluErfSlopeExpr(x string) string {
	return "acc_t(0.5) * (acc_t(1) + erf_of(" + x + " * " + accLiteral(1/math.Sqrt2) + ")) + " +
		x + " * exp_of(acc_t(-0.5) * " + x + " * " + x + ") * " + accLiteral(1/math.Sqrt(2*math.Pi))
}

func geluTanhSlopeAt(x float64) float64 {
	t := math.Tanh(geluScale * (x + geluCubic*x*x*x))
	return 0.5*(1+t) + 0.5*x*(1-t*t)*geluScale*(1+3*geluCubic*x*x)
}

func geluTanhSlopeExpr(x string) string {
	t := "tanh_of(" + accLiteral(geluScale) + " * (" + x + " + " + accLiteral(geluCubic) + " * " + x + " * " + x + " * " + x + "))"
	return "acc_t(0.5) * (acc_t(1) + " + t + ") + acc_t(0.5) * " + x + " * (acc_t(1) - " + t + " * " + t + ") * " +
		accLiteral(geluScale) + " * (acc_t(1) + " + accLiteral(3*geluCubic) + " * " + x + " * " + x + ")"
}

func slopeSamples(inputs int) []ir.Sample {
	dy := floats([]int64{2, 3}, 1, -0.5, 0.25, 2, -1.5, 0.75)
	x := floats([]int64{2, 3}, 0.5, -1.25, 2, -3.5, -0.75, 0.125)
	in := []*ir.Tensor{dy, x}
	none := []*ir.Tensor{floats([]int64{0, 3}), floats([]int64{0, 3})}
	if inputs == 3 {
		bias := floats([]int64{3}, 0.25, -1, 0.125)
		in, none = append(in, bias), append(none, bias)
	}
	return []ir.Sample{{Name: "matrix", In: in}, {Name: "no rows", In: none}}
}

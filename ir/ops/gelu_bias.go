package ops

import "memoc/ir"

var _ = registerFused(
	fusedOp{domains: []string{ir.MsDomain}, name: "FastGelu", doc: "Gelu in the tanh form of x plus an optional bias.",
		ports: "X:T, bias:T?", flops: 16,
		f: func(n *ir.Node) func([]float64) float64 {
			return func(x []float64) float64 { return geluTanh(sumOf(x)) }
		},
		expr:    func(n *ir.Node) string { return geluTanhExpr(operandsJoined(present(n), " + ")) },
		grad:    biasedGrad(geluTanhSlope),
		samples: func() []ir.Sample { return append(biasedSamples(), unarySamples(false, signedPoints...)...) }},
	fusedOp{domains: []string{ir.MsDomain}, name: "BiasGelu", doc: "Gelu of x plus a bias.",
		ports: "A:T, B:T", flops: 16,
		f: func(n *ir.Node) func([]float64) float64 {
			return func(x []float64) float64 { return geluErf(sumOf(x)) }
		},
		expr:    func(n *ir.Node) string { return geluErfExpr("x0 + x1") },
		grad:    biasedGrad(geluErfSlope),
		samples: biasedSamples},
)

// present counts the inputs that a node has.
func present(n *ir.Node) int {
	k := 0
	for _, v := range n.In {
		if v != nil {
			k++
		}
	}
	return k
}

// biasedGrad: both x and bias get dy * slope(x + bias).
func biasedGrad(slope func(c *ir.GradCtx, x *ir.Value) *ir.Value) ir.Grad {
	return ir.GradOf(func(c *ir.GradCtx) error {
		dy := c.OutGrad(0)
		if dy == nil {
			return nil
		}
		x, bias := c.In(0), c.In(1)
		if bias != nil {
			x = c.Add(x, bias)
		}
		dx := c.Mul(dy, slope(c, x))
		if c.Needs(0) {
			c.Set(0, dx)
		}
		if bias != nil && c.Needs(1) {
			c.Set(1, c.SumTo(dx, bias))
		}
		return nil
	})
}

func biasedSamples() []ir.Sample {
	x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
	return []ir.Sample{
		{Name: "row bias", In: []*ir.Tensor{x, floats([]int64{3}, 0.25, -1, 0.125)}},
		{Name: "batch", In: []*ir.Tensor{x.Reshaped(2, 1, 3), floats([]int64{3}, 0.25, -1, 0.125)}},
		{Name: "no rows", In: []*ir.Tensor{floats([]int64{0, 3}), floats([]int64{3}, 0.25, -1, 0.125)}},
	}
}

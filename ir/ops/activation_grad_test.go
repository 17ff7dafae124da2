package ops

import (
	"math"
	"testing"

	"memoc/ir"
)

// TestSlopes holds gradient operators against central differences of the
// forward operators they belong to: GeluGrad(dY, X) is dY * dGelu/dX.
func TestSlopes(t *testing.T) {
	for _, tc := range []struct {
		domain, grad  string
		forwardDomain string
		forward       string
		fromOutput    bool // the gradient operator takes Y
		forwardInputs int
		alpha         float32
	}{
		{domain: ir.MsDomain, grad: "GeluGrad", forwardDomain: ir.MsDomain, forward: "Gelu"},
		{domain: ir.OnnxDomain, grad: "GeluGrad", forward: "Gelu"},
		{domain: ir.MsDomain, grad: "FastGeluGrad", forwardDomain: ir.MsDomain, forward: "FastGelu"},
		{domain: ir.MsDomain, grad: "BiasGeluGrad_dX", forwardDomain: ir.MsDomain, forward: "BiasGelu", forwardInputs: 2},
		{domain: ir.MsDomain, grad: "BiasFastGeluGrad_dX", forwardDomain: ir.MsDomain, forward: "FastGelu", forwardInputs: 2},
		{domain: ir.MsDomain, grad: "QuickGeluGrad", forwardDomain: ir.MsDomain, forward: "QuickGelu"},
		{domain: ir.MsDomain, grad: "QuickGeluGrad", forwardDomain: ir.MsDomain, forward: "QuickGelu", alpha: 1},
		{domain: ir.MsDomain, grad: "SigmoidGrad", forward: "Sigmoid", fromOutput: true},
		{domain: ir.MsDomain, grad: "TanhGrad", forward: "Tanh", fromOutput: true},
		{domain: ir.MsDomain, grad: "LeakyReluGrad", forward: "LeakyRelu", fromOutput: true, alpha: 0.25},
		{domain: ir.MsDomain, grad: "ReluGrad", forward: "Relu", fromOutput: true},
		{domain: ir.OnnxDomain, grad: "ReluGrad", forward: "Relu"},
		{domain: ir.OnnxDomain, grad: "SinGrad", forward: "Sin"},
	} {
		in := slopeSamples(max(tc.forwardInputs, 1) + 1)[0].In
		var attrs []ir.Attr
		if tc.alpha != 0 {
			attrs = []ir.Attr{ir.FloatAttr("alpha", tc.alpha)}
		}
		run := func(domain, op string, in []*ir.Tensor) []float64 {
			s := ir.Sample{In: in, Attrs: attrs}
			out := mustEval(t, mustBuild(t, ir.Lookup(domain, op), s, asConstants))
			return out[0].(*ir.Tensor).Floats()
		}
		moved := func(by float64) []*ir.Tensor {
			vals := make([]float64, in[1].Len())
			for i, v := range in[1].Floats() {
				vals[i] = v + by
			}
			return append([]*ir.Tensor{ir.FromFloats(ir.Double, vals, in[1].Dims...)}, in[2:]...)
		}
		const h = 1e-5
		up, down := run(tc.forwardDomain, tc.forward, moved(h)), run(tc.forwardDomain, tc.forward, moved(-h))
		args := in
		if tc.fromOutput {
			y := run(tc.forwardDomain, tc.forward, moved(0))
			args = []*ir.Tensor{in[0], ir.FromFloats(ir.Double, y, in[1].Dims...)}
		}
		got := run(tc.domain, tc.grad, args)
		for i, dy := range in[0].Floats() {
			if want := dy * (up[i] - down[i]) / (2 * h); math.Abs(got[i]-want) > 1e-8 {
				t.Errorf("%s::%s of %s: element %d is %v, want %v", tc.domain, tc.grad, tc.forward, i, got[i], want)
			}
		}
	}
}

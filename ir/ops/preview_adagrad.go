package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(previewOptimizer{
	name:   "Adagrad",
	doc:    "One Adagrad step: the squared gradients are summed and the rate divided by the root of the sum.",
	states: 1,
	flops:  8,
	step: func(n *ir.Node, rate float64, count int64) func(x, y []float64) {
		norm, eps := float64(n.Float("norm_coefficient", 0)), float64(n.Float("epsilon", 1e-6))
		rate /= 1 + float64(count)*float64(n.Float("decay_factor", 0))
		return func(x, y []float64) {
			g := norm*x[0] + x[1]
			y[1] = x[2] + g*g
			y[0] = x[0] - rate*g/(math.Sqrt(y[1])+eps)
		}
	},
	source: adagradCUDA,
	args: func(n *ir.Node) []ir.KernelArg {
		return []ir.KernelArg{ir.FloatArg(float64(n.Float("norm_coefficient", 0))), ir.FloatArg(float64(n.Float("epsilon", 1e-6))),
			ir.FloatArg(float64(n.Float("decay_factor", 0)))}
	},
	sample: func() []ir.Sample {
		return []ir.Sample{{Name: "one", In: []*ir.Tensor{floats(nil, 0.1), ir.FromInts(ir.Int64, []int64{3}),
			floats([]int64{2}, 1, 2), floats([]int64{2}, -0.5, 3), floats([]int64{2}, 0.25, 1)}, NumOut: 2,
			Attrs: []ir.Attr{ir.FloatAttr("norm_coefficient", 0.5), ir.FloatAttr("decay_factor", 0.125)}}}
	},
}.declare())

const adagradCUDA = `
template <class R, class X>
void preview_Adagrad(Stream& s, const R* rate, const int64_t* count, const X* x, const X* g, const X* h, X* x_out, X* h_out,
                     int64_t n, double norm, double eps, double decay) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<X>;
    A r = to<A>(*rate) / (A(1) + A(*count) * A(decay));
    A grad = A(norm) * to<A>(x[i]) + to<A>(g[i]);
    A sum = to<A>(h[i]) + grad * grad;
    if (x_out) x_out[i] = to<X>(to<A>(x[i]) - r * grad / (m::sqrt(sum) + A(eps)));
    if (h_out) h_out[i] = to<X>(sum);
  });
}`

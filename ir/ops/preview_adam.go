package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(previewOptimizer{
	name:   "Adam",
	doc:    "One Adam step with regularization before and after the update.",
	states: 2,
	flops:  12,
	step: func(n *ir.Node, rate float64, count int64) func(x, y []float64) {
		alpha, beta := float64(n.Float("alpha", 0.9)), float64(n.Float("beta", 0.999))
		norm, post := float64(n.Float("norm_coefficient", 0)), float64(n.Float("norm_coefficient_post", 0))
		eps := float64(n.Float("epsilon", 1e-6))
		if count > 0 {
			rate *= math.Sqrt(1-math.Pow(beta, float64(count))) / (1 - math.Pow(alpha, float64(count)))
		}
		return func(x, y []float64) {
			g := norm*x[0] + x[1]
			y[1] = alpha*x[2] + (1-alpha)*g
			y[2] = beta*x[3] + (1-beta)*g*g
			y[0] = (1 - post) * (x[0] - rate*y[1]/(math.Sqrt(y[2])+eps))
		}
	},
	source: previewAdamCUDA,
	args: func(n *ir.Node) []ir.KernelArg {
		return []ir.KernelArg{ir.FloatArg(float64(n.Float("alpha", 0.9))), ir.FloatArg(float64(n.Float("beta", 0.999))),
			ir.FloatArg(float64(n.Float("norm_coefficient", 0))), ir.FloatArg(float64(n.Float("norm_coefficient_post", 0))),
			ir.FloatArg(float64(n.Float("epsilon", 1e-6)))}
	},
	sample: func() []ir.Sample {
		in := func(count int64) []*ir.Tensor {
			return []*ir.Tensor{floats(nil, 0.1), ir.FromInts(ir.Int64, []int64{count}),
				floats([]int64{2}, 1, 2), floats([]int64{2}, -0.5, 3), floats([]int64{2}, 0.25, 1), floats([]int64{2}, 0.5, 2)}
		}
		attrs := []ir.Attr{ir.FloatAttr("norm_coefficient", 0.5), ir.FloatAttr("norm_coefficient_post", 0.125)}
		return []ir.Sample{{Name: "corrected", In: in(3), NumOut: 3, Attrs: attrs}, {Name: "first", In: in(0), NumOut: 3, Attrs: attrs}}
	},
}.declare())

const previewAdamCUDA = `
template <class R, class X>
void preview_Adam(Stream& s, const R* rate, const int64_t* count, const X* x, const X* g, const X* v, const X* h, X* x_out,
                  X* v_out, X* h_out, int64_t n, double alpha, double beta, double norm, double post, double eps) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<X>;
    A r = to<A>(*rate);
    if (*count > 0) r *= m::sqrt(A(1) - m::pow(A(beta), A(*count))) / (A(1) - m::pow(A(alpha), A(*count)));
    A grad = A(norm) * to<A>(x[i]) + to<A>(g[i]);
    A m1 = A(alpha) * to<A>(v[i]) + A(1 - alpha) * grad;
    A m2 = A(beta) * to<A>(h[i]) + A(1 - beta) * grad * grad;
    if (x_out) x_out[i] = to<X>(A(1 - post) * (to<A>(x[i]) - r * m1 / (m::sqrt(m2) + A(eps))));
    if (v_out) v_out[i] = to<X>(m1);
    if (h_out) h_out[i] = to<X>(m2);
  });
}`

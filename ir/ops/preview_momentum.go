package ops

import "memoc/ir"

var _ = ir.Register(previewOptimizer{
	name:   "Momentum",
	doc:    "One step of gradient descent with standard or Nesterov momentum.",
	states: 1,
	flops:  6,
	step: func(n *ir.Node, rate float64, count int64) func(x, y []float64) {
		alpha, beta, norm := float64(n.Float("alpha", 0)), float64(n.Float("beta", 1)), float64(n.Float("norm_coefficient", 0))
		if count == 0 {
			beta = 1 // the first gradient is not dampened
		}
		nesterov := n.Str("mode", "standard") == "nesterov"
		return func(x, y []float64) {
			g := norm*x[0] + x[1]
			y[1] = alpha*x[2] + beta*g
			if nesterov {
				y[0] = x[0] - rate*(g+alpha*y[1])
			} else {
				y[0] = x[0] - rate*y[1]
			}
		}
	},
	source: momentumCUDA,
	args: func(n *ir.Node) []ir.KernelArg {
		return []ir.KernelArg{ir.FloatArg(float64(n.Float("alpha", 0))), ir.FloatArg(float64(n.Float("beta", 1))),
			ir.FloatArg(float64(n.Float("norm_coefficient", 0))), ir.BoolArg(n.Str("mode", "standard") == "nesterov")}
	},
	sample: func() []ir.Sample {
		in := []*ir.Tensor{floats(nil, 0.1), ir.FromInts(ir.Int64, []int64{1}),
			floats([]int64{2}, 1, 2), floats([]int64{2}, -0.5, 3), floats([]int64{2}, 0.25, 1)}
		first := append([]*ir.Tensor{}, in...)
		first[1] = ir.FromInts(ir.Int64, []int64{0})
		attrs := func(mode string) []ir.Attr {
			return []ir.Attr{ir.FloatAttr("alpha", 0.75), ir.FloatAttr("beta", 0.5), ir.FloatAttr("norm_coefficient", 0.25),
				ir.StringAttr("mode", mode)}
		}
		return []ir.Sample{
			{Name: "standard", In: in, NumOut: 2, Attrs: attrs("standard")},
			{Name: "nesterov", In: first, NumOut: 2, Attrs: attrs("nesterov")},
		}
	},
}.declare())

const momentumCUDA = `
template <class R, class X>
void preview_Momentum(Stream& s, const R* rate, const int64_t* count, const X* x, const X* g, const X* v, X* x_out, X* v_out,
                      int64_t n, double alpha, double beta, double norm, bool nesterov) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<X>;
    A r = to<A>(*rate), grad = A(norm) * to<A>(x[i]) + to<A>(g[i]);
    A next = A(alpha) * to<A>(v[i]) + A(*count > 0 ? beta : 1.0) * grad;
    if (x_out) x_out[i] = to<X>(to<A>(x[i]) - r * (nesterov ? grad + A(alpha) * next : next));
    if (v_out) v_out[i] = to<X>(next);
  });
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Hardmax",
	Doc:   "1 at the first maximum along an axis, 0 elsewhere (before opset 13: over all axes from axis on).",
	Since: []int{1, 11, 13},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats},
	Infer:     softmaxInfer,
	Axes:      softmaxAxes,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("piecewise constant: its derivative is zero wherever it exists"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return evalLines(c, func(x, y []float64) {
			clear(y)
			best := 0
			for j, v := range x {
				if v > x[best] {
					best = j
				}
			}
			if len(y) > 0 {
				y[best] = 1
			}
		})
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		outer, n, inner := softmaxView(c.Node, c.Version, c.InShape(0))
		return ir.Kernel{Func: "hardmax", Source: hardmaxCUDA, Types: []ir.DType{c.InDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner)}}, nil
	}),
	Samples: softmaxSamples,
})

const hardmaxCUDA = `
template <class T>
void hardmax(Stream& s, const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
  parallel_for(s, n == 0 ? 0 : outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    using A = Acc<T>;
    int64_t base = line / inner * n * inner + line % inner, best = 0;
    for (int64_t j = 1; j < n; j++)
      if (to<A>(x[base + j * inner]) > to<A>(x[base + best * inner])) best = j;
    for (int64_t j = 0; j < n; j++) y[base + j * inner] = to<T>(A(j == best ? 1 : 0));
  });
}`

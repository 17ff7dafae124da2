package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "RNN",
	Doc:   "Recurrence h = f(W x + R h + b), in one or both directions.",
	Since: []int{1, 7, 14, 22},
	In:    ir.Ports("X:T, W:T, R:T, B:T?, sequence_lens:I?, initial_h:T?"), Out: ir.Ports("Y:T?, Y_h:T?"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int32)},
	Infer:     recurrentInfer(1),
	Axes:      ir.NoAxes,
	Cost:      recurrentCost,
	Grad:      ir.NoGrad(noRecurrentGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		e, err := newRecurrent(c, 1)
		if err != nil {
			return err
		}
		e.run(c.Node.Str("direction", "forward") == "reverse", func(d int64, acts []activation) {
			h := make([]float64, e.hidden)
			for j := range e.hidden {
				h[j] = acts[0](e.clipped(e.gateInputs[j] + e.back(d, 0, j, e.hiddenState)))
			}
			e.hiddenState = h
		})
		e.set(c)
		return nil
	},
	Kernel:  recurrentKernel(1, ""),
	Samples: func() []ir.Sample { return recurrentSamples(1) },
})

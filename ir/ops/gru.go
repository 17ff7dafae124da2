package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "GRU",
	Doc:   "Gated recurrent unit, in one or both directions.",
	Since: []int{1, 3, 7, 14, 22},
	In:    ir.Ports("X:T, W:T, R:T, B:T?, sequence_lens:I?, initial_h:T?"), Out: ir.Ports("Y:T?, Y_h:T?"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int32)},
	Infer:     recurrentInfer(3),
	Axes:      ir.NoAxes,
	Cost:      recurrentCost,
	Grad:      ir.NoGrad(noRecurrentGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		e, err := newRecurrent(c, 3)
		if err != nil {
			return err
		}
		linear := c.Node.Int("linear_before_reset", 0) != 0
		e.run(c.Node.Str("direction", "forward") == "reverse", func(d int64, acts []activation) { e.gruStep(d, acts, linear) })
		e.set(c)
		return nil
	},
	Kernel: recurrentKernel(3, "linear_before_reset"),
	Samples: func() []ir.Sample {
		return append(recurrentSamples(3), renamed(recurrentSamples(3, ir.IntAttr("linear_before_reset", 1)), ", linear")...)
	},
})

// gruStep: gates in the order z (update), r (reset), h (candidate).
func (e *recurrent) gruStep(d int64, acts []activation, linear bool) {
	n := e.hidden
	z, r, h := make([]float64, n), make([]float64, n), make([]float64, n)
	reset := make([]float64, n)
	for j := range n {
		z[j] = acts[0](e.clipped(e.gateInputs[j] + e.back(d, 0, j, e.hiddenState)))
		r[j] = acts[0](e.clipped(e.gateInputs[n+j] + e.back(d, 1, j, e.hiddenState)))
		reset[j] = r[j] * e.hiddenState[j]
	}
	for j := range n {
		back := e.back(d, 2, j, reset)
		if linear {
			back = r[j] * e.back(d, 2, j, e.hiddenState)
		}
		h[j] = (1-z[j])*acts[1](e.clipped(e.gateInputs[2*n+j]+back)) + z[j]*e.hiddenState[j]
	}
	e.hiddenState = h
}

// renamed appends to the names of samples.
func renamed(samples []ir.Sample, suffix string) []ir.Sample {
	for i := range samples {
		samples[i].Name += suffix
	}
	return samples
}

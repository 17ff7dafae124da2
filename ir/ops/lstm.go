package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "LSTM",
	Doc:   "Long short-term memory with optional peepholes, in one or both directions.",
	Since: []int{1, 7, 14, 22},
	In:    ir.Ports("X:T, W:T, R:T, B:T?, sequence_lens:I?, initial_h:T?, initial_c:T?, P:T?"), Out: ir.Ports("Y:T?, Y_h:T?, Y_c:T?"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int32)},
	Infer:     recurrentInfer(4),
	Axes:      ir.NoAxes,
	Cost:      recurrentCost,
	Grad:      ir.NoGrad(noRecurrentGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		e, err := newRecurrent(c, 4)
		if err != nil {
			return err
		}
		couple := c.Node.Int("input_forget", 0) != 0
		e.run(c.Node.Str("direction", "forward") == "reverse", func(d int64, acts []activation) { e.lstmStep(d, acts, couple) })
		e.set(c)
		return nil
	},
	Kernel: recurrentKernel(4, "input_forget"),
	Samples: func() []ir.Sample {
		s := recurrentSamples(4)
		in := append(append([]*ir.Tensor{}, s[1].In...), ramp(1, 2, 2), ramp(1, 6))
		return append(s, ir.Sample{Name: "peepholes", NumOut: 3, In: in, Attrs: s[0].Attrs})
	},
})

// lstmStep: gates in the order i (input), o (output), f (forget), c (cell);
// peepholes in the order i, o, f.
func (e *recurrent) lstmStep(d int64, acts []activation, couple bool) {
	n := e.hidden
	peep := func(g, j int64, cell float64) float64 {
		if e.p == nil {
			return 0
		}
		return e.p[(d*3+g)*n+j] * cell
	}
	h, cell := make([]float64, n), make([]float64, n)
	for j := range n {
		gate := func(g int64) float64 { return e.gateInputs[g*n+j] + e.back(d, g, j, e.hiddenState) }
		old := e.cellState[j]
		in := acts[0](e.clipped(gate(0) + peep(0, j, old)))
		forget := acts[0](e.clipped(gate(2) + peep(2, j, old)))
		if couple {
			forget = 1 - in
		}
		cell[j] = forget*old + in*acts[1](e.clipped(gate(3)))
		h[j] = acts[0](e.clipped(gate(1)+peep(1, j, cell[j]))) * acts[2](cell[j])
	}
	e.hiddenState, e.cellState = h, cell
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "AdamWOptimizer",
	Doc:    "One AdamW step of a sequence of weights with its sequences of gradients and moments.",
	Since:  []int{1},
	In:     ir.Ports("lr:R, step:I, weights:S, gradients:S, momentums_1:S, momentums_2:S, update_signal:B?"),
	Out:    ir.Ports("updated_flag:B, updated_weights:S?, updated_momentums_1:S?, updated_momentums_2:S?"),
	Types:  map[string]ir.DTypeSet{"R": ir.Floats, "I": ir.SetOf(ir.Int64), "S": ir.Floats, "B": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, ir.Bool, c.Shape(1)) // ONNX Runtime gives the flag the step's shape
		for o, i := range []int{0, 2, 4, 5} {
			if o > 0 {
				sameTypeAs(c, o, i)
			}
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      sequenceOptimizerCost,
	Grad:      ir.NoGrad(noOptimizerGrad),
	Recompute: ir.Never(optimizerState),
	Eval:      adamWEval,
	Kernel:    ir.NoKernel("sequences of tensors have no device form"),
	Samples: func() []ir.Sample {
		v := func(x ...float64) *ir.Tensor { return floats([]int64{int64(len(x))}, x...) }
		seqs := map[int]ir.Sequence{2: {v(1, -2), v(3)}, 3: {v(0.5, 1), v(-1)}, 4: {v(0, 0.25), v(0.5)}, 5: {v(0, 0.5), v(1)}}
		in := []*ir.Tensor{v(0.1), ir.FromInts(ir.Int64, []int64{2}, 1), nil, nil, nil, nil}
		attrs := []ir.Attr{ir.FloatAttr("alpha", 0.5), ir.FloatAttr("beta", 0.75), ir.FloatAttr("weight_decay", 0.25)}
		return []ir.Sample{
			{Name: "decay first", In: in, Seqs: seqs, NumOut: 4, Attrs: attrs},
			{Name: "decay last", In: in, Seqs: seqs, NumOut: 4, Attrs: append([]ir.Attr{ir.IntAttr("adam_mode", 1)}, attrs...)},
			{Name: "flag alone", In: in, Seqs: seqs, Attrs: attrs},
		}
	},
})

// sequenceOptimizerCost: sequences have no size before they are spelled out.
func sequenceOptimizerCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	return ir.Cost{Read: read, Write: write, DType: ir.Float}
}

func adamWEval(c *ir.EvalCtx) error {
	var seqs [4][]*ir.Tensor // weights, gradients, moments
	for i := range seqs {
		ts, ok := tensorsOf(c.InDatum(i + 2))
		if !ok || len(ts) != len(seqs[0]) && i > 0 {
			return c.Errorf("input %d is no sequence of as many tensors as there are weights", i+2)
		}
		seqs[i] = ts
	}
	lr, okR := scalarOf(c.In(0))
	step, okT := scalarOf(c.In(1))
	if !okR || !okT {
		return c.Errorf("learning rate and step must have one element")
	}
	update := flagOf(c.In(6), true)
	n := c.Node
	s := newAdamStep(lr, float64(n.Float("alpha", 0.9)), float64(n.Float("beta", 0.999)), float64(n.Float("epsilon", 1e-8)),
		float64(n.Float("weight_decay", 1e-2)), int64(step), n.Int("correct_bias", 1) != 0, n.Int("adam_mode", 0))
	var out [3][]*ir.Tensor
	for i, w := range seqs[0] {
		g, m, v := seqs[1][i], seqs[2][i], seqs[3][i]
		if !sameSizes(w, g, m, v) {
			return c.Errorf("weight %d, its gradient and moments differ in size", i)
		}
		ts := updates([]*ir.Tensor{w, m, v}, []*ir.Tensor{w, g, m, v}, func(x, y []float64) {
			if update {
				y[0], y[1], y[2] = s.update(x[0], x[1], x[2], x[3])
			} else {
				y[0], y[1], y[2] = x[0], x[2], x[3]
			}
		})
		for k := range out {
			out[k] = append(out[k], ts[k])
		}
	}
	done := ir.NewTensor(ir.Bool, c.In(1).Dims...)
	if update {
		done.Data[0] = 1
	}
	c.Set(0, done)
	for k := range out {
		c.Set(k+1, sequenceOf(out[k]))
	}
	return nil
}

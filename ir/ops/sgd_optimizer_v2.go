package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "SGDOptimizerV2",
	Doc:    "One step of gradient descent of a sequence of weights, each minus lr times its gradient.",
	Since:  []int{1},
	In:     ir.Ports("lr:R, weights:S, gradients:S, update_signal:B?"), Out: ir.Ports("update_completed:B, updated_weights:S?"),
	Types: map[string]ir.DTypeSet{"R": ir.Floats, "S": ir.Floats, "B": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, ir.Bool, ir.Ints64())
		sameTypeAs(c, 1, 1)
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      sequenceOptimizerCost,
	Grad:      ir.NoGrad(noOptimizerGrad),
	Recompute: ir.Never(optimizerState),
	Eval: func(c *ir.EvalCtx) error {
		weights, okW := tensorsOf(c.InDatum(1))
		grads, okG := tensorsOf(c.InDatum(2))
		lr, okR := scalarOf(c.In(0))
		if !okW || !okG || !okR || len(weights) != len(grads) {
			return c.Errorf("needs one learning rate and as many gradients as weights")
		}
		update := flagOf(c.In(3), true)
		out := make([]*ir.Tensor, len(weights))
		for i, w := range weights {
			if !sameSizes(w, grads[i]) {
				return c.Errorf("weight %d and its gradient differ in size", i)
			}
			out[i] = w
			if update {
				out[i] = updates([]*ir.Tensor{w}, []*ir.Tensor{w, grads[i]}, func(x, y []float64) { y[0] = x[0] - lr*x[1] })[0]
			}
		}
		done := ir.NewTensor(ir.Bool)
		if update {
			done.Data[0] = 1
		}
		c.Set(0, done)
		c.Set(1, sequenceOf(out))
		return nil
	},
	Kernel: ir.NoKernel("sequences of tensors have no device form"),
	Samples: func() []ir.Sample {
		v := func(x ...float64) *ir.Tensor { return floats([]int64{int64(len(x))}, x...) }
		return []ir.Sample{{Name: "two weights", In: []*ir.Tensor{v(0.25), nil, nil}, NumOut: 2,
			Seqs: map[int]ir.Sequence{1: {v(1, -2), v(3)}, 2: {v(0.5, 4), v(-1)}}}}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SequenceConstruct",
	Doc:   "A sequence of the given tensors.",
	Since: []int{11},
	In:    ir.Ports("inputs:T*"), Out: ir.Ports("output_sequence:S"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		if len(c.Node.In) == 0 {
			return c.Errorf("a sequence needs at least one tensor to know its type")
		}
		t := c.In(0)
		for i := 1; i < len(c.Node.In); i++ {
			var ok bool
			if t, ok = joinTypes(c, t, c.In(i)); !ok {
				return c.Errorf("elements of types %s and %s cannot be in one sequence", c.In(0), c.In(i))
			}
		}
		c.Set(0, ir.SequenceOf(t))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad(noSequenceGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		seq := ir.Sequence{}
		for i := range c.NumIn() {
			seq = append(seq, c.InDatum(i))
		}
		c.Set(0, seq)
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		s := sampleSequence()
		return []ir.Sample{{Name: "two", In: []*ir.Tensor{s[0].(*ir.Tensor), s[1].(*ir.Tensor)}}}
	},
})

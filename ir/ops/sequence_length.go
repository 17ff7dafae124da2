package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SequenceLength",
	Doc:   "The number of tensors in a sequence.",
	Since: []int{11},
	In:    ir.Ports("input_sequence:S"), Out: ir.Ports("length:tensor(int64)"),
	Infer: func(c *ir.InferCtx) error {
		if _, err := elemOf(c, 0); err != nil {
			return err
		}
		c.SetTensor(0, ir.Int64, ir.Dims())
		if def := c.Node.In[0].Def; def != nil && def.Op == "SequenceConstruct" && def.Domain == ir.OnnxDomain {
			c.SetInts(0, []ir.Dim{ir.N(int64(len(def.In)))})
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      func(c *ir.CostCtx) ir.Cost { return ir.Cost{Write: 8, DType: ir.Int64} },
	Grad:      ir.NoGrad("the result is an integer"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		seq, err := sequenceIn(c, 0)
		if err != nil {
			return err
		}
		c.Set(0, ir.FromInts(ir.Int64, []int64{int64(len(seq))}))
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "two", In: []*ir.Tensor{nil}, Seqs: map[int]ir.Sequence{0: sampleSequence()},
			Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{2})}}}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "BeamSearch",
	Doc:    "Generates token sequences with decoder subgraphs; memoc knows the shapes and refuses to run it.",
	Since:  []int{1},
	In: ir.Ports("input_ids:F, max_length:I, min_length:I?, num_beams:I, num_return_sequences:I, length_penalty:T?, repetition_penalty:T?, " +
		"vocab_mask:M?, prefix_vocab_mask:M?, attention_mask:I?, decoder_input_ids:I?, logits_processor:I?"),
	Out:   ir.Ports("sequences:I, sequences_scores:T?, scores:T?"),
	Types: map[string]ir.DTypeSet{"F": ir.Floats | ir.Indices, "I": ir.SetOf(ir.Int32), "T": ir.Floats, "M": ir.SetOf(ir.Int32)},
	// sequences [batch, returned, max_length], their scores [batch, returned].
	// Its graphs are typed by what they declare of their own inputs.
	Infer: func(c *ir.InferCtx) error {
		for _, g := range c.Node.Subgraphs() {
			if c.Subgraph == nil {
				break
			}
			if _, err := c.Subgraph(g, nil); err != nil {
				return err
			}
		}
		shape := c.FreshShape(3)
		if x := c.Shape(0); x.Rank() > 0 {
			shape.Dims[0] = x.Dims[0]
		}
		if n, ok := firstInt(c.StaticInts(4)); ok {
			shape.Dims[1] = ir.N(n)
		}
		if n, ok := firstInt(c.StaticInts(1)); ok {
			shape.Dims[2] = ir.N(n)
		}
		c.SetTensor(0, ir.Int32, shape)
		c.SetTensor(1, c.DType(5), ir.Dims(shape.Dims[:2]...))
		c.SetTensor(2, c.DType(5), c.FreshShape(4))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      sequenceOptimizerCost,
	Grad:      ir.NoGrad("it generates tokens: an integer result"),
	Recompute: ir.Never("a search that runs subgraphs as often as the data asks for"),
	Eval: func(c *ir.EvalCtx) error {
		return c.Errorf("generation is not run; run its decoder graph step by step, or the model in ONNX Runtime")
	},
	Kernel:  ir.NoKernel("generation runs subgraphs as often as the data asks for"),
	Samples: func() []ir.Sample { return nil }, // it cannot run
})

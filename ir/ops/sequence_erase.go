package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "SequenceErase",
	Doc:   "A sequence without the tensor at a position (by default the last).",
	Since: []int{11},
	In:    ir.Ports("input_sequence:S, position:I?"), Out: ir.Ports("output_sequence:S"),
	Types: map[string]ir.DTypeSet{"I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		if _, err := elemOf(c, 0); err != nil {
			return err
		}
		c.Set(0, c.In(0))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad(noSequenceGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		seq, err := sequenceIn(c, 0)
		if err != nil {
			return err
		}
		at, err := positionIn(c, 1, len(seq), len(seq)-1)
		if err != nil || at < 0 {
			return c.Errorf("there is nothing to erase at that position of %d elements", len(seq))
		}
		c.Set(0, slices.Delete(slices.Clone(seq), at, at+1))
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "last", In: []*ir.Tensor{nil}, Seqs: map[int]ir.Sequence{0: sampleSequence()}}}
	},
})

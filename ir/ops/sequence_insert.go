package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "SequenceInsert",
	Doc:   "A sequence with a tensor inserted at a position (by default at the end).",
	Since: []int{11},
	In:    ir.Ports("input_sequence:S, tensor:T, position:I?"), Out: ir.Ports("output_sequence:S"),
	Types: map[string]ir.DTypeSet{"I": ir.Indices, "T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		t, err := elemOf(c, 0)
		if err != nil {
			return err
		}
		joined, ok := joinTypes(c, t, c.In(1))
		if !ok {
			return c.Errorf("a tensor of type %s cannot be in a sequence of %s", c.In(1), t)
		}
		c.Set(0, ir.SequenceOf(joined))
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
		at, err := positionIn(c, 2, len(seq), len(seq))
		if err != nil {
			return err
		}
		c.Set(0, slices.Insert(slices.Clone(seq), at, c.InDatum(1)))
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		x := floats([]int64{1, 1}, 7)
		seq := map[int]ir.Sequence{0: sampleSequence()}
		return []ir.Sample{
			{Name: "end", In: []*ir.Tensor{nil, x}, Seqs: seq},
			{Name: "front", In: []*ir.Tensor{nil, x, ir.FromInts(ir.Int64, []int64{-2})}, Seqs: seq},
		}
	},
})

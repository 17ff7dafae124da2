package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SequenceAt",
	Doc:   "The tensor at a position of a sequence.",
	Since: []int{11},
	In:    ir.Ports("input_sequence:S, position:I"), Out: ir.Ports("tensor:T"),
	Types: map[string]ir.DTypeSet{"I": ir.Indices, "T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		t, err := elemOf(c, 0)
		if err != nil {
			return err
		}
		c.Set(0, t)
		// The elements of a sequence made in the graph are known one by one.
		def, at := sequenceSource(c)
		if def == nil {
			return nil
		}
		switch def.Op {
		case "SequenceConstruct":
			if p, ok := ir.NormAxis(at, len(def.In)); ok {
				c.Set(0, def.In[p].Type)
				if def.In[p].Ints != nil {
					c.SetInts(0, def.In[p].Ints)
				}
			}
		case "SplitToSequence":
			if d, ok := splitPart(def, at); ok && t.Shape.Ranked {
				axis, _ := ir.NormAxis(def.Int("axis", 0), t.Shape.Rank())
				dims := append([]ir.Dim{}, t.Shape.Dims...)
				dims[axis] = d
				c.SetTensor(0, t.DType, ir.Dims(dims...))
			}
		}
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
		if err != nil {
			return err
		}
		c.Set(0, seq[at])
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		pos := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}) }
		seq := map[int]ir.Sequence{0: sampleSequence()}
		return []ir.Sample{
			{Name: "first", In: []*ir.Tensor{nil, pos(0)}, Seqs: seq},
			{Name: "last", In: []*ir.Tensor{nil, pos(-1)}, Seqs: seq},
		}
	},
})

// sequenceSource is the node that made the sequence, where the position is
// known too.
func sequenceSource(c *ir.InferCtx) (def *ir.Node, at int64) {
	at64, ok := c.StaticInts(1)
	if !ok || len(at64) != 1 || c.Node.In[0].Def == nil || c.Node.In[0].Def.Domain != ir.OnnxDomain {
		return nil, 0
	}
	return c.Node.In[0].Def, at64[0]
}

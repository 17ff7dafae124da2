package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SequenceMap",
	Doc:   "A subgraph run on every element of a sequence.",
	Since: []int{17},
	In:    ir.Ports("input_sequence:S, additional_inputs:V*"), Out: ir.Ports("out_sequence:S*"),
	Types: map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		body := bodyOf(c.Node, "body")
		if body == nil || len(body.Inputs) != len(c.Node.In) || len(body.Outputs) < len(c.Node.Out) {
			return c.Errorf("the body is missing, or its inputs and outputs do not fit the node's")
		}
		if _, err := elemOf(c, 0); err != nil || c.Subgraph == nil {
			return err
		}
		types := make([]ir.Type, len(c.Node.In))
		for i := range types {
			types[i] = c.In(i)
			if types[i].Kind == ir.SequenceKind {
				types[i] = *types[i].Elem
			}
		}
		out, err := c.Subgraph(body, types)
		if err != nil {
			return err
		}
		for i, t := range out {
			if t.Kind != ir.NoType {
				c.Set(i, ir.SequenceOf(t))
			}
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad(noSequenceGrad),
	Recompute: ir.Never("a subgraph may hold random or stateful operators"),
	Eval: func(c *ir.EvalCtx) error {
		seq, err := sequenceIn(c, 0)
		body := bodyOf(c.Node, "body")
		if err != nil || body == nil {
			return c.Errorf("the first input is no sequence, or the body is missing")
		}
		out := make([]ir.Sequence, len(c.Node.Out))
		for k := range seq {
			in := make([]ir.Datum, c.NumIn())
			for i := range in {
				in[i] = c.InDatum(i)
				if s, ok := in[i].(ir.Sequence); ok {
					if k >= len(s) {
						return c.Errorf("the sequences differ in length")
					}
					in[i] = s[k]
				}
			}
			res, err := c.Subgraph(body, in)
			if err != nil {
				return err
			}
			for o := range out {
				out[o] = append(out[o], res[o])
			}
		}
		for o, s := range out {
			if s == nil {
				s = ir.Sequence{}
			}
			c.Set(o, s)
		}
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		g := ir.NewGraph("body", map[string]int{ir.OnnxDomain: 24})
		x := g.AddInput("element", ir.TensorOf(ir.Double, ir.Shape{}))
		y := g.AddInput("other", ir.TensorOf(ir.Double, ir.Shape{}))
		g.Outputs = g.Append(ir.NodeSpec{Name: "add", Op: "Add", In: []*ir.Value{x, y}, Out: []string{"sum"}}).Out
		return []ir.Sample{{Name: "add", NumOut: 1, In: []*ir.Tensor{nil, floats(nil, 1)}, Seqs: map[int]ir.Sequence{0: sampleSequence()},
			Attrs: []ir.Attr{{Name: "body", Kind: ir.AttrGraph, G: g}}}}
	},
})

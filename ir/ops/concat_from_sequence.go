package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ConcatFromSequence",
	Doc:   "Joins the tensors of a sequence along an axis, or stacks them along a new one.",
	Since: []int{11},
	In:    ir.Ports("input_sequence:S"), Out: ir.Ports("concat_result:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		t, err := elemOf(c, 0)
		if err != nil {
			return err
		}
		if c.Node.Attr("axis") == nil {
			return c.Errorf("the attribute axis is missing")
		}
		stack := c.Node.Int("new_axis", 0) != 0
		parts := []ir.Shape{}
		if def := c.Node.In[0].Def; def != nil && def.Op == "SequenceConstruct" && def.Domain == ir.OnnxDomain {
			for _, v := range def.In {
				parts = append(parts, v.Type.Shape)
			}
		}
		if t.Shape.Ranked {
			rank := t.Shape.Rank()
			if stack {
				rank++
			}
			if _, err := c.Axis(c.Node.Int("axis", 0), rank); err != nil {
				return err
			}
		}
		shape, err := sequenceJoin(c, t.Shape, parts, stack)
		if err != nil {
			return err
		}
		c.SetTensor(0, t.DType, shape)
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		_, write := c.Traffic()
		return ir.Cost{Read: write, Write: write, DType: c.OutDType(0)}
	},
	Grad:      ir.NoGrad(noSequenceGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		seq, err := sequenceIn(c, 0)
		if err != nil {
			return err
		}
		var xs []*ir.Tensor
		for _, d := range seq {
			x, ok := d.(*ir.Tensor)
			if !ok {
				return c.Errorf("the sequence holds something other than tensors")
			}
			if c.Node.Int("new_axis", 0) != 0 {
				axis, ok := ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims)+1)
				if !ok {
					return c.Errorf("the axis is out of range")
				}
				x = x.Reshaped(dimsWith(x.Dims, []int{axis}, 1)...)
			}
			xs = append(xs, x)
		}
		y, msg := concatTensors(xs, c.Node.Int("axis", 0))
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		c.Set(0, y)
		return nil
	},
	Kernel: ir.NoKernel(noSequenceKernel),
	Samples: func() []ir.Sample {
		seq := map[int]ir.Sequence{0: sampleSequence()}
		same := map[int]ir.Sequence{0: {floats([]int64{2}, 1, 2), floats([]int64{2}, 3, 4)}}
		return []ir.Sample{
			{Name: "join", In: []*ir.Tensor{nil}, Seqs: seq, Attrs: []ir.Attr{ir.IntAttr("axis", 0)}},
			{Name: "stack", In: []*ir.Tensor{nil}, Seqs: same, Attrs: []ir.Attr{ir.IntAttr("axis", -1), ir.IntAttr("new_axis", 1)}},
		}
	},
})

// sequenceJoin joins the parts where each is known, else what elem tells.
func sequenceJoin(c *ir.InferCtx, elem ir.Shape, parts []ir.Shape, stack bool) (ir.Shape, error) {
	axis := c.Node.Int("axis", 0)
	if len(parts) > 0 && !stack {
		// Parts that do not fit are left to the run: ONNX looks at the type
		// of the sequence alone.
		if s, err := concatShapes(c, parts, axis); err == nil {
			return s, nil
		}
	}
	if !elem.Ranked {
		return ir.Shape{}, nil
	}
	if !stack {
		dims := append([]ir.Dim{}, elem.Dims...)
		a, _ := ir.NormAxis(axis, len(dims))
		dims[a] = c.FreshDim()
		return ir.Dims(dims...), nil
	}
	n := c.FreshDim()
	if len(parts) > 0 {
		n = ir.N(int64(len(parts)))
	}
	a, _ := ir.NormAxis(axis, elem.Rank()+1)
	return ir.Dims(dimsWith(elem.Dims, []int{a}, n)...), nil
}

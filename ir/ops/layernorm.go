package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name: "LayerNormalization",
	Doc:  "(X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from axis on; Mean and InvStdDev are stashed for the gradient.",
	// ONNX has it from 17; exporters of ONNX Runtime write it at older opsets.
	Since: []int{1, 17},
	In:    ir.Ports("X:T, Scale:T, B:T?"), Out: ir.Ports("Y:T, Mean:U?, InvStdDev:U?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "U": ir.Floats},
	Infer: func(c *ir.InferCtx) error { return normInfer(c, 1, stashType(c.Node)) },
	Axes:  rowAxes, Cost: normCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if c.OutGrad(0) == nil {
			return c.Node.Errorf("grad", "not derived yet: the gradient through Mean or InvStdDev alone")
		}
		if c.OutGrad(1) != nil || c.OutGrad(2) != nil {
			return c.Node.Errorf("grad", "not derived yet: the gradient through Mean and InvStdDev")
		}
		stats := []*ir.Value{c.Out(1), c.Out(2)}
		if c.In(0).Type.DType == ir.Double && stats[0].Type.DType != ir.Double {
			stats = nil // narrower than X: derived again rather than rounded
		}
		g := normGrad(c, "LayerNormalizationGrad", c.OutGrad(0), c.In(0), c.In(1), stats,
			c.Node.Int("axis", -1), normEpsilon(c.Node))
		c.Set(0, g[0])
		c.Set(1, g[1])
		if c.In(2) != nil {
			c.Set(2, c.SumTo(g[2], c.In(2)))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return normEval(c, normEpsilon(c.Node), true, stashType(c.Node), 1, 2)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return normKernel(c, normEpsilon(c.Node), true, stashType(c.Node), 1, 2)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		stash := ir.IntAttr("stash_type", int64(ir.Double))
		x := wave(3, 2, 3, 4)
		return []ir.Sample{
			{Name: "last", In: []*ir.Tensor{x, wave(1, 4), wave(2, 4)}, Attrs: []ir.Attr{stash}},
			{Name: "float stash", In: []*ir.Tensor{x, wave(1, 4), wave(2, 4)}},
			{Name: "stashed", In: []*ir.Tensor{x, wave(1, 4), wave(2, 4)}, NumOut: 3},
			{Name: "no bias", In: []*ir.Tensor{x, wave(1, 4)}, Attrs: []ir.Attr{stash, ir.FloatAttr("epsilon", 0.25)}},
			{Name: "two axes", In: []*ir.Tensor{x, wave(1, 3, 4), wave(2, 3, 4)}, Attrs: []ir.Attr{stash, ir.IntAttr("axis", 1)}},
			{Name: "broadcast scale", In: []*ir.Tensor{x, wave(1, 3, 1), wave(2, 1)}, Attrs: []ir.Attr{stash, ir.IntAttr("axis", -2)}},
			{Name: "first axis", In: []*ir.Tensor{wave(5, 4), wave(1, 4), wave(2, 4)}, Attrs: []ir.Attr{stash, ir.IntAttr("axis", 0)}},
			{Name: "no rows", In: []*ir.Tensor{wave(1, 0, 4), wave(1, 4), wave(2, 4)}, Attrs: []ir.Attr{stash}},
			{Name: "single", In: []*ir.Tensor{wave(1, 2, 3), wave(1, 3), wave(2, 3)}, Version: 14, Attrs: []ir.Attr{stash}},
		}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "OptionalGetElement",
	Doc:   "What an optional holds; a tensor or sequence is taken as it is.",
	Since: []int{15, 18},
	In:    ir.Ports("input:O"), Out: ir.Ports("output:V"),
	Types: map[string]ir.DTypeSet{"O": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		switch t := c.In(0); {
		case t.Kind == ir.OptionalKind:
			c.Set(0, *t.Elem)
		case t.Kind != ir.NoType && c.Version < 18:
			return c.Errorf("the input must be an optional, not %s (before opset 18)", t)
		default:
			c.Set(0, t)
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad("not derived yet: gradients of optional values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		if c.InDatum(0) == nil {
			return c.Errorf("the optional is empty")
		}
		c.Set(0, c.InDatum(0))
		return nil
	},
	Kernel: ir.NoKernel("an optional has no fixed place in memory"),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "tensor", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1, 2}, 2)}}}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Optional",
	Doc:   "An optional that holds the input, or nothing.",
	Since: []int{15},
	In:    ir.Ports("input:V?"), Out: ir.Ports("output:O"),
	Types: map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		a := c.Node.Attr("type")
		switch {
		case c.Has(0) && a != nil:
			return c.Errorf("an optional with a value takes its type from it, not from the attribute")
		case c.Has(0) && c.In(0).Kind != ir.NoType:
			c.Set(0, ir.OptionalOf(c.In(0)))
		case !c.Has(0) && (a == nil || a.Type.Kind == ir.NoType):
			return c.Errorf("an empty optional needs the attribute type")
		case !c.Has(0):
			c.Set(0, ir.OptionalOf(a.Type))
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      noCost,
	Grad:      ir.NoGrad("not derived yet: gradients of optional values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		c.Set(0, c.InDatum(0))
		return nil
	},
	Kernel: ir.NoKernel("an optional has no fixed place in memory"),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "some", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1, 2}, 2)}}}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "OptionalHasElement",
	Doc:   "Whether an optional holds something.",
	Since: []int{15, 18},
	In:    ir.Ports("input:O?"), Out: ir.Ports("output:tensor(bool)"),
	Types: map[string]ir.DTypeSet{"O": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		if len(c.Node.In) > 1 {
			return c.Errorf("there is more than one input")
		}
		if t := c.In(0); c.Version < 18 && c.Has(0) && t.Kind != ir.OptionalKind && t.Kind != ir.NoType {
			return c.Errorf("the input must be an optional, not %s (before opset 18)", t)
		}
		c.SetTensor(0, ir.Bool, ir.Dims())
		switch c.In(0).Kind {
		case ir.TensorKind, ir.SequenceKind:
			c.SetInts(0, []ir.Dim{ir.N(1)})
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      func(*ir.CostCtx) ir.Cost { return ir.Cost{Write: 1, DType: ir.Bool} },
	Grad:      ir.NoGrad("the result is a bool"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		has := int64(0)
		if c.InDatum(0) != nil {
			has = 1
		}
		c.Set(0, ir.FromInts(ir.Bool, []int64{has}))
		return nil
	},
	Kernel: ir.NoKernel("an optional has no fixed place in memory"),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "tensor", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1}, 1)}, Want: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1})}},
			{Name: "none", Want: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{0})}},
		}
	},
})

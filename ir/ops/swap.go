package ops

import "memoc/ir"

// SwapOut and SwapIn are the copies that a plan inserts. Between them the
// tensor lies in host memory alone. In a stock runtime both are Identity.
var (
	_ = ir.Register(swapOp("SwapOut", "Copies a tensor from the device to its slot in host memory."))
	_ = ir.Register(swapOp("SwapIn", "Copies a tensor from its slot in host memory back to the device."))
)

func swapOp(name, doc string) ir.Op {
	return ir.Op{
		Domain: ir.MemocDomain, Name: name, Doc: doc, Since: []int{1},
		In: ir.Ports("X:T"), Out: ir.Ports("Y:T"),
		Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
		Infer: func(c *ir.InferCtx) error {
			c.Set(0, c.In(0))
			if ds, ok := c.Ints(0); ok {
				c.SetInts(0, ds)
			}
			return nil
		},
		Axes:      ir.FollowAll,
		Cost:      ir.MoveCost,
		Grad:      ir.NoGrad("copies are inserted after differentiation"),
		Recompute: ir.Never("a copy is tied to its slot in host memory"),
		Eval: func(c *ir.EvalCtx) error {
			c.Set(0, c.InDatum(0))
			return nil
		},
		Kernel: ir.NoKernel("the program issues it as a copy on its own lane"),
		Function: functionOf(func(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
			return []*ir.Value{b.Identity(in[0])}
		}),
		Samples: func() []ir.Sample {
			return []ir.Sample{{Name: "any", In: []*ir.Tensor{floats([]int64{2, 2}, 1, -2, 3, 0.5)}}}
		},
	}
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "BitCast",
	Doc:   "The same bytes as elements of another type of the same size.",
	Since: []int{26},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:U"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "U": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		to := c.Node.Int("to", 0)
		if to <= 0 || to > 255 || !ir.DType(to).Valid() || ir.DType(to) == ir.String {
			return c.Errorf("attribute to = %d is no type of a fixed size", to)
		}
		d := ir.DType(to)
		if from := c.DType(0); from != ir.Undefined && from.Bits() != d.Bits() {
			return c.Errorf("elements of %s have not the size of %s", from, d)
		}
		c.SetTensor(0, d, c.Shape(0))
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      ir.ViewCost,
	Grad:      ir.NoGrad("bits have no derivative"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		y := *c.In(0)
		y.DType = ir.DType(c.Node.Int("to", 0))
		if c.In(0).DType.Bits() != y.DType.Bits() || y.DType.Bits() == 0 {
			return c.Errorf("elements of %s have not the size of %s", c.In(0).DType, y.DType)
		}
		c.Set(0, &y)
		return nil
	},
	Kernel: ir.KernelOf(copyKernel),
	View:   sharesInput0,
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "float to int", In: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1, -2, 0.5}, 3)}, Attrs: []ir.Attr{ir.IntAttr("to", int64(ir.Int32))},
				Want: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{0x3f800000, -0x40000000, 0x3f000000}, 3)}},
			{Name: "bytes", In: []*ir.Tensor{ir.FromInts(ir.Uint8, []int64{255, 1}, 2)}, Attrs: []ir.Attr{ir.IntAttr("to", int64(ir.Int8))}},
		}
	},
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ImageDecoder",
	Doc:   "Decodes an image file to [height, width, channels]; memoc knows its shape and refuses to run it.",
	Since: []int{20},
	In:    ir.Ports("encoded_stream:T"), Out: ir.Ports("image:T"),
	Types: map[string]ir.DTypeSet{"T": ir.SetOf(ir.Uint8)},
	Infer: func(c *ir.InferCtx) error {
		channels := int64(3)
		switch f := c.Node.Str("pixel_format", "RGB"); f {
		case "RGB", "BGR":
		case "Grayscale":
			channels = 1
		default:
			return c.Errorf("unknown pixel_format %q", f)
		}
		c.SetTensor(0, ir.Uint8, ir.Dims(c.FreshDim(), c.FreshDim(), ir.N(channels)))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return c.Errorf("image formats are not decoded; feed the model with pixels")
	},
	Kernel:  ir.NoKernel("image formats are decoded on the host, by other tools"),
	Samples: func() []ir.Sample { return nil }, // it cannot run
})

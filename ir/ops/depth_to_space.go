package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "DepthToSpace",
	Doc:   "Moves blocks of channels into height and width.",
	Since: []int{1, 11, 13},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		b, in, err := blockShape(c)
		if err != nil || !in.Ranked {
			return err
		}
		channels, ok := in.Dims[1].Div(ir.N(b * b))
		if !ok {
			if isInt(in.Dims[1]) {
				return c.Errorf("%s channels do not divide into blocks of %d x %d", in.Dims[1], b, b)
			}
			channels = c.FreshDim()
		}
		c.SetTensor(0, c.DType(0), ir.Dims(in.Dims[0], channels, in.Dims[2].Mul(ir.N(b)), in.Dims[3].Mul(ir.N(b))))
		return nil
	},
	Axes: followBatch,
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		dy, x := c.OutGrad(0), c.In(0)
		if c.Node.Str("mode", "DCR") != "CRD" {
			c.Set(0, c.Like(c.Op("SpaceToDepth", []*ir.Value{dy}, ir.IntAttr("blocksize", c.Node.Int("blocksize", 0))), x))
			return nil
		}
		d, static := x.Type.Shape.Static()
		if !static {
			return c.Node.Errorf("grad", "the gradient in mode CRD needs a static shape; bind the dims with --dim")
		}
		b := c.Node.Int("blocksize", 0)
		blocks := c.Reshape(dy, d[0], d[1]/(b*b), d[2], b, d[3], b)
		c.Set(0, c.Like(c.ReshapeLike(c.Transpose(blocks, 0, 1, 3, 5, 2, 4), x), x))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		b := c.Node.Int("blocksize", 0)
		if len(x.Dims) != 4 || b < 1 || x.Dims[1]%(b*b) != 0 {
			return c.Errorf("shape %v does not divide into blocks of %d", x.Dims, b)
		}
		d := x.Dims
		idx := stridedIndex(depthToSpacePlan(c.Node, d, b))
		c.Set(0, pick(x.DType, []int64{d[0], d[1] / (b * b), d[2] * b, d[3] * b}, idx, x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims, strides, _ := depthToSpacePlan(c.Node, c.InShape(0), c.Node.Int("blocksize", 1))
		return regroupKernel(c, dims, strides)
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{1, 8, 2, 3}, iota64(48)...)
		attrs := func(mode string) []ir.Attr {
			return []ir.Attr{ir.IntAttr("blocksize", 2), ir.StringAttr("mode", mode)}
		}
		return []ir.Sample{
			{Name: "DCR", In: []*ir.Tensor{x}, Attrs: attrs("DCR")},
			{Name: "CRD", In: []*ir.Tensor{x}, Attrs: attrs("CRD")},
			{Name: "opset 1", Version: 1, In: []*ir.Tensor{x}, Attrs: attrs("DCR")[:1]},
		}
	},
})

// depthToSpacePlan reads x as [n, c, h, bh, w, bw]: block position inside
// height and width.
func depthToSpacePlan(n *ir.Node, d []int64, b int64) (dims, strides []int64, offset int64) {
	c, hw := d[1]/(b*b), d[2]*d[3]
	channel, row, col := hw, b*c*hw, c*hw // DCR: channels are [bh, bw, c]
	if n.Str("mode", "DCR") == "CRD" {    // channels are [c, bh, bw]
		channel, row, col = b*b*hw, b*hw, hw
	}
	return []int64{d[0], c, d[2], b, d[3], b}, []int64{d[1] * hw, channel, d[3], row, 1, col}, 0
}

// regroupKernel is a strided read with its own idea of the output's dims.
func regroupKernel(c *ir.NodeCtx, dims, strides []int64) (ir.Kernel, error) {
	k, err := stridedKernel(c, strides, 0)
	if err == nil {
		k.Args[2] = ir.DimsArg(dims...)
	}
	return k, err
}

// blockShape checks what both block operators need; shape is unranked where
// the input is.
func blockShape(c *ir.InferCtx) (b int64, in ir.Shape, err error) {
	b, in = c.Node.Int("blocksize", 0), c.Shape(0)
	if b < 1 {
		return b, in, c.Errorf("blocksize %d must be positive", b)
	}
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), c.FreshShape(4))
		return b, in, nil
	}
	if in.Rank() != 4 {
		return b, in, c.Errorf("the input must have 4 axes, not %d", in.Rank())
	}
	return b, in, nil
}

// followBatch claims the first axis alone.
func followBatch(n *ir.Node) ir.AxisMap {
	return followAxes(n, func(a int) int {
		if a == 0 {
			return 0
		}
		return -1
	})
}

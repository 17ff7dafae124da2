package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "SpaceToDepth",
	Doc:   "Moves blocks of height and width into channels.",
	Since: []int{1, 13},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		b, in, err := blockShape(c)
		if err != nil || !in.Ranked {
			return err
		}
		dims := []ir.Dim{in.Dims[0], in.Dims[1].Mul(ir.N(b * b)), {}, {}}
		for a := 2; a < 4; a++ {
			var ok bool
			if dims[a], ok = in.Dims[a].Div(ir.N(b)); !ok {
				if isInt(in.Dims[a]) {
					return c.Errorf("extent %s does not divide into blocks of %d", in.Dims[a], b)
				}
				dims[a] = c.FreshDim()
			}
		}
		c.SetTensor(0, c.DType(0), ir.Dims(dims...))
		return nil
	},
	Axes: followBatch,
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		c.Set(0, c.Like(c.Op("DepthToSpace", []*ir.Value{c.OutGrad(0)}, ir.IntAttr("blocksize", c.Node.Int("blocksize", 0))), c.In(0)))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		b := c.Node.Int("blocksize", 0)
		if len(x.Dims) != 4 || b < 1 || x.Dims[2]%b != 0 || x.Dims[3]%b != 0 {
			return c.Errorf("shape %v does not divide into blocks of %d", x.Dims, b)
		}
		d := x.Dims
		dims, strides := spaceToDepthPlan(d, b)
		c.Set(0, pick(x.DType, []int64{d[0], d[1] * b * b, d[2] / b, d[3] / b}, stridedIndex(dims, strides, 0), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims, strides := spaceToDepthPlan(c.InShape(0), c.Node.Int("blocksize", 1))
		return regroupKernel(c, dims, strides)
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 1, 2, 6}, iota64(24)...)
		return []ir.Sample{
			{Name: "two", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("blocksize", 2)}},
			{Name: "one", Version: 1, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("blocksize", 1)}},
		}
	},
})

// spaceToDepthPlan reads x as [n, bh, bw, c, h, w].
func spaceToDepthPlan(d []int64, b int64) (dims, strides []int64) {
	hw := d[2] * d[3]
	return []int64{d[0], b, b, d[1], d[2] / b, d[3] / b}, []int64{d[1] * hw, d[3], 1, hw, b * d[3], b}
}

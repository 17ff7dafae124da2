package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Shape",
	Doc:   "The extents of a tensor, or of its axes from start to end.",
	Since: []int{1, 13, 15, 19, 21, 23, 24, 25},
	In:    ir.Ports("data:T"), Out: ir.Ports("shape:tensor(int64)"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if !in.Ranked {
			c.SetTensor(0, ir.Int64, c.FreshShape(1))
			return nil
		}
		lo, hi := shapeSpan(c.Node, in.Rank())
		c.SetTensor(0, ir.Int64, ir.Ints64(int64(hi-lo)))
		c.SetInts(0, in.Dims[lo:hi])
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      shapeCost,
	Grad:      ir.NoGrad("the result is integers"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dims := c.In(0).Dims
		lo, hi := shapeSpan(c.Node, len(dims))
		c.Set(0, ir.FromInts(ir.Int64, dims[lo:hi], int64(hi-lo)))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims := c.InShape(0)
		lo, hi := shapeSpan(c.Node, len(dims))
		return ir.Kernel{Func: "write_shape", Source: shapeCUDA, Args: []ir.KernelArg{ir.OutArg(0), ir.DimsArg(dims[lo:hi]...)}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3, 1}, iota64(6)...)
		span := func(name string, lo, hi int64) ir.Sample {
			return ir.Sample{Name: name, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("start", lo), ir.IntAttr("end", hi)}}
		}
		return []ir.Sample{
			{Name: "all", In: []*ir.Tensor{x}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{2, 3, 1}, 3)}},
			span("middle", 1, 2), span("negative", -2, -1), span("clamped", -9, 9), span("none", 2, 1),
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 2)}},
		}
	},
})

// shapeSpan is the axes [lo,hi) that a Shape node lists, clamped.
func shapeSpan(n *ir.Node, rank int) (lo, hi int) {
	clamp := func(a int64) int {
		if a < 0 {
			a += int64(rank)
		}
		return int(min(max(a, 0), int64(rank)))
	}
	lo, hi = clamp(n.Int("start", 0)), clamp(n.Int("end", int64(rank)))
	return lo, max(lo, hi)
}

// shapeCost: a few bytes are written, the data is not read.
func shapeCost(c *ir.CostCtx) ir.Cost {
	_, write := c.Traffic()
	return ir.Cost{Write: write, DType: ir.Int64}
}

const shapeCUDA = `
inline void write_shape(Stream& s, int64_t* y, Dims d) {
  parallel_for(s, d.rank, [=] MEMOC_DEVICE(int64_t i) { y[i] = d.d[i]; });
}`

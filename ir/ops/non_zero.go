package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "NonZero",
	Doc:   "The coordinates of the elements that are not zero, one column each.",
	Since: []int{9, 13},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:tensor(int64)"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		rank := c.FreshDim()
		if in.Ranked {
			rank = ir.N(int64(in.Rank()))
		}
		c.SetTensor(0, ir.Int64, ir.Dims(rank, c.FreshDim()))
		dims, static := in.Static()
		if ns, known := c.StaticInts(0); known && static && ir.Elems(dims) == int64(len(ns)) {
			cols, n := nonZero(dims, func(i int) bool { return ns[i] != 0 })
			c.SetTensor(0, ir.Int64, ir.Dims(rank, ir.N(n)))
			c.SetInts(0, ir.Ints64(cols...).Dims)
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("the result is integers"),
	Recompute: ir.Never("it decides by comparison, and its size depends on the data"),
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		var nz func(i int) bool
		if x.DType.IsFloat() {
			vals := x.Floats()
			nz = func(i int) bool { return vals[i] != 0 }
		} else {
			vals := x.Ints()
			nz = func(i int) bool { return vals[i] != 0 }
		}
		cols, n := nonZero(x.Dims, nz)
		c.Set(0, ir.FromInts(ir.Int64, cols, int64(len(x.Dims)), n))
		return nil
	},
	Kernel: ir.NoKernel("the size of its result depends on the data"),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "matrix", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 0, 2, -3)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{0, 1, 1, 0, 0, 1}, 2, 3)}},
			{Name: "bools", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{0, 1, 1}, 3)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1, 2}, 1, 2)}},
			{Name: "none", In: []*ir.Tensor{ir.NewTensor(ir.Float, 3)}},
		}
	},
})

// nonZero lists the coordinates of the elements that nz names, axis by axis.
func nonZero(dims []int64, nz func(i int) bool) (coords []int64, n int64) {
	byAxis := make([][]int64, len(dims))
	allIndices(dims, func(i int, coord []int64) {
		if !nz(i) {
			return
		}
		n++
		for a, p := range coord {
			byAxis[a] = append(byAxis[a], p)
		}
	})
	for _, list := range byAxis {
		coords = append(coords, list...)
	}
	return coords, n
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Tile",
	Doc:   "Repeats the tensor along its axes.",
	Since: []int{1, 6, 13},
	In:    ir.Ports("input:T, repeats:Tr, axis:Tr?"), Out: ir.Ports("output:T"),
	// Opset 1 gives the two numbers in the type of the data.
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType, "Tr": ir.Numeric},
	Infer: tileInfer,
	Axes: func(n *ir.Node) ir.AxisMap {
		in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
		return followAxes(n, func(a int) int {
			if in.Rank() == out.Rank() && in.Dims[a].Equal(out.Dims[a]) {
				return a
			}
			return -1
		})
	},
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(tileGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		times := c.In(1).Ints()
		if c.Has(2) {
			var ok bool
			if times, ok = tileAlong(c.In(2).Ints(), times, len(x.Dims)); !ok {
				return c.Errorf("tiles and axis must be one number each, and the axis in range")
			}
		}
		if len(times) != len(x.Dims) {
			return c.Errorf("%d repeats for %d axes", len(times), len(x.Dims))
		}
		dims := make([]int64, len(x.Dims))
		for a := range dims {
			if times[a] < 0 {
				return c.Errorf("repeats %v are negative", times)
			}
			dims[a] = x.Dims[a] * times[a]
		}
		c.Set(0, pick(x.DType, dims, tileIndex(x.Dims, dims), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		return ir.Kernel{Func: "tile", Source: tileCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.DimsArg(c.InShape(0)...), ir.DimsArg(c.OutShape(0)...)}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, iota64(6)...)
		to := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "both", In: []*ir.Tensor{x, to(2, 3)}},
			{Name: "one axis", In: []*ir.Tensor{x, to(1, 2)}},
			{Name: "none", In: []*ir.Tensor{x, to(0, 1)}},
			{Name: "opset 1", Version: 1, In: []*ir.Tensor{floats([]int64{2, 3}, iota64(6)...), floats([]int64{1}, 2), floats([]int64{1}, 1)},
				NoGradCheck: map[int]string{1: "a number of copies", 2: "an axis"}},
		}
	},
})

const tileCUDA = `
template <class T>
void tile(Stream& s, const T* x, T* y, Dims in, Dims out) {
  Dims from = strides_of(in);
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    int64_t at = 0, rest = i;
    for (int64_t a = out.rank - 1; a >= 0; a--) {
      at += rest % out.d[a] % in.d[a] * from.d[a];
      rest /= out.d[a];
    }
    y[i] = x[at];
  });
}`

// tileIndex lists which input element each output element is.
func tileIndex(in, out []int64) []int {
	idx := make([]int, ir.Elems(out))
	strides := rowMajor(in)
	allIndices(out, func(i int, coord []int64) {
		for a, p := range coord {
			idx[i] += int(p % in[a] * strides[a])
		}
	})
	return idx
}

// tileAlong is opset 1's form, tiles along one axis, as repeats.
func tileAlong(axis, tiles []int64, rank int) ([]int64, bool) {
	if len(axis) != 1 || len(tiles) != 1 {
		return nil, false
	}
	a, ok := ir.NormAxis(axis[0], rank)
	if !ok {
		return nil, false
	}
	times := make([]int64, rank)
	for i := range times {
		times[i] = 1
	}
	times[a] = tiles[0]
	return times, true
}

// tileTimes is the repeats where they are known.
func tileTimes(n *ir.Node, rank int) (times []ir.Dim, ok bool) {
	c := &ir.InferCtx{Node: n}
	if c.Has(2) {
		axis, tiles := c.Const(2), c.Const(1)
		if axis == nil || tiles == nil || axis.DType == ir.String || tiles.DType == ir.String {
			return nil, false
		}
		ns, ok := tileAlong(axis.Ints(), tiles.Ints(), rank)
		return ir.Ints64(ns...).Dims, ok
	}
	return c.Ints(1)
}

func tileInfer(c *ir.InferCtx) error {
	in := c.Shape(0)
	if !in.Ranked {
		shape := ir.Shape{}
		if n, ok := c.Length(1); ok && !c.Has(2) {
			shape = c.FreshShape(n)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	times, ok := tileTimes(c.Node, in.Rank())
	if !ok {
		c.SetTensor(0, c.DType(0), c.FreshShape(in.Rank()))
		return nil
	}
	if len(times) != in.Rank() {
		return c.Errorf("%d repeats for %d axes", len(times), in.Rank())
	}
	dims := make([]ir.Dim, in.Rank())
	for a := range dims {
		if n, isInt := times[a].Int(); isInt && n < 0 {
			return c.Errorf("repeats are negative")
		}
		dims[a] = in.Dims[a].Mul(times[a])
	}
	out := ir.Dims(dims...)
	c.SetTensor(0, c.DType(0), out)
	moveInts(c, out, tileIndex)
	return nil
}

// tileGrad sums over the copies: every axis is seen as [copies, extent].
func tileGrad(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	rank := x.Type.Shape.Rank()
	times, ok := tileTimes(c.Node, rank)
	if rank < 0 || !ok || len(times) != rank {
		return c.Node.Errorf("grad", "the gradient needs to know the repeats, which are computed at run time")
	}
	var dims []ir.Dim
	var sum []int64
	for a, d := range x.Type.Shape.Dims {
		if !times[a].Equal(ir.N(1)) {
			sum = append(sum, int64(len(dims)))
			dims = append(dims, times[a])
		}
		dims = append(dims, d)
	}
	if len(sum) == 0 {
		c.Set(0, c.Like(dy, x))
		return nil
	}
	shape, ok := c.DimsValue(dims, x, dy)
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs repeats that are numbers or extents; bind dims with --dim")
	}
	if n, ok := dy.Type.Shape.NumElements(); ok && n.Equal(ir.N(0)) {
		c.Set(0, c.ZerosLike(x))
		return nil
	}
	c.Set(0, c.Like(c.ReduceSum(c.Op("Reshape", []*ir.Value{dy, shape}), false, sum...), x))
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "SliceGrad",
	Doc:    "Gradient of Slice: dY where the slice was taken, zeros elsewhere.",
	Since:  []int{1},
	In:     ir.Ports("dY:T, shape:tensor(int64), starts:Tind, ends:Tind, axes:Tind?, steps:Tind?"), Out: ir.Ports("dX:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "Tind": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		shape, err := shapeFromInts(c, 1)
		if err != nil {
			return err
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes:      sliceGradAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: second derivatives of Slice"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dy, dims := c.In(0), c.In(1).Ints()
		var args sliceArgs
		args.starts, _ = evalInts(c, "starts", 2)
		args.ends, _ = evalInts(c, "ends", 3)
		args.axes, args.hasAxes = evalInts(c, "axes", 4)
		args.steps, args.hasSteps = evalInts(c, "steps", 5)
		rs, msg := args.ranges(dims)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		out, strides, offset := slicePlan(dims, rs)
		if ir.Elems(out) != dy.Len() {
			return c.Errorf("the slice has shape %v, dY %v", out, dy.Dims)
		}
		from := make([]int, ir.Elems(dims))
		for i := range from {
			from[i] = -1
		}
		for k, i := range stridedIndex(out, strides, offset) {
			from[i] = k
		}
		c.Set(0, pick(dy.DType, dims, from, dy))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		args, known := sliceGradArgs(c.Node)
		if !known {
			return ir.Kernel{}, c.Errorf("the bounds are computed at run time")
		}
		rs, msg := args.ranges(c.OutShape(0))
		if msg != "" {
			return ir.Kernel{}, c.Errorf("%s", msg)
		}
		out, strides, offset := slicePlan(c.OutShape(0), rs)
		return ir.Kernel{Func: "slice_grad", Source: sliceGradCUDA, Types: []ir.DType{c.OutDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0))), ir.DimsArg(out...), ir.DimsArg(strides...), ir.IntArg(offset)}}, nil
	}),
	Samples: func() []ir.Sample {
		ints := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "range", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 2, 3, 4), ints(2, 4), ints(1), ints(3), ints(1)},
				Want: []*ir.Tensor{floats([]int64{2, 4}, 0, 1, 2, 0, 0, 3, 4, 0)}},
			{Name: "backward", In: []*ir.Tensor{floats([]int64{2}, 1, 2), ints(4), ints(-1), ints(0), ints(0), ints(-2)},
				Want: []*ir.Tensor{floats([]int64{4}, 0, 2, 0, 1)}},
		}
	},
})

const sliceGradCUDA = `
template <class T>
void slice_grad_write(Stream& s, const T* dy, T* dx, Dims shape, Dims strides, int64_t offset) {
  parallel_for(s, shape.numel(), [=] MEMOC_DEVICE(int64_t i) { dx[offset + offset_of(i, shape, strides)] = dy[i]; });
}

template <class T>
void slice_grad(Stream& s, const T* dy, T* dx, int64_t n, Dims shape, Dims strides, int64_t offset) {
  fill_zero(s, dx, n * int64_t(sizeof(T)));
  slice_grad_write(s, dy, dx, shape, strides, offset);
}`

func sliceGradArgs(n *ir.Node) (a sliceArgs, known bool) {
	return sliceArgsOf(&ir.Node{In: n.In[1:], Attrs: n.Attrs})
}

// sliceGradAxes: axes that the slice left whole follow.
func sliceGradAxes(n *ir.Node) ir.AxisMap {
	dy, dx := n.In[0].Type.Shape, n.Out[0].Type.Shape
	args, known := sliceGradArgs(n)
	at, msg := args.axesFor(dx.Rank())
	if !known || msg != "" || dy.Rank() != dx.Rank() {
		return ir.AxisMap{}
	}
	return followAxes(n, func(a int) int {
		for _, cut := range at {
			if a == cut {
				return -1
			}
		}
		return a
	})
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "GlobalAveragePoolGrad",
	Doc:   "Spreads the gradient of a plane's mean evenly over the plane, whose extents are kernel_shape; written by Deeploy into the default domain.",
	Since: []int{1},
	In:    ir.Ports("dY:T"), Out: ir.Ports("dX:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		dims, ok := planeGradDims(c.Node)
		y := c.Shape(0)
		if !ok || y.Ranked && y.Rank() != len(dims)+2 {
			return c.Errorf("kernel_shape must give the extents of the plane; the gradient is %s", y)
		}
		if !y.Ranked {
			c.SetTensor(0, c.DType(0), ir.Shape{})
			return nil
		}
		c.SetTensor(0, c.DType(0), ir.Dims(append(append([]ir.Dim{}, y.Dims[:2]...), ir.Ints64(dims...).Dims...)...))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 {
			return ir.AxisMap{}
		}
		axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
		axes[0], axes[1] = ir.OutAxis{{In: 0, Axis: 0}}, ir.OutAxis{{In: 0, Axis: 1}}
		return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
	},
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("not derived yet: a second derivative"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dims, ok := planeGradDims(c.Node)
		dy := c.In(0)
		if !ok || len(dy.Dims) != len(dims)+2 {
			return c.Errorf("kernel_shape must give the extents of the plane")
		}
		size := int(ir.Elems(dims))
		in, out := dy.Floats(), make([]float64, int(dy.Len())*size)
		for i := range out {
			out[i] = in[i/size] / float64(size)
		}
		c.Set(0, ir.FromFloats(dy.DType, out, append(append([]int64{}, dy.Dims[:2]...), dims...)...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		x := c.OutShape(0)
		return ir.Kernel{Func: "global_average_pool_grad", Source: globalAveragePoolGradCUDA, Types: []ir.DType{c.InDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(x)), ir.IntArg(ir.Elems(x[2:]))}}, nil
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "2d", In: []*ir.Tensor{floats([]int64{1, 2, 1, 1}, 4, 8)}, Attrs: []ir.Attr{ir.IntsAttr("kernel_shape", 2, 2)},
			Want: []*ir.Tensor{floats([]int64{1, 2, 2, 2}, 1, 1, 1, 1, 2, 2, 2, 2)}}}
	},
})

// planeGradDims is kernel_shape where all extents are positive.
func planeGradDims(n *ir.Node) ([]int64, bool) {
	dims, ok := n.IntList("kernel_shape")
	for _, d := range dims {
		ok = ok && d > 0
	}
	return dims, ok
}

const globalAveragePoolGradCUDA = `
template <class T>
void global_average_pool_grad(Stream& s, const T* dy, T* dx, int64_t n, int64_t plane) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { dx[i] = to<T>(to<Acc<T>>(dy[i / plane]) / Acc<T>(plane)); });
}`

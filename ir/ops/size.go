package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Size",
	Doc:   "The number of elements of a tensor.",
	Since: []int{1, 13, 19, 21, 23, 24, 25},
	In:    ir.Ports("data:T"), Out: ir.Ports("size:tensor(int64)"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, ir.Int64, ir.Dims())
		if n, ok := c.Shape(0).NumElements(); ok {
			c.SetInts(0, []ir.Dim{n})
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      shapeCost,
	Grad:      ir.NoGrad("the result is an integer"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		c.Set(0, ir.FromInts(ir.Int64, []int64{c.In(0).Len()}))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "write_shape", Source: shapeCUDA,
			Args: []ir.KernelArg{ir.OutArg(0), ir.DimsArg(ir.Elems(c.InShape(0)))}}, nil
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "matrix", In: []*ir.Tensor{floats([]int64{2, 3}, iota64(6)...)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{6})}},
			{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 2, 0)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{0})}},
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 1)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1})}},
		}
	},
})

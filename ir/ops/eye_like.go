package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "EyeLike",
	Doc:   "Ones on diagonal k of a matrix shaped like the input, zeros elsewhere.",
	Since: []int{9, 22},
	In:    ir.Ports("input:T1"), Out: ir.Ports("output:T2"),
	Types: map[string]ir.DTypeSet{"T1": ir.AnyDType, "T2": ir.Numeric | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		d := ir.DType(c.Node.Int("dtype", int64(c.DType(0))))
		if r := c.Shape(0).Rank(); r >= 0 && r != 2 {
			return c.Errorf("the input must be a matrix, not of rank %d", r)
		}
		if c.Node.Attr("dtype") != nil && !(ir.Numeric | ir.Bools).Has(d) {
			return c.Errorf("dtype %d is no numeric type", d)
		}
		shape := c.Shape(0)
		if !shape.Ranked {
			shape = c.FreshShape(2)
		}
		c.SetTensor(0, d, shape)
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		_, write := c.Traffic()
		return ir.Cost{Write: write, DType: c.OutDType(0)}
	},
	Grad:      ir.NoGrad("the values do not depend on the input"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dims := c.In(0).Dims
		if len(dims) != 2 {
			return c.Errorf("the input must be a matrix")
		}
		d := ir.DType(c.Node.Int("dtype", int64(c.In(0).DType)))
		vals := make([]int64, ir.Elems(dims))
		k := c.Node.Int("k", 0)
		allIndices(dims, func(i int, coord []int64) {
			if coord[1]-coord[0] == k {
				vals[i] = 1
			}
		})
		c.Set(0, ir.FromInts(d, vals, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.OutDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		dims := c.OutShape(0)
		return ir.Kernel{Func: "eye", Source: eyeCUDA, Types: []ir.DType{c.OutDType(0)},
			Args: []ir.KernelArg{ir.OutArg(0), ir.IntArg(dims[0]), ir.IntArg(dims[1]), ir.IntArg(c.Node.Int("k", 0))}}, nil
	}),
	Samples: func() []ir.Sample {
		x := ir.NewTensor(ir.Float, 2, 3)
		return []ir.Sample{
			{Name: "main", In: []*ir.Tensor{x}, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1, 0, 0, 0, 1, 0}, 2, 3)}},
			{Name: "above", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("k", 1), ir.IntAttr("dtype", int64(ir.Int64))}},
			{Name: "below", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("k", -1), ir.IntAttr("dtype", int64(ir.Float16))}},
		}
	},
})

const eyeCUDA = `
template <class T>
void eye(Stream& s, T* y, int64_t rows, int64_t cols, int64_t k) {
  parallel_for(s, rows * cols, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<T>(float(i % cols - i / cols == k)); });
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Trilu",
	Doc:   "The upper or lower triangle of the last two axes from diagonal k on, zeros elsewhere.",
	Since: []int{14},
	In:    ir.Ports("input:T, k:tensor(int64)?"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		if r := c.Shape(0).Rank(); r >= 0 && r < 2 {
			return c.Errorf("the input must have at least 2 axes, not %d", r)
		}
		c.SetTensor(0, c.DType(0), c.Shape(0))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		rank := n.In[0].Type.Shape.Rank()
		return followAxes(n, func(a int) int {
			if a >= rank-2 { // which elements are kept depends on the position
				return -1
			}
			return a
		})
	},
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if c.Needs(0) {
			c.Set(0, c.Op("Trilu", []*ir.Value{c.OutGrad(0), c.In(1)}, ir.IntAttr("upper", c.Node.Int("upper", 1))))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		k := int64(0)
		if c.Has(1) {
			if c.In(1).Len() != 1 {
				return c.Errorf("k must be one number")
			}
			k = c.In(1).Ints()[0]
		}
		r := len(x.Dims)
		if r < 2 {
			return c.Errorf("the input must have at least 2 axes")
		}
		upper := c.Node.Int("upper", 1) != 0
		idx := make([]int, x.Len())
		allIndices(x.Dims, func(i int, coord []int64) {
			idx[i] = i
			above := coord[r-1] - coord[r-2]
			if upper && above < k || !upper && above > k {
				idx[i] = -1
			}
		})
		c.Set(0, pick(x.DType, x.Dims, idx, x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.InDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		dims := c.InShape(0)
		r := len(dims)
		return ir.Kernel{Func: "trilu", Source: triluCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(ir.Elems(dims)), ir.IntArg(dims[r-2]), ir.IntArg(dims[r-1]),
			ir.BoolArg(c.Node.Int("upper", 1) != 0)}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3, 4}, iota64(24)...)
		k := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}) }
		lower := []ir.Attr{ir.IntAttr("upper", 0)}
		return []ir.Sample{
			{Name: "upper", In: []*ir.Tensor{x}},
			{Name: "lower", In: []*ir.Tensor{x}, Attrs: lower},
			{Name: "above", In: []*ir.Tensor{x, k(1)}},
			{Name: "below", In: []*ir.Tensor{x, k(-1)}, Attrs: lower},
			{Name: "far", In: []*ir.Tensor{x, k(1 << 40)}},
			{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 2, 2)}},
		}
	},
})

const triluCUDA = `
template <class T>
void trilu(Stream& s, const T* x, const int64_t* k, T* y, int64_t n, int64_t rows, int64_t cols, bool upper) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    int64_t above = i % cols - i / cols % rows, from = k ? *k : 0;
    y[i] = (upper ? above >= from : above <= from) ? x[i] : T();
  });
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Bernoulli",
	Doc:   "1 with the probability that the input gives, else 0.",
	Since: []int{15, 22},
	In:    ir.Ports("input:T1"), Out: ir.Ports("output:T2"),
	Types: map[string]ir.DTypeSet{"T1": ir.Floats, "T2": ir.Numeric | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		d, err := randomDType(c.Node, c.DType(0))
		if err != nil {
			return err
		}
		c.SetTensor(0, d, c.Shape(0))
		return nil
	},
	Axes:      ir.NoAxes, // a slice would draw the numbers of other elements
	Cost:      ir.PointwiseCost(12),
	Grad:      zeroGrad, // the result is a step of the probability
	Recompute: ir.Never(drawsAnew),
	Eval: func(c *ir.EvalCtx) error {
		d, err := randomDType(c.Node, c.In(0).DType)
		if err != nil {
			return err
		}
		out := ir.NewTensor(d, c.In(0).Dims...)
		hits := make([]int64, out.Len())
		for i, p := range c.In(0).Floats() {
			if float64(c.Random.Uniform(uint64(i))) < p {
				hits[i] = 1
			}
		}
		ir.SetInts(out, hits)
		c.Set(0, out)
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "bernoulli", Source: bernoulliCUDA, Types: []ir.DType{c.InDType(0), c.OutDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0))), ir.RandomArg()}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		p := floats([]int64{2, 5}, 0.5, 0.1, 0, 1, 0.9, 0.5, 0.5, 0.5, 0.25, 0.75)
		skip := map[int]string{0: "steps"}
		return []ir.Sample{
			{Name: "same type", In: []*ir.Tensor{p}, NoGradCheck: skip},
			{Name: "bool", In: []*ir.Tensor{p}, Attrs: []ir.Attr{ir.IntAttr("dtype", int64(ir.Bool))}},
			{Name: "int32", In: []*ir.Tensor{p}, Attrs: []ir.Attr{ir.IntAttr("dtype", int64(ir.Int32))}},
		}
	},
})

const bernoulliCUDA = `
template <class T, class D>
void bernoulli(Stream& s, const T* p, D* y, int64_t n, Random r) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<D>(int32_t(double(r.uniform(i)) < to<double>(p[i]))); });
}`

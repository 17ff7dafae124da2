package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Multinomial",
	Doc:   "Draws classes, with replacement, from a row of unnormalized log-probabilities.",
	Since: []int{7, 22},
	In:    ir.Ports("input:T1"), Out: ir.Ports("output:T2"),
	Types: map[string]ir.DTypeSet{"T1": ir.Floats, "T2": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		d, err := randomDType(c.Node, ir.Int32)
		if err != nil {
			return err
		}
		n := c.Node.Int("sample_size", 1)
		x := c.Shape(0)
		if x.Ranked && x.Rank() != 2 || n < 0 || d != ir.Int32 && d != ir.Int64 {
			return c.Errorf("needs an input [batch, classes], a sample_size and dtype int32 or int64; got %s, %d and %s", x, n, d)
		}
		batch := c.FreshDim()
		if x.Ranked {
			batch = x.Dims[0]
		}
		c.SetTensor(0, d, ir.Dims(batch, ir.N(n)))
		return nil
	},
	Axes: ir.NoAxes, // a slice would draw the numbers of other elements
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: 20 * ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Never(drawsAnew),
	Eval:      multinomialEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		dims := c.InShape(0)
		return ir.Kernel{Func: "multinomial", Source: multinomialCUDA, Types: []ir.DType{c.InDType(0), c.OutDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.IntArg(dims[0]), ir.IntArg(dims[1]), ir.IntArg(c.OutShape(0)[1]), ir.RandomArg()}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, math.Inf(-1), 0, math.Inf(-1))
		return []ir.Sample{
			{Name: "one", In: []*ir.Tensor{x}},
			{Name: "many", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("sample_size", 20), ir.IntAttr("dtype", int64(ir.Int64))}},
		}
	},
})

// multinomialEval inverts the distribution function: the class is the first
// at which the running sum of exp(x - max) passes u times the whole sum.
func multinomialEval(c *ir.EvalCtx) error {
	x := c.In(0)
	d, err := randomDType(c.Node, ir.Int32)
	if err != nil {
		return err
	}
	if len(x.Dims) != 2 || x.Dims[1] == 0 {
		return c.Errorf("the input has shape %v, must be [batch, classes] with a class at least", x.Dims)
	}
	classes, n := int(x.Dims[1]), int(c.Node.Int("sample_size", 1))
	vals := x.Floats()
	var out []int64
	for b := range int(x.Dims[0]) {
		row := vals[b*classes : (b+1)*classes]
		top := maxOfLine(row)
		whole := 0.0
		for _, v := range row {
			whole += math.Exp(v - top)
		}
		for k := range n {
			u := float64(c.Random.Uniform(uint64(b*n+k))) * whole
			sum, class := 0.0, 0
			for ; class < classes-1; class++ {
				if sum += math.Exp(row[class] - top); sum > u {
					break
				}
			}
			out = append(out, int64(class))
		}
	}
	c.Set(0, ir.FromInts(d, out, x.Dims[0], int64(n)))
	return nil
}

const multinomialCUDA = `
// One thread draws one sample; it computes in double, so that every execution draws the same classes.
template <class T, class D>
void multinomial(Stream& s, const T* x, D* y, int64_t batch, int64_t classes, int64_t n, Random r) {
  parallel_for(s, batch * n, [=] MEMOC_DEVICE(int64_t i) {
    const T* row = x + i / n * classes;
    double top = -infinity<double>(), whole = 0, sum = 0;
    for (int64_t k = 0; k < classes; k++) top = m::max(top, to<double>(row[k]));
    for (int64_t k = 0; k < classes; k++) whole += m::exp(to<double>(row[k]) - top);
    double u = double(r.uniform(i)) * whole;
    int64_t pick = 0;
    for (; pick < classes - 1; pick++) {
      sum += m::exp(to<double>(row[pick]) - top);
      if (sum > u) break;
    }
    y[i] = D(pick);
  });
}`

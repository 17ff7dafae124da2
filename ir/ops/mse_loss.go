package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "MSELoss",
	Doc:   "The mean of the squared difference over all elements, as Deeploy writes it into the default domain.",
	Since: []int{1},
	In:    ir.Ports("prediction:T, target:T"), Out: ir.Ports("loss:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, c.DType(0), ir.Ints64())
		return sameShapes(c)
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: 3 * ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	// d/dp mean((p-t)^2) = 2 (p-t) / n.
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		n, ok := c.In(0).Type.Shape.Static()
		if !ok {
			return c.Node.Errorf("grad", "the gradient needs the static shape of %q", c.In(0).Name)
		}
		diff := c.Sub(c.In(0), c.In(1))
		g := c.Mul(c.MulScalar(diff, 2/float64(ir.Elems(n))), c.OutGrad(0))
		if c.Needs(0) {
			c.Set(0, g)
		}
		if c.Needs(1) {
			c.Set(1, c.Neg(g))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		p, t := c.In(0).Floats(), c.In(1).Floats()
		if len(p) != len(t) {
			return c.Errorf("prediction and target differ in size")
		}
		sum := 0.0
		for i := range p {
			sum += (p[i] - t[i]) * (p[i] - t[i])
		}
		c.Set(0, ir.FromFloats(c.In(0).DType, []float64{sum / float64(len(p))}))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "mse_loss", Source: mseLossCUDA, Types: []ir.DType{c.InDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(ir.Elems(c.InShape(0)))}}, nil
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "loss", In: []*ir.Tensor{floats([]int64{2, 2}, 1, 2, 3, 4), floats([]int64{2, 2}, 0, 4, 3, 1)},
			Want: []*ir.Tensor{floats(nil, 3.5)}}}
	},
})

// sameShapes refuses two inputs of different shapes: nothing is broadcast.
func sameShapes(c *ir.InferCtx) error {
	a, b := c.Shape(0), c.Shape(1)
	if !a.Ranked || !b.Ranked {
		return nil
	}
	differ := a.Rank() != b.Rank()
	for i := 0; !differ && i < a.Rank(); i++ {
		differ = a.Dims[i].Differ(b.Dims[i])
	}
	if differ {
		return c.Errorf("shapes %s and %s differ; nothing is broadcast here", a, b)
	}
	return nil
}

const mseLossCUDA = `
template <class T>
void mse_loss(Stream& s, const T* p, const T* t, T* y, int64_t n) {
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    using A = Acc<T>;
    A sum = 0;
    for (int64_t i = c.tid; i < n; i += c.size) {
      A d = to<A>(p[i]) - to<A>(t[i]);
      sum += d * d;
    }
    sum = c.sum(sum);
    if (c.tid == 0) *y = to<T>(sum / A(n));
  });
}`

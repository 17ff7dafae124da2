package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Softmax",
	Doc:   "exp(x - max) / sum(exp(x - max)) along an axis (before opset 13: over all axes from axis on).",
	Since: []int{1, 11, 13},
	In:    ir.Ports("input:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if r := c.Shape(0).Rank(); r > 0 {
			if _, err := c.Axis(softmaxAxis(c.Node, c.Version), r); err != nil {
				return err
			}
		}
		c.SetTensor(0, c.DType(0), c.Shape(0))
		return nil
	},
	Axes:      softmaxAxes,
	Cost:      ir.PointwiseCost(5),
	Grad:      ir.GradOf(softmaxGrad),
	Recompute: ir.Pure,
	Eval:      softmaxEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		outer, n, inner := softmaxView(c.Node, c.Version, c.InShape(0))
		return ir.Kernel{Func: "softmax", Source: softmaxCUDA, Types: []ir.DType{c.InDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner)}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
		return []ir.Sample{
			{Name: "last", In: []*ir.Tensor{x}},
			{Name: "first", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", 0)}},
			{Name: "coerced", Version: 11, In: []*ir.Tensor{x.Reshaped(1, 2, 3)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
		}
	},
})

const softmaxCUDA = `
// One thread per (outer, inner) pair walks the n elements of its line.
template <class T>
void softmax(Stream& s, const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    using A = Acc<T>;
    int64_t base = line / inner * n * inner + line % inner;
    A top = to<A>(x[base]);
    for (int64_t j = 1; j < n; j++) top = max_of(top, to<A>(x[base + j * inner]));
    A sum = A(0);
    for (int64_t j = 0; j < n; j++) sum += exp_of(to<A>(x[base + j * inner]) - top);
    for (int64_t j = 0; j < n; j++) y[base + j * inner] = to<T>(exp_of(to<A>(x[base + j * inner]) - top) / sum);
  });
}`

func softmaxAxis(n *ir.Node, since int) int64 {
	if since < 13 {
		return n.Int("axis", 1)
	}
	return n.Int("axis", -1)
}

// softmaxView sees x as [outer, n, inner] with the softmax along n.
func softmaxView(node *ir.Node, since int, dims []int64) (outer, n, inner int64) {
	if len(dims) == 0 {
		return 1, 1, 1
	}
	axis, ok := ir.NormAxis(softmaxAxis(node, since), len(dims))
	if !ok {
		axis = len(dims) - 1
	}
	if since < 13 {
		return ir.Elems(dims[:axis]), ir.Elems(dims[axis:]), 1
	}
	return ir.Elems(dims[:axis]), dims[axis], ir.Elems(dims[axis+1:])
}

func softmaxAxes(n *ir.Node) ir.AxisMap {
	m := ir.FollowAll(n)
	since := n.Decl.SinceVersion(n.Version)
	rank := len(m.Out[0])
	axis, ok := ir.NormAxis(softmaxAxis(n, since), rank)
	if !ok {
		return ir.AxisMap{}
	}
	last := axis
	if since < 13 {
		last = rank - 1
	}
	for a := axis; a <= last; a++ {
		m.Out[0][a] = nil
	}
	return m
}

// softmaxGrad: dx = y * (dy - sum(dy * y)).
func softmaxGrad(c *ir.GradCtx) error {
	y, dy := c.Out(0), c.OutGrad(0)
	rank := y.Type.Shape.Rank()
	axis, ok := ir.NormAxis(softmaxAxis(c.Node, c.Version), rank)
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", y.Name)
	}
	axes := []int64{int64(axis)}
	if c.Version < 13 {
		for a := axis + 1; a < rank; a++ {
			axes = append(axes, int64(a))
		}
	}
	sum := c.ReduceSum(c.Mul(dy, y), true, axes...)
	c.Set(0, c.Mul(y, c.Sub(dy, sum)))
	return nil
}

func softmaxEval(c *ir.EvalCtx) error {
	x := c.In(0)
	outer, n, inner := softmaxView(c.Node, c.Version, x.Dims)
	in := x.Floats()
	out := make([]float64, len(in))
	for o := range outer {
		for i := range inner {
			base := o*n*inner + i
			top := math.Inf(-1)
			for j := range n {
				top = max(top, in[base+j*inner])
			}
			sum := 0.0
			for j := range n {
				e := math.Exp(in[base+j*inner] - top)
				out[base+j*inner] = e
				sum += e
			}
			for j := range n {
				out[base+j*inner] /= sum
			}
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, x.Dims...))
	return nil
}

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
	Types:     map[string]ir.DTypeSet{"T": ir.Floats},
	Infer:     softmaxInfer,
	Axes:      softmaxAxes,
	Cost:      ir.PointwiseCost(5),
	Grad:      ir.GradOf(softmaxGrad),
	Recompute: ir.Pure,
	Eval:      softmaxEval,
	Kernel:    ir.KernelOf(softmaxKernel(false)),
	InPlace:   []ir.Alias{{In: 0, Out: 0}},
	Samples:   softmaxSamples,
})

// softmaxCUDA computes the softmax or its logarithm of each line; y may be x.
const softmaxCUDA = `
template <class T>
void softmax(Stream& s, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, bool log) {
  using A = Acc<T>;
  if (inner == 1) {
    block_rows(s, outer, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
      const T* xr = x + row * n;
      T* yr = y + row * n;
      A top = lowest<A>(), sum = A(0);
      for (int64_t i = c.tid; i < n; i += c.size) top = max_of(top, to<A>(xr[i]));
      top = c.max(top);
      for (int64_t i = c.tid; i < n; i += c.size) sum += exp_of(to<A>(xr[i]) - top);
      sum = c.sum(sum);
      A shift = log_of(sum);
      for (int64_t i = c.tid; i < n; i += c.size) yr[i] = to<T>(log ? to<A>(xr[i]) - top - shift : exp_of(to<A>(xr[i]) - top) / sum);
    });
    return;
  }
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    int64_t base = line / inner * n * inner + line % inner;
    A top = lowest<A>(), sum = A(0);
    for (int64_t j = 0; j < n; j++) top = max_of(top, to<A>(x[base + j * inner]));
    for (int64_t j = 0; j < n; j++) sum += exp_of(to<A>(x[base + j * inner]) - top);
    A shift = log_of(sum);
    for (int64_t j = 0; j < n; j++) {
      A v = to<A>(x[base + j * inner]);
      y[base + j * inner] = to<T>(log ? v - top - shift : exp_of(v - top) / sum);
    }
  });
}`

func softmaxKernel(log bool) func(c *ir.NodeCtx) (ir.Kernel, error) {
	return func(c *ir.NodeCtx) (ir.Kernel, error) {
		outer, n, inner := softmaxView(c.Node, c.Version, c.InShape(0))
		return ir.Kernel{Func: "softmax", Source: softmaxCUDA, Types: []ir.DType{c.InDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner), ir.BoolArg(log)}}, nil
	}
}

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
	if !ok && since >= 13 {
		axis = len(dims) - 1
	}
	if since < 13 {
		axis = max(0, min(axis, len(dims)))
		return ir.Elems(dims[:axis]), ir.Elems(dims[axis:]), 1
	}
	return ir.Elems(dims[:axis]), dims[axis], ir.Elems(dims[axis+1:])
}

// softmaxAxes: every axis follows, and along the normalized ones an element
// needs all others.
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
		m.Out[0][a] = wholeToo(m.Out[0][a])
	}
	return m
}

// softmaxGrad: dx = y * (dy - sum(dy * y)), as one node where the softmax is
// along one axis.
func softmaxGrad(c *ir.GradCtx) error {
	y, dy := c.Out(0), c.OutGrad(0)
	axis, many, err := softmaxGradAxes(c, y)
	if err != nil {
		return err
	}
	if len(many) == 0 {
		c.Set(0, c.OpN(ir.MemocDomain, "SoftmaxGrad", 1, []*ir.Value{dy, y}, ir.IntAttr("axis", axis))[0])
		return nil
	}
	sum := c.ReduceSum(c.Mul(dy, y), true, many...)
	c.Set(0, c.Mul(y, c.Sub(dy, sum)))
	return nil
}

// softmaxGradAxes is the axis of the softmax, or all axes where it spans many.
func softmaxGradAxes(c *ir.GradCtx, y *ir.Value) (axis int64, many []int64, err error) {
	rank := y.Type.Shape.Rank()
	a, ok := ir.NormAxis(softmaxAxis(c.Node, c.Version), rank)
	if !ok {
		return 0, nil, c.Node.Errorf("grad", "the gradient needs the rank of %q", y.Name)
	}
	if c.Version < 13 && a < rank-1 {
		for i := a; i < rank; i++ {
			many = append(many, int64(i))
		}
	}
	return int64(a), many, nil
}

func softmaxInfer(c *ir.InferCtx) error {
	if r := c.Shape(0).Rank(); r >= 0 {
		// Before opset 13 the axis may be the rank: nothing is normalized over.
		axis := softmaxAxis(c.Node, c.Version)
		if _, err := c.Axis(axis, r); err != nil && !(c.Version < 13 && axis == int64(r)) {
			return err
		}
	}
	c.SetTensor(0, c.DType(0), c.Shape(0))
	return nil
}

func softmaxSamples() []ir.Sample {
	x := wave(4, 2, 3)
	return []ir.Sample{
		{Name: "last", In: []*ir.Tensor{x}},
		{Name: "first", In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", 0)}},
		{Name: "middle", In: []*ir.Tensor{wave(3, 2, 3, 4)}, Attrs: []ir.Attr{ir.IntAttr("axis", -2)}},
		{Name: "coerced", Version: 11, In: []*ir.Tensor{wave(3, 2, 2, 3)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
		{Name: "coerced by default", Version: 1, In: []*ir.Tensor{wave(3, 2, 2, 2)}},
		{Name: "old, last axis", Version: 11, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
		{Name: "large", In: []*ir.Tensor{floats([]int64{1, 3}, 1000, 1001, 999)}, NoGradCheck: map[int]string{0: "differences of neighbours of 1000 are coarse"}},
		{Name: "no lines", In: []*ir.Tensor{wave(1, 0, 3)}},
		{Name: "empty lines", In: []*ir.Tensor{wave(1, 2, 0)}},
	}
}

func softmaxEval(c *ir.EvalCtx) error {
	return evalLines(c, func(x, y []float64) {
		top := slicesMax(x)
		sum := 0.0
		for j, v := range x {
			y[j] = math.Exp(v - top)
			sum += y[j]
		}
		for j := range y {
			y[j] /= sum
		}
	})
}

// slicesMax is the maximum, minus infinity of nothing.
func slicesMax(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	return top
}

// evalLines maps every line of input 0 along the softmax axis.
func evalLines(c *ir.EvalCtx, f func(x, y []float64)) error {
	x := c.In(0)
	outer, n, inner := softmaxView(c.Node, c.Version, x.Dims)
	in, out := x.Floats(), make([]float64, x.Len())
	line, res := make([]float64, n), make([]float64, n)
	for o := range outer {
		for i := range inner {
			base := o*n*inner + i
			for j := range n {
				line[j] = in[base+j*inner]
			}
			f(line, res)
			for j := range n {
				out[base+j*inner] = res[j]
			}
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, x.Dims...))
	return nil
}

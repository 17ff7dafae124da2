package ops

import (
	"math"

	"memoc/ir"
)

// The gradients of Softmax and LogSoftmax from their outputs. The ai.memoc
// ones are what memoc's backward pass is made of; the com.microsoft ones come
// with training graphs of ONNX Runtime, where the forms without a suffix
// normalize over all axes from axis on (default 1).
var _ = []*ir.Op{
	softmaxGradOp(ir.MemocDomain, "SoftmaxGrad", false),
	softmaxGradOp(ir.MsDomain, "SoftmaxGrad_13", false),
	softmaxGradOp(ir.MsDomain, "SoftmaxGrad", false),
	softmaxGradOp(ir.MemocDomain, "LogSoftmaxGrad", true),
	softmaxGradOp(ir.MsDomain, "LogSoftmaxGrad_13", true),
	softmaxGradOp(ir.MsDomain, "LogSoftmaxGrad", true),
}

func softmaxGradOp(domain string, name ir.OpName, log bool) *ir.Op {
	doc := "dX = Y * (dY - sum(dY * Y)) along an axis, from the softmax Y."
	if log {
		doc = "dX = dY - exp(Y) * sum(dY) along an axis, from the log-softmax Y."
	}
	op := ir.Op{
		Domain: domain, Name: name, Doc: doc, Since: []int{1},
		In: ir.Ports("dY:T, Y:T"), Out: ir.Ports("dX:T"),
		Types: map[string]ir.DTypeSet{"T": ir.Floats},
		Infer: func(c *ir.InferCtx) error {
			s := c.Shape(1)
			if r := s.Rank(); r > 0 {
				if _, err := c.Axis(softmaxGradAxis(c.Node), r); err != nil {
					return err
				}
			}
			c.SetTensor(0, c.DType(1), s)
			return nil
		},
		Axes: func(n *ir.Node) ir.AxisMap {
			m := ir.FollowAll(n)
			axis, ok := ir.NormAxis(softmaxGradAxis(n), len(m.Out[0]))
			if !ok {
				return ir.AxisMap{}
			}
			for a := axis; a < len(m.Out[0]) && (a == axis || softmaxGradCoerced(n)); a++ {
				m.Out[0][a] = wholeToo(m.Out[0][a])
			}
			return m
		},
		Cost:      ir.PointwiseCost(4),
		Grad:      ir.NoGrad("not derived yet: second derivatives"),
		Recompute: ir.Pure,
		Eval:      func(c *ir.EvalCtx) error { return softmaxGradEval(c, log) },
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			outer, n, inner := softmaxGradView(c.Node, c.InShape(1))
			return ir.Kernel{Func: "softmax_grad", Source: softmaxGradCUDA, Types: []ir.DType{c.InDType(1)},
				Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(outer), ir.IntArg(n), ir.IntArg(inner), ir.BoolArg(log)}}, nil
		}),
		InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
		Samples: softmaxGradSamples,
	}
	if domain == ir.MemocDomain {
		op.Function = functionOf(func(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
			dy, y := in[0], in[1]
			axis, _ := ir.NormAxis(softmaxGradAxis(n), y.Type.Shape.Rank())
			if log {
				return []*ir.Value{b.Sub(dy, b.Mul(b.Op("Exp", []*ir.Value{y}), b.ReduceSum(dy, true, int64(axis))))}
			}
			return []*ir.Value{b.Mul(y, b.Sub(dy, b.ReduceSum(b.Mul(dy, y), true, int64(axis))))}
		})
	}
	return ir.Register(op)
}

func softmaxGradSamples() []ir.Sample {
	in := []*ir.Tensor{wave(1, 2, 3, 2), wave(2, 2, 3, 2)}
	return []ir.Sample{
		{Name: "last", In: in, Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
		{Name: "middle", In: in, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
		{Name: "default", In: in},
		{Name: "empty", In: []*ir.Tensor{wave(1, 0, 3), wave(1, 0, 3)}},
	}
}

// softmaxGradCoerced reports the form that spans all axes from axis on.
func softmaxGradCoerced(n *ir.Node) bool {
	return n.Domain == ir.MsDomain && (n.Op == "SoftmaxGrad" || n.Op == "LogSoftmaxGrad")
}

func softmaxGradAxis(n *ir.Node) int64 {
	if softmaxGradCoerced(n) {
		return n.Int("axis", 1)
	}
	return n.Int("axis", -1)
}

func softmaxGradView(n *ir.Node, dims []int64) (outer, count, inner int64) {
	axis, ok := ir.NormAxis(softmaxGradAxis(n), len(dims))
	switch {
	case !ok:
		return 1, ir.Elems(dims), 1
	case softmaxGradCoerced(n):
		return ir.Elems(dims[:axis]), ir.Elems(dims[axis:]), 1
	}
	return ir.Elems(dims[:axis]), dims[axis], ir.Elems(dims[axis+1:])
}

func softmaxGradEval(c *ir.EvalCtx, log bool) error {
	dy, y := c.In(0).Floats(), c.In(1).Floats()
	if len(dy) != len(y) {
		return c.Errorf("dY of shape %v and Y of shape %v differ", c.In(0).Dims, c.In(1).Dims)
	}
	outer, n, inner := softmaxGradView(c.Node, c.In(1).Dims)
	out := make([]float64, len(y))
	for line := range outer * inner {
		base := line/inner*n*inner + line%inner
		sum := 0.0
		for j := base; j < base+n*inner; j += inner {
			if log {
				sum += dy[j]
			} else {
				sum += dy[j] * y[j]
			}
		}
		for j := base; j < base+n*inner; j += inner {
			if log {
				out[j] = dy[j] - math.Exp(y[j])*sum
			} else {
				out[j] = y[j] * (dy[j] - sum)
			}
		}
	}
	c.Set(0, ir.FromFloats(c.In(1).DType, out, c.In(1).Dims...))
	return nil
}

const softmaxGradCUDA = `
// dx may be dy or y: each element is read for the last time just before it is written.
template <class T>
void softmax_grad(Stream& s, const T* dy, const T* y, T* dx, int64_t outer, int64_t n, int64_t inner, bool log) {
  using A = Acc<T>;
  if (inner == 1) {
    block_rows(s, outer, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
      A sum = A(0);
      for (int64_t i = row * n + c.tid; i < row * n + n; i += c.size) sum += log ? to<A>(dy[i]) : to<A>(dy[i]) * to<A>(y[i]);
      sum = c.sum(sum);
      for (int64_t i = row * n + c.tid; i < row * n + n; i += c.size) {
        A g = to<A>(dy[i]), v = to<A>(y[i]);
        dx[i] = to<T>(log ? g - exp_of(v) * sum : v * (g - sum));
      }
    });
    return;
  }
  parallel_for(s, outer * inner, [=] MEMOC_DEVICE(int64_t line) {
    int64_t base = line / inner * n * inner + line % inner, end = base + n * inner;
    A sum = A(0);
    for (int64_t i = base; i < end; i += inner) sum += log ? to<A>(dy[i]) : to<A>(dy[i]) * to<A>(y[i]);
    for (int64_t i = base; i < end; i += inner) {
      A g = to<A>(dy[i]), v = to<A>(y[i]);
      dx[i] = to<T>(log ? g - exp_of(v) * sum : v * (g - sum));
    }
  });
}`

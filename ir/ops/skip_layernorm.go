package ops

import "memoc/ir"

// ONNX Runtime's normalization of a residual sum; the sum itself is output 3.
var _ = []*ir.Op{
	skipNormOp("SkipLayerNormalization", "input:T, skip:T, gamma:T, beta:T?, bias:T?", skipPorts{beta: 3, bias: 4, centered: true}),
	skipNormOp("SkipSimplifiedLayerNormalization", "input:T, skip:T, gamma:T, bias:T?", skipPorts{beta: -1, bias: 3}),
}

type skipPorts struct {
	beta, bias int
	centered   bool
}

func skipNormOp(name ir.OpName, in string, p skipPorts) *ir.Op {
	return ir.Register(ir.Op{
		Domain: ir.MsDomain, Name: name, Since: []int{1},
		Doc: "Layer (Simplified: RMS) normalization of input + skip + bias over the last axis; the sum is an output.",
		In:  ir.Ports(in), Out: ir.Ports("output:T, mean:U?, inv_std_var:U?, input_skip_bias_sum:T?"),
		Types: map[string]ir.DTypeSet{"T": ir.Floats, "U": ir.SetOf(ir.Float, ir.Double)},
		Infer: skipNormInfer,
		Axes:  skipNormAxes,
		Cost:  ir.PointwiseCost(10),
		Grad: ir.GradOf(func(c *ir.GradCtx) error {
			return skipNormGrad(c, p)
		}),
		Recompute: ir.Pure,
		Eval:      func(c *ir.EvalCtx) error { return skipNormEval(c, p) },
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			x := c.InShape(0)
			n := x[len(x)-1]
			skip := ir.Elems(c.InShape(1))
			return ir.Kernel{Func: "skip_norm", Source: skipNormCUDA, Types: []ir.DType{c.InDType(0), workType(c.InDType(0))}, Args: []ir.KernelArg{
				ir.InArg(0), ir.InArg(1), ir.IntArg(max(1, skip)), ir.InArg(2), inArgOrNull(c, p.beta), inArgOrNull(c, p.bias),
				ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.OutArg(3), ir.IntArg(ir.Elems(x[:len(x)-1])), ir.IntArg(n),
				ir.FloatArg(skipEpsilon(c.Node)), ir.BoolArg(p.centered)}}, nil
		}),
		Samples: func() []ir.Sample {
			in := []*ir.Tensor{wave(1, 2, 3, 4), wave(2, 2, 3, 4), wave(3, 4)}
			all := append(in[:3:3], wave(4, 4))
			if p.centered {
				all = append(all, wave(5, 4))
			}
			broad := append([]*ir.Tensor{in[0], wave(2, 3, 4)}, all[2:]...)
			return []ir.Sample{
				{Name: "plain", In: in},
				{Name: "all inputs", In: all, Attrs: []ir.Attr{ir.FloatAttr("epsilon", 0.25)}},
				{Name: "sum", In: all, NumOut: 4, NoGradCheck: map[int]string{0: "through the statistics: not derived", 1: "through the statistics: not derived",
					2: "through the statistics: not derived", 3: "through the statistics: not derived", 4: "through the statistics: not derived"}},
				{Name: "broadcast skip", In: broad},
				{Name: "no rows", In: []*ir.Tensor{wave(1, 0, 4), wave(2, 0, 4), wave(3, 4)}},
			}
		},
	})
}

func skipEpsilon(n *ir.Node) float64 { return float64(n.Float("epsilon", 1e-12)) }

func skipNormInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if x.Ranked && x.Rank() < 1 {
		return c.Errorf("the input is a scalar")
	}
	if err := unidirectional(c, c.Shape(1), x); err != nil {
		return err
	}
	stats := ir.Shape{}
	if x.Ranked {
		for i := 2; i < len(c.Node.In); i++ {
			if err := unidirectional(c, c.Shape(i), ir.Dims(x.Dims[x.Rank()-1])); err != nil {
				return err
			}
		}
		stats = statsShape(x, x.Rank()-1)
	}
	c.SetTensor(0, c.DType(0), x)
	c.SetTensor(1, workType(c.DType(0)), stats)
	c.SetTensor(2, workType(c.DType(0)), stats)
	c.SetTensor(3, c.DType(0), x)
	return nil
}

// skipNormAxes: all but the last axis follow input and skip.
func skipNormAxes(n *ir.Node) ir.AxisMap {
	x, skip := inShapeOf(n, 0), inShapeOf(n, 1)
	if x.Rank() < 1 || skip.Rank() < 1 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	for a := range x.Rank() - 1 {
		axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		if i := a - (x.Rank() - skip.Rank()); i >= 0 && skip.Dims[i].Equal(x.Dims[a]) {
			axes[a] = append(axes[a], ir.AxisLink{In: 1, Axis: i})
		}
	}
	m := ir.AxisMap{}
	for range n.Out {
		m.Out = append(m.Out, axes)
	}
	return m
}

func skipNormGrad(c *ir.GradCtx, p skipPorts) error {
	if c.OutGrad(1) != nil || c.OutGrad(2) != nil {
		return c.Node.Errorf("grad", "not derived yet: the gradient through the statistics")
	}
	sum, gamma := c.Out(3), c.In(2)
	var ds *ir.Value
	if dy := c.OutGrad(0); dy != nil {
		op := "RMSNormalizationGrad"
		if p.centered {
			op = "LayerNormalizationGrad"
		}
		g := normGrad(c, op, dy, sum, gamma, nil, -1, skipEpsilon(c.Node))
		ds = g[0]
		c.Set(2, g[1])
		if p.beta >= 0 && c.Needs(p.beta) {
			c.Set(p.beta, g[2])
		}
	}
	if d := c.OutGrad(3); d != nil {
		ds = plus(c, ds, d)
	}
	c.Set(0, ds)
	for _, i := range []int{1, p.bias} {
		if c.Needs(i) {
			c.Set(i, c.SumTo(ds, c.In(i)))
		}
	}
	return nil
}

func skipNormEval(c *ir.EvalCtx, p skipPorts) error {
	x := c.In(0)
	sum := append([]float64{}, x.Floats()...)
	for _, i := range []int{1, p.bias} {
		if !c.Has(i) {
			continue
		}
		if all, ok := broadcastDims(x.Dims, c.In(i).Dims); !ok || ir.Elems(all) != x.Len() {
			return c.Errorf("shape %v does not broadcast to %v", c.In(i).Dims, x.Dims)
		}
		add := c.In(i).Floats()
		broadcastIndex(x.Dims, c.In(i).Dims, func(at, j int) { sum[at] += add[j] })
	}
	n := x.Dims[len(x.Dims)-1]
	y, mean, rstd := normRows(sum, n, skipEpsilon(c.Node), p.centered)
	gamma := c.In(2).Floats()
	for i := range y {
		y[i] *= gamma[int64(i)%n]
		if p.beta >= 0 && c.Has(p.beta) {
			y[i] += c.In(p.beta).Floats()[int64(i)%n]
		}
	}
	stats := append(append([]int64{}, x.Dims[:len(x.Dims)-1]...), 1)
	c.Set(0, ir.FromFloats(x.DType, y, x.Dims...))
	c.Set(1, ir.FromFloats(workType(x.DType), mean, stats...))
	c.Set(2, ir.FromFloats(workType(x.DType), rstd, stats...))
	c.Set(3, ir.FromFloats(x.DType, sum, x.Dims...))
	return nil
}

const skipNormCUDA = `
// skip is repeated after skip_size elements. The statistics are of the sum as computed, not as stored.
template <class T, class U>
void skip_norm(Stream& s, const T* x, const T* skip, int64_t skip_size, const T* gamma, const T* beta, const T* bias, T* y, U* mean, U* rstd,
               T* sum, int64_t rows, int64_t n, double eps, bool centered) {
  block_rows(s, rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    using A = Acc<T>;
    int64_t base = row * n;
    A m = A(0), q = A(0);
    if (centered) {
      for (int64_t i = c.tid; i < n; i += c.size)
        m += to<A>(x[base + i]) + to<A>(skip[(base + i) % skip_size]) + (bias == nullptr ? A(0) : to<A>(bias[i]));
      m = c.sum(m) / A(n);
    }
    for (int64_t i = c.tid; i < n; i += c.size) {
      A d = to<A>(x[base + i]) + to<A>(skip[(base + i) % skip_size]) + (bias == nullptr ? A(0) : to<A>(bias[i])) - m;
      q += d * d;
    }
    A r = A(1) / sqrt_of(A(c.sum(q) / A(n) + A(eps)));
    if (c.tid == 0 && mean != nullptr) mean[row] = to<U>(m);
    if (c.tid == 0 && rstd != nullptr) rstd[row] = to<U>(r);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A v = to<A>(x[base + i]) + to<A>(skip[(base + i) % skip_size]) + (bias == nullptr ? A(0) : to<A>(bias[i]));
      if (sum != nullptr) sum[base + i] = to<T>(v);
      v = (v - m) * r * to<A>(gamma[i]);
      y[base + i] = to<T>(beta == nullptr ? v : v + to<A>(beta[i]));
    }
  });
}`

package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "CausalConvWithState",
	Doc:   "Depthwise convolution [N, C, L] of current and past positions, with the last positions handed on as state.",
	Since: []int{27},
	In:    ir.Ports("input:T, weight:T, bias:T?, past_state:T?"), Out: ir.Ports("output:T, present_state:T?"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats},
	Infer:     causalConvInfer,
	Axes:      causalConvAxes,
	Cost:      convCost(0, 1),
	Grad:      ir.GradOf(causalConvGrad),
	Recompute: ir.Pure,
	Eval:      causalConvEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		x, w := c.InShape(0), c.InShape(1)
		return ir.Kernel{Func: "causal_conv", Source: causalConvCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.OutArg(0), ir.OutArg(1), ir.IntArg(x[0]), ir.IntArg(x[1]), ir.IntArg(x[2]),
			ir.IntArg(w[2]), ir.BoolArg(causalConvGated(c.Node))}}, nil
	}),
	Samples: func() []ir.Sample {
		x, w := ramp(2, 3, 4), ramp(3, 1, 3)
		silu := ir.StringAttr("activation", "silu")
		return []ir.Sample{
			{Name: "plain", In: []*ir.Tensor{x, w}, NumOut: 2},
			{Name: "state and bias", In: []*ir.Tensor{x, w, ramp(3), ramp(2, 3, 2)}, NumOut: 2, Attrs: []ir.Attr{silu}},
			{Name: "no bias", In: []*ir.Tensor{x, w, nil, ramp(2, 3, 2)}, Absent: []int{2}},
			{Name: "kernel of one", In: []*ir.Tensor{x, ramp(3, 1, 1)}, NumOut: 2, Attrs: []ir.Attr{silu}},
		}
	},
})

// causalConvGated reports a SiLU after the convolution.
func causalConvGated(n *ir.Node) bool {
	a := n.Str("activation", "none")
	return a == "silu" || a == "swish"
}

func causalConvInfer(c *ir.InferCtx) error {
	x, w := c.Shape(0), c.Shape(1)
	if x.Ranked && x.Rank() != 3 || w.Ranked && w.Rank() != 3 {
		return c.Errorf("input %s and weight %s are not [N, C, L] and [C, 1, k]", x, w)
	}
	if a := c.Node.Str("activation", "none"); a != "none" && !causalConvGated(c.Node) {
		return c.Errorf("unknown activation %q", a)
	}
	if w.Ranked && (w.Dims[1].Differ(ir.N(1)) || x.Ranked && w.Dims[0].Differ(x.Dims[1])) {
		return c.Errorf("weight %s is not one kernel for each channel of %s", w, x)
	}
	sameTypeAs(c, 0, 0)
	if !x.Ranked {
		c.SetTensor(1, c.DType(0), ir.Shape{})
		return nil
	}
	state := c.FreshDim()
	if w.Ranked {
		if k, ok := w.Dims[2].Int(); ok && k < 1 {
			return c.Errorf("a kernel of %d positions", k)
		}
		state = w.Dims[2].Sub(ir.N(1))
	}
	c.SetTensor(1, c.DType(0), ir.Dims(x.Dims[0], x.Dims[1], state))
	return nil
}

// causalConvAxes: batch and channels follow; a position needs those before it.
func causalConvAxes(n *ir.Node) ir.AxisMap {
	batch, channel := ir.OutAxis{{In: 0, Axis: 0}}, ir.OutAxis{{In: 0, Axis: 1}, {In: 1, Axis: 0}}
	if len(n.In) > 2 && n.In[2] != nil {
		channel = append(channel, ir.AxisLink{In: 2, Axis: 0})
	}
	if len(n.In) > 3 && n.In[3] != nil {
		batch, channel = append(batch, ir.AxisLink{In: 3, Axis: 0}), append(channel, ir.AxisLink{In: 3, Axis: 1})
	}
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	for o, v := range n.Out {
		if v != nil && v.Type.Shape.Rank() == 3 {
			m.Out[o] = []ir.OutAxis{batch, channel, nil}
		}
	}
	if len(m.Out) > 0 && m.Out[0] != nil {
		m.Out[0][2] = ir.OutAxis{{In: 0, Axis: 2, Rel: ir.Prefix}}
	}
	return m
}

func causalConvEval(c *ir.EvalCtx) error {
	x, w := c.In(0), c.In(1)
	if len(x.Dims) != 3 || len(w.Dims) != 3 || w.Dims[0] != x.Dims[1] || w.Dims[1] != 1 || w.Dims[2] < 1 {
		return c.Errorf("input %v and weight %v do not fit", x.Dims, w.Dims)
	}
	n, ch, l, k := x.Dims[0], x.Dims[1], x.Dims[2], w.Dims[2]
	in, weight := x.Floats(), w.Floats()
	var past, bias []float64
	if c.Has(2) {
		bias = c.In(2).Floats()
	}
	if c.Has(3) {
		past = c.In(3).Floats()
	}
	if past != nil && int64(len(past)) != n*ch*(k-1) || bias != nil && int64(len(bias)) != ch {
		return c.Errorf("past state or bias do not fit input %v and weight %v", x.Dims, w.Dims)
	}
	out, state := make([]float64, n*ch*l), make([]float64, n*ch*(k-1))
	for row := range n * ch {
		line := make([]float64, k-1+l) // the past and then the input
		if past != nil {
			copy(line, past[row*(k-1):(row+1)*(k-1)])
		}
		copy(line[k-1:], in[row*l:(row+1)*l])
		for t := range l {
			sum := 0.0
			for j := range k {
				sum += line[t+j] * weight[row%ch*k+j]
			}
			if bias != nil {
				sum += bias[row%ch]
			}
			if causalConvGated(c.Node) {
				sum /= 1 + math.Exp(-sum)
			}
			out[row*l+t] = sum
		}
		copy(state[row*(k-1):(row+1)*(k-1)], line[l:])
	}
	c.Set(0, ir.FromFloats(x.DType, out, x.Dims...))
	c.Set(1, ir.FromFloats(x.DType, state, n, ch, k-1))
	return nil
}

const causalConvCUDA = `
// causal_input is position t of the past state followed by the input.
template <class T>
MEMOC_FN Acc<T> causal_input(const T* x, const T* past, int64_t row, int64_t t, int64_t l, int64_t k) {
  if (t >= k - 1) return to<Acc<T>>(x[row * l + t - (k - 1)]);
  return past ? to<Acc<T>>(past[row * (k - 1) + t]) : Acc<T>(0);
}

template <class T>
void causal_conv(Stream& s, const T* x, const T* w, const T* bias, const T* past, T* y, T* state, int64_t n, int64_t ch, int64_t l,
                 int64_t k, bool gated) {
  parallel_for(s, n * ch * l, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    int64_t row = i / l, t = i % l;
    A sum = bias ? to<A>(bias[row % ch]) : A(0);
    for (int64_t j = 0; j < k; j++) sum += causal_input(x, past, row, t + j, l, k) * to<A>(w[row % ch * k + j]);
    y[i] = to<T>(gated ? sum * m::sigmoid(sum) : sum);
  });
  if (!state) return;
  parallel_for(s, n * ch * (k - 1), [=] MEMOC_DEVICE(int64_t i) {
    state[i] = to<T>(causal_input(x, past, i / (k - 1), l + i % (k - 1), l, k));
  });
}`

// causalConvGrad differentiates what the operator stands for: a depthwise
// convolution of past and input, an optional SiLU, and the end of past and
// input as state.
func causalConvGrad(c *ir.GradCtx) error {
	x, w := c.In(0), c.In(1)
	k, okK := w.Type.Shape.Dims[2].Int()
	group, okC := w.Type.Shape.Dims[0].Int()
	if !okK || !okC {
		return c.Node.Errorf("grad", "the gradient needs the kernel's extents, %q is %s", w.Name, w.Type.Shape)
	}
	line := x
	switch {
	case k == 1:
	case c.In(3) != nil:
		line = c.Concat(2, c.In(3), x)
	default:
		line = c.Pad(x, []int64{0, 0, k - 1}, []int64{0, 0, 0})
	}
	win := window{kernel: []int64{k}, stride: []int64{1}, dilation: []int64{1}, padLo: []int64{0}, padHi: []int64{0}}
	var dLine *ir.Value
	add := func(g *ir.Value) {
		if dLine != nil {
			g = c.Add(dLine, g)
		}
		dLine = g
	}
	if dy := c.OutGrad(0); dy != nil {
		if causalConvGated(c.Node) {
			in := []*ir.Value{line, w}
			if c.In(2) != nil {
				in = append(in, c.In(2))
			}
			z := c.Op("Conv", in, append(win.attrs(), ir.IntAttr("group", group))...)
			s := c.Op("Sigmoid", []*ir.Value{z})
			dy = c.Mul(dy, c.Mul(s, c.AddScalar(c.Mul(z, c.AddScalar(c.Neg(s), 1)), 1)))
			dy = c.Like(dy, c.OutGrad(0))
		}
		add(convDataGrad(c, win, group, dy, w, line))
		if c.Needs(1) {
			c.Set(1, convWeightGrad(c, win, group, line, dy, w))
		}
		if c.Needs(2) {
			c.Set(2, c.Like(channelSum(c, dy), c.In(2)))
		}
	}
	if d := c.OutGrad(1); d != nil && k > 1 { // the state is the end of the line
		add(c.Concat(2, c.ZerosLike(x), d))
	}
	if dLine == nil {
		return nil
	}
	if c.Needs(0) {
		c.Set(0, c.Like(c.SliceAxis(dLine, 2, k-1, math.MaxInt64, 1), x))
	}
	if c.Needs(3) {
		c.Set(3, c.Like(c.SliceAxis(dLine, 2, 0, k-1, 1), c.In(3)))
	}
	return nil
}

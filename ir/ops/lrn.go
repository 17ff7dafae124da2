package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "LRN",
	Doc:   "x / (bias + alpha/size * sum of x^2 over size neighbouring channels)^beta.",
	Since: []int{1, 13},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if s := c.Shape(0); s.Ranked && s.Rank() < 2 {
			return c.Errorf("input %s has no channels", s)
		}
		if c.Node.Int("size", 0) <= 0 {
			return c.Errorf("size %d must be positive", c.Node.Int("size", 0))
		}
		sameTypeAs(c, 0, 0)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.FollowAll(n)
		if len(m.Out) == 0 || len(m.Out[0]) < 2 {
			return ir.AxisMap{}
		}
		lo, hi := lrnReach(n)
		m.Out[0][1] = ir.OutAxis{{In: 0, Axis: 1, Rel: ir.Window, Stride: 1, Lo: -lo, Hi: hi}}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: (2*c.Node.Int("size", 1) + 4) * ir.Elems(c.OutShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.GradOf(lrnGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		in, out := x.Floats(), make([]float64, x.Len())
		n := c.Node
		alpha, beta, bias := float64(n.Float("alpha", 1e-4)), float64(n.Float("beta", 0.75)), float64(n.Float("bias", 1))
		size, channels, inner := n.Int("size", 1), x.Dims[1], ir.Elems(x.Dims[2:])
		lo, hi := lrnReach(n)
		for i := range out {
			ch := int64(i) / inner % channels
			sum := 0.0
			for k := max(ch-lo, 0); k <= min(ch+hi, channels-1); k++ {
				v := in[int64(i)+(k-ch)*inner]
				sum += v * v
			}
			out[i] = in[i] / math.Pow(bias+alpha/float64(size)*sum, beta)
		}
		c.Set(0, ir.FromFloats(x.DType, out, x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		n, x := c.Node, c.InShape(0)
		lo, hi := lrnReach(n)
		return ir.Kernel{Func: "lrn", Source: lrnCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0),
			ir.IntArg(ir.Elems(x)), ir.IntArg(x[1]), ir.IntArg(ir.Elems(x[2:])), ir.IntArg(lo), ir.IntArg(hi),
			ir.FloatArg(float64(n.Float("alpha", 1e-4)) / float64(n.Int("size", 1))), ir.FloatArg(float64(n.Float("beta", 0.75))),
			ir.FloatArg(float64(n.Float("bias", 1)))}}, nil
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "odd", In: []*ir.Tensor{ramp(2, 5, 2)}, Attrs: []ir.Attr{ir.IntAttr("size", 3), ir.FloatAttr("alpha", 0.5)}},
			{Name: "no spatial axis", In: []*ir.Tensor{ramp(2, 4)}, Attrs: []ir.Attr{ir.IntAttr("size", 3), ir.FloatAttr("alpha", 0.5)}},
			{Name: "even", In: []*ir.Tensor{ramp(1, 4, 2, 2)}, Attrs: []ir.Attr{ir.IntAttr("size", 2), ir.FloatAttr("alpha", 0.5), ir.FloatAttr("beta", 0.5), ir.FloatAttr("bias", 2)}},
		}
	},
})

// lrnGrad: with d = bias + alpha/size * window(x^2) and y = x d^-beta,
//
//	dx = dy d^-beta - 2 alpha beta/size * x * window'(dy x d^(-beta-1))
//
// where window' reaches as far forward as window does back.
func lrnGrad(c *ir.GradCtx) error {
	x, dy := c.In(0), c.OutGrad(0)
	if x.Type.Shape.Rank() < 2 {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
	}
	wide := x.Type.DType
	if wide != ir.Double {
		wide = ir.Float
	}
	n := c.Node
	alpha, beta, bias := float64(n.Float("alpha", 1e-4)), float64(n.Float("beta", 0.75)), float64(n.Float("bias", 1))
	size := n.Int("size", 1)
	lo, hi := lrnReach(n)
	xw, dw := c.Cast(x, wide), c.Cast(dy, wide)
	d := c.AddScalar(c.MulScalar(channelWindow(c, c.Mul(xw, xw), size, lo, hi), alpha/float64(size)), bias)
	power := func(e float64) *ir.Value { return c.Op("Pow", []*ir.Value{d, c.Scalar(wide, e)}) }
	through := channelWindow(c, c.Mul(c.Mul(dw, xw), power(-beta-1)), size, hi, lo)
	g := c.Sub(c.Mul(dw, power(-beta)), c.MulScalar(c.Mul(xw, through), 2*alpha*beta/float64(size)))
	c.Set(0, c.Like(c.Cast(g, x.Type.DType), x))
	return nil
}

// channelWindow sums size neighbouring channels, lo of them before each: a
// convolution with ones along the channels of [N, 1, C, elements].
func channelWindow(c *ir.GradCtx, x *ir.Value, size, lo, hi int64) *ir.Value {
	if x.Type.Shape.Rank() == 2 {
		return c.Squeeze(channelWindow(c, c.Unsqueeze(x, 2), size, lo, hi), 2)
	}
	flat := int64(-1)
	if s, ok := ir.Dims(x.Type.Shape.Dims[2:]...).Static(); ok {
		flat = ir.Elems(s)
	}
	ones := make([]float64, size)
	for i := range ones {
		ones[i] = 1
	}
	w := c.Const(ir.FromFloats(x.Type.DType, ones, 1, 1, size, 1))
	y := c.Op("Conv", []*ir.Value{c.Reshape(c.Unsqueeze(x, 1), 0, 0, 0, flat), w},
		ir.IntsAttr("kernel_shape", size, 1), ir.IntsAttr("pads", lo, 0, hi, 0))
	return c.ReshapeLike(y, x)
}

// lrnReach is how many channels before and after one are summed with it.
func lrnReach(n *ir.Node) (lo, hi int64) {
	size := n.Int("size", 1)
	return (size - 1) / 2, size - 1 - (size-1)/2
}

const lrnCUDA = `
template <class T>
void lrn(Stream& s, const T* x, T* y, int64_t n, int64_t channels, int64_t inner, int64_t lo, int64_t hi, double alpha, double beta, double bias) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    int64_t ch = i / inner % channels;
    A sum = 0;
    for (int64_t k = ch - lo; k <= ch + hi; k++) {
      if (k < 0 || k >= channels) continue;
      A v = to<A>(x[i + (k - ch) * inner]);
      sum += v * v;
    }
    y[i] = to<T>(to<A>(x[i]) / m::pow(A(bias) + A(alpha) * sum, A(beta)));
  });
}`

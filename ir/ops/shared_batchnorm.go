package ops

import (
	"math"

	"memoc/ir"
)

// batchNorm is what a normalization over the batch does, for BatchNormalization
// of all versions and BatchNormInternal. X is seen as [n, channels, inner].
type batchNorm struct {
	n, channels, inner int64
	eps, momentum      float64
	training           bool // statistics of this batch, and the running ones move
	// The outputs by position, -1 where there are none: running mean and
	// variance, mean and variance (or inverse deviation) of the batch.
	running, saved int
	savedInverse   bool
}

func batchNormOf(n *ir.Node, since int, x []int64) (batchNorm, error) {
	b := batchNorm{n: 1, channels: 1, inner: 1, eps: float64(n.Float("epsilon", 1e-5)), momentum: float64(n.Float("momentum", 0.9)),
		running: 1, saved: 3}
	switch {
	case n.Domain == ir.MsDomain:
		b.training, b.savedInverse = n.Int("training_mode", 1) != 0, true
	case since >= 14:
		b.training, b.saved = n.Int("training_mode", 0) != 0, -1
	default:
		b.training = n.Int("is_test", 0) == 0 && hasOutputAfter(n, 1)
	}
	switch {
	case len(x) == 0:
		return b, n.Errorf("shape", "the input is a scalar")
	case len(x) == 1:
		b.n = x[0]
	case n.Int("spatial", 1) == 0:
		b.n, b.channels = x[0], ir.Elems(x[1:])
	default:
		b.n, b.channels, b.inner = x[0], x[1], ir.Elems(x[2:])
	}
	return b, nil
}

func hasOutputAfter(n *ir.Node, first int) bool {
	for i := first; i < len(n.Out); i++ {
		if n.Out[i] != nil {
			return true
		}
	}
	return false
}

// each calls f for every element of channel ch.
func (b batchNorm) each(ch int64, f func(i int64)) {
	for n := range b.n {
		for k := range b.inner {
			f((n*b.channels+ch)*b.inner + k)
		}
	}
}

// moments are mean and (population) variance of channel ch.
func (b batchNorm) moments(x []float64, ch int64) (mean, variance float64) {
	count := float64(b.n * b.inner)
	b.each(ch, func(i int64) { mean += x[i] })
	mean /= count
	b.each(ch, func(i int64) { variance += (x[i] - mean) * (x[i] - mean) })
	return mean, variance / count
}

func batchNormInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if x.Ranked && x.Rank() == 0 {
		return c.Errorf("the input is a scalar")
	}
	for i := 1; i < 5; i++ {
		s := c.Shape(i)
		if s.Ranked && s.Rank() != 1 && c.Node.Int("spatial", 1) != 0 {
			return c.Errorf("input %d must be a vector, not %s", i, s)
		}
		if x.Rank() >= 2 && s.Rank() == 1 && c.Node.Int("spatial", 1) != 0 && s.Dims[0].Differ(x.Dims[1]) {
			return c.Errorf("input %d has %s elements, the input %s channels", i, s.Dims[0], x.Dims[1])
		}
	}
	sameTypeAs(c, 0, 0)
	for o := 1; o < len(c.Node.Out); o++ {
		sameTypeAs(c, o, 3+(o+1)%2)
	}
	return nil
}

// batchNormAxes: spatial axes and the batch follow unless the statistics are
// those of the batch; channels follow always.
func batchNormAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 || n.Int("spatial", 1) == 0 {
		return m
	}
	since := 0
	if n.Decl != nil {
		since = n.Decl.SinceVersion(n.Version)
	}
	b, _ := batchNormOf(n, since, []int64{1, 1})
	axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
	for a := range axes {
		if a != 1 && !b.training {
			axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		}
	}
	params := func() (links ir.OutAxis) {
		for i := 1; i < 5 && i < len(n.In); i++ {
			links = append(links, ir.AxisLink{In: i, Axis: 0})
		}
		return links
	}
	axes[1] = append(ir.OutAxis{{In: 0, Axis: 1}}, params()...)
	m.Out[0] = axes
	for o := 1; o < len(n.Out); o++ {
		if n.Out[o] != nil && n.Out[o].Type.Shape.Rank() == 1 {
			m.Out[o] = []ir.OutAxis{append(ir.OutAxis{{In: 0, Axis: 1}}, params()...)}
		}
	}
	return m
}

func batchNormCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	return ir.Cost{FLOPs: 8 * ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
}

func batchNormEval(c *ir.EvalCtx) error {
	x, like := c.In(0), c.In(3)
	b, err := batchNormOf(c.Node, c.Version, x.Dims)
	if err != nil {
		return err
	}
	for i := 1; i < 5; i++ {
		if c.In(i).Len() != b.channels {
			return c.Errorf("input %d has %d elements for %d channels", i, c.In(i).Len(), b.channels)
		}
	}
	in, scale, bias := x.Floats(), c.In(1).Floats(), c.In(2).Floats()
	mean, variance := c.In(3).Floats(), c.In(4).Floats()
	y := make([]float64, len(in))
	stats := make([][]float64, 4) // running mean and variance, mean and second moment of the batch
	for i := range stats {
		stats[i] = make([]float64, b.channels)
	}
	for ch := range b.channels {
		m, v := mean[ch], variance[ch]
		stats[0][ch], stats[1][ch] = m, v
		if b.training {
			m, v = b.moments(in, ch)
			stats[0][ch] = mean[ch]*b.momentum + m*(1-b.momentum)
			stats[1][ch] = variance[ch]*b.momentum + v*(1-b.momentum)
		}
		inv := 1 / math.Sqrt(v+b.eps)
		stats[2][ch], stats[3][ch] = m, v
		if b.savedInverse {
			stats[3][ch] = inv
		}
		b.each(ch, func(i int64) { y[i] = (in[i]-m)*inv*scale[ch] + bias[ch] })
	}
	c.Set(0, ir.FromFloats(x.DType, y, x.Dims...))
	for k, first := range []int{b.running, b.saved} {
		if first < 0 {
			continue
		}
		c.Set(first, ir.FromFloats(like.DType, stats[2*k], like.Dims...))
		c.Set(first+1, ir.FromFloats(like.DType, stats[2*k+1], like.Dims...))
	}
	return nil
}

func batchNormKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	b, err := batchNormOf(c.Node, c.Version, c.InShape(0))
	if err != nil {
		return ir.Kernel{}, err
	}
	saved := b.saved
	if saved < 0 {
		saved = len(c.Node.Out) // no such output: null pointers
	}
	return ir.Kernel{Func: "batch_norm", Source: batchNormCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1), c.InDType(3)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.OutArg(0), ir.OutArg(b.running),
			ir.OutArg(b.running + 1), ir.OutArg(saved), ir.OutArg(saved + 1), ir.IntArg(b.n), ir.IntArg(b.channels), ir.IntArg(b.inner),
			ir.FloatArg(b.eps), ir.FloatArg(b.momentum), ir.BoolArg(b.training), ir.BoolArg(b.savedInverse)}}, nil
}

const batchNormCUDA = `
template <class T, class S, class M>
void batch_norm(Stream& s, const T* x, const S* scale, const S* bias, const M* mean, const M* var, T* y, M* run_mean, M* run_var,
                M* saved_mean, M* saved_var, int64_t n, int64_t channels, int64_t inner, double eps, double momentum, bool training,
                bool inverse) {
  block_rows(s, channels, [=] MEMOC_DEVICE(RowCtx& c, int64_t ch) {
    using A = Acc<T>;
    A mu = to<A>(mean[ch]), v = to<A>(var[ch]), mu_run = mu, v_run = v;
    int64_t count = n * inner;
    if (training) {
      A sum = 0;
      for (int64_t i = c.tid; i < count; i += c.size) sum += to<A>(x[(i / inner * channels + ch) * inner + i % inner]);
      mu = c.sum(sum) / A(count);
      sum = 0;
      for (int64_t i = c.tid; i < count; i += c.size) {
        A d = to<A>(x[(i / inner * channels + ch) * inner + i % inner]) - mu;
        sum += d * d;
      }
      v = c.sum(sum) / A(count);
      mu_run = mu_run * A(momentum) + mu * A(1 - momentum);
      v_run = v_run * A(momentum) + v * A(1 - momentum);
    }
    A inv = A(1) / m::sqrt(v + A(eps)), a = to<A>(scale[ch]), b = to<A>(bias[ch]);
    for (int64_t i = c.tid; i < count; i += c.size) {
      int64_t at = (i / inner * channels + ch) * inner + i % inner;
      y[at] = to<T>((to<A>(x[at]) - mu) * inv * a + b);
    }
    c.sync();
    if (c.tid != 0) return;
    if (run_mean) run_mean[ch] = to<M>(mu_run);
    if (run_var) run_var[ch] = to<M>(v_run);
    if (saved_mean) saved_mean[ch] = to<M>(mu);
    if (saved_var) saved_var[ch] = to<M>(inverse ? inv : v);
  });
}`

// batchNormGrad: with m = x - mean, inv = 1/sqrt(var + eps), means and sums over
// all axes but the channel's,
//
//	dscale = inv * sum(dy * m), dbias = sum(dy)
//	dx = scale * inv * (dy - mean(dy) - m * inv^2 * mean(dy * m))   in training
//	dx = scale * inv * dy                                           with given statistics
//
// in the statistics' precision. Given statistics are differentiated as the
// inputs they are; whether running statistics are parameters is not decided
// here.
func batchNormGrad(c *ir.GradCtx) error {
	x, dy := c.In(0), c.OutGrad(0)
	for i := 1; i < len(c.Node.Out); i++ {
		if c.OutGrad(i) != nil {
			return c.Node.Errorf("grad", "a gradient through the statistics (output %d) is not derived", i)
		}
	}
	rank := x.Type.Shape.Rank()
	if rank < 2 || c.Node.Int("spatial", 1) == 0 {
		return c.Node.Errorf("grad", "the gradient needs [N, C, …] with statistics for each channel, %q is %s", x.Name, x.Type.Shape)
	}
	b, err := batchNormOf(c.Node, c.Version, []int64{1, 1})
	if err != nil || dy == nil {
		return err
	}
	g := newBatchNormGrad(c, b)
	var moment *ir.Value // dy * m
	if c.Needs(0) && b.training || c.Needs(1) || c.Needs(4) && !b.training {
		moment = c.Mul(g.dy, g.mid)
	}
	if c.Needs(1) {
		c.Set(1, c.Cast(c.Mul(g.sum(moment), c.Reshape(g.inv, -1)), c.In(1).Type.DType))
	}
	if c.Needs(2) {
		c.Set(2, c.Cast(g.sum(g.dy), c.In(2).Type.DType))
	}
	if c.Needs(0) {
		gain := c.Mul(g.scale, g.inv)
		dx := g.dy
		if b.training {
			slope := c.Mul(c.Mul(g.inv, g.inv), g.mean(moment))
			dx = c.Sub(c.Sub(dx, g.mean(g.dy)), c.Mul(g.mid, slope))
		}
		c.Set(0, c.Cast(c.Mul(dx, gain), x.Type.DType))
	}
	if !b.training {
		g.givenStatistics(c, moment)
	}
	return nil
}

// batchNormGradParts are values that the gradients share; per-channel ones
// have the shape [1, C, 1…] or [C, 1…].
type batchNormGradParts struct {
	c          *ir.GradCtx
	axes       []int64
	dy, mid    *ir.Value // mid is x - mean
	scale, inv *ir.Value
}

func newBatchNormGrad(c *ir.GradCtx, b batchNorm) *batchNormGradParts {
	wide := c.In(3).Type.DType
	if wide != ir.Double {
		wide = ir.Float
	}
	if c.In(0).Type.DType == ir.Double {
		wide = ir.Double
	}
	g := &batchNormGradParts{c: c, axes: []int64{0}}
	var spread []int64 // [C] to [C, 1…]
	for a := 2; a < c.In(0).Type.Shape.Rank(); a++ {
		g.axes = append(g.axes, int64(a))
		spread = append(spread, int64(a-1))
	}
	channel := func(v *ir.Value) *ir.Value { return c.Unsqueeze(c.Cast(v, wide), spread...) }
	x := c.Cast(c.In(0), wide)
	g.dy, g.scale = c.Cast(c.OutGrad(0), wide), channel(c.In(1))
	switch {
	case b.training && b.savedInverse:
		g.mid, g.inv = c.Sub(x, channel(c.Out(b.saved))), channel(c.Out(b.saved+1))
	case b.training:
		g.mid = c.Sub(x, g.mean(x))
		g.inv = inverseRoot(c, g.mean(c.Mul(g.mid, g.mid)), b.eps)
	default:
		g.mid, g.inv = c.Sub(x, channel(c.In(3))), inverseRoot(c, channel(c.In(4)), b.eps)
	}
	return g
}

// inverseRoot is 1 / sqrt(v + eps).
func inverseRoot(c *ir.GradCtx, v *ir.Value, eps float64) *ir.Value {
	return c.Op("Reciprocal", []*ir.Value{c.Op("Sqrt", []*ir.Value{c.AddScalar(v, eps)})})
}

func (g *batchNormGradParts) mean(v *ir.Value) *ir.Value { return g.c.ReduceMean(v, true, g.axes...) }
func (g *batchNormGradParts) sum(v *ir.Value) *ir.Value  { return g.c.ReduceSum(v, false, g.axes...) }

// givenStatistics: dmean = -sum(dy) * scale * inv and
// dvar = -sum(dy * m) * scale * inv^3 / 2.
func (g *batchNormGradParts) givenStatistics(c *ir.GradCtx, moment *ir.Value) {
	flat := func(v *ir.Value) *ir.Value { return c.Reshape(v, -1) }
	scale, inv := flat(g.scale), flat(g.inv)
	if c.Needs(3) {
		d := c.Neg(c.Mul(g.sum(g.dy), c.Mul(scale, inv)))
		c.Set(3, c.Like(c.Cast(d, c.In(3).Type.DType), c.In(3)))
	}
	if c.Needs(4) {
		d := c.Mul(g.sum(moment), c.Mul(scale, c.Mul(inv, c.Mul(inv, inv))))
		c.Set(4, c.Like(c.Cast(c.MulScalar(d, -0.5), c.In(4).Type.DType), c.In(4)))
	}
}

const batchNormNever = "in training it advances the running statistics, which must happen once in a step"

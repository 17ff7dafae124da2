package ops

import (
	"math"

	"memoc/ir"
)

// Normalizations over any set of axes: x is seen as dims, of which red are
// normalized over and the others enumerate regions.
type regionNorm struct {
	dims  []int64
	red   []int
	mode  int64 // see the modes
	eps   float64
	group int64 // regions of one batch element, where scale and bias exist
	per   int64 // channels of a region, each with a scale of its own
	inner int64 // elements of a channel
}

// The modes of a regionNorm, as regionCUDA has them.
const (
	byDeviation   = iota // (x - mean) / sqrt(variance + eps)
	byPlainStddev        // (x - mean) / (sqrt(variance) + eps)
	byL1                 // x / sum |x|, 0 where that is 0
	byL2                 // x / sqrt(sum x*x), 0 where that is 0
)

// split gives extents and steps of the region axes and of the reduced ones.
func (r regionNorm) split() (kept, keptStep, red, redStep []int64) {
	step := denseView([]float64(nil), r.dims).step
	isRed := make([]bool, len(r.dims))
	for _, a := range r.red {
		isRed[a] = true
	}
	for a, d := range r.dims {
		if isRed[a] {
			red, redStep = append(red, d), append(redStep, step[a])
		} else {
			kept, keptStep = append(kept, d), append(keptStep, step[a])
		}
	}
	return kept, keptStep, red, redStep
}

// channel is the index into scale and bias of element e of a region.
func (r regionNorm) channel(region, e int64) int64 { return region%r.group*r.per + e/r.inner%r.per }

func offsetOf(linear int64, dims, step []int64) int64 {
	off := int64(0)
	for a := len(dims) - 1; a >= 0; a-- {
		off += linear % dims[a] * step[a]
		linear /= dims[a]
	}
	return off
}

// eval normalizes x; scale and bias may be nil.
func (r regionNorm) eval(x, scale, bias []float64) []float64 {
	kept, keptStep, red, redStep := r.split()
	n := ir.Elems(red)
	out := make([]float64, len(x))
	at := make([]int64, n)
	for region := range ir.Elems(kept) {
		base := offsetOf(region, kept, keptStep)
		mean, power := 0.0, 0.0
		for e := range n {
			at[e] = base + offsetOf(e, red, redStep)
			mean += x[at[e]] / float64(n)
		}
		if r.mode == byL1 || r.mode == byL2 {
			mean = 0
		}
		for _, i := range at {
			if r.mode == byL1 {
				power += math.Abs(x[i])
			} else {
				power += (x[i] - mean) * (x[i] - mean)
			}
		}
		factor := r.factor(power, n)
		for e, i := range at {
			out[i] = (x[i] - mean) * factor
			if scale != nil {
				out[i] *= scale[r.channel(region, int64(e))]
			}
			if bias != nil {
				out[i] += bias[r.channel(region, int64(e))]
			}
		}
	}
	return out
}

// factor is what deviations are multiplied with.
func (r regionNorm) factor(power float64, n int64) float64 {
	switch r.mode {
	case byDeviation:
		return 1 / math.Sqrt(power/float64(n)+r.eps)
	case byPlainStddev:
		return 1 / (math.Sqrt(power/float64(n)) + r.eps)
	case byL2:
		power = math.Sqrt(power)
	}
	if power == 0 {
		return 0
	}
	return 1 / power
}

const regionCUDA = `
// mode: ir/ops/shared_region_norm.go. scale and bias may be null.
template <class T>
void region_norm(Stream& s, const T* x, const T* scale, const T* bias, T* y, Dims kept, Dims kept_step, Dims red, Dims red_step,
                 int64_t mode, double eps, int64_t group, int64_t per, int64_t inner) {
  int64_t n = red.numel();
  block_rows(s, kept.numel(), [=] MEMOC_DEVICE(RowCtx& c, int64_t region) {
    using A = Acc<T>;
    int64_t base = offset_of(region, kept, kept_step);
    A mean = A(0), power = A(0), f;
    if (mode < 2) {
      for (int64_t e = c.tid; e < n; e += c.size) mean += to<A>(x[base + offset_of(e, red, red_step)]);
      mean = c.sum(mean) / A(n);
    }
    for (int64_t e = c.tid; e < n; e += c.size) {
      A d = to<A>(x[base + offset_of(e, red, red_step)]) - mean;
      power += mode == 2 ? abs_of(d) : d * d;
    }
    power = c.sum(power);
    if (mode == 0) f = A(1) / sqrt_of(A(power / A(n) + A(eps)));
    else if (mode == 1) f = A(1) / (sqrt_of(A(power / A(n))) + A(eps));
    else f = power == A(0) ? A(0) : A(1) / (mode == 2 ? power : sqrt_of(power));
    for (int64_t e = c.tid; e < n; e += c.size) {
      int64_t i = base + offset_of(e, red, red_step), k = region % group * per + e / inner % per;
      A v = (to<A>(x[i]) - mean) * f;
      if (scale != nullptr) v *= to<A>(scale[k]);
      if (bias != nullptr) v += to<A>(bias[k]);
      y[i] = to<T>(v);
    }
  });
}`

func (r regionNorm) kernel(c *ir.NodeCtx) (ir.Kernel, error) {
	kept, keptStep, red, redStep := r.split()
	return ir.Kernel{Func: "region_norm", Source: regionCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.DimsArg(kept...), ir.DimsArg(keptStep...), ir.DimsArg(red...), ir.DimsArg(redStep...),
		ir.IntArg(r.mode), ir.FloatArg(r.eps), ir.IntArg(max(1, r.group)), ir.IntArg(max(1, r.per)), ir.IntArg(max(1, r.inner))}}, nil
}

// regionGrad emits the gradient of x given that of (x - mean) * r, over axes;
// xhat is that normalized x. It works in the type of x.
func regionGrad(b *ir.Builder, x, g *ir.Value, axes []int64, eps float64) (dx, xhat *ir.Value) {
	d := b.Sub(x, b.ReduceMean(x, true, axes...))
	variance := b.ReduceMean(b.Mul(d, d), true, axes...)
	r := b.Op("Reciprocal", []*ir.Value{b.Sqrt(b.AddScalar(variance, eps))})
	xhat = b.Mul(d, r)
	inner := b.Sub(b.Sub(g, b.ReduceMean(g, true, axes...)), b.Mul(xhat, b.ReduceMean(b.Mul(g, xhat), true, axes...)))
	return b.Mul(r, inner), xhat
}

// channelNormGrad is the gradient of an instance or group normalization whose
// regions are axis 1 of x reshaped by split (identity for instances); scale
// and bias run along axis 1 before (perChannel) or after the reshape.
func channelNormGrad(c *ir.GradCtx, split func(*ir.Value) *ir.Value, perChannel bool, eps float64) error {
	rank := c.In(0).Type.Shape.Rank()
	if rank < 2 {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.In(0).Name)
	}
	work := workType(c.In(0).Type.DType)
	x, dy := c.Cast(c.In(0), work), c.Cast(c.OutGrad(0), work)
	like := x
	scale := c.Cast(c.In(1), work)
	along := func(v *ir.Value, rank int) *ir.Value {
		axes := make([]int64, 0, rank)
		for a := 1; a < rank-1; a++ {
			axes = append(axes, int64(a))
		}
		return c.Unsqueeze(v, axes...)
	}
	g := dy
	if perChannel {
		g = split(c.Mul(dy, along(scale, rank)))
	}
	x = split(x)
	regions := x.Type.Shape.Rank()
	if !perChannel {
		dy = split(dy)
		g = c.Mul(dy, along(scale, regions))
	}
	dx, xhat := regionGrad(c.Builder, x, g, axesFrom(2, regions), eps)
	if perChannel {
		xhat = c.ReshapeLike(xhat, like)
	}
	others := append([]int64{0}, axesFrom(2, dy.Type.Shape.Rank())...)
	c.Set(0, c.Cast(c.ReshapeLike(dx, like), c.In(0).Type.DType))
	if c.Needs(1) {
		c.Set(1, c.Cast(c.Like(c.ReduceSum(c.Mul(dy, xhat), false, others...), scale), c.In(1).Type.DType))
	}
	if c.Needs(2) {
		c.Set(2, c.Cast(c.Like(c.ReduceSum(dy, false, others...), scale), c.In(2).Type.DType))
	}
	return nil
}

func axesFrom(first, rank int) []int64 {
	var out []int64
	for a := first; a < rank; a++ {
		out = append(out, int64(a))
	}
	return out
}

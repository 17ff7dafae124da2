package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "GridSample",
	Doc:   "Reads X [N, C, spatial…] at the normalized positions of a grid [N, out…, axes], interpolating.",
	Since: []int{16, 20, 22},
	In:    ir.Ports("X:T, grid:G"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "G": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		x, g := c.Shape(0), c.Shape(1)
		if _, err := gridSampleOf(c.Node); err != nil {
			return err
		}
		if !x.Ranked || !g.Ranked {
			c.SetTensor(0, c.DType(0), ir.Shape{})
			return nil
		}
		if x.Rank() < 3 || g.Rank() != x.Rank() || g.Dims[g.Rank()-1].Differ(ir.N(int64(x.Rank()-2))) {
			return c.Errorf("input %s and grid %s do not fit", x, g)
		}
		dims := append([]ir.Dim{x.Dims[0], x.Dims[1]}, g.Dims[1:g.Rank()-1]...)
		c.SetTensor(0, c.DType(0), ir.Dims(dims...))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 3 {
			return ir.AxisMap{}
		}
		axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
		axes[0] = ir.OutAxis{{In: 0, Axis: 0}, {In: 1, Axis: 0}}
		axes[1] = ir.OutAxis{{In: 0, Axis: 1}}
		for a := 2; a < len(axes); a++ {
			axes[a] = ir.OutAxis{{In: 1, Axis: a - 1}}
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
	},
	Cost:      ir.PointwiseCost(32),
	Grad:      ir.NoGrad("not derived yet: interpolation at computed positions"),
	Recompute: ir.Pure,
	Eval:      gridSampleEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := gridSampleOf(c.Node)
		return ir.Kernel{Func: "grid_sample", Source: gridSampleCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)},
			Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.DimsArg(c.InShape(0)...), ir.DimsArg(c.OutShape(0)...),
				ir.IntArg(g.taps), ir.IntArg(g.padding), ir.BoolArg(g.corners)}}, err
	}),
	Samples: func() []ir.Sample {
		x, g := ramp(2, 2, 3, 4), ramp(2, 2, 3, 2)
		var out []ir.Sample
		for _, mode := range []string{"linear", "nearest", "cubic"} {
			for _, padding := range []string{"zeros", "border", "reflection"} {
				out = append(out, ir.Sample{Name: mode + " " + padding, In: []*ir.Tensor{x, g},
					Attrs: []ir.Attr{ir.StringAttr("mode", mode), ir.StringAttr("padding_mode", padding)}})
			}
		}
		return append(out,
			ir.Sample{Name: "corners", Version: 16, In: []*ir.Tensor{x, g}, Attrs: []ir.Attr{ir.StringAttr("mode", "bilinear"), ir.IntAttr("align_corners", 1)}},
			ir.Sample{Name: "3d", In: []*ir.Tensor{ramp(1, 1, 2, 3, 2), ramp(1, 2, 1, 2, 3)}})
	},
})

// gridSample is how positions are read: taps per axis (1 nearest, 2 linear,
// 4 cubic), what lies outside (0 zeros, 1 the border, 2 reflection), and
// whether -1 and 1 are centres of the corner elements or their edges.
type gridSample struct {
	taps, padding int64
	corners       bool
}

func gridSampleOf(n *ir.Node) (g gridSample, err error) {
	switch mode := n.Str("mode", "linear"); mode {
	case "linear", "bilinear":
		g.taps = 2
	case "nearest":
		g.taps = 1
	case "cubic", "bicubic":
		g.taps = 4
	default:
		return g, n.Errorf("shape", "unknown mode %q", mode)
	}
	switch padding := n.Str("padding_mode", "zeros"); padding {
	case "zeros":
	case "border":
		g.padding = 1
	case "reflection":
		g.padding = 2
	default:
		return g, n.Errorf("shape", "unknown padding_mode %q", padding)
	}
	g.corners = n.Int("align_corners", 0) != 0
	return g, nil
}

func gridSampleEval(c *ir.EvalCtx) error {
	g, err := gridSampleOf(c.Node)
	if err != nil {
		return err
	}
	x, grid := c.In(0), c.In(1)
	axes := len(x.Dims) - 2
	if axes < 1 || len(grid.Dims) != len(x.Dims) || grid.Dims[len(grid.Dims)-1] != int64(axes) || grid.Dims[0] != x.Dims[0] {
		return c.Errorf("input %v and grid %v do not fit", x.Dims, grid.Dims)
	}
	in, pos := x.Floats(), grid.Floats()
	y := append([]int64{x.Dims[0], x.Dims[1]}, grid.Dims[1:len(grid.Dims)-1]...)
	plane, points := int(ir.Elems(x.Dims[2:])), int(ir.Elems(y[2:]))
	out := make([]float64, ir.Elems(y))
	at := make([]float64, axes)
	for n := range int(x.Dims[0]) {
		for p := range points {
			for a := range axes { // the grid counts axes from the last
				v := g.denormalize(pos[(n*points+p)*axes+axes-1-a], x.Dims[2+a])
				at[a] = roundTo(grid.DType, v)
			}
			for ch := range int(x.Dims[1]) {
				data := in[(n*int(x.Dims[1])+ch)*plane:][:plane]
				out[(n*int(x.Dims[1])+ch)*points+p] = g.sample(data, x.Dims[2:], at)
			}
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, y...))
	return nil
}

func (g gridSample) denormalize(v float64, extent int64) float64 {
	if g.corners {
		return (v + 1) / 2 * float64(extent-1)
	}
	return ((v+1)*float64(extent) - 1) / 2
}

// border is what reflection reflects at.
func (g gridSample) border(extent int64) (lo, hi float64) {
	if g.corners {
		return 0, float64(extent - 1)
	}
	return -0.5, float64(extent) - 0.5
}

// sample interpolates data at position at: the product of the axes' weights.
func (g gridSample) sample(data []float64, dims []int64, at []float64) float64 {
	axes := len(dims)
	first, weights := make([]int64, axes), make([][]float64, axes)
	for a, v := range at {
		if g.taps == 1 {
			v = math.RoundToEven(v)
		}
		if lo, hi := g.border(dims[a]); v < lo || v > hi {
			v = g.inside(v, dims[a])
		}
		f := math.Floor(v)
		first[a] = int64(f)
		switch t := v - f; g.taps {
		case 1:
			first[a], weights[a] = int64(v), []float64{1}
		case 2:
			weights[a] = []float64{1 - t, t}
		default:
			first[a]--
			weights[a] = cubicWeights(t)
		}
	}
	k, taps := make([]int64, axes), make([]int64, axes)
	for a := range taps {
		taps[a] = g.taps
	}
	sum := 0.0
	for {
		w, index, valid := 1.0, int64(0), true
		for a := range axes {
			w *= weights[a][k[a]]
			p := first[a] + k[a]
			if p < 0 || p >= dims[a] {
				p = int64(g.inside(float64(p), dims[a]))
				valid = valid && g.padding != 0
			}
			index = index*dims[a] + p
		}
		if valid && w != 0 {
			sum += w * data[index]
		}
		if !next(k, taps) {
			return sum
		}
	}
}

// inside moves a position to where the padding mode takes its value from.
func (g gridSample) inside(v float64, extent int64) float64 {
	switch g.padding {
	case 1:
		return max(0, min(v, float64(extent-1)))
	case 2:
		lo, hi := g.border(extent)
		return reflect(v, lo, hi)
	}
	return v
}

// reflect mirrors v at the borders until it lies between them.
func reflect(v, lo, hi float64) float64 {
	span := hi - lo
	if span <= 0 {
		return lo
	}
	var d float64
	switch {
	case v < lo:
		d = lo - v
	case v > hi:
		d = v - hi
	default:
		return v
	}
	n := math.Trunc(d / span)
	r := d - n*span
	if (math.Mod(n, 2) == 0) == (v < lo) {
		return lo + r
	}
	return hi - r
}

// cubicWeights are Keys' convolution coefficients with a = -0.75 for the four
// neighbours of a point t beyond the second.
func cubicWeights(t float64) []float64 {
	const a = -0.75
	far := func(x float64) float64 { return ((a*x-5*a)*x+8*a)*x - 4*a }
	near := func(x float64) float64 { return ((a+2)*x-(a+3))*x*x + 1 }
	return []float64{far(t + 1), near(t), near(1 - t), far(2 - t)}
}

const gridSampleCUDA = `
template <class A> MEMOC_FN A grid_reflect(A v, A lo, A hi) {
  A span = hi - lo;
  if (!(span > A(0))) return lo;
  if (v >= lo && v <= hi) return v;
  bool low = v < lo;
  A d = low ? lo - v : v - hi, n = m::trunc(d / span), r = d - n * span;
  return (m::fmod(n, A(2)) == A(0)) == low ? lo + r : hi - r;
}

template <class A> MEMOC_FN A grid_inside(A v, int64_t extent, int64_t padding, bool corners) {
  if (padding == 1) return m::max(A(0), m::min(v, A(extent - 1)));
  if (padding == 2) return corners ? grid_reflect(v, A(0), A(extent - 1)) : grid_reflect(v, A(-0.5), A(extent) - A(0.5));
  return v;
}

template <class A> MEMOC_FN A grid_weight(A t, int64_t k, int64_t taps) {
  if (taps == 1) return A(1);
  if (taps == 2) return k == 0 ? A(1) - t : t;
  const A a = A(-0.75);
  A x = k == 0 ? t + A(1) : k == 1 ? t : k == 2 ? A(1) - t : A(2) - t;
  if (k == 1 || k == 2) return ((a + A(2)) * x - (a + A(3))) * x * x + A(1);
  return ((a * x - A(5) * a) * x + A(8) * a) * x - A(4) * a;
}

template <class T, class G>
void grid_sample(Stream& s, const T* x, const G* grid, T* y, Dims xd, Dims yd, int64_t taps, int64_t padding, bool corners) {
  int64_t axes = xd.rank - 2, points = yd.numel(2, yd.rank), plane = xd.numel(2, xd.rank);
  int64_t all = 1;
  for (int64_t a = 0; a < axes; a++) all *= taps;
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<G>;
    int64_t n = i / points / yd.d[1], p = i % points;
    Dims first;
    A frac[kMaxRank];
    for (int64_t a = 0; a < axes; a++) {
      int64_t e = xd.d[a + 2];
      A v = to<A>(grid[(n * points + p) * axes + axes - 1 - a]);
      v = corners ? (v + A(1)) / A(2) * A(e - 1) : ((v + A(1)) * A(e) - A(1)) / A(2);
      if (taps == 1) v = m::round_even(v);
      A lo = corners ? A(0) : A(-0.5), hi = corners ? A(e - 1) : A(e) - A(0.5);
      if (v < lo || v > hi) v = grid_inside(v, e, padding, corners);
      A f = taps == 1 ? m::trunc(v) : m::floor(v);
      frac[a] = v - f;
      first.d[a] = int64_t(f) - (taps == 4 ? 1 : 0);
    }
    A sum = 0;
    for (int64_t k = 0; k < all; k++) {
      int64_t rest = k, index = 0, step = 1;
      A w = 1;
      bool valid = true;
      for (int64_t a = axes - 1; a >= 0; a--) {
        int64_t q = rest % taps, at = first.d[a] + q, e = xd.d[a + 2];
        rest /= taps;
        w *= grid_weight(frac[a], q, taps);
        if (at < 0 || at >= e) {
          if (padding == 0) valid = false;
          else at = int64_t(grid_inside(A(at), e, padding, corners));
        }
        index += at * step;
        step *= e;
      }
      if (valid && w != A(0)) sum += w * to<A>(to<Acc<T>>(x[i / points * plane + index]));
    }
    y[i] = to<T>(sum);
  });
}`

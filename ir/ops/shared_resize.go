package ops

import (
	"math"
	"slices"

	"memoc/ir"
)

// Resizing is separable: along one axis, every output position is a weighted
// sum of a few input positions. resizeAxis is that for one axis.
type resizeAxis struct {
	axis    int
	in, out int64
	scale   float64
	lo, hi  float64 // region of interest, in parts of the extent
}

// resizeForm is what a Resize or Upsample node says, apart from sizes.
type resizeForm struct {
	mode, coords, nearest string
	cubicA                float64
	outside, antialias    bool
	fill                  float64
	aspect                string
}

// resizeFormOf reads the attributes. Before opset 11, coordinates are
// asymmetric and the nearest position is rounded down (up where the axis
// shrinks), as ONNX Runtime has it.
func resizeFormOf(n *ir.Node, since int) (f resizeForm, msg string) {
	f = resizeForm{mode: n.Str("mode", "nearest"), coords: n.Str("coordinate_transformation_mode", "half_pixel"),
		nearest: n.Str("nearest_mode", "round_prefer_floor"), cubicA: float64(n.Float("cubic_coeff_a", -0.75)),
		outside: n.Int("exclude_outside", 0) != 0, antialias: n.Int("antialias", 0) != 0,
		fill: float64(n.Float("extrapolation_value", 0)), aspect: n.Str("keep_aspect_ratio_policy", "stretch")}
	if since < 11 || n.Op == "Upsample" {
		f.coords, f.nearest = "asymmetric", "simple"
	}
	if f.mode == "bilinear" { // Upsample 1
		f.mode = "linear"
	}
	switch {
	case !slices.Contains(resizeModes, f.mode):
		return f, "the mode is none of nearest, linear and cubic"
	case !slices.Contains(resizeCoords, f.coords):
		return f, "the coordinate_transformation_mode is not known"
	case !slices.Contains(resizeNearest, f.nearest):
		return f, "the nearest_mode is not known"
	case f.antialias && f.mode == "nearest":
		return f, "mode nearest has no antialias"
	}
	return f, ""
}

// The values of the attributes; the position is the code that kernels get.
var (
	resizeModes   = []string{"nearest", "linear", "cubic"}
	resizeCoords  = []string{"asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric", "tf_crop_and_resize"}
	resizeNearest = []string{"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"}
)

// source is where output position p lies among the input positions (the
// formulas are those of ONNX's specification of Resize).
func (f resizeForm) source(a resizeAxis, p int64) float64 {
	x, n := float64(p), float64(a.in)
	width := a.scale * n // not a whole number if scales are given
	switch f.coords {
	case "asymmetric":
		return x / a.scale
	case "align_corners":
		if width == 1 {
			return 0
		}
		return x * (n - 1) / (width - 1)
	case "tf_crop_and_resize":
		if width == 1 {
			return (a.hi-a.lo)*(n-1)/2 + a.lo*(n-1)
		}
		return x*(a.hi-a.lo)*(n-1)/(width-1) + a.lo*(n-1)
	case "pytorch_half_pixel":
		if width == 1 {
			return -0.5
		}
	case "half_pixel_symmetric":
		return n/2*(1-float64(a.out)/width) + (x+0.5)/a.scale - 0.5
	}
	return (x+0.5)/a.scale - 0.5
}

// taps is the input positions and weights of output position p; out is true
// where the extrapolation value stands instead.
func (f resizeForm) taps(a resizeAxis, p int64) (at []int64, weight []float64, out bool) {
	x := f.source(a, p)
	if f.coords == "tf_crop_and_resize" && (x < 0 || x > float64(a.in-1)) {
		return nil, nil, true
	}
	// A whole number counts as the right one of its two neighbours.
	base := math.Floor(x)
	ratio := x - base
	if ratio == 0 {
		base, ratio = base-1, 1
	}
	weight, before := f.weights(ratio, a.scale)
	sum := 0.0
	for i := range weight {
		q := int64(base) - int64(before) + int64(i)
		if f.outside && (q < 0 || q >= a.in) {
			weight[i] = 0
		}
		sum += weight[i]
		at = append(at, min(max(q, 0), a.in-1))
	}
	if f.outside && sum != 0 {
		for i := range weight {
			weight[i] /= sum
		}
	}
	return at, weight, false
}

// weights is the kernel at ratio (0,1] behind position base, which is entry
// before of the list.
func (f resizeForm) weights(ratio, scale float64) (w []float64, before int) {
	switch {
	case f.mode == "nearest":
		right := 0.0
		if nearestRight(f.nearest, ratio, scale) {
			right = 1
		}
		return []float64{1 - right, right}, 0
	case f.antialias:
		return f.antialiased(ratio, min(scale, 1))
	case f.mode == "linear":
		return []float64{1 - ratio, ratio}, 0
	}
	for i := -1; i <= 2; i++ {
		w = append(w, cubicWeight(math.Abs(float64(i)-ratio), f.cubicA))
	}
	return w, 1
}

// nearestRight reports whether the right neighbour is the nearest.
func nearestRight(mode string, ratio, scale float64) bool {
	if ratio == 1 {
		return true
	}
	switch mode {
	case "round_prefer_ceil":
		return ratio >= 0.5
	case "floor":
		return false
	case "ceil":
		return true
	case "simple":
		return scale < 1
	}
	return ratio > 0.5
}

// cubicWeight is Keys' kernel at distance x with parameter a.
func cubicWeight(x, a float64) float64 {
	switch {
	case x <= 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return ((a*x-5*a)*x+8*a)*x - 4*a
	}
	return 0
}

// antialiased stretches the kernel over the input positions that one output
// position covers.
func (f resizeForm) antialiased(ratio, scale float64) (w []float64, before int) {
	reach := 1.0
	if f.mode == "cubic" {
		reach = 2
	}
	start := int(math.Floor(-reach/scale)) + 1
	sum := 0.0
	for i := start; i < 2-start; i++ {
		x := math.Abs(float64(i)-ratio) * scale
		v := max(1-x, 0)
		if f.mode == "cubic" {
			v = cubicWeight(x, f.cubicA)
		}
		w = append(w, v)
		sum += v
	}
	for i := range w {
		w[i] /= sum
	}
	return w, -start
}

// apply resizes values of shape dims along one axis.
func (f resizeForm) apply(vals []float64, dims []int64, a resizeAxis) ([]float64, []int64) {
	outer, inner := int(ir.Elems(dims[:a.axis])), int(ir.Elems(dims[a.axis+1:]))
	to := slices.Clone(dims)
	to[a.axis] = a.out
	res := make([]float64, ir.Elems(to))
	for p := range a.out {
		at, w, outside := f.taps(a, p)
		for o := range outer {
			for i := range inner {
				sum := 0.0
				for k, q := range at {
					if w[k] != 0 {
						sum += w[k] * vals[(o*int(a.in)+int(q))*inner+i]
					}
				}
				if outside {
					sum = f.fill
				}
				res[(o*int(a.out)+int(p))*inner+i] = sum
			}
		}
	}
	return res, to
}

// matrix is the weights of one axis as [out, in].
func (f resizeForm) matrix(a resizeAxis) []float64 {
	m := make([]float64, a.out*a.in)
	for p := range a.out {
		at, w, _ := f.taps(a, p)
		for k, q := range at {
			m[p*a.in+q] += w[k]
		}
	}
	return m
}

// resizeArgs is the run-time sizes: one of scales and sizes, for the axes.
type resizeArgs struct {
	scales []float64
	sizes  []int64
	roi    []float64
	axes   []int64 // nil: all
}

// plan lists the axes that change; msg says what is wrong.
func (f resizeForm) plan(dims []int64, r resizeArgs) (out []int64, axes []resizeAxis, msg string) {
	at := make([]int, 0, len(dims))
	for a := range dims {
		at = append(at, a)
	}
	if r.axes != nil {
		at = at[:0]
		for _, axis := range r.axes {
			a, ok := ir.NormAxis(axis, len(dims))
			if !ok || slices.Contains(at, a) {
				return nil, nil, "an axis is repeated or out of range"
			}
			at = append(at, a)
		}
	}
	if r.scales != nil && len(r.scales) != len(at) || r.sizes != nil && len(r.sizes) != len(at) || (r.scales == nil) == (r.sizes == nil) {
		return nil, nil, "there must be one scale or one size for each axis, and not both"
	}
	for _, s := range r.scales {
		if !(s > 0) {
			return nil, nil, "a scale is not positive"
		}
	}
	out = slices.Clone(dims)
	common := f.commonScale(dims, at, r.sizes)
	for i, a := range at {
		x := resizeAxis{axis: a, in: dims[a], hi: 1}
		switch {
		case r.scales != nil:
			x.scale = r.scales[i]
			x.out = int64(math.Floor(x.scale * float64(x.in)))
		case f.aspect == "stretch":
			x.out = r.sizes[i]
			x.scale = float64(x.out) / float64(x.in)
		default:
			x.scale = common
			x.out = int64(math.Floor(common*float64(x.in) + 0.5))
		}
		if x.out < 0 || x.in == 0 && x.out != 0 {
			return nil, nil, "an extent is negative, or an empty axis grows"
		}
		if f.coords == "tf_crop_and_resize" && len(r.roi) == 2*len(at) {
			x.lo, x.hi = r.roi[i], r.roi[len(at)+i]
		}
		out[a] = x.out
		if x.scale != 1 || x.out != x.in || x.lo != 0 || x.hi != 1 {
			axes = append(axes, x)
		}
	}
	return out, axes, ""
}

// commonScale is the one scale that keeps the aspect ratio.
func (f resizeForm) commonScale(dims []int64, at []int, sizes []int64) float64 {
	s := 0.0
	for i := range sizes {
		if i >= len(at) {
			break
		}
		r := float64(sizes[i]) / float64(dims[at[i]])
		if i == 0 || f.aspect == "not_larger" && r < s || f.aspect == "not_smaller" && r > s {
			s = r
		}
	}
	return s
}

// resizeEval resizes axis by axis in float64.
func resizeEval(c *ir.EvalCtx, r resizeArgs) error {
	f, msg := resizeFormOf(c.Node, c.Version)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	x := c.In(0)
	dims, axes, msg := f.plan(x.Dims, r)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	vals, at := x.Floats(), x.Dims
	for _, a := range axes {
		vals, at = f.apply(vals, at, a)
	}
	y := ir.NewTensor(x.DType, dims...)
	if x.DType.IsFloat() {
		ir.SetFloats(y, vals)
	} else {
		ir.SetFloats(y, saturated(x.DType, vals))
	}
	c.Set(0, y)
	return nil
}

// saturated rounds to nearest even and clamps to an 8-bit type, which cubic
// weights may leave.
func saturated(d ir.DType, vals []float64) []float64 {
	lo, hi := math.Inf(-1), math.Inf(1)
	switch d {
	case ir.Uint8:
		lo, hi = 0, 255
	case ir.Int8:
		lo, hi = -128, 127
	}
	out := make([]float64, len(vals))
	for i, v := range vals {
		out[i] = min(max(math.RoundToEven(v), lo), hi)
	}
	return out
}

// resizeGrad is the transposed weights, axis by axis, as a matrix product.
func resizeGrad(c *ir.GradCtx, r resizeArgs, known bool) error {
	dy, x := c.OutGrad(0), c.In(0)
	dims, static := x.Type.Shape.Static()
	if dy == nil || !c.Needs(0) {
		return nil
	}
	if !known || !static {
		return c.Node.Errorf("grad", "the gradient needs static extents and known scales; bind the dims with --dim")
	}
	f, msg := resizeFormOf(c.Node, c.Version)
	if msg != "" {
		return c.Node.Errorf("grad", "%s", msg)
	}
	_, axes, msg := f.plan(dims, r)
	if msg != "" {
		return c.Node.Errorf("grad", "%s", msg)
	}
	for _, a := range axes {
		last := len(dims) - 1
		m := c.Const(ir.FromFloats(x.Type.DType, f.matrix(a), a.out, a.in))
		dy = c.MoveAxis(c.MatMul(c.MoveAxis(dy, a.axis, last), m), last, a.axis)
	}
	c.Set(0, c.Like(dy, x))
	return nil
}

// resizeDims infers the extents; unknown ones are fresh symbols.
func resizeDims(c *ir.InferCtx, r resizeArgs, sizes []ir.Dim, known bool) error {
	f, msg := resizeFormOf(c.Node, c.Version)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	in := c.Shape(0)
	if !in.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	if dims, static := in.Static(); static && known && sizes == nil {
		out, _, msg := f.plan(dims, r)
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		c.SetTensor(0, c.DType(0), ir.Ints64(out...))
		return nil
	}
	dims, ok := resizeSymbolic(c, f, r, sizes, known)
	if !ok {
		return c.Errorf("there must be one scale or one size for each axis")
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

func resizeSymbolic(c *ir.InferCtx, f resizeForm, r resizeArgs, sizes []ir.Dim, known bool) ([]ir.Dim, bool) {
	in := c.Shape(0)
	at := make([]int, in.Rank())
	for a := range at {
		at[a] = a
	}
	if r.axes != nil {
		at = at[:0]
		for _, axis := range r.axes {
			a, ok := ir.NormAxis(axis, in.Rank())
			if !ok {
				return nil, false
			}
			at = append(at, a)
		}
	}
	if known && (sizes != nil && len(sizes) != len(at) || sizes == nil && len(r.scales) != len(at)) {
		return nil, false
	}
	dims := slices.Clone(in.Dims)
	for i, a := range at {
		switch {
		case !known, sizes != nil && f.aspect != "stretch":
			dims[a] = c.FreshDim()
		case sizes != nil:
			dims[a] = sizes[i]
		default:
			dims[a] = scaledDim(c, in.Dims[a], r.scales[i])
		}
	}
	return dims, true
}

func scaledDim(c *ir.InferCtx, d ir.Dim, scale float64) ir.Dim {
	if n, ok := d.Int(); ok {
		return ir.N(int64(math.Floor(scale * float64(n))))
	}
	if scale == math.Floor(scale) && scale < math.MaxInt32 {
		return d.Mul(ir.N(int64(scale)))
	}
	return c.FreshDim()
}

// resizeKernel sums the taps of all axes for every output element.
func resizeKernel(c *ir.NodeCtx, r resizeArgs, known bool) (ir.Kernel, error) {
	f, msg := resizeFormOf(c.Node, c.Version)
	if msg == "" && !known {
		msg = "the scales are computed at run time"
	}
	if msg == "" && (f.antialias || !c.InDType(0).IsFloat()) {
		msg = "antialias and integer types have no device code yet"
	}
	var axes []resizeAxis
	if msg == "" {
		_, axes, msg = f.plan(c.InShape(0), r)
	}
	if msg != "" {
		return ir.Kernel{}, c.Errorf("%s", msg)
	}
	rank := len(c.InShape(0))
	scale, lo, hi, moved := make([]int64, rank), make([]int64, rank), make([]int64, rank), make([]int64, rank)
	for _, a := range axes {
		moved[a.axis] = 1
		scale[a.axis], lo[a.axis], hi[a.axis] = bitsOf(a.scale), bitsOf(a.lo), bitsOf(a.hi)
	}
	form := []int64{int64(slices.Index(resizeModes, f.mode)), int64(slices.Index(resizeCoords, f.coords)), int64(slices.Index(resizeNearest, f.nearest)), 0}
	if f.outside {
		form[3] = 1
	}
	return ir.Kernel{Func: "resize", Source: resizeCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.OutArg(0), ir.DimsArg(c.InShape(0)...), ir.DimsArg(c.OutShape(0)...), ir.DimsArg(moved...),
		ir.DimsArg(scale...), ir.DimsArg(lo...), ir.DimsArg(hi...), ir.DimsArg(form...), ir.FloatArg(f.cubicA), ir.FloatArg(f.fill)}}, nil
}

// bitsOf carries a float64 through an integer argument.
func bitsOf(x float64) int64 { return int64(math.Float64bits(x)) }

const resizeCUDA = `
MEMOC_FN double resize_double(int64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

MEMOC_FN double resize_cubic(double x, double a) {
  if (x < 0) x = -x;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0.0;
}

// resize_taps gives up to four input positions and weights of output position p; 0 where the extrapolation value stands.
// form: mode, coordinates, nearest mode, exclude outside.
MEMOC_FN int resize_taps(int64_t p, int64_t n, int64_t out, double scale, double lo, double hi, const Dims& form, double a,
                         int64_t* at, double* w) {
  double x = double(p), last = double(n - 1), width = scale * double(n);
  switch (form.d[1]) {
    case 0: x = x / scale; break;
    case 2: x = width == 1 ? -0.5 : (x + 0.5) / scale - 0.5; break;
    case 3: x = width == 1 ? 0.0 : x * last / (width - 1); break;
    case 4: x = double(n) / 2 * (1 - double(out) / width) + (x + 0.5) / scale - 0.5; break;
    case 5: x = (width == 1 ? (hi - lo) * last / 2 : x * (hi - lo) * last / (width - 1)) + lo * last; break;
    default: x = (x + 0.5) / scale - 0.5;
  }
  if (form.d[1] == 5 && (x < 0 || x > last)) return 0;
  double base = m::floor(x), r = x - base;
  if (r == 0) { base -= 1; r = 1; }
  int count = 2;
  int64_t from = int64_t(base);
  if (form.d[0] == 1) {
    w[0] = 1 - r;
    w[1] = r;
  } else if (form.d[0] == 2) {
    count = 4;
    from--;
    for (int i = 0; i < 4; i++) w[i] = resize_cubic(double(i - 1) - r, a);
  } else {
    bool right = r == 1 || (form.d[2] == 0 ? r > 0.5 : form.d[2] == 1 ? r >= 0.5 : form.d[2] == 3 ? true : form.d[2] == 4 ? scale < 1 : false);
    w[0] = right ? 0 : 1;
    w[1] = right ? 1 : 0;
  }
  double sum = 0;
  for (int i = 0; i < count; i++) {
    int64_t q = from + i;
    if (form.d[3] && (q < 0 || q >= n)) w[i] = 0;
    sum += w[i];
    at[i] = q < 0 ? 0 : q >= n ? n - 1 : q;
  }
  if (form.d[3] && sum != 0)
    for (int i = 0; i < count; i++) w[i] /= sum;
  return count;
}

template <class T>
void resize(Stream& s, const T* x, T* y, Dims in, Dims out, Dims moved, Dims scale, Dims lo, Dims hi, Dims form, double a,
            double fill) {
  Dims strides = strides_of(in);
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    Dims at = coords(i, out);
    int64_t pos[kMaxRank][4];
    double w[kMaxRank][4];
    int count[kMaxRank], total = 1;
    for (int d = 0; d < in.rank; d++) {
      pos[d][0] = at.d[d];
      w[d][0] = 1;
      count[d] = moved.d[d] ? resize_taps(at.d[d], in.d[d], out.d[d], resize_double(scale.d[d]), resize_double(lo.d[d]),
                                          resize_double(hi.d[d]), form, a, pos[d], w[d])
                            : 1;
      total *= count[d];
    }
    double sum = total == 0 ? fill : 0.0;
    for (int k = 0; k < total; k++) {
      double weight = 1;
      int64_t from = 0;
      for (int d = 0, rest = k; d < in.rank; d++) {
        weight *= w[d][rest % count[d]];
        from += pos[d][rest % count[d]] * strides.d[d];
        rest /= count[d];
      }
      if (weight != 0) sum += weight * to<double>(x[from]);
    }
    y[i] = to<T>(sum);
  });
}`

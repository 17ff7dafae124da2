package ops

import "memoc/ir"

// poolShape is the shape of a pooling of input 0.
func poolShape(c *ir.InferCtx) (ir.Shape, error) {
	x := c.Shape(0)
	if !x.Ranked {
		return ir.Shape{}, nil
	}
	if x.Rank() < 2 {
		return ir.Shape{}, c.Errorf("input %s has no batch and channel axes", x)
	}
	win, err := windowOf(c.Node, x.Rank()-2, nil)
	if err != nil {
		return ir.Shape{}, err
	}
	dims := append([]ir.Dim{}, x.Dims[:2]...)
	for i, d := range x.Dims[2:] {
		dims = append(dims, win.positionsDim(c, i, d))
	}
	return ir.Dims(dims...), nil
}

// poolOf is the window of a pooling node with pads spelled out, and the
// output's extents, for an input of extents x.
func poolOf(n *ir.Node, x []int64) (win window, y []int64, err error) {
	if len(x) < 2 {
		return win, nil, n.Errorf("shape", "input %v has no batch and channel axes", x)
	}
	if win, err = windowOf(n, len(x)-2, nil); err != nil {
		return win, nil, err
	}
	y = append(y, x[:2]...)
	for i, d := range x[2:] {
		y = append(y, win.positions(i, d))
	}
	return win.resolve(x[2:]), y, nil
}

// poolAxes: batch and channel follow, spatial axes are windows. Only output 0
// is claimed: indices count through the whole input.
func poolAxes(n *ir.Node) ir.AxisMap {
	if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
	axes[0], axes[1] = ir.OutAxis{{In: 0, Axis: 0}}, ir.OutAxis{{In: 0, Axis: 1}}
	win, err := windowOf(n, len(axes)-2, nil)
	for i := range axes[2:] {
		if err == nil && !win.same() {
			axes[i+2] = ir.OutAxis{win.link(0, i)}
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

// poolCost: one operation for each tap of each output.
func poolCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	taps := int64(1)
	if ks, ok := c.Node.IntList("kernel_shape"); ok {
		taps = ir.Elems(ks)
	}
	return ir.Cost{FLOPs: taps * ir.Elems(c.OutShape(0)), Read: read, Write: write, DType: c.InDType(0)}
}

// poolEach calls f for every output element with the linear index of the
// first element of its plane in the input and its position.
func poolEach(x, y []int64, f func(i, plane int, o []int64)) {
	in := int(ir.Elems(x[2:]))
	out := int(ir.Elems(y[2:]))
	o := make([]int64, len(y)-2)
	for p := range int(y[0] * y[1]) {
		clear(o)
		for pos := range out {
			f(p*out+pos, p*in, o)
			next(o, y[2:])
		}
	}
}

// poolArgs are what pooling kernels take after their operands.
func poolArgs(win window, x, y []int64) []ir.KernelArg {
	return append([]ir.KernelArg{ir.DimsArg(x...), ir.DimsArg(y...)}, win.args()...)
}

// poolInputCUDA holds the index function of all pooling kernels.
const poolInputCUDA = `
// pool_input gives the offset into the spatial part of x that output position o reads at the linear kernel position tap,
// -1 if that lies in the padding.
MEMOC_FN int64_t pool_input(const Dims& xd, const Dims& o, int64_t tap, const Dims& kernel, const Dims& stride, const Dims& pad, const Dims& dil) {
  int64_t at = 0, step = 1;
  for (int i = kernel.rank - 1; i >= 0; i--) {
    int64_t p = o.d[i + 2] * stride.d[i] - pad.d[i] + tap % kernel.d[i] * dil.d[i];
    if (p < 0 || p >= xd.d[i + 2]) return -1;
    tap /= kernel.d[i];
    at += p * step;
    step *= xd.d[i + 2];
  }
  return at;
}

template <class T>
void max_pool(Stream& s, const T* x, T* y, int64_t* index, Dims xd, Dims yd, Dims kernel, Dims stride, Dims pad, Dims dil, bool column_major) {
  int64_t taps = kernel.numel(), in = xd.numel(2, xd.rank), out = yd.numel(2, yd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    const T* plane = x + i / out * in;
    A top = lowest<A>();
    int64_t best = -1;
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = pool_input(xd, o, tap, kernel, stride, pad, dil);
      if (at >= 0 && (best < 0 || to<A>(plane[at]) > top)) {
        top = to<A>(plane[at]);
        best = at;
      }
    }
    if (y) y[i] = to<T>(top);
    if (!index) return;
    if (column_major && best >= 0) {
      int64_t at = 0, step = in;
      for (int a = kernel.rank - 1; a >= 0; a--) {
        step /= xd.d[a + 2];
        at += best % xd.d[a + 2] * step;
        best /= xd.d[a + 2];
      }
      best = at;
    }
    index[i] = i / out * in + best;
  });
}

// average_pool divides by the number of taps inside the input, or inside input and padding.
template <class T>
void average_pool(Stream& s, const T* x, T* y, Dims xd, Dims yd, Dims kernel, Dims stride, Dims pad, Dims dil, Dims far, bool count_pad) {
  int64_t taps = kernel.numel(), in = xd.numel(2, xd.rank), out = yd.numel(2, yd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    const T* plane = x + i / out * in;
    A sum = 0;
    int64_t count = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = pool_input(xd, o, tap, kernel, stride, pad, dil);
      if (at >= 0) {
        sum += to<A>(plane[at]);
        count++;
      }
    }
    if (count_pad) {
      count = 1;
      for (int a = 0; a < kernel.rank; a++) {
        int64_t first = o.d[a + 2] * stride.d[a] - pad.d[a], end = xd.d[a + 2] + far.d[a], n = 0;
        for (int64_t k = 0; k < kernel.d[a]; k++) n += first + k * dil.d[a] < end;
        count *= n;
      }
    }
    y[i] = to<T>(sum / A(count));
  });
}

template <class T>
void lp_pool(Stream& s, const T* x, T* y, Dims xd, Dims yd, Dims kernel, Dims stride, Dims pad, Dims dil, double p) {
  int64_t taps = kernel.numel(), in = xd.numel(2, xd.rank), out = yd.numel(2, yd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    const T* plane = x + i / out * in;
    A sum = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = pool_input(xd, o, tap, kernel, stride, pad, dil);
      if (at >= 0) sum += m::pow(m::abs(to<A>(plane[at])), A(p));
    }
    y[i] = to<T>(m::pow(sum, A(1) / A(p)));
  });
}`

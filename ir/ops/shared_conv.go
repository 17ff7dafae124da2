package ops

import "memoc/ir"

// convGeometry is a convolution: window, groups, and the extents of
// x [N, C, in…], w [M, C/group, kernel…] and y [N, M, out…].
type convGeometry struct {
	window
	group   int64
	x, w, y []int64
}

// forward is the value of y, without bias.
func (g convGeometry) forward(x, w []float64) []float64 {
	y := make([]float64, ir.Elems(g.y))
	g.visit(func(yi, xi, wi int) { y[yi] += x[xi] * w[wi] })
	return y
}

// dataGrad is the gradient of x, which is also the value of the transposed
// convolution of dy.
func (g convGeometry) dataGrad(dy, w []float64) []float64 {
	x := make([]float64, ir.Elems(g.x))
	g.visit(func(yi, xi, wi int) { x[xi] += dy[yi] * w[wi] })
	return x
}

// weightGrad is the gradient of w.
func (g convGeometry) weightGrad(x, dy []float64) []float64 {
	w := make([]float64, ir.Elems(g.w))
	g.visit(func(yi, xi, wi int) { w[wi] += dy[yi] * x[xi] })
	return w
}

// visit calls f for every product of the convolution with the linear indices
// of y, x and w.
func (g convGeometry) visit(f func(yi, xi, wi int)) {
	if ir.Elems(g.y) == 0 || ir.Elems(g.x) == 0 || ir.Elems(g.w) == 0 {
		return
	}
	in, out := g.x[2:], g.y[2:]
	inSize, outSize, taps := int(ir.Elems(in)), int(ir.Elems(out)), int(ir.Elems(g.kernel))
	perGroupC, perGroupM := int(g.w[1]), int(g.y[1]/g.group)
	o := make([]int64, len(out))
	for pos := range outSize {
		g.each(o, in, func(tap, at int) {
			for n := range int(g.y[0]) {
				for m := range int(g.y[1]) {
					yi := (n*int(g.y[1])+m)*outSize + pos
					first := m / perGroupM * perGroupC
					for c := range perGroupC {
						f(yi, (n*int(g.x[1])+first+c)*inSize+at, (m*perGroupC+c)*taps+tap)
					}
				}
			}
		})
		next(o, out)
	}
}

// addBias adds bias[m] to channel m of y [N, M, …].
func addBias(y, bias []float64, dims []int64) {
	inner := int(ir.Elems(dims[2:]))
	for i := range y {
		y[i] += bias[i/inner%len(bias)]
	}
}

// biasGrad sums dy [N, M, …] over all but the channel.
func biasGrad(dy []float64, dims []int64) []float64 {
	out := make([]float64, dims[1])
	inner := int(ir.Elems(dims[2:]))
	for i, v := range dy {
		out[i/inner%len(out)] += v
	}
	return out
}

// args are what the convolution kernels take after their operands.
func (g convGeometry) args() []ir.KernelArg {
	return append([]ir.KernelArg{ir.DimsArg(g.x...), ir.DimsArg(g.w...), ir.DimsArg(g.y...), ir.IntArg(g.group)}, g.window.args()[1:]...)
}

// convCUDA holds all kernels of convolutions and their gradients: direct
// sums, one thread for each element of the result.
const convCUDA = `
// conv_input gives the offset into the spatial part of x that output position o reads at kernel position k, -1 if that
// lies in the padding.
MEMOC_FN int64_t conv_input(const Dims& xd, const Dims& o, const Dims& k, const Dims& stride, const Dims& pad, const Dims& dil) {
  int64_t at = 0;
  for (int i = 0; i < stride.rank; i++) {
    int64_t p = o.d[i + 2] * stride.d[i] - pad.d[i] + k.d[i + 2] * dil.d[i];
    if (p < 0 || p >= xd.d[i + 2]) return -1;
    at = at * xd.d[i + 2] + p;
  }
  return at;
}

// conv_output is its inverse: the offset into the spatial part of y of the position that reads x at position p by
// kernel position k, -1 if there is none.
MEMOC_FN int64_t conv_output(const Dims& yd, const Dims& p, const Dims& k, const Dims& stride, const Dims& pad, const Dims& dil) {
  int64_t at = 0;
  for (int i = 0; i < stride.rank; i++) {
    int64_t o = p.d[i + 2] + pad.d[i] - k.d[i + 2] * dil.d[i];
    if (o < 0 || o % stride.d[i] != 0 || o / stride.d[i] >= yd.d[i + 2]) return -1;
    at = at * yd.d[i + 2] + o / stride.d[i];
  }
  return at;
}

template <class T>
void conv(Stream& s, const T* x, const T* w, const T* bias, T* y, Dims xd, Dims wd, Dims yd, int64_t group, Dims stride, Dims pad, Dims dil) {
  int64_t taps = wd.numel(2, wd.rank), in = xd.numel(2, xd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    int64_t n = o.d[0], m = o.d[1], first = m / (yd.d[1] / group) * wd.d[1];
    A sum = bias ? to<A>(bias[m]) : A(0);
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = conv_input(xd, o, coords(tap, wd), stride, pad, dil);
      if (at < 0) continue;
      for (int64_t c = 0; c < wd.d[1]; c++)
        sum += to<A>(x[(n * xd.d[1] + first + c) * in + at]) * to<A>(w[(m * wd.d[1] + c) * taps + tap]);
    }
    y[i] = to<T>(sum);
  });
}

// conv_data sums into x what the outputs that read it hold: the gradient of x, or a transposed convolution.
template <class T>
void conv_data(Stream& s, const T* dy, const T* w, const T* bias, T* x, Dims xd, Dims wd, Dims yd, int64_t group, Dims stride, Dims pad, Dims dil) {
  int64_t taps = wd.numel(2, wd.rank), out = yd.numel(2, yd.rank), per = yd.d[1] / group;
  parallel_for(s, xd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims p = coords(i, xd);
    int64_t n = p.d[0], c = p.d[1], g = c / wd.d[1];
    A sum = bias ? to<A>(bias[c]) : A(0);
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = conv_output(yd, p, coords(tap, wd), stride, pad, dil);
      if (at < 0) continue;
      for (int64_t m = g * per; m < (g + 1) * per; m++)
        sum += to<A>(dy[(n * yd.d[1] + m) * out + at]) * to<A>(w[(m * wd.d[1] + c % wd.d[1]) * taps + tap]);
    }
    x[i] = to<T>(sum);
  });
}

template <class T>
void conv_weight(Stream& s, const T* x, const T* dy, T* w, Dims xd, Dims wd, Dims yd, int64_t group, Dims stride, Dims pad, Dims dil) {
  int64_t in = xd.numel(2, xd.rank), out = yd.numel(2, yd.rank);
  block_rows(s, wd.numel(), [=] MEMOC_DEVICE(RowCtx& r, int64_t i) {
    using A = Acc<T>;
    Dims k = coords(i, wd);
    int64_t m = k.d[0], c = m / (yd.d[1] / group) * wd.d[1] + k.d[1];
    A sum = 0;
    for (int64_t j = r.tid; j < yd.d[0] * out; j += r.size) {
      int64_t n = j / out, pos = j % out;
      int64_t at = conv_input(xd, coords(pos, yd), k, stride, pad, dil);
      if (at >= 0) sum += to<A>(dy[(n * yd.d[1] + m) * out + pos]) * to<A>(x[(n * xd.d[1] + c) * in + at]);
    }
    sum = r.sum(sum);
    if (r.tid == 0) w[i] = to<T>(sum);
  });
}

template <class T>
void conv_bias(Stream& s, const T* dy, T* b, Dims yd) {
  int64_t out = yd.numel(2, yd.rank);
  block_rows(s, yd.d[1], [=] MEMOC_DEVICE(RowCtx& r, int64_t m) {
    using A = Acc<T>;
    A sum = 0;
    for (int64_t j = r.tid; j < yd.d[0] * out; j += r.size) sum += to<A>(dy[(j / out * yd.d[1] + m) * out + j % out]);
    sum = r.sum(sum);
    if (r.tid == 0) b[m] = to<T>(sum);
  });
}

template <class T>
void conv_grad(Stream& s, const T* dy, const T* x, const T* w, T* dx, T* dw, T* db, Dims xd, Dims wd, Dims yd, int64_t group, Dims stride, Dims pad, Dims dil) {
  if (dx) conv_data(s, dy, w, static_cast<const T*>(nullptr), dx, xd, wd, yd, group, stride, pad, dil);
  if (dw) conv_weight(s, x, dy, dw, xd, wd, yd, group, stride, pad, dil);
  if (db) conv_bias(s, dy, db, yd);
}

// conv_product is the integer product of output element i: operands less their zero points (one, or one per channel m of w).
template <class X, class W>
MEMOC_FN int64_t conv_product(int64_t i, const X* x, const W* w, const X* xz, const W* wz, int64_t per, const Dims& xd, const Dims& wd,
                              const Dims& yd, int64_t group, const Dims& stride, const Dims& pad, const Dims& dil) {
  int64_t taps = wd.numel(2, wd.rank), in = xd.numel(2, xd.rank), sum = 0;
  Dims o = coords(i, yd);
  int64_t n = o.d[0], m = o.d[1], first = m / (yd.d[1] / group) * wd.d[1];
  int64_t x0 = xz ? int64_t(*xz) : 0, w0 = wz ? int64_t(wz[per > 1 ? m : 0]) : 0;
  for (int64_t tap = 0; tap < taps; tap++) {
    int64_t at = conv_input(xd, o, coords(tap, wd), stride, pad, dil);
    if (at < 0) continue;
    for (int64_t c = 0; c < wd.d[1]; c++)
      sum += (int64_t(x[(n * xd.d[1] + first + c) * in + at]) - x0) * (int64_t(w[(m * wd.d[1] + c) * taps + tap]) - w0);
  }
  return sum;
}

template <class X, class W>
void conv_integer(Stream& s, const X* x, const W* w, const X* xz, const W* wz, int32_t* y, int64_t per, Dims xd, Dims wd, Dims yd,
                  int64_t group, Dims stride, Dims pad, Dims dil) {
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    y[i] = int32_t(conv_product(i, x, w, xz, wz, per, xd, wd, yd, group, stride, pad, dil));
  });
}

template <class X, class W, class Y>
void qlinear_conv(Stream& s, const X* x, const float* xs, const X* xz, const W* w, const float* ws, const W* wz, const float* ys,
                  const Y* yz, const int32_t* bias, Y* y, int64_t scales, int64_t per, Dims xd, Dims wd, Dims yd, int64_t group,
                  Dims stride, Dims pad, Dims dil) {
  int64_t out = yd.numel(2, yd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    int64_t m = i / out % yd.d[1];
    int64_t sum = conv_product(i, x, w, xz, wz, per, xd, wd, yd, group, stride, pad, dil) + (bias ? bias[m] : 0);
    double q = m::round_even(double(sum) * (double(*xs) * double(ws[scales > 1 ? m : 0]) / double(*ys))) + double(*yz);
    y[i] = to<Y>(m::max(m::min(q, double(Limits<Y>::hi())), double(Limits<Y>::lo())));
  });
}

// col2im adds up what windows cut out: columns [n, c, taps, positions], grid [n, c, positions by axis].
template <class T>
void col2im(Stream& s, const T* x, T* y, Dims yd, Dims kd, Dims grid, Dims stride, Dims pad, Dims dil) {
  int64_t taps = kd.numel(2, kd.rank), positions = grid.numel(2, grid.rank), plane = yd.numel(2, yd.rank);
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims p = coords(i, yd);
    A sum = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t at = conv_output(grid, p, coords(tap, kd), stride, pad, dil);
      if (at >= 0) sum += to<A>(x[(i / plane * taps + tap) * positions + at]);
    }
    y[i] = to<T>(sum);
  });
}`

package ops

import (
	"math"

	"memoc/ir"
)

// activationIDs number the activations for device code.
var activationIDs = map[string]int64{"Tanh": 0, "Sigmoid": 1, "Relu": 2, "Softsign": 3, "Softplus": 4, "Affine": 5, "ScaledTanh": 6,
	"HardSigmoid": 7, "LeakyRelu": 8, "ThresholdedRelu": 9, "Elu": 10}

// activationDefaults are the parameters of the activations that have any.
var activationDefaults = map[string][2]float64{"Affine": {1, 0}, "ScaledTanh": {1, 1}, "HardSigmoid": {0.2, 0.5}, "LeakyRelu": {0.01, 0},
	"ThresholdedRelu": {1, 0}, "Elu": {1, 0}}

// recurrentKernel calls the recurrence of so many gates; option is what else
// tells its form (linear_before_reset, input_forget).
func recurrentKernel(gates int64, option string) ir.KernelRule {
	return ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		names, params, err := activationList(c.Node, gates)
		if err != nil {
			return ir.Kernel{}, err
		}
		x, r := c.InShape(0), c.InShape(2)
		time, batch := x[0], x[1]
		layout := c.Node.Int("layout", 0)
		if layout != 0 {
			time, batch = batch, time
		}
		reverse := int64(0)
		if c.Node.Str("direction", "forward") == "reverse" {
			reverse = 1
		}
		clip := math.MaxFloat32
		if a := c.Node.Attr("clip"); a != nil {
			clip = float64(a.F)
		}
		args := []ir.KernelArg{}
		for i := range 8 {
			args = append(args, ir.InArg(i))
		}
		flag := int64(0)
		if option != "" && c.Node.Int(option, 0) != 0 {
			flag = 1
		}
		args = append(args, ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.WorkspaceArg(), ir.IntArg(gates),
			ir.DimsArg(recurrentDirections(c.Node), time, batch, x[2], r[2], layout, reverse, flag), ir.DimsArg(names...), ir.FloatArg(clip))
		for _, p := range params {
			args = append(args, ir.FloatArg(p[0]), ir.FloatArg(p[1]))
		}
		return ir.Kernel{Func: "recurrent", Source: recurrentCUDA, Types: []ir.DType{c.InDType(0)}, Args: args}, nil
	})
}

// activationList is numbers and parameters of six activations: three for each
// direction, the last ones unused where there are fewer.
func activationList(n *ir.Node, gates int64) (ids []int64, params [6][2]float64, err error) {
	names, per, err := activationNames(n, gates)
	if err != nil {
		return nil, params, err
	}
	var alphas, betas []float32
	if a := n.Attr("activation_alpha"); a != nil {
		alphas = a.Floats
	}
	if a := n.Attr("activation_beta"); a != nil {
		betas = a.Floats
	}
	ids = make([]int64, 6)
	for i, name := range names {
		at := i/per*3 + i%per
		ids[at], params[at] = activationIDs[name], activationDefaults[name]
		_, usesAlpha, usesBeta := activationOf(name)
		if usesAlpha && len(alphas) > 0 {
			params[at][0], alphas = float64(alphas[0]), alphas[1:]
		}
		if usesBeta && len(betas) > 0 {
			params[at][1], betas = float64(betas[0]), betas[1:]
		}
	}
	return ids, params, nil
}

const recurrentCUDA = `
template <class A> MEMOC_FN A recurrent_activation(int64_t id, A x, A a, A b) {
  switch (id) {
    case 0: return m::tanh(x);
    case 1: return m::sigmoid(x);
    case 2: return m::max(x, A(0));
    case 3: return x / (A(1) + m::abs(x));
    case 4: return m::softplus(x);
    case 5: return a * x + b;
    case 6: return a * m::tanh(b * x);
    case 7: return m::max(A(0), m::min(A(1), a * x + b));
    case 8: return x < A(0) ? a * x : x;
    case 9: return x > a ? x : A(0);
    default: return x < A(0) ? a * m::expm1(x) : x;
  }
}

// RecurrentRow is one sequence of one direction; d is dirs, time, batch, in, hidden, layout, reverse, flag.
template <class T> struct RecurrentRow {
  const T *x, *w, *r, *b;
  Dims d;
  int64_t gates, dir;
  // input is W x + Wb of unit j of gate g, back is R h + Rb.
  MEMOC_FN Acc<T> input(const T* at, int64_t g, int64_t j) const {
    int64_t rows = gates * d.d[4], i = g * d.d[4] + j;
    Acc<T> sum = b ? to<Acc<T>>(b[dir * 2 * rows + i]) : Acc<T>(0);
    for (int64_t k = 0; k < d.d[3]; k++) sum += to<Acc<T>>(w[(dir * rows + i) * d.d[3] + k]) * to<Acc<T>>(at[k]);
    return sum;
  }
  MEMOC_FN Acc<T> back(const Acc<T>* h, int64_t g, int64_t j) const {
    int64_t rows = gates * d.d[4], i = g * d.d[4] + j;
    Acc<T> sum = b ? to<Acc<T>>(b[dir * 2 * rows + rows + i]) : Acc<T>(0);
    for (int64_t k = 0; k < d.d[4]; k++) sum += to<Acc<T>>(r[(dir * rows + i) * d.d[4] + k]) * h[k];
    return sum;
  }
};

// recurrent runs RNN (1 gate), GRU (3: z, r, h) or LSTM (4: i, o, f, c): one block for each sequence and direction, its
// threads share the hidden units. The workspace holds, for each, h twice, the cell, and r*h and z of a GRU.
template <class T>
void recurrent(Stream& s, const T* x, const T* w, const T* r, const T* b, const int32_t* lens, const T* h0, const T* c0, const T* p,
               T* y, T* yh, T* yc, void* workspace, int64_t gates, Dims d, Dims act, double clip, double a0, double b0, double a1,
               double b1, double a2, double b2, double a3, double b3, double a4, double b4, double a5, double b5) {
  int64_t dirs = d.d[0], time = d.d[1], batch = d.d[2], hidden = d.d[4];
  Acc<T>* all = static_cast<Acc<T>*>(workspace);
  block_rows(s, dirs * batch, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    using A = Acc<T>;
    int64_t dir = row / batch, n = row % batch, first = dir * 3;
    const A al[6] = {A(a0), A(a1), A(a2), A(a3), A(a4), A(a5)}, be[6] = {A(b0), A(b1), A(b2), A(b3), A(b4), A(b5)};
    RecurrentRow<T> q{x, w, r, b, d, gates, dir};
    A *h = all + row * 5 * hidden, *next = h + hidden, *cell = next + hidden, *rh = cell + hidden, *z = rh + hidden;
    int64_t state = (d.d[5] ? n * dirs + dir : dir * batch + n) * hidden;
    int64_t length = lens ? m::max(m::min(int64_t(lens[n]), time), int64_t(0)) : time;
    A lim = A(clip);
    for (int64_t j = c.tid; j < hidden; j += c.size) {
      h[j] = h0 ? to<A>(h0[state + j]) : A(0);
      cell[j] = c0 ? to<A>(c0[state + j]) : A(0);
      for (int64_t t = length; y && t < time; t++) y[(d.d[5] ? (n * time + t) * dirs + dir : (t * dirs + dir) * batch + n) * hidden + j] = to<T>(A(0));
    }
    c.sync();
    for (int64_t k = 0; k < length; k++) {
      int64_t t = (d.d[6] || dir == 1) ? length - 1 - k : k;
      const T* at = x + (d.d[5] ? n * time + t : t * batch + n) * d.d[3];
      int64_t out = (d.d[5] ? (n * time + t) * dirs + dir : (t * dirs + dir) * batch + n) * hidden;
      if (gates == 3) {
        for (int64_t j = c.tid; j < hidden; j += c.size) {
          A gz = q.input(at, 0, j) + q.back(h, 0, j), gr = q.input(at, 1, j) + q.back(h, 1, j);
          z[j] = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, gz)), al[first], be[first]);
          A reset = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, gr)), al[first], be[first]);
          rh[j] = d.d[7] ? reset * q.back(h, 2, j) : reset * h[j];
        }
        c.sync();
      }
      for (int64_t j = c.tid; j < hidden; j += c.size) {
        if (gates == 1) {
          A g = q.input(at, 0, j) + q.back(h, 0, j);
          next[j] = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, g)), al[first], be[first]);
        } else if (gates == 3) {
          A g = q.input(at, 2, j) + (d.d[7] ? rh[j] : q.back(rh, 2, j));
          g = recurrent_activation(act.d[first + 1], m::max(-lim, m::min(lim, g)), al[first + 1], be[first + 1]);
          next[j] = (A(1) - z[j]) * g + z[j] * h[j];
        } else {
          const T* peep = p ? p + dir * 3 * hidden : nullptr;
          A old = cell[j], gi = q.input(at, 0, j) + q.back(h, 0, j), gf = q.input(at, 2, j) + q.back(h, 2, j);
          A gc = q.input(at, 3, j) + q.back(h, 3, j), go = q.input(at, 1, j) + q.back(h, 1, j);
          if (peep) gi += to<A>(peep[j]) * old, gf += to<A>(peep[2 * hidden + j]) * old;
          A in = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, gi)), al[first], be[first]);
          A forget = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, gf)), al[first], be[first]);
          if (d.d[7]) forget = A(1) - in;
          A now = forget * old + in * recurrent_activation(act.d[first + 1], m::max(-lim, m::min(lim, gc)), al[first + 1], be[first + 1]);
          if (peep) go += to<A>(peep[hidden + j]) * now;
          cell[j] = now;
          next[j] = recurrent_activation(act.d[first], m::max(-lim, m::min(lim, go)), al[first], be[first]) *
                    recurrent_activation(act.d[first + 2], now, al[first + 2], be[first + 2]);
        }
        if (y) y[out + j] = to<T>(next[j]);
      }
      c.sync();
      A* swap = h;
      h = next;
      next = swap;
    }
    for (int64_t j = c.tid; j < hidden; j += c.size) {
      if (yh) yh[state + j] = to<T>(h[j]);
      if (yc) yc[state + j] = to<T>(cell[j]);
    }
  });
}`

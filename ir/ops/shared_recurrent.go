package ops

import (
	"math"

	"memoc/ir"
)

// recurrent is what RNN, GRU and LSTM share: shapes, directions, sequence
// lengths and activations. In layout 0 the axes are [time, batch, …], in
// layout 1 [batch, time, …].
type recurrent struct {
	gates                              int64 // blocks of rows in W and R
	dirs, time, batch, in, hidden      int64
	batchFirst                         bool
	acts                               [][]activation // by direction
	clip                               float64
	x, w, r, b, h0, c0, p              []float64 // nil where absent
	lens                               []int64
	y, h, c                            []float64 // results: every step, last hidden and cell state
	hiddenState, cellState, gateInputs []float64 // of one sequence
}

type activation func(float64) float64

// recurrentInfer gives Y, Y_h and (for LSTM) Y_c their shapes.
func recurrentInfer(gates int64) func(*ir.InferCtx) error {
	return func(c *ir.InferCtx) error {
		x, w, r := c.Shape(0), c.Shape(1), c.Shape(2)
		for i, s := range []ir.Shape{x, w, r} {
			if s.Ranked && s.Rank() != 3 {
				return c.Errorf("input %d has rank %d, not 3", i, s.Rank())
			}
		}
		if _, err := recurrentActivations(c.Node, gates); err != nil {
			return err
		}
		if !x.Ranked {
			for o := range c.Node.Out {
				c.SetTensor(o, c.DType(0), ir.Shape{})
			}
			return nil
		}
		var hidden ir.Dim
		switch n := c.Node.Int("hidden_size", 0); {
		case n > 0:
			hidden = ir.N(n)
		case r.Ranked:
			hidden = r.Dims[2]
		default:
			hidden = c.FreshDim()
		}
		if w.Ranked && w.Dims[1].Differ(hidden.Mul(ir.N(gates))) || r.Ranked && r.Dims[1].Differ(hidden.Mul(ir.N(gates))) {
			return c.Errorf("W %s and R %s do not hold %d gates of %s units", w, r, gates, hidden)
		}
		time, batch, dirs := x.Dims[0], x.Dims[1], ir.N(recurrentDirections(c.Node))
		y, state := ir.Dims(time, dirs, batch, hidden), ir.Dims(dirs, batch, hidden)
		if c.Node.Int("layout", 0) != 0 {
			time, batch = batch, time
			y, state = ir.Dims(batch, time, dirs, hidden), ir.Dims(batch, dirs, hidden)
		}
		c.SetTensor(0, c.DType(0), y)
		c.SetTensor(1, c.DType(0), state)
		c.SetTensor(2, c.DType(0), state)
		return nil
	}
}

func recurrentDirections(n *ir.Node) int64 {
	if n.Str("direction", "forward") == "bidirectional" {
		return 2
	}
	return 1
}

// recurrentActivations reads the activation functions of every direction:
// as many as the operator uses for each.
func recurrentActivations(n *ir.Node, gates int64) ([][]activation, error) {
	names, per, err := activationNames(n, gates)
	if err != nil {
		return nil, err
	}
	var alphas, betas []float32
	if a := n.Attr("activation_alpha"); a != nil {
		alphas = a.Floats
	}
	if a := n.Attr("activation_beta"); a != nil {
		betas = a.Floats
	}
	out := make([][]activation, len(names)/per)
	for i := range names {
		f, usesAlpha, usesBeta := activationOf(names[i])
		alpha, beta := math.NaN(), math.NaN()
		if usesAlpha && len(alphas) > 0 {
			alpha, alphas = float64(alphas[0]), alphas[1:]
		}
		if usesBeta && len(betas) > 0 {
			beta, betas = float64(betas[0]), betas[1:]
		}
		out[i/per] = append(out[i/per], f(alpha, beta))
	}
	return out, nil
}

// activationNames lists the activations of all directions, per for each; those
// that are not given are the default's.
func activationNames(n *ir.Node, gates int64) (names []string, per int, err error) {
	defaults := map[int64][]string{1: {"Tanh"}, 3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates]
	per = len(defaults)
	if a := n.Attr("activations"); a != nil {
		names = append(names, a.Strings...)
	}
	all := per * int(recurrentDirections(n))
	for len(names) < all {
		names = append(names, defaults[len(names)%per])
	}
	names = names[:all]
	for _, name := range names {
		if f, _, _ := activationOf(name); f == nil {
			return nil, 0, n.Errorf("shape", "unknown activation %q", name)
		}
	}
	return names, per, nil
}

// activationOf makes a function from its two parameters, NaN for the default,
// and says which of them it has.
func activationOf(name string) (f func(alpha, beta float64) activation, alpha, beta bool) {
	or := func(x, def float64) float64 {
		if x != x {
			return def
		}
		return x
	}
	plain := func(g activation) func(a, b float64) activation { return func(a, b float64) activation { return g } }
	switch name {
	case "Tanh":
		return plain(math.Tanh), false, false
	case "Sigmoid":
		return plain(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }), false, false
	case "Relu":
		return plain(func(x float64) float64 { return max(x, 0) }), false, false
	case "Softsign":
		return plain(func(x float64) float64 { return x / (1 + math.Abs(x)) }), false, false
	case "Softplus":
		return plain(func(x float64) float64 { return math.Log1p(math.Exp(x)) }), false, false
	case "Affine":
		return func(a, b float64) activation { return func(x float64) float64 { return or(a, 1)*x + or(b, 0) } }, true, true
	case "ScaledTanh":
		return func(a, b float64) activation {
			return func(x float64) float64 { return or(a, 1) * math.Tanh(or(b, 1)*x) }
		}, true, true
	case "HardSigmoid":
		return func(a, b float64) activation {
			return func(x float64) float64 { return max(0, min(1, or(a, 0.2)*x+or(b, 0.5))) }
		}, true, true
	case "LeakyRelu":
		return func(a, b float64) activation {
			return func(x float64) float64 {
				if x < 0 {
					return or(a, 0.01) * x
				}
				return x
			}
		}, true, false
	case "ThresholdedRelu":
		return func(a, b float64) activation {
			return func(x float64) float64 {
				if x > or(a, 1) {
					return x
				}
				return 0
			}
		}, true, false
	case "Elu":
		return func(a, b float64) activation {
			return func(x float64) float64 {
				if x < 0 {
					return or(a, 1) * math.Expm1(x)
				}
				return x
			}
		}, true, false
	}
	return nil, false, false
}

// newRecurrent reads and checks the operands of a node.
func newRecurrent(c *ir.EvalCtx, gates int64) (*recurrent, error) {
	x, w, r := c.In(0), c.In(1), c.In(2)
	if len(x.Dims) != 3 || len(w.Dims) != 3 || len(r.Dims) != 3 {
		return nil, c.Errorf("X, W and R must have rank 3")
	}
	e := &recurrent{gates: gates, dirs: recurrentDirections(c.Node), time: x.Dims[0], batch: x.Dims[1], in: x.Dims[2], hidden: r.Dims[2],
		batchFirst: c.Node.Int("layout", 0) != 0, clip: math.Inf(1)}
	if e.batchFirst {
		e.time, e.batch = e.batch, e.time
	}
	if a := c.Node.Attr("clip"); a != nil {
		e.clip = float64(a.F)
	}
	rows := gates * e.hidden
	if !equalInts(w.Dims, []int64{e.dirs, rows, e.in}) || !equalInts(r.Dims, []int64{e.dirs, rows, e.hidden}) {
		return nil, c.Errorf("W %v and R %v do not fit %d directions of %d gates", w.Dims, r.Dims, e.dirs, gates)
	}
	var err error
	if e.acts, err = recurrentActivations(c.Node, gates); err != nil {
		return nil, err
	}
	e.x, e.w, e.r = x.Floats(), w.Floats(), r.Floats()
	state := e.dirs * e.batch * e.hidden
	sizes := map[int]int64{3: e.dirs * 2 * rows, 4: e.batch, 5: state, 6: state, 7: e.dirs * 3 * e.hidden}
	for i := 3; i < c.NumIn(); i++ {
		if c.Has(i) && c.In(i).Len() != sizes[i] {
			return nil, c.Errorf("input %d has %d elements, not %d", i, c.In(i).Len(), sizes[i])
		}
	}
	floatsOf := func(i int) []float64 {
		if !c.Has(i) {
			return nil
		}
		return c.In(i).Floats()
	}
	e.b, e.h0, e.c0, e.p = floatsOf(3), floatsOf(5), floatsOf(6), floatsOf(7)
	if c.Has(4) {
		e.lens = c.In(4).Ints()
	}
	e.y = make([]float64, e.time*state)
	e.h, e.c = make([]float64, state), make([]float64, state)
	return e, nil
}

// run steps through every sequence of every direction. step computes hidden
// (and cell) state from the gates' linear parts: e.gateInputs holds W x + Wb
// for each gate, and the step adds R h + Rb itself.
func (e *recurrent) run(reverse bool, step func(d int64, acts []activation)) {
	for d := range e.dirs {
		for n := range e.batch {
			length := e.time
			if e.lens != nil {
				length = max(min(e.lens[n], e.time), 0)
			}
			e.hiddenState, e.cellState = make([]float64, e.hidden), make([]float64, e.hidden)
			state := e.stateAt(d, n)
			if e.h0 != nil {
				copy(e.hiddenState, e.h0[state:])
			}
			if e.c0 != nil {
				copy(e.cellState, e.c0[state:])
			}
			for t := range length {
				at := t
				if reverse || d == 1 {
					at = length - 1 - t
				}
				e.gateInputs = e.linear(d, n, at)
				step(d, e.acts[d])
				copy(e.y[e.outputAt(at, d, n):], e.hiddenState)
			}
			copy(e.h[state:], e.hiddenState)
			copy(e.c[state:], e.cellState)
		}
	}
}

// stateAt and outputAt are the first elements of a hidden state and of one
// step's output.
func (e *recurrent) stateAt(d, n int64) int64 {
	if e.batchFirst {
		return (n*e.dirs + d) * e.hidden
	}
	return (d*e.batch + n) * e.hidden
}

func (e *recurrent) outputAt(t, d, n int64) int64 {
	if e.batchFirst {
		return ((n*e.time+t)*e.dirs + d) * e.hidden
	}
	return ((t*e.dirs+d)*e.batch + n) * e.hidden
}

// linear is W x + Wb of one position for all gates.
func (e *recurrent) linear(d, n, t int64) []float64 {
	at := (t*e.batch + n) * e.in
	if e.batchFirst {
		at = (n*e.time + t) * e.in
	}
	rows := e.gates * e.hidden
	out := make([]float64, rows)
	for i := range rows {
		row := e.w[(d*rows+i)*e.in:]
		for k := range e.in {
			out[i] += row[k] * e.x[at+k]
		}
		if e.b != nil {
			out[i] += e.b[d*2*rows+i]
		}
	}
	return out
}

// back is row j of gate g of R times h, plus its bias.
func (e *recurrent) back(d, g, j int64, h []float64) float64 {
	rows := e.gates * e.hidden
	i := g*e.hidden + j
	row := e.r[(d*rows+i)*e.hidden:]
	sum := 0.0
	for k := range e.hidden {
		sum += row[k] * h[k]
	}
	return sum + e.backBias(d, g, j)
}

func (e *recurrent) backBias(d, g, j int64) float64 {
	if e.b == nil {
		return 0
	}
	rows := e.gates * e.hidden
	return e.b[d*2*rows+rows+g*e.hidden+j]
}

func (e *recurrent) clipped(x float64) float64 { return max(-e.clip, min(e.clip, x)) }

// set stores the results.
func (e *recurrent) set(c *ir.EvalCtx) {
	d := c.In(0).DType
	y, state := []int64{e.time, e.dirs, e.batch, e.hidden}, []int64{e.dirs, e.batch, e.hidden}
	if e.batchFirst {
		y, state = []int64{e.batch, e.time, e.dirs, e.hidden}, []int64{e.batch, e.dirs, e.hidden}
	}
	c.Set(0, ir.FromFloats(d, e.y, y...))
	c.Set(1, ir.FromFloats(d, e.h, state...))
	c.Set(2, ir.FromFloats(d, e.c, state...))
}

// recurrentCost: two operations for each weight at each step.
func recurrentCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	x := c.InShape(0)
	steps := int64(0)
	if len(x) == 3 {
		steps = x[0] * x[1]
	}
	flops := 2 * steps * (ir.Elems(c.InShape(1)) + ir.Elems(c.InShape(2)))
	// Hidden states of every sequence, five times, in the widest type.
	work := int64(0)
	if r := c.InShape(2); len(r) == 3 && len(x) == 3 {
		batch := x[1]
		if c.Node.Int("layout", 0) != 0 {
			batch = x[0]
		}
		work = 8 * 5 * r[0] * batch * r[2]
	}
	return ir.Cost{FLOPs: flops, Read: read, Write: write, Workspace: work, Unit: ir.Matrix, DType: c.InDType(0)}
}

const noRecurrentGrad = "not derived yet: back-propagation through time"

// recurrentSamples drive one of the operators; gates as in recurrent.
func recurrentSamples(gates int64, attrs ...ir.Attr) []ir.Sample {
	const hidden, in, batch, time = 2, 3, 2, 3
	x, xb := ramp(time, batch, in), ramp(batch, time, in)
	w, r, b := ramp(1, gates*hidden, in), ramp(1, gates*hidden, hidden), ramp(1, 2*gates*hidden)
	both := func(t *ir.Tensor) *ir.Tensor { return ramp(append([]int64{2}, t.Dims[1:]...)...) }
	lens := ir.FromInts(ir.Int32, []int64{3, 2}, batch)
	size := ir.IntAttr("hidden_size", hidden)
	with := func(as ...ir.Attr) []ir.Attr { return append(append([]ir.Attr{size}, attrs...), as...) }
	return []ir.Sample{
		{Name: "forward", NumOut: 2, In: []*ir.Tensor{x, w, r}, Attrs: with()},
		{Name: "reverse, lengths", NumOut: 2, In: []*ir.Tensor{x, w, r, b, lens, ramp(1, batch, hidden)}, Attrs: with(ir.StringAttr("direction", "reverse"))},
		{Name: "parameters", NumOut: 2, In: []*ir.Tensor{x, w, r, b}, Attrs: with(ir.FloatAttr("clip", 0.75), ir.FloatsAttr("activation_alpha", []float32{0.3, 0.1}),
			ir.FloatsAttr("activation_beta", []float32{0.4}), ir.Attr{Name: "activations", Kind: ir.AttrStrings, Strings: []string{"HardSigmoid", "LeakyRelu"}})},
		{Name: "both ways", NumOut: 2, In: []*ir.Tensor{x, both(w), both(r), both(b)}, Attrs: with(ir.StringAttr("direction", "bidirectional"))},
		{Name: "batch first", NumOut: 2, In: []*ir.Tensor{xb, w, r, b}, Attrs: with(ir.IntAttr("layout", 1))},
	}
}

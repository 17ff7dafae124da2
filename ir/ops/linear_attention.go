package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "LinearAttention",
	Doc:   "Recurrent attention: each position decays and updates a matrix of state by key and value, and the query reads it.",
	Since: []int{27},
	In:    ir.Ports("query:T, key:T, value:T, past_state:S?, decay:T?, beta:T?"), Out: ir.Ports("output:T, present_state:S"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "S": ir.Floats},
	Infer: linearAttentionInfer,
	// Every position reads the state that all positions before it made.
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
		batch := ir.OutAxis{}
		for i, v := range n.In {
			if v != nil {
				batch = append(batch, ir.AxisLink{In: i, Axis: 0})
			}
		}
		for o, v := range n.Out {
			if v != nil && v.Type.Shape.Rank() == 4-(1-o) {
				m.Out[o] = make([]ir.OutAxis, v.Type.Shape.Rank())
				m.Out[o][0] = batch
			}
		}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		a, err := linearAttentionOf(c.Node, c.InShape(0), c.InShape(2))
		if err != nil {
			return ir.Cost{Read: read, Write: write, DType: c.InDType(0)}
		}
		state := a.batch * a.kvHeads * a.dk * a.dv
		return ir.Cost{FLOPs: 8 * a.time * state, Read: read, Write: write, Workspace: 8 * state, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: the recurrence has to be run backwards"),
	Recompute: ir.Pure,
	Eval:      linearAttentionEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		a, err := linearAttentionOf(c.Node, c.InShape(0), c.InShape(2))
		perBeta := int64(1)
		if c.Has(5) {
			perBeta = c.InShape(5)[2]
		}
		perDecay := int64(1)
		if c.Has(4) {
			perDecay = c.InShape(4)[2]
		}
		return ir.Kernel{Func: "linear_attention", Source: linearAttentionCUDA, Types: []ir.DType{c.InDType(0), c.OutDType(1)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.InArg(5), ir.OutArg(0), ir.OutArg(1), ir.WorkspaceArg(),
			ir.DimsArg(a.batch, a.time, a.qHeads, a.kvHeads, a.dk, a.dv), ir.IntArg(perDecay), ir.IntArg(perBeta), ir.FloatArg(a.scale)}}, err
	}),
	Samples: linearAttentionSamples,
})

// linearAttention is the geometry: tensors are [batch, time, heads * d].
type linearAttention struct {
	batch, time, qHeads, kvHeads, dk, dv int64
	scale                                float64
	gated, delta                         bool
}

// linearAttentionRule reads the update rule and which inputs it needs.
func linearAttentionRule(n *ir.Node) (a linearAttention, err error) {
	switch rule := n.Str("update_rule", "gated_delta"); rule {
	case "linear":
	case "gated":
		a.gated = true
	case "delta":
		a.delta = true
	case "gated_delta":
		a.gated, a.delta = true, true
	default:
		return a, n.Errorf("shape", "unknown update_rule %q", rule)
	}
	has := func(i int) bool { return i < len(n.In) && n.In[i] != nil }
	if a.gated != has(4) || a.delta != has(5) {
		return a, n.Errorf("shape", "update_rule %q needs decay: %v and beta: %v, and nothing else", n.Str("update_rule", "gated_delta"), a.gated, a.delta)
	}
	a.qHeads, a.kvHeads = n.Int("q_num_heads", 0), n.Int("kv_num_heads", 0)
	if a.qHeads <= 0 || a.kvHeads <= 0 || a.qHeads%a.kvHeads != 0 {
		return a, n.Errorf("shape", "%d query heads are no multiple of %d key heads", a.qHeads, a.kvHeads)
	}
	return a, nil
}

func linearAttentionOf(n *ir.Node, query, value []int64) (linearAttention, error) {
	a, err := linearAttentionRule(n)
	if err != nil {
		return a, err
	}
	if len(query) != 3 || len(value) != 3 || query[2]%a.qHeads != 0 || value[2]%a.kvHeads != 0 || query[0] != value[0] || query[1] != value[1] {
		return a, n.Errorf("shape", "query %v and value %v do not fit %d and %d heads", query, value, a.qHeads, a.kvHeads)
	}
	a.batch, a.time, a.dk, a.dv = query[0], query[1], query[2]/a.qHeads, value[2]/a.kvHeads
	if a.scale = float64(n.Float("scale", 0)); a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(a.dk))
	}
	return a, nil
}

func linearAttentionInfer(c *ir.InferCtx) error {
	a, err := linearAttentionRule(c.Node)
	if err != nil {
		return err
	}
	q, k, v := c.Shape(0), c.Shape(1), c.Shape(2)
	for i, s := range []ir.Shape{q, k, v, {}, c.Shape(4), c.Shape(5)} {
		if s.Ranked && s.Rank() != 3 {
			return c.Errorf("input %d has shape %s, not [batch, time, heads * d]", i, s)
		}
	}
	heads := func(s ir.Shape, n int64) (ir.Dim, error) {
		if !s.Ranked {
			return c.FreshDim(), nil
		}
		d, ok := s.Dims[2].Div(ir.N(n))
		if _, isInt := s.Dims[2].Int(); isInt && !ok {
			return d, c.Errorf("%s does not hold %d heads", s, n)
		}
		if !ok {
			return c.FreshDim(), nil
		}
		return d, nil
	}
	dk, err := heads(q, a.qHeads)
	if err != nil {
		return err
	}
	dv, err := heads(v, a.kvHeads)
	if err != nil {
		return err
	}
	if k.Ranked && k.Dims[2].Differ(dk.Mul(ir.N(a.kvHeads))) {
		return c.Errorf("key %s does not hold %d heads of %s", k, a.kvHeads, dk)
	}
	state := c.In(3).DType
	if state == ir.Undefined {
		state = c.DType(0)
	}
	batch, time := c.FreshDim(), c.FreshDim()
	if q.Ranked {
		batch, time = q.Dims[0], q.Dims[1]
	}
	if past := c.Shape(3); past.Rank() == 4 { // an integer says more than a symbol
		for i, d := range []*ir.Dim{0: &batch, 2: &dk, 3: &dv} {
			if d == nil {
				continue
			}
			if _, isInt := d.Int(); !isInt {
				*d = past.Dims[i]
			}
		}
	}
	c.SetTensor(0, c.DType(0), ir.Dims(batch, time, dv.Mul(ir.N(a.qHeads))))
	c.SetTensor(1, state, ir.Dims(batch, ir.N(a.kvHeads), dk, dv))
	return linearAttentionOptional(c, a, dk, dv)
}

// linearAttentionOptional checks what decay, beta and past state hold.
func linearAttentionOptional(c *ir.InferCtx, a linearAttention, dk, dv ir.Dim) error {
	if d := c.Shape(4); d.Ranked && d.Dims[2].Differ(ir.N(a.kvHeads)) && d.Dims[2].Differ(dk.Mul(ir.N(a.kvHeads))) {
		return c.Errorf("decay %s has neither one element for each of %d heads nor one for each key element", d, a.kvHeads)
	}
	if b := c.Shape(5); b.Ranked && b.Dims[2].Differ(ir.N(a.kvHeads)) && b.Dims[2].Differ(ir.N(1)) {
		return c.Errorf("beta %s has neither one element nor one for each of %d heads", b, a.kvHeads)
	}
	if s := c.Shape(3); s.Ranked && (s.Rank() != 4 || s.Dims[1].Differ(ir.N(a.kvHeads)) || s.Dims[2].Differ(dk) || s.Dims[3].Differ(dv)) {
		return c.Errorf("past state %s is not [batch, %d, %s, %s]", s, a.kvHeads, dk, dv)
	}
	return nil
}

func linearAttentionEval(c *ir.EvalCtx) error {
	a, err := linearAttentionOf(c.Node, c.In(0).Dims, c.In(2).Dims)
	if err != nil {
		return err
	}
	want := map[int]int64{1: a.batch * a.time * a.kvHeads * a.dk, 3: a.batch * a.kvHeads * a.dk * a.dv}
	for i, n := range want {
		if c.Has(i) && c.In(i).Len() != n {
			return c.Errorf("input %d has %d elements, not %d", i, c.In(i).Len(), n)
		}
	}
	state := make([]float64, want[3])
	d := c.In(0).DType
	if c.Has(3) {
		copy(state, c.In(3).Floats())
		d = c.In(3).DType
	}
	q, k, v := c.In(0).Floats(), c.In(1).Floats(), c.In(2).Floats()
	decay, perDecay, err := perHead(c, 4, a, a.kvHeads, a.kvHeads*a.dk)
	if err != nil {
		return err
	}
	beta, perBeta, err := perHead(c, 5, a, 1, a.kvHeads)
	if err != nil {
		return err
	}
	out := make([]float64, a.batch*a.time*a.qHeads*a.dv)
	for b := range a.batch {
		for t := range a.time {
			row := b*a.time + t
			for h := range a.kvHeads {
				s := state[(b*a.kvHeads+h)*a.dk*a.dv:][:a.dk*a.dv]
				key, val := k[(row*a.kvHeads+h)*a.dk:][:a.dk], v[(row*a.kvHeads+h)*a.dv:][:a.dv]
				gate := func(i int64) float64 { return math.Exp(decay[row*perDecay+(h*a.dk+i)*perDecay/(a.kvHeads*a.dk)]) }
				rate := 1.0
				if a.delta {
					rate = beta[row*perBeta+h*perBeta/a.kvHeads]
				}
				a.advance(s, key, val, gate, rate)
				for g := range a.qHeads / a.kvHeads {
					head := h*(a.qHeads/a.kvHeads) + g
					for i := range a.dk {
						for m := range a.dv {
							out[(row*a.qHeads+head)*a.dv+m] += a.scale * q[(row*a.qHeads+head)*a.dk+i] * s[i*a.dv+m]
						}
					}
				}
			}
		}
	}
	c.Set(0, ir.FromFloats(c.In(0).DType, out, a.batch, a.time, a.qHeads*a.dv))
	c.Set(1, ir.FromFloats(d, state, a.batch, a.kvHeads, a.dk, a.dv))
	return nil
}

// perHead reads decay or beta, whose last extent must be one of two.
func perHead(c *ir.EvalCtx, i int, a linearAttention, one, other int64) (vals []float64, per int64, err error) {
	if !c.Has(i) {
		return nil, 1, nil
	}
	x := c.In(i)
	if len(x.Dims) != 3 || x.Dims[0] != a.batch || x.Dims[1] != a.time || x.Dims[2] != one && x.Dims[2] != other {
		return nil, 0, c.Errorf("input %d has shape %v, its last extent must be %d or %d", i, x.Dims, one, other)
	}
	return x.Floats(), x.Dims[2], nil
}

// advance updates the state [dk, dv] of a head by one position.
func (a linearAttention) advance(s, key, val []float64, gate func(i int64) float64, rate float64) {
	if a.gated {
		for i := range a.dk {
			g := gate(i)
			for m := range a.dv {
				s[i*a.dv+m] *= g
			}
		}
	}
	for m := range a.dv {
		v := val[m]
		if a.delta { // what the state holds for this key already is taken off
			for i := range a.dk {
				v -= s[i*a.dv+m] * key[i]
			}
			v *= rate
		}
		for i := range a.dk {
			s[i*a.dv+m] += key[i] * v
		}
	}
}

const linearAttentionCUDA = `
// A column of a head's state is one thread's: columns do not meet. d is batch, time, query heads, key heads, dk, dv; the
// state is kept in the workspace in the accumulation type.
template <class T, class S>
void linear_attention(Stream& s, const T* q, const T* k, const T* v, const S* past, const T* decay, const T* beta, T* y, S* present,
                      void* workspace, Dims d, int64_t per_decay, int64_t per_beta, double scale) {
  int64_t time = d.d[1], qh = d.d[2], kvh = d.d[3], dk = d.d[4], dv = d.d[5];
  Acc<T>* all = static_cast<Acc<T>*>(workspace);
  parallel_for(s, d.d[0] * kvh * dv, [=] MEMOC_DEVICE(int64_t e) {
    using A = Acc<T>;
    int64_t m = e % dv, h = e / dv % kvh, b = e / (dv * kvh);
    A* col = all + e * dk;
    for (int64_t i = 0; i < dk; i++) col[i] = past ? to<A>(past[((b * kvh + h) * dk + i) * dv + m]) : A(0);
    for (int64_t t = 0; t < time; t++) {
      int64_t row = b * time + t;
      const T* key = k + (row * kvh + h) * dk;
      A val = to<A>(v[(row * kvh + h) * dv + m]), held = 0;
      for (int64_t i = 0; i < dk; i++) {
        if (decay) col[i] *= m::exp(to<A>(decay[row * per_decay + (h * dk + i) * per_decay / (kvh * dk)]));
        held += col[i] * to<A>(key[i]);
      }
      if (beta) val = (val - held) * to<A>(beta[row * per_beta + h * per_beta / kvh]);
      for (int64_t i = 0; i < dk; i++) col[i] += to<A>(key[i]) * val;
      for (int64_t g = h * (qh / kvh); g < (h + 1) * (qh / kvh); g++) {
        A sum = 0;
        for (int64_t i = 0; i < dk; i++) sum += to<A>(q[(row * qh + g) * dk + i]) * col[i];
        if (y) y[(row * qh + g) * dv + m] = to<T>(A(scale) * sum);
      }
    }
    if (!present) return;
    for (int64_t i = 0; i < dk; i++) present[((b * kvh + h) * dk + i) * dv + m] = to<S>(col[i]);
  });
}`

func linearAttentionSamples() []ir.Sample {
	q, k, v := ramp(2, 3, 8), ramp(2, 3, 4), ramp(2, 3, 6) // 4 query heads, 2 key heads, dk 2, dv 3
	past := ramp(2, 2, 2, 3)
	with := func(rule string, as ...ir.Attr) []ir.Attr {
		return append([]ir.Attr{ir.StringAttr("update_rule", rule), ir.IntAttr("q_num_heads", 4), ir.IntAttr("kv_num_heads", 2)}, as...)
	}
	return []ir.Sample{
		{Name: "linear", In: []*ir.Tensor{q, k, v}, Attrs: with("linear")},
		{Name: "gated", In: []*ir.Tensor{q, k, v, past, ramp(2, 3, 2)}, Attrs: with("gated", ir.FloatAttr("scale", 0.5))},
		{Name: "delta", In: []*ir.Tensor{q, k, v, nil, nil, ramp(2, 3, 1)}, Absent: []int{3, 4}, Attrs: with("delta")},
		{Name: "gated delta", In: []*ir.Tensor{q, k, v, past, ramp(2, 3, 4), ramp(2, 3, 2)}, Attrs: with("gated_delta")},
	}
}

package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name: "Attention",
	Doc: "Scaled dot-product attention with grouped heads, masks, causality, windows and a key/value cache. " +
		"Its gradient is the ai.memoc pair FlashAttention and FlashAttentionGrad: output and log-sum-exp are kept, no scores.",
	Since: []int{23, 24, 25},
	In:    ir.Ports("Q:T, K:T, V:V, attn_mask:M?, past_key:T?, past_value:V?, nonpad_kv_seqlen:tensor(int64)?"),
	Out:   ir.Ports("Y:T, present_key:T?, present_value:V?, qk_matmul_output:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "V": ir.Floats, "M": ir.Floats | ir.Ints | ir.Bools},
	Infer: attentionInfer,
	Axes:  attentionAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		a, _ := attentionViewOf(c.Node, c.InShape)
		read, write := c.Traffic()
		perPair := 2 * a.b * a.h * (a.d + a.e)
		return ir.Cost{FLOPs: perPair * a.pairs(), Dense: perPair * a.s * a.t, Read: read, Write: write, Unit: ir.AttnFwd, DType: c.InDType(0)}
	},
	Grad:      ir.GradOf(attentionGrad),
	Recompute: ir.Pure,
	Eval:      attentionEval,
	Kernel:    ir.KernelOf(attentionKernel),
	Samples:   attentionSamples,
})

// attentionView is the sizes of an Attention node with static shapes.
type attentionView struct {
	flashShape
	rank3     bool
	past, new int64 // keys from the cache, and from K; t is their sum
}

// attentionViewOf reads the sizes; ok is false where shapes do not fit.
func attentionViewOf(n *ir.Node, shape func(int) []int64) (a attentionView, ok bool) {
	q, k, v := shape(0), shape(1), shape(2)
	if len(q) != len(k) || len(k) != len(v) {
		return a, false
	}
	split := func(dims []int64, heads int64) []int64 {
		if heads <= 0 || dims[2]%heads != 0 {
			return nil
		}
		return []int64{dims[0], heads, dims[1], dims[2] / heads}
	}
	if len(q) == 3 {
		a.rank3 = true
		h, g := n.Int("q_num_heads", 0), n.Int("kv_num_heads", 0)
		q, k, v = split(q, h), split(k, g), split(v, g)
	}
	if len(q) != 4 || len(k) != 4 || len(v) != 4 {
		return a, false
	}
	a.new = k[2]
	if p := shape(4); len(p) == 4 {
		a.past = p[2]
	}
	full := func(x []int64) []int64 { return []int64{x[0], x[1], x[2] + a.past, x[3]} }
	a.flashShape, ok = flashView(n, q, full(k), full(v))
	if n.Int("is_causal", 0) != 0 {
		a.right = 0
	}
	a.offset = a.past
	if m := shape(3); len(m) > 0 {
		a.maskCols = min(a.t, m[len(m)-1])
	}
	return a, ok
}

func attentionInfer(c *ir.InferCtx) error {
	q, k, v := c.Shape(0), c.Shape(1), c.Shape(2)
	for _, s := range []ir.Shape{q, k, v} {
		if s.Ranked && s.Rank() != 3 && s.Rank() != 4 || s.Ranked && q.Ranked && s.Rank() != q.Rank() {
			return c.Errorf("Q %s, K %s and V %s must all have rank 3 or all rank 4", q, k, v)
		}
	}
	if err := attentionForm(c); err != nil {
		return err
	}
	c.SetTensor(0, c.DType(0), ir.Shape{})
	c.SetTensor(1, c.DType(1), ir.Shape{})
	c.SetTensor(2, c.DType(2), ir.Shape{})
	c.SetTensor(3, c.DType(0), ir.Shape{})
	if !q.Ranked || !k.Ranked || !v.Ranked {
		return nil
	}
	q4, err := headsFirst(c, q, "q_num_heads")
	if err != nil {
		return err
	}
	k4, err := headsFirst(c, k, "kv_num_heads")
	if err != nil {
		return err
	}
	v4, err := headsFirst(c, v, "kv_num_heads")
	if err != nil {
		return err
	}
	for _, p := range [][2]ir.Dim{{q4[0], k4[0]}, {k4[0], v4[0]}, {q4[3], k4[3]}, {k4[1], v4[1]}, {k4[2], v4[2]}} {
		if p[0].Differ(p[1]) {
			return c.Errorf("dims %s and %s differ (Q %s, K %s, V %s)", p[0], p[1], q, k, v)
		}
	}
	h, okH := q4[1].Int()
	g, okG := k4[1].Int()
	if okH && okG && (g == 0 || h%g != 0) {
		return c.Errorf("%d query heads cannot share %d key heads", h, g)
	}
	return attentionOutputs(c, q, q4, k4, v4)
}

// attentionForm refuses combinations that contradict themselves.
func attentionForm(c *ir.InferCtx) error {
	for _, name := range []string{"left_window_size", "right_window_size"} {
		if w := c.Node.Int(name, -1); w < -1 {
			return c.Errorf("%s is %d; it must be -1 (no bound) or not negative", name, w)
		}
	}
	switch heads := c.Node.Attr("q_num_heads") != nil || c.Node.Attr("kv_num_heads") != nil; {
	case c.Has(4) != c.Has(5):
		return c.Errorf("past_key and past_value must be given together")
	case c.Version >= 25 && c.HasOut(1) != c.HasOut(2):
		return c.Errorf("present_key and present_value must be asked for together")
	case c.Has(4) && c.Has(6):
		return c.Errorf("nonpad_kv_seqlen cannot stand beside a cache")
	case c.Version >= 25 && c.Shape(0).Rank() == 4 && heads:
		return c.Errorf("q_num_heads and kv_num_heads are for operands of rank 3; Q has shape %s", c.Shape(0))
	}
	return nil
}

func attentionOutputs(c *ir.InferCtx, q ir.Shape, q4, k4, v4 []ir.Dim) error {
	total := k4[2]
	for i := 4; i < 6; i++ {
		if s := c.Shape(i); s.Ranked && s.Rank() != 4 {
			return c.Errorf("the cache has shape %s; [batch, heads, positions, width] is needed", s)
		}
	}
	switch past := c.Shape(4); {
	case past.Ranked:
		total = total.Add(past.Dims[2])
	case c.Has(4):
		total = c.FreshDim()
	}
	if q.Rank() == 3 {
		c.SetTensor(0, c.DType(0), ir.Dims(q4[0], q4[2], q4[1].Mul(v4[3])))
	} else {
		c.SetTensor(0, c.DType(0), ir.Dims(q4[0], q4[1], q4[2], v4[3]))
	}
	c.SetTensor(1, c.DType(1), ir.Dims(k4[0], k4[1], total, k4[3]))
	c.SetTensor(2, c.DType(2), ir.Dims(k4[0], k4[1], total, v4[3]))
	c.SetTensor(3, c.DType(0), ir.Dims(q4[0], q4[1], q4[2], total))
	return nil
}

// headsFirst is the shape [batch, heads, positions, width] of an operand.
func headsFirst(c *ir.InferCtx, s ir.Shape, attr string) ([]ir.Dim, error) {
	if s.Rank() == 4 {
		return s.Dims, nil
	}
	heads := c.Node.Int(attr, 0)
	if heads <= 0 {
		return nil, c.Errorf("attribute %s is needed for operands of rank 3", attr)
	}
	width, ok := s.Dims[2].Div(ir.N(heads))
	if n, static := s.Dims[2].Int(); static && n%heads != 0 {
		return nil, c.Errorf("%s heads %d do not divide %d", attr, heads, n)
	}
	if !ok {
		width = c.FreshDim()
	}
	return []ir.Dim{s.Dims[0], ir.N(heads), s.Dims[1], width}, nil
}

// attentionAxes: the batch axis follows in all that has one.
func attentionAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	q := inShapeOf(n, 0)
	if q.Rank() < 3 {
		return ir.AxisMap{}
	}
	batch := ir.OutAxis{}
	for i := range n.In {
		s := inShapeOf(n, i)
		switch {
		case s.Rank() < 1:
		case i == 3 && (s.Rank() < 4 || !s.Dims[0].Equal(q.Dims[0])):
		default:
			batch = append(batch, ir.AxisLink{In: i, Axis: 0})
		}
	}
	for o, v := range n.Out {
		if v != nil && v.Type.Shape.Rank() > 0 {
			m.Out[o] = make([]ir.OutAxis, v.Type.Shape.Rank())
			m.Out[o][0] = batch
		}
	}
	return m
}

// headsFirstValues is a [B,S,H*D] tensor as [B,H,S,D]; a 4-D one as it is.
func headsFirstValues(x []float64, rank3 bool, b, h, s, d int64) []float64 {
	if !rank3 {
		return x
	}
	out := make([]float64, len(x))
	for i := range out {
		at := int64(i)
		e, p, head, batch := at%d, at/d%s, at/d/s%h, at/d/s/h
		out[i] = x[((batch*s+p)*h+head)*d+e]
	}
	return out
}

// headsLastValues is the inverse of headsFirstValues.
func headsLastValues(x []float64, rank3 bool, b, h, s, d int64) []float64 {
	return headsFirstValues(x, rank3, b, s, h, d)
}

// withPast puts the cache [B,G,P,D] before new keys [B,G,N,D].
func withPast(past, x []float64, groups, p, n, d int64) []float64 {
	out := make([]float64, 0, groups*(p+n)*d)
	for g := range groups {
		if p > 0 {
			out = append(out, past[g*p*d:(g+1)*p*d]...)
		}
		out = append(out, x[g*n*d:(g+1)*n*d]...)
	}
	return out
}

func attentionEval(c *ir.EvalCtx) error {
	shape := func(i int) []int64 {
		if c.In(i) == nil {
			return nil
		}
		return c.In(i).Dims
	}
	a, ok := attentionViewOf(c.Node, shape)
	if !ok {
		return c.Errorf("Q %v, K %v, V %v do not fit", shape(0), shape(1), shape(2))
	}
	q := headsFirstValues(c.In(0).Floats(), a.rank3, a.b, a.h, a.s, a.d)
	k := headsFirstValues(c.In(1).Floats(), a.rank3, a.b, a.g, a.new, a.d)
	v := headsFirstValues(c.In(2).Floats(), a.rank3, a.b, a.g, a.new, a.e)
	if c.Has(4) {
		if !c.Has(5) {
			return c.Errorf("past_key without past_value")
		}
		k = withPast(c.In(4).Floats(), k, a.b*a.g, a.past, a.new, a.d)
		v = withPast(c.In(5).Floats(), v, a.b*a.g, a.past, a.new, a.e)
	}
	m, err := attentionBias(c, a)
	if err != nil {
		return err
	}
	f := a.flashShape
	f.left, f.right, f.offset = -1, -1, 0 // all of it is in the bias
	y, lse := flashForward(f, q, k, v, m)
	dims := []int64{a.b, a.h, a.s, a.e}
	if a.rank3 {
		dims = []int64{a.b, a.s, a.h * a.e}
	}
	c.Set(0, ir.FromFloats(c.In(0).DType, headsLastValues(y, a.rank3, a.b, a.h, a.s, a.e), dims...))
	c.Set(1, ir.FromFloats(c.In(1).DType, k, a.b, a.g, a.t, a.d))
	c.Set(2, ir.FromFloats(c.In(2).DType, v, a.b, a.g, a.t, a.e))
	if c.HasOut(3) {
		c.Set(3, ir.FromFloats(c.In(0).DType, attentionScores(c.Node, f, q, k, m, lse), a.b, a.h, a.s, a.t))
	}
	return nil
}

// attentionBias is everything that is added to the scores: mask, causality,
// window and padding of each batch element, as one dense [B,H,S,T] mask.
func attentionBias(c *ir.EvalCtx, a attentionView) (flashMask, error) {
	full := []int64{a.b, a.h, a.s, a.t}
	out := flashMask{bias: make([]float64, ir.Elems(full)), step: denseView([]float64(nil), full).step}
	mask := flashMask{}
	if c.Has(3) {
		f := a.flashShape
		f.t = a.maskCols
		var ok bool
		if mask, ok = flashMaskOf(c.In(3), f); !ok {
			return out, c.Errorf("the mask of shape %v does not fit scores of shape %v", c.In(3).Dims, full)
		}
	}
	for i := range out.bias {
		at := int64(i)
		key, query, h, b := at%a.t, at/a.t%a.s, at/a.t/a.s%a.h, at/a.t/a.s/a.h
		f := a.flashShape
		if c.Has(6) {
			valid := c.In(6).Ints()[b]
			f.offset = valid - a.s
			f.maskCols = min(f.maskCols, valid)
		}
		lo, hi := f.keys(query)
		if key < lo || key >= min(hi, f.maskCols) {
			out.bias[i] = negInf
			continue
		}
		out.bias[i] = mask.at(b, h, query, key)
	}
	return out, nil
}

// attentionScores is what qk_matmul_output_mode asks for.
func attentionScores(n *ir.Node, f flashShape, q, k []float64, m flashMask, lse []float64) []float64 {
	mode := n.Int("qk_matmul_output_mode", 0)
	out := make([]float64, f.b*f.h*f.s*f.t)
	for i := range out {
		at := int64(i)
		key, query, h, b := at%f.t, at/f.t%f.s, at/f.t/f.s%f.h, at/f.t/f.s/f.h
		dot := dotProduct(rowOf(q, f.h, f.s, f.d, b, h, query), rowOf(k, f.g, f.t, f.d, b, h/(f.h/f.g), key))
		s, _ := f.score(dot)
		bias := m.at(b, h, query, key)
		row := (b*f.h+h)*f.s + query
		switch {
		case mode == 0:
			out[i] = dot * f.scale
		case mode == 1:
			out[i] = s
		case mode == 2:
			out[i] = s + bias
		case math.IsInf(bias, -1):
		default:
			out[i] = math.Exp(s + bias - m.largest(b, h, query, 0, f.t) - lse[row])
		}
	}
	return out
}

func attentionKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	a, ok := attentionViewOf(c.Node, c.InShape)
	switch {
	case !ok:
		return ir.Kernel{}, c.Errorf("Q, K and V do not fit")
	case c.HasOut(3):
		return ir.Kernel{}, c.Errorf("there is no kernel for the output qk_matmul_output")
	case a.past > 0 && !(c.HasOut(1) && c.HasOut(2)):
		return ir.Kernel{}, c.Errorf("there is no kernel for a cache without the present outputs")
	case c.InDType(0) != c.InDType(2):
		return ir.Kernel{}, c.Errorf("there is no kernel for Q of %s and V of %s", c.InDType(0), c.InDType(2))
	}
	maskType, step := c.InDType(0), make([]int64, 4)
	if c.Has(3) {
		maskType = c.InDType(3)
		step = broadcastStrides([]int64{a.b, a.h, a.s, a.maskCols}, c.InShape(3))
	}
	layout := func(heads, rows, width int64) []int64 {
		if a.rank3 {
			return []int64{rows * heads * width, width, heads * width}
		}
		return []int64{heads * rows * width, rows * width, width}
	}
	k, v := layout(a.g, a.new, a.d), layout(a.g, a.new, a.e)
	readK, readV := k, v
	if a.past > 0 {
		readK, readV = []int64{a.g * a.t * a.d, a.t * a.d, a.d}, []int64{a.g * a.t * a.e, a.t * a.e, a.e}
	}
	steps := append(append(append(layout(a.h, a.s, a.d), readK...), readV...), layout(a.h, a.s, a.e)...)
	d := c.InDType(0)
	return ir.Kernel{Func: "attention", Source: flashCUDA, Types: []ir.DType{d, maskType, c.InDType(2), workType(d)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.DimsArg(step...), ir.InArg(4), ir.InArg(5), ir.InArg(6),
		ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), a.dims(), ir.IntArg(a.maskCols), ir.IntArg(a.past),
		ir.DimsArg(steps...), ir.DimsArg(k...), ir.DimsArg(v...), ir.FloatArg(a.scale), ir.FloatArg(a.softcap)}}, nil
}

package ops

import (
	"math"

	"memoc/ir"
)

// ONNX Runtime's fused attention. mask_index is one of the forms of rank 1
// (number of valid keys of each batch element, or ends then starts), rank 2
// ([B,T], 0 hides a key), 3 ([B,S,T]) and 4 ([B,1,M,M], of which rows and
// columns from the cache on are used). Hidden keys get mask_filter_value; keys
// after the query (unidirectional) are not seen at all.
var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "Attention",
	Doc:   "Projection of the input to queries, keys and values, and multi-head attention with a cache.",
	Since: []int{1},
	In: ir.Ports("input:T, weights:T, bias:T?, mask_index:tensor(int32)?, past:T?, attention_bias:T?, " +
		"past_sequence_length:tensor(int32)?"),
	Out:   ir.Ports("output:T, present:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: msAttentionInfer,
	Axes:  ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		x, w, y := c.InShape(0), c.InShape(1), c.OutShape(0)
		read, write := c.Traffic()
		keys := x[1]
		if p := c.InShape(4); len(p) == 5 {
			keys += p[3]
		}
		return ir.Cost{FLOPs: 2*x[0]*x[1]*ir.Elems(w) + 4*ir.Elems(y)*keys, Read: read, Write: write, Unit: ir.Matrix, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: an inference fusion; export the model unfused, or with the standard Attention, to train it"),
	Recompute: ir.Pure,
	Eval:      msAttentionEval,
	Kernel:    ir.NoKernel("not written yet: the fused projection of com.microsoft Attention"),
	Samples: func() []ir.Sample {
		heads := func(more ...ir.Attr) []ir.Attr { return append([]ir.Attr{ir.IntAttr("num_heads", 2)}, more...) }
		x, w, b := wave(1, 2, 3, 4), wave(2, 4, 12), wave(3, 12)
		mask := ir.FromInts(ir.Int32, []int64{1, 1, 0, 1, 1, 1}, 2, 3)
		return []ir.Sample{
			{Name: "plain", In: []*ir.Tensor{x, w, b}, Attrs: heads()},
			{Name: "causal, cache", In: []*ir.Tensor{x, w, b, nil, wave(4, 2, 2, 2, 1, 2)}, Absent: []int{3}, NumOut: 2, Attrs: heads(ir.IntAttr("unidirectional", 1))},
			{Name: "mask", In: []*ir.Tensor{x, w, b, mask}, Attrs: heads()},
			{Name: "lengths", In: []*ir.Tensor{x, w, b, ir.FromInts(ir.Int32, []int64{2, 3}, 2)}, Attrs: heads()},
		}
	},
})

func msAttentionInfer(c *ir.InferCtx) error {
	x, w := c.Shape(0), c.Shape(1)
	heads := c.Node.Int("num_heads", 0)
	if heads <= 0 {
		return c.Errorf("num_heads is %d; it must be positive", heads)
	}
	c.SetTensor(0, c.DType(0), ir.Shape{})
	c.SetTensor(1, c.DType(0), ir.Shape{})
	if !x.Ranked || !w.Ranked {
		return nil
	}
	if x.Rank() != 3 || w.Rank() != 2 {
		return c.Errorf("input of shape %s and weights of shape %s; ranks 3 and 2 are needed", x, w)
	}
	hidden, ok := w.Dims[1].Div(ir.N(3))
	if sizes, given := c.Node.IntList("qkv_hidden_sizes"); given && len(sizes) == 3 {
		hidden, ok = ir.N(sizes[2]), true
	}
	if !ok {
		hidden = c.FreshDim()
	}
	c.SetTensor(0, c.DType(0), ir.Dims(x.Dims[0], x.Dims[1], hidden))
	width, ok := hidden.Div(ir.N(heads))
	if !ok {
		width = c.FreshDim()
	}
	total := x.Dims[1]
	switch past := c.Shape(4); {
	case past.Rank() == 5:
		total = total.Add(past.Dims[3])
	case c.Has(4):
		total = c.FreshDim()
	}
	c.SetTensor(1, c.DType(0), ir.Dims(ir.N(2), x.Dims[0], ir.N(heads), total, width))
	return nil
}

func msAttentionEval(c *ir.EvalCtx) error {
	x, w := c.In(0), c.In(1)
	heads := c.Node.Int("num_heads", 0)
	if len(x.Dims) != 3 || len(w.Dims) != 2 || heads <= 0 {
		return c.Errorf("input %v, weights %v and num_heads %d do not fit", x.Dims, w.Dims, heads)
	}
	if c.Node.Int("do_rotary", 0) != 0 || c.Node.Int("past_present_share_buffer", 0) != 0 {
		return c.Errorf("do_rotary and past_present_share_buffer are not supported")
	}
	sizes, given := c.Node.IntList("qkv_hidden_sizes")
	if !given {
		sizes = []int64{w.Dims[1] / 3, w.Dims[1] / 3, w.Dims[1] / 3}
	}
	if len(sizes) != 3 || sizes[0]+sizes[1]+sizes[2] != w.Dims[1] || sizes[0] != sizes[1] || sizes[0]%heads != 0 || sizes[2]%heads != 0 {
		return c.Errorf("hidden sizes %v do not fit weights %v and %d heads", sizes, w.Dims, heads)
	}
	qkv, _, ok := matmul(denseView(x.Floats(), x.Dims), denseView(w.Floats(), w.Dims))
	if !ok {
		return c.Errorf("input %v and weights %v do not multiply", x.Dims, w.Dims)
	}
	if c.Has(2) {
		for i := range qkv {
			qkv[i] += c.In(2).Floats()[int64(i)%w.Dims[1]]
		}
	}
	b, s := x.Dims[0], x.Dims[1]
	part := func(first, width int64) []float64 {
		out := make([]float64, 0, b*s*width)
		for r := range b * s {
			out = append(out, qkv[r*w.Dims[1]+first:r*w.Dims[1]+first+width]...)
		}
		return headsFirstValues(out, true, b, heads, s, width/heads)
	}
	q, k, v := part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0]+sizes[1], sizes[2])
	d, e := sizes[0]/heads, sizes[2]/heads
	past := int64(0)
	if c.Has(4) {
		p := c.In(4)
		if len(p.Dims) != 5 || d != e {
			return c.Errorf("the cache of shape %v does not fit", p.Dims)
		}
		past = p.Dims[3]
		half := p.Len() / 2
		k = withPast(p.Floats()[:half], k, b*heads, past, s, d)
		v = withPast(p.Floats()[half:], v, b*heads, past, s, e)
	}
	f := flashShape{b: b, h: heads, g: heads, s: s, t: past + s, d: d, e: e, left: -1, right: -1, offset: past, lengths: -1}
	f.scale = float64(c.Node.Float("scale", float32(1/math.Sqrt(float64(d)))))
	if c.Node.Int("unidirectional", 0) != 0 {
		f.right = 0
	}
	m, err := msMask(c, f, 3, 5)
	if err != nil {
		return err
	}
	y, _ := flashForward(f, q, k, v, m)
	c.Set(0, ir.FromFloats(x.DType, headsLastValues(y, true, b, heads, s, e), b, s, sizes[2]))
	c.Set(1, ir.FromFloats(x.DType, append(append([]float64{}, k...), v...), 2, b, heads, f.t, d))
	return nil
}

// msMask is the mask and bias inputs at the given ports as [B,H,S,T].
func msMask(c *ir.EvalCtx, f flashShape, mask, bias int) (flashMask, error) {
	full := []int64{f.b, f.h, f.s, f.t}
	out := flashMask{bias: make([]float64, ir.Elems(full)), step: denseView([]float64(nil), full).step}
	if c.Has(bias) {
		add := c.In(bias).Floats()
		if all, ok := broadcastDims(full, c.In(bias).Dims); !ok || ir.Elems(all) != ir.Elems(full) {
			return out, c.Errorf("the bias of shape %v does not fit scores of shape %v", c.In(bias).Dims, full)
		}
		broadcastIndex(full, c.In(bias).Dims, func(i, j int) { out.bias[i] += add[j] })
	}
	if !c.Has(mask) {
		return out, nil
	}
	hidden, ok := msHidden(c.In(mask), f)
	if !ok {
		return out, c.Errorf("the mask of shape %v does not fit scores of shape %v", c.In(mask).Dims, full)
	}
	value := float64(c.Node.Float("mask_filter_value", -10000))
	for i := range out.bias {
		at := int64(i)
		if hidden(at/f.t/f.s/f.h, at/f.t%f.s, at%f.t) {
			out.bias[i] += value
		}
	}
	return out, nil
}

// msHidden reads a mask: whether batch element b hides key j from query i.
func msHidden(m *ir.Tensor, f flashShape) (hidden func(b, i, j int64) bool, ok bool) {
	vals, dims := m.Ints(), m.Dims
	switch {
	case len(dims) == 1 && dims[0] == f.b:
		return func(b, _, j int64) bool { return j >= vals[b] }, true
	case len(dims) == 1 && dims[0] == 2*f.b:
		return func(b, _, j int64) bool { return j >= vals[b] || j < vals[f.b+b] }, true
	case len(dims) == 2 && dims[0] == f.b && dims[1] == f.t:
		return func(b, _, j int64) bool { return vals[b*f.t+j] == 0 }, true
	case len(dims) == 3 && dims[0] == f.b && dims[1] == f.s && dims[2] == f.t:
		return func(b, i, j int64) bool { return vals[(b*f.s+i)*f.t+j] == 0 }, true
	case len(dims) == 4 && dims[0] == f.b && dims[1] == 1 && dims[2] == dims[3] && dims[3] >= f.t:
		return func(b, i, j int64) bool { return vals[(b*dims[2]+f.t-f.s+i)*dims[3]+j] == 0 }, true
	}
	return nil, false
}

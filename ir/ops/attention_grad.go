package ops

import "memoc/ir"

// FlashForm is attention in the terms of FlashAttention: operands with heads
// first, the cache joined on, and in the mask everything that the attributes
// and the segments do not say.
type FlashForm struct {
	Q, K, V, Mask *ir.Value
	SegQ, SegK    *ir.Value
	Attrs         []ir.Attr
	rank3         bool
}

// Inputs lists the inputs of FlashAttention.
func (f *FlashForm) Inputs() []*ir.Value {
	return []*ir.Value{f.Q, f.K, f.V, f.Mask, f.SegQ, f.SegK}
}

// LowerAttention replaces a standard Attention node by FlashAttention (with
// reshapes around it for operands of rank 3), so that its gradient is
// FlashAttentionGrad and needs no second forward. It is false, and nothing is
// changed, for a node it cannot express: why says what is in the way. The
// caller runs it before differentiation. improve, if any, may say more of the
// form: what the mask is.
func LowerAttention(e *ir.Edit, n *ir.Node, improve func(*ir.Builder, *FlashForm)) (done bool, why string, err error) {
	defer ir.Catch(&err)
	if n.Domain != ir.OnnxDomain || n.Op != "Attention" {
		return false, "not an Attention", nil
	}
	if why := notFlash(n); why != "" {
		return false, why, nil
	}
	for i, v := range n.Out {
		if i > 0 && v != nil && v.IsOutput() {
			return false, "a present output of the node is a graph output, whose name must stay", nil
		}
	}
	b := ir.NewBuilder(e)
	b.At, b.Prefix, b.Origin, b.Backward, b.Loc = n, n.Name+"_", n.OriginName(), n.Backward, n.Loc
	f := flashFormOf(b, n)
	k, v := f.K, f.V
	if improve != nil {
		improve(b, &f)
	}
	y := b.OpN(ir.MemocDomain, "FlashAttention", 1, f.Inputs(), f.Attrs...)[0]
	if f.rank3 {
		width, ok := n.Out[0].Type.Shape.Dims[2].Int()
		if !ok {
			width = -1
		}
		y = b.Reshape(b.Transpose(y, 0, 2, 1, 3), 0, 0, width)
	}
	for i, v := range []*ir.Value{y, k, v} {
		if i >= len(n.Out) || n.Out[i] == nil {
			continue
		}
		v.Type.Shape = n.Out[i].Type.Shape
		if old := n.Out[i]; old.IsOutput() { // it is made here, and takes the name
			name := old.Name
			old.Name, v.Name = e.Graph().Fresh(name+"_unfused"), name
		}
		if err := e.ReplaceUses(n.Out[i], v); err != nil {
			return false, "", err
		}
	}
	return true, "", e.Remove(n)
}

// notFlash says why FlashAttention cannot stand for an Attention node, "" if
// it can.
func notFlash(n *ir.Node) string {
	in := func(i int) *ir.Value {
		if i >= len(n.In) {
			return nil
		}
		return n.In[i]
	}
	window := n.Int("left_window_size", -1) >= 0 || n.Int("right_window_size", -1) >= 0
	causal := n.Int("is_causal", 0) != 0
	q, k := inShapeOf(n, 0), inShapeOf(n, 1)
	switch {
	case q.Rank() < 3 || k.Rank() != q.Rank() || inShapeOf(n, 2).Rank() != q.Rank():
		return "the ranks of Q, K and V are not known"
	case len(n.Out) > 3 && n.Out[3] != nil:
		return "the scores are asked for (qk_matmul_output)"
	case n.In[0].Type.DType != n.In[2].Type.DType:
		return "Q and V are of different types"
	case in(3) != nil && inShapeOf(n, 3).Rank() < 1:
		return "the rank of the mask is not known"
	case in(6) != nil && (causal || window):
		return "the window of each batch element depends on nonpad_kv_seqlen"
	case in(4) == nil:
		return ""
	case window && !causal:
		return "a window with a cache is derived for causal attention alone"
	case causal && !positionsOf(q).Equal(positionsOf(k)):
		return "causal attention with a cache needs as many new keys as queries"
	}
	return ""
}

// positionsOf is the extent of the positions in [B,S,H*D] or [B,H,S,D].
func positionsOf(s ir.Shape) ir.Dim { return s.Dims[s.Rank()-2] }

// toHeads makes [B,S,H*D] into [B,H,S,D].
func toHeads(b *ir.Builder, x *ir.Value, heads int64) *ir.Value {
	width := int64(-1)
	if n, ok := x.Type.Shape.Dims[2].Int(); ok && n%heads == 0 {
		width = n / heads
	}
	return b.Transpose(b.Reshape(x, 0, 0, heads, width), 0, 2, 1, 3)
}

// fromHeads makes [B,H,S,D] into [B,S,H*D], which is the shape of like.
func fromHeads(b *ir.Builder, x, like *ir.Value) *ir.Value {
	return b.ReshapeLike(b.Transpose(x, 0, 2, 1, 3), like)
}

// flashFormOf emits what stands between an Attention node and FlashAttention.
func flashFormOf(b *ir.Builder, n *ir.Node) FlashForm {
	f := FlashForm{Q: n.In[0], K: n.In[1], V: n.In[2], rank3: n.In[0].Type.Shape.Rank() == 3}
	if f.rank3 {
		h, g := n.Int("q_num_heads", 0), n.Int("kv_num_heads", 0)
		f.Q, f.K, f.V = toHeads(b, f.Q, h), toHeads(b, f.K, g), toHeads(b, f.V, g)
	}
	sameLength := f.Q.Type.Shape.Dims[2].Equal(f.K.Type.Shape.Dims[2])
	if past := optional(n.In, 4); past != nil {
		f.K, f.V = b.Concat(2, past, f.K), b.Concat(2, n.In[5], f.V)
	}
	f.Mask = flashMaskValue(b, n, f.K)
	for _, name := range []string{"scale", "softcap", "left_window_size", "right_window_size"} {
		if a := n.Attr(name); a != nil {
			f.Attrs = append(f.Attrs, ir.Attr{Name: a.Name, Kind: a.Kind, F: a.F, I: a.I})
		}
	}
	if n.Int("is_causal", 0) != 0 {
		// Query i sees the keys up to i + cached ones. With as many new keys as
		// queries that aligns the last query with the last key.
		aligned := int64(1)
		if sameLength {
			aligned = 2
		}
		f.Attrs = append(f.Attrs, ir.IntAttr("is_causal", aligned))
	}
	return f
}

// flashMaskValue is the node's mask, padded to the number of keys and joined
// with the valid lengths; nil if there is neither.
func flashMaskValue(b *ir.Builder, n *ir.Node, k *ir.Value) *ir.Value {
	mask, keys := optional(n.In, 3), k.Type.Shape.Dims[2]
	if mask != nil {
		if mask.Type.DType != ir.Bool && !mask.Type.DType.IsFloat() {
			mask = b.Cast(mask, n.In[0].Type.DType)
		}
		mask = padMask(b, mask, k, keys)
	}
	lengths := optional(n.In, 6)
	if lengths == nil {
		return mask
	}
	zero, one := b.Const(ir.FromInts(ir.Int64, []int64{0})), b.Const(ir.FromInts(ir.Int64, []int64{1}))
	index := b.Op("Range", []*ir.Value{zero, b.Squeeze(b.DimOf(k, 2), 0), one})
	index.Type.Shape = ir.Dims(keys)
	valid := b.Op("Less", []*ir.Value{index, b.Unsqueeze(lengths, 1, 2, 3)})
	switch {
	case mask == nil:
		return valid
	case mask.Type.DType == ir.Bool:
		return b.Op("And", []*ir.Value{mask, valid})
	}
	return b.Op("Where", []*ir.Value{valid, mask, b.Scalar(mask.Type.DType, negInf)})
}

// padMask appends masked keys where a mask is shorter than the keys.
func padMask(b *ir.Builder, mask, k *ir.Value, keys ir.Dim) *ir.Value {
	r := mask.Type.Shape.Rank()
	if mask.Type.Shape.Dims[r-1].Equal(keys) {
		return mask
	}
	zeros := b.Int64s(make([]int64, 2*r-1)...)
	pads := b.Concat(0, zeros, b.Sub(b.DimOf(k, 2), b.DimOf(mask, r-1)))
	in := mask
	hidden := b.Scalar(mask.Type.DType, negInf)
	if mask.Type.DType == ir.Bool {
		// Pad takes no bool before opset 13, nor do all runtimes after it.
		in, hidden = b.Cast(mask, ir.Int32), b.Const(ir.FromInts(ir.Int32, []int64{0}))
	}
	out := b.Cast(b.Op("Pad", []*ir.Value{in, pads, hidden}), mask.Type.DType)
	dims := append([]ir.Dim{}, mask.Type.Shape.Dims...)
	dims[r-1] = keys
	out.Type.Shape = ir.Dims(dims...)
	return out
}

// attentionGrad runs FlashAttention again for its log-sum-exp, and
// FlashAttentionGrad. LowerAttention, called before, spares the second run.
func attentionGrad(c *ir.GradCtx) error {
	if why := notFlash(c.Node); why != "" {
		return c.Node.Errorf("grad", "not derived yet: %s", why)
	}
	f := flashFormOf(c.Builder, c.Node)
	if c.Needs(3) && f.Mask != c.In(3) {
		return c.Node.Errorf("grad", "not derived yet: the gradient of a mask that is padded or joined with valid lengths")
	}
	dk, dv := c.OutGrad(1), c.OutGrad(2)
	if dy := c.OutGrad(0); dy != nil {
		if f.rank3 {
			dy = toHeads(c.Builder, dy, c.Node.Int("q_num_heads", 0))
		}
		y := c.OpN(ir.MemocDomain, "FlashAttention", 2, []*ir.Value{f.Q, f.K, f.V, f.Mask}, f.Attrs...)
		outs := 3
		if c.Needs(3) {
			outs = 4
		}
		g := c.OpN(ir.MemocDomain, "FlashAttentionGrad", outs, []*ir.Value{dy, f.Q, f.K, f.V, y[0], y[1], f.Mask}, f.Attrs...)
		if f.rank3 {
			c.Set(0, fromHeads(c.Builder, g[0], c.In(0)))
		} else {
			c.Set(0, g[0])
		}
		dk, dv = plus(c, dk, g[1]), plus(c, dv, g[2])
		if outs > 3 {
			c.Set(3, g[3])
		}
	}
	setCacheGrad(c, f, dk, 1, 4)
	setCacheGrad(c, f, dv, 2, 5)
	return nil
}

// plus adds a gradient to one that may be absent.
func plus(c *ir.GradCtx, a, b *ir.Value) *ir.Value {
	if a == nil {
		return b
	}
	return c.Add(a, b)
}

// setCacheGrad splits the gradient of all keys (or values) into that of the
// cache and that of the new ones.
func setCacheGrad(c *ir.GradCtx, f FlashForm, g *ir.Value, port, past int) {
	if g == nil {
		return
	}
	if cache := c.In(past); cache != nil {
		n, all := c.DimOf(cache, 2), c.DimOf(g, 2)
		if c.Needs(past) {
			c.Set(past, c.Like(c.SliceValues(g, 2, c.Int64s(0), n), cache))
		}
		g = c.SliceValues(g, 2, n, all)
	}
	if !c.Needs(port) {
		return
	}
	if f.rank3 {
		g = fromHeads(c.Builder, g, c.In(port))
	}
	c.Set(port, c.Like(g, c.In(port)))
}

func attentionSamples() []ir.Sample {
	causal := ir.IntAttr("is_causal", 1)
	heads := func(q, kv int64, more ...ir.Attr) []ir.Attr {
		return append([]ir.Attr{ir.IntAttr("q_num_heads", q), ir.IntAttr("kv_num_heads", kv)}, more...)
	}
	q, k, v := wave(1, 2, 2, 3, 4), wave(2, 2, 2, 3, 4), wave(3, 2, 2, 3, 2)
	q3, k3, v3 := wave(1, 2, 3, 4), wave(2, 2, 5, 2), wave(3, 2, 5, 3)
	past, pastV := wave(4, 2, 2, 2, 4), wave(5, 2, 2, 2, 2)
	short := ir.FromInts(ir.Bool, []int64{1, 0, 1, 1, 1, 0}, 3, 2)
	lengths := ir.FromInts(ir.Int64, []int64{2, 3}, 2)
	return []ir.Sample{
		{Name: "4-D", In: []*ir.Tensor{q, k, v}},
		{Name: "causal", In: []*ir.Tensor{q, k, v}, Attrs: []ir.Attr{causal}},
		{Name: "3-D, grouped", In: []*ir.Tensor{q3, k3, v3}, Attrs: heads(2, 1)},
		{Name: "3-D, causal, scale, softcap", In: []*ir.Tensor{q3, k3, v3}, Attrs: heads(2, 1, causal, ir.FloatAttr("scale", 0.75), ir.FloatAttr("softcap", 2))},
		{Name: "bias", In: []*ir.Tensor{q, k, v, wave(6, 2, 1, 3, 3)}, Attrs: []ir.Attr{causal}},
		{Name: "short mask", In: []*ir.Tensor{q, k, v, short}},
		{Name: "cache", In: []*ir.Tensor{q, k, v, nil, past, pastV}, Absent: []int{3}, NumOut: 3, Attrs: []ir.Attr{causal}},
		{Name: "cache, 3-D", In: []*ir.Tensor{wave(1, 1, 2, 4), wave(2, 1, 2, 2), wave(3, 1, 2, 2), nil, wave(4, 1, 1, 3, 2), wave(5, 1, 1, 3, 2)},
			Absent: []int{3}, NumOut: 3, Attrs: heads(2, 1, causal)},
		{Name: "valid lengths", In: []*ir.Tensor{q, k, v, nil, nil, nil, lengths}, Absent: []int{3, 4, 5}},
		{Name: "valid lengths and mask", In: []*ir.Tensor{q, k, v, ir.FromInts(ir.Bool, []int64{0, 1, 1}, 1, 3), nil, nil, lengths}, Absent: []int{4, 5}},
		{Name: "window", Version: 25, In: []*ir.Tensor{q, k, v}, Attrs: []ir.Attr{causal, ir.IntAttr("left_window_size", 1)}},
		{Name: "no keys", In: []*ir.Tensor{wave(1, 1, 1, 2, 3), wave(2, 1, 1, 0, 3), wave(3, 1, 1, 0, 3)}},
		{Name: "no batch", In: []*ir.Tensor{wave(1, 0, 1, 2, 3), wave(2, 0, 1, 2, 3), wave(3, 0, 1, 2, 3)}},
	}
}

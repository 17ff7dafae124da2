package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MemocDomain, Name: "FlashAttention",
	Doc: "softmax(cap(scale * Q K^T) + mask) V for Q [B,H,S,D], K [B,G,T,D], V [B,G,T,E], with the log-sum-exp of each row; no S x T tensor is stored. " +
		"is_causal: 1 aligns the first query with the first key, 2 the last with the last. With segments ([B,S] and [B,T]) a query sees the keys of its own number. " +
		"LSE is relative to the largest element of the mask that the row sees. A row that sees no key has LSE -inf and gives Y 0, or by empty_rows the mean of V: 1 as under a finite mask that is added, 2 under one that replaces scores. " +
		"The standard Attention is replaced by it before differentiation (LowerAttention); an Attention left in place is differentiated through it, at the price of a second forward.",
	Since: []int{1},
	In:    ir.Ports("Q:T, K:T, V:T, mask:M?, q_segments:tensor(int64)?, k_segments:tensor(int64)?"), Out: ir.Ports("Y:T, LSE:U?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "U": ir.SetOf(ir.Float, ir.Double), "M": ir.Floats | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		if err := flashInfer(c, 0); err != nil {
			return err
		}
		q, v := c.Shape(0), c.Shape(2)
		if !q.Ranked || !v.Ranked {
			c.SetTensor(0, c.DType(0), ir.Shape{})
			c.SetTensor(1, workType(c.DType(0)), ir.Shape{})
			return nil
		}
		c.SetTensor(0, c.DType(0), ir.Dims(q.Dims[0], q.Dims[1], q.Dims[2], v.Dims[3]))
		c.SetTensor(1, workType(c.DType(0)), ir.Dims(q.Dims[:3]...))
		return nil
	},
	Axes: flashAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		f, _ := flashView(c.Node, c.InShape(0), c.InShape(1), c.InShape(2))
		read, write := c.Traffic()
		perPair := 2 * f.b * f.h * (f.d + f.e)
		return ir.Cost{FLOPs: perPair * f.pairs(), Dense: perPair * f.s * f.t, Read: read, Write: write,
			Unit: ir.AttnFwd, DType: c.InDType(0)}
	},
	Grad:      ir.GradOf(flashGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		q, k, v := c.In(0), c.In(1), c.In(2)
		f, ok := flashView(c.Node, q.Dims, k.Dims, v.Dims)
		m, fits := flashMaskFrom(c.In, 3, f)
		if !ok || !fits {
			return c.Errorf("Q %v, K %v, V %v and the mask do not fit", q.Dims, k.Dims, v.Dims)
		}
		y, lse := flashForward(f, q.Floats(), k.Floats(), v.Floats(), m)
		c.Set(0, ir.FromFloats(q.DType, y, f.b, f.h, f.s, f.e))
		c.Set(1, ir.FromFloats(workType(q.DType), lse, f.b, f.h, f.s))
		return nil
	},
	Kernel:   ir.KernelOf(flashKernel),
	Function: functionOf(flashFunction),
	Samples:  flashSamples,
})

// flashInfer checks Q, K, V at ports first, first+1, first+2 against each
// other, and the mask and the segments at the last three.
func flashInfer(c *ir.InferCtx, first int) error {
	q, k, v := c.Shape(first), c.Shape(first+1), c.Shape(first+2)
	for i, s := range []ir.Shape{q, k, v} {
		if s.Ranked && s.Rank() != 4 {
			return c.Errorf("%s has shape %s; [batch, heads, positions, width] is needed", c.Node.Decl.In[first+i].Name, s)
		}
	}
	if !q.Ranked || !k.Ranked || !v.Ranked {
		return nil
	}
	same := [][2]ir.Dim{{q.Dims[0], k.Dims[0]}, {q.Dims[0], v.Dims[0]}, {q.Dims[3], k.Dims[3]}, {k.Dims[1], v.Dims[1]}, {k.Dims[2], v.Dims[2]}}
	for _, p := range same {
		if p[0].Differ(p[1]) {
			return c.Errorf("dims %s and %s differ (Q %s, K %s, V %s)", p[0], p[1], q, k, v)
		}
	}
	h, okH := q.Dims[1].Int()
	g, okG := k.Dims[1].Int()
	if okH && okG && (g == 0 || h%g != 0) {
		return c.Errorf("%d query heads cannot share %d key heads", h, g)
	}
	port := len(c.Node.Decl.In) - 3
	if c.Has(port+1) != c.Has(port+2) {
		return c.Errorf("segments are needed of queries and keys both")
	}
	for i, extent := range []ir.Dim{q.Dims[2], k.Dims[2]} {
		s := c.Shape(port + 1 + i)
		if s.Ranked && (s.Rank() != 2 || s.Dims[1].Differ(extent) || s.Dims[0].Differ(ir.N(1)) && s.Dims[0].Differ(q.Dims[0])) {
			return c.Errorf("%s has shape %s; [batch, positions] is needed (Q %s, K %s)", c.Node.Decl.In[port+1+i].Name, s, q, k)
		}
	}
	return unidirectional(c, c.Shape(port), ir.Dims(q.Dims[0], q.Dims[1], q.Dims[2], k.Dims[2]))
}

// flashAxes: batch follows; heads follow if every head has keys of its own;
// queries follow Q, and where a mask by position is in the way they need a
// prefix of the keys or vary with the position.
func flashAxes(n *ir.Node) ir.AxisMap {
	q, k, v := inShapeOf(n, 0), inShapeOf(n, 1), inShapeOf(n, 2)
	if q.Rank() != 4 || k.Rank() != 4 || v.Rank() != 4 {
		return ir.AxisMap{}
	}
	full := ir.Dims(q.Dims[0], q.Dims[1], q.Dims[2], k.Dims[2])
	y := make([]ir.OutAxis, 4)
	y[0] = batchOfSegments(n, 4, withMask(n, 3, full, 0, ir.OutAxis{{In: 0, Axis: 0}, {In: 1, Axis: 0}, {In: 2, Axis: 0}}))
	if q.Dims[1].Equal(k.Dims[1]) {
		y[1] = withMask(n, 3, full, 1, ir.OutAxis{{In: 0, Axis: 1}, {In: 1, Axis: 1}, {In: 2, Axis: 1}})
	}
	y[2] = append(withMask(n, 3, full, 2, ir.OutAxis{{In: 0, Axis: 2}}), flashKeys(n, 0, full)...)
	y[3] = ir.OutAxis{{In: 2, Axis: 3}}
	m := ir.AxisMap{Out: [][]ir.OutAxis{y}}
	if len(n.Out) > 1 {
		m.Out = append(m.Out, y[:3])
	}
	return m
}

// withMask adds the mask's axis that is aligned with axis a of the scores.
func withMask(n *ir.Node, port int, scores ir.Shape, a int, axes ir.OutAxis) ir.OutAxis {
	s := inShapeOf(n, port)
	if i := a - (4 - s.Rank()); s.Ranked && i >= 0 && s.Dims[i].Equal(scores.Dims[a]) {
		axes = append(axes, ir.AxisLink{In: port, Axis: i})
	}
	return axes
}

// flashKeys links a query with its segment and with what it needs of the keys,
// where that is not all of them alike. first is the port of Q.
func flashKeys(n *ir.Node, first int, scores ir.Shape) ir.OutAxis {
	var axes ir.OutAxis
	segments := len(n.Decl.In) - 2
	if inShapeOf(n, segments).Rank() == 2 {
		axes = ir.OutAxis{{In: segments, Axis: 1}}
	}
	causal := n.Int("is_causal", 0)
	noWindow := n.Int("left_window_size", -1) < 0 && n.Int("right_window_size", -1) < 0
	if noWindow && causal == 0 {
		return axes
	}
	lag, static := scores.Dims[3].Sub(scores.Dims[2]).Int()
	prefix := noWindow && static && (causal == 2 || lag == 0) && axes == nil && n.Int("empty_rows", emptyZero) == emptyZero
	for _, in := range []int{first + 1, first + 2} {
		l := ir.AxisLink{In: in, Axis: 2, Rel: ir.Whole}
		if prefix {
			l.Rel, l.Hi = ir.Prefix, lag
		}
		axes = append(axes, l)
	}
	return axes
}

// batchOfSegments adds the batch of the segments, at port and the next one,
// that are not broadcast along it.
func batchOfSegments(n *ir.Node, port int, axes ir.OutAxis) ir.OutAxis {
	for i := port; i < port+2; i++ {
		if s := inShapeOf(n, i); s.Rank() == 2 && s.Dims[0].Equal(n.In[port-4].Type.Shape.Dims[0]) {
			axes = append(axes, ir.AxisLink{In: i, Axis: 0})
		}
	}
	return axes
}

// flashAttrs copies the attributes that forward and gradient share.
func flashAttrs(n *ir.Node) []ir.Attr {
	var out []ir.Attr
	for _, name := range []string{"scale", "is_causal", "softcap", "left_window_size", "right_window_size", "empty_rows"} {
		if a := n.Attr(name); a != nil {
			out = append(out, ir.Attr{Name: a.Name, Kind: a.Kind, F: a.F, I: a.I})
		}
	}
	return out
}

func flashGrad(c *ir.GradCtx) error {
	if c.OutGrad(1) != nil {
		return c.Node.Errorf("grad", "not derived yet: the gradient through the log-sum-exp")
	}
	outs := 3
	if c.Needs(3) {
		outs = 4
	}
	g := c.OpN(ir.MemocDomain, "FlashAttentionGrad", outs,
		[]*ir.Value{c.OutGrad(0), c.In(0), c.In(1), c.In(2), c.Out(0), c.Out(1), c.In(3), c.In(4), c.In(5)}, flashAttrs(c.Node)...)
	for i, v := range g {
		if c.Needs(i) {
			c.Set(i, v)
		}
	}
	return nil
}

func flashKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	f, ok := flashView(c.Node, c.InShape(0), c.InShape(1), c.InShape(2))
	if !ok {
		return ir.Kernel{}, c.Errorf("Q, K and V do not fit")
	}
	maskType, step := maskArgs(c, 3, f, c.InShape(3))
	st := flashLayout(f)
	args := []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.DimsArg(step...), inArgOrNull(c, f.lengths)}
	args = append(args, segmentArgs(c, 4, f)...)
	return ir.Kernel{Func: "flash_attention", Source: flashCUDA,
		Types: []ir.DType{c.InDType(0), maskType, workType(c.InDType(0))},
		Args: append(args, ir.OutArg(0), ir.OutArg(1),
			f.dims(), ir.IntArg(f.maskCols), ir.DimsArg(append(append(append(st.q[:], st.k[:]...), st.v[:]...), st.y[:]...)...),
			ir.FloatArg(f.scale), ir.FloatArg(f.softcap), ir.IntArg(f.empty))}, nil
}

// flashSteps is how a kernel walks Q, K, V and Y: steps of batch, head and
// position of each (width is dense).
type flashSteps struct{ q, k, v, y [3]int64 }

// flashLayout is the steps of dense [B,H,S,D] operands.
func flashLayout(f flashShape) flashSteps {
	dense := func(heads, rows, width int64) [3]int64 { return [3]int64{heads * rows * width, rows * width, width} }
	return flashSteps{dense(f.h, f.s, f.d), dense(f.g, f.t, f.d), dense(f.g, f.t, f.e), dense(f.h, f.s, f.e)}
}

// segmentArgs is the segments at a port and the next one, and their steps
// along the batch.
func segmentArgs(c *ir.NodeCtx, port int, f flashShape) []ir.KernelArg {
	steps := []int64{0, 0}
	for i, n := range []int64{f.s, f.t} {
		if s := c.InShape(port + i); len(s) == 2 && s[0] > 1 {
			steps[i] = n
		}
	}
	return []ir.KernelArg{ir.InArg(port), ir.InArg(port + 1), ir.DimsArg(steps...)}
}

// maskArgs is the element type of the mask at a port (of Q where there is
// none) and its steps along [B,H,S,T].
func maskArgs(c *ir.NodeCtx, port int, f flashShape, dims []int64) (ir.DType, []int64) {
	if !c.Has(port) {
		return c.InDType(0), make([]int64, 4)
	}
	return c.InDType(port), broadcastStrides([]int64{f.b, f.h, f.s, f.t}, dims)
}

func flashSamples() []ir.Sample {
	causal := func(n int64) ir.Attr { return ir.IntAttr("is_causal", n) }
	q, k, v := wave(1, 2, 2, 3, 4), wave(2, 2, 2, 3, 4), wave(3, 2, 2, 3, 4)
	long := []*ir.Tensor{wave(1, 1, 2, 2, 3), wave(2, 1, 2, 5, 3), wave(3, 1, 2, 5, 2)}
	short := []*ir.Tensor{wave(1, 1, 1, 4, 3), wave(2, 1, 1, 2, 3), wave(3, 1, 1, 2, 2)}
	with := func(in []*ir.Tensor, m *ir.Tensor) []*ir.Tensor { return append(append([]*ir.Tensor{}, in...), m) }
	boolMask := ir.FromInts(ir.Bool, []int64{1, 0, 1, 0, 0, 0, 0, 1, 1}, 3, 3)
	bias := wave(4, 2, 3, 3)
	hole := floats([]int64{1, 1, 1, 3}, 0, negInf, 0.5)
	left := ir.FromInts(ir.Bool, []int64{0, 1, 1, 1, 1, 1}, 2, 1, 1, 3)
	segments := func(in []*ir.Tensor, mask, sq, sk *ir.Tensor) []*ir.Tensor {
		return append(append([]*ir.Tensor{}, in...), mask, sq, sk)
	}
	docs := ir.FromInts(ir.Int64, []int64{0, 0, 1, 4, 7, 7}, 2, 3)
	empty := func(n int64) ir.Attr { return ir.IntAttr("empty_rows", n) }
	swallowed := map[int]string{0: "scores that are swallowed have a gradient by convention", 1: "as for Q"}
	return []ir.Sample{
		{Name: "plain", In: []*ir.Tensor{q, k, v}},
		{Name: "scale", In: []*ir.Tensor{q, k, v}, Attrs: []ir.Attr{ir.FloatAttr("scale", 1.5)}},
		{Name: "causal", In: []*ir.Tensor{q, k, v}, Attrs: []ir.Attr{causal(2)}, NumOut: 2, NoGradCheck: lseIsStash},
		{Name: "causal, first aligned", In: long, Attrs: []ir.Attr{causal(1)}},
		{Name: "causal, last aligned", In: long, Attrs: []ir.Attr{causal(2)}},
		{Name: "causal, rows without keys", In: short, Attrs: []ir.Attr{causal(2)}},
		{Name: "grouped heads", In: []*ir.Tensor{wave(1, 2, 4, 2, 3), wave(2, 2, 2, 3, 3), wave(3, 2, 2, 3, 2)}},
		{Name: "one key head", In: []*ir.Tensor{wave(1, 1, 3, 2, 3), wave(2, 1, 1, 2, 3), wave(3, 1, 1, 2, 2)}, Attrs: []ir.Attr{causal(2)}},
		{Name: "bool mask with an empty row", In: with([]*ir.Tensor{q, k, v}, boolMask)},
		{Name: "bias", In: with([]*ir.Tensor{q, k, v}, bias)},
		{Name: "bias of a key", In: with([]*ir.Tensor{q, k, v}, wave(4, 2, 1, 1, 3)), Attrs: []ir.Attr{causal(2)}},
		{Name: "-inf in the mask", In: with([]*ir.Tensor{q, k, v}, hole), NoGradCheck: map[int]string{3: "no difference of -inf"}},
		{Name: "softcap", In: with([]*ir.Tensor{q, k, v}, bias), Attrs: []ir.Attr{ir.FloatAttr("softcap", 0.75), ir.FloatAttr("scale", 1)}},
		{Name: "window", In: []*ir.Tensor{wave(1, 1, 1, 5, 2), wave(2, 1, 1, 5, 2), wave(3, 1, 1, 5, 2)},
			Attrs: []ir.Attr{ir.IntAttr("left_window_size", 1), ir.IntAttr("right_window_size", 2)}},
		{Name: "causal window", In: long, Attrs: []ir.Attr{causal(2), ir.IntAttr("left_window_size", 1)}},
		{Name: "segments", In: segments([]*ir.Tensor{q, k, v}, nil, docs, docs), Absent: []int{3}},
		{Name: "causal segments of one kind for all batches, rows without keys", In: segments(long, nil, ir.FromInts(ir.Int64, []int64{3, 9}, 1, 2), ir.FromInts(ir.Int64, []int64{3, 3, 1, 3, 3}, 1, 5)),
			Absent: []int{3}, Attrs: []ir.Attr{causal(2)}},
		{Name: "padded on the left, mask replaces", In: with([]*ir.Tensor{q, k, v}, left), Attrs: []ir.Attr{causal(2), empty(emptyMeanReplaced)}},
		{Name: "padded on the left, mask is added", In: with([]*ir.Tensor{q, k, v}, left), Attrs: []ir.Attr{causal(2), empty(emptyMeanAdded)}, NoGradCheck: swallowed},
		{Name: "mask and segments", In: segments([]*ir.Tensor{q, k, v}, left, docs, docs), Attrs: []ir.Attr{empty(emptyMeanReplaced)}},
		// More keys, and more queries, than a tile of the kernels, and more rows than a block takes.
		{Name: "tiles of keys", In: []*ir.Tensor{wave(1, 1, 1, 10, 2), wave(2, 1, 1, 270, 2), wave(3, 1, 1, 270, 1)}, Attrs: []ir.Attr{causal(2)}},
		{Name: "tiles of queries", In: []*ir.Tensor{wave(1, 1, 2, 270, 1), wave(2, 1, 1, 10, 1), wave(3, 1, 1, 10, 1)}, Attrs: []ir.Attr{causal(1)}},
		{Name: "biases that swallow scores", In: with([]*ir.Tensor{q, k, v}, floats([]int64{2, 1, 1, 3}, -3e38, -3e38, -3e38, -3e38, 0, 0)), NoGradCheck: map[int]string{0: swallowed[0], 1: swallowed[1], 3: swallowed[0]}},
		{Name: "no queries", In: []*ir.Tensor{wave(1, 2, 1, 0, 3), wave(2, 2, 1, 2, 3), wave(3, 2, 1, 2, 3)}},
		{Name: "no keys", In: []*ir.Tensor{wave(1, 2, 1, 2, 3), wave(2, 2, 1, 0, 3), wave(3, 2, 1, 0, 3)}},
	}
}

// lseIsStash: the log-sum-exp is asked for, so that it is looked at by the
// tests of shapes and kernels; its own gradient is not derived.
var lseIsStash = map[int]string{0: "through LSE: not derived", 1: "through LSE: not derived", 2: "through LSE: not derived"}

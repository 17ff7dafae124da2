package passes

import (
	"fmt"
	"math"

	"memoc/ir"
	"memoc/ir/ops"
	"memoc/passes/attnmatch"
	"memoc/passes/mask"
)

// spelled replaces the attention around a softmax, and its gradient where the
// graph holds that, by the pair of FlashAttention.
func (a *attention) spelled(softmax *ir.Node) (err error) {
	m, why := attnmatch.Find(softmax)
	if m == nil {
		if why != "" {
			a.left++
			a.report(softmax, "the attention is not fused: %s", why)
		}
		return nil
	}
	if !a.c.spend() {
		return nil
	}
	defer ir.Catch(&err)
	b := ir.NewBuilder(a.e)
	b.At, b.Prefix, b.Origin, b.Backward, b.Loc = m.Out, m.Out.Name+"_", m.Out.OriginName(), m.Out.Backward, m.Out.Loc
	f, why := a.operands(b, m)
	if why == "" {
		why = a.masks(b, m, &f)
	}
	if why != "" {
		a.left++
		a.report(softmax, "the attention is not fused: %s", why)
		return nil
	}
	outs := 1
	if m.Back != nil {
		outs = 2
	}
	y := b.OpN(ir.MemocDomain, "FlashAttention", outs, f.Inputs(), f.Attrs...)
	if err := a.output(b, m, y[0]); err != nil {
		return err
	}
	if m.Back != nil {
		if err := a.gradient(m, &f, y); err != nil {
			return err
		}
	}
	a.lowered++
	return nil
}

// operands makes queries, keys and values of rank 4.
func (a *attention) operands(b *ir.Builder, m *attnmatch.Match) (f ops.FlashForm, why string) {
	q, k, v := m.Q, m.KT, m.V
	scale := m.Scale
	if d := v.Type.DType; q.Type.DType != d {
		// Products in a wider type of what was narrow: FlashAttention works so.
		q, k = narrow(q, d), narrow(k, d)
		if q == nil || k == nil {
			return f, fmt.Sprintf("queries and values are of types %s and %s", m.Q.Type.DType, d)
		}
	}
	q, k, v = reordered(b, q, m.Perms.Q), reordered(b, k, m.Perms.K), reordered(b, v, m.Perms.V)
	f = ops.FlashForm{Q: a.ofRank4(b, q, false, m.Dims), K: a.ofRank4(b, k, !m.Turned, m.Dims), V: a.ofRank4(b, v, false, m.Dims)}
	if f.Q == nil || f.K == nil || f.V == nil {
		return f, fmt.Sprintf("batch and heads of %q cannot be told apart", m.Q.Name)
	}
	if m.Back == nil || a.reduced(m) {
		a.ungroup(&f)
	}
	f.Attrs = append(f.Attrs, ir.FloatAttr("scale", float32(scale)))
	if m.Softcap != 0 {
		f.Attrs = append(f.Attrs, ir.FloatAttr("softcap", float32(m.Softcap)))
	}
	return f, ""
}

// reordered is v with its axes in another order; nil: as they are.
func reordered(b *ir.Builder, v *ir.Value, perm []int64) *ir.Value {
	for k, p := range perm {
		if int64(k) != p {
			return b.Transpose(v, perm...)
		}
	}
	return v
}

// output delivers the result of an attention.
func (a *attention) output(b *ir.Builder, m *attnmatch.Match, y *ir.Value) error {
	old := m.Out.Out[0]
	x := y
	if r := len(m.Perms.Out); r == 3 {
		s := y.Type.Shape.Dims // one batch: heads and batch are one axis
		if !s[0].Equal(ir.N(1)) {
			b.Fail(m.Out.Errorf("internal", "BUG: the result of an equation of rank 3 is %s", y.Type))
		}
		x = b.Squeeze(y, 0)
	}
	if x = reordered(b, x, m.Perms.Out); x == y {
		return a.deliver(b, y, old, false, m.Dims)
	}
	if !x.Type.Equal(old.Type) {
		x.Type = old.Type
	}
	return a.replace(old, x)
}

// narrow is v before a cast from type d, nil if it is no such cast.
func narrow(v *ir.Value, d ir.DType) *ir.Value {
	if n := producer(v, "Cast"); n != nil && n.In[0].Type.DType == d {
		return n.In[0]
	}
	return nil
}

// ofRank4 is x as [batch, heads, positions, width]; swapped says that its last
// two axes are the other way round. nil where it cannot be told how.
func (a *attention) ofRank4(b *ir.Builder, x *ir.Value, swapped bool, dims [4]ir.Dim) *ir.Value {
	x = plain(x)
	if x.Type.Shape.Rank() == 3 {
		switch n := producer(x, "Reshape"); {
		case dims[0].Equal(ir.N(1)) && dims[1].Equal(x.Type.Shape.Dims[0]):
			x = b.Unsqueeze(x, 0)
		case n != nil && splits(n.In[0], x, dims):
			x = plain(n.In[0])
		default:
			batch, ok := dims[0].Int()
			heads, ok2 := dims[1].Int()
			if !ok && !ok2 {
				return nil
			}
			if !ok {
				batch = -1
			}
			if !ok2 {
				heads = -1
			}
			shape, ok := b.DimsValue([]ir.Dim{ir.N(batch), ir.N(heads), x.Type.Shape.Dims[1], x.Type.Shape.Dims[2]}, x)
			if !ok {
				return nil
			}
			s := ir.Dims(dims[0], dims[1], x.Type.Shape.Dims[1], x.Type.Shape.Dims[2])
			x = b.Op("Reshape", []*ir.Value{x, shape})
			x.Type.Shape = s
		}
	}
	if !swapped {
		return x
	}
	perm := []int64{0, 1, 3, 2}
	if n := producer(x, "Transpose"); n != nil {
		if p, ok := n.IntList("perm"); ok {
			perm, x = []int64{p[0], p[1], p[3], p[2]}, n.In[0]
		}
	}
	if perm[0] == 0 && perm[1] == 1 && perm[2] == 2 {
		return plain(x)
	}
	return b.Transpose(x, perm...)
}

// splits reports whether w is [batch, heads, x, y] of v, [batch*heads, x, y].
func splits(w, v *ir.Value, dims [4]ir.Dim) bool {
	s, t := w.Type.Shape.Dims, v.Type.Shape.Dims
	return len(s) == 4 && s[0].Equal(dims[0]) && s[1].Equal(dims[1]) && s[2].Equal(t[1]) && s[3].Equal(t[2])
}

// masks puts the masks of a match into the form; why says what it cannot.
func (a *attention) masks(b *ir.Builder, m *attnmatch.Match, f *ops.FlashForm) (why string) {
	if len(m.Masks) == 0 {
		return ""
	}
	need := maskNeed{parts: m.Masks, scores: m.Type, zeroRows: m.Guarded, replaced: m.Replaced}
	q := ir.Dims(m.Dims[0], m.Dims[1], m.Dims[2], m.Dims[3])
	c := a.classify(need, q)
	switch {
	case c.why != "":
		why = c.why
	case m.Added && m.Replaced && c.class.Empty:
		why = "a query may see no key, and some masks are added and some replace scores"
	default:
		if why = a.apply(b, c, need, f); why == "" {
			return ""
		}
	}
	if c.class != nil && c.class.Empty && math.IsInf(c.class.Hidden, -1) && !m.Guarded {
		return why
	}
	full := c.class != nil && !c.class.Empty // every query sees a key
	if kept := a.keptMask(b, m, f, q, full); kept != "" {
		return why
	}
	if square(f.Mask) {
		a.reportMask(m.Softmax, why)
	}
	return ""
}

// keptMask gives the operator the masks as the tensors they are: the sum of
// those that are added, or one that replaces scores. why says what is in the
// way of the same values.
func (a *attention) keptMask(b *ir.Builder, m *attnmatch.Match, f *ops.FlashForm, scores ir.Shape, full bool) (why string) {
	for _, p := range m.Masks {
		if p.V.Type.DType.IsFloat() && !full && !m.Guarded && mask.Infinite(p.V, scores) {
			return "a query may see no key"
		}
		if p.V.Type.Shape.Rank() > 4 || !mask.Fits(p.V, scores) {
			return "the mask does not fit"
		}
	}
	switch {
	case !m.Replaced:
		f.Mask = m.Masks[0].V
		for _, p := range m.Masks[1:] {
			f.Mask = b.Add(f.Mask, p.V)
		}
		return ""
	case len(m.Masks) > 1:
		return "several masks"
	}
	p := m.Masks[0]
	switch {
	case mask.Low(m.Type, p.Low) && mask.Absorbs(m.Type, p.Low):
		f.Attrs = append(f.Attrs, ir.IntAttr("empty_rows", 2))
	case !math.IsInf(p.Low, -1) || !m.Guarded && !full:
		return "a query may see no key"
	}
	if f.Mask = p.V; p.Not {
		f.Mask = b.Not(p.V)
	}
	return ""
}

// deliver lets the readers of old read x, [batch, heads, positions, width],
// instead: in another form of rank, with the last two axes swapped or not, and
// further down where reshapes and transposes lead back to x's own form.
func (a *attention) deliver(b *ir.Builder, x, old *ir.Value, swapped bool, dims [4]ir.Dim) error {
	for len(old.Uses()) == 1 && !old.IsOutput() && (swapped || !old.Type.Equal(x.Type)) {
		n := old.Uses()[0].Node
		switch {
		case n.Domain != ir.OnnxDomain:
		case n.Op == "Reshape" && splits(n.Out[0], old, dims), changesNothing(n):
			old = n.Out[0]
			continue
		case n.Op == "Transpose" && swapped && old.Type.Shape.Rank() == 4 && swapsLast(n):
			old, swapped = n.Out[0], false
			continue
		}
		break
	}
	if swapped {
		x = b.TransposeLast2(x)
	}
	if !old.Type.Equal(x.Type) {
		s := old.Type.Shape
		shape, ok := b.DimsValue(s.Dims, x)
		if !ok {
			ds := []ir.Dim{ir.N(-1), s.Dims[1], s.Dims[2]}
			if shape, ok = b.DimsValue(ds, x); !ok {
				b.Fail(old.Def.Errorf("internal", "BUG: %q of shape %s cannot be made from %s", old.Name, s, x.Type))
			}
		}
		x = b.Op("Reshape", []*ir.Value{x, shape})
		x.Type = old.Type
	}
	return a.replace(old, x)
}

// replace lets the readers of old read x, which a node made here. An output of
// the graph keeps its name.
func (a *attention) replace(old, x *ir.Value) error {
	if old.IsOutput() {
		name := old.Name
		old.Name = a.c.Graph.Fresh(name + "_unfused")
		x.Name = name
	}
	return a.e.ReplaceUses(old, x)
}

func swapsLast(n *ir.Node) bool {
	perm, _ := n.IntList("perm")
	return len(perm) == 4 && perm[0] == 0 && perm[1] == 1 && perm[2] == 3 && perm[3] == 2
}

// gradient replaces the gradient that the graph holds.
func (a *attention) gradient(m *attnmatch.Match, f *ops.FlashForm, y []*ir.Value) error {
	a.markBackward()
	back := m.Back
	at := back.First
	if a.position[back.Second] < a.position[at] {
		at = back.Second
	}
	b := ir.NewBuilder(a.e)
	b.At, b.Prefix, b.Origin, b.Backward, b.Loc = at, at.Name+"_", at.OriginName(), at.Backward, at.Loc
	dout := a.ofRank4(b, back.DOut, false, m.Dims)
	if dout == nil {
		b.Fail(at.Errorf("internal", "BUG: the gradient %q has no form of rank 4", back.DOut.Name))
	}
	in := []*ir.Value{dout, f.Q, f.K, f.V, y[0], y[1], f.Mask, f.SegQ, f.SegK}
	g := b.OpN(ir.MemocDomain, "FlashAttentionGrad", 3, in, f.Attrs...)
	if err := a.deliver(b, g[0], back.DQ, false, m.Dims); err != nil {
		return err
	}
	if err := a.deliverKV(b, g[1], back.DK, back.Swapped, m.Dims); err != nil {
		return err
	}
	return a.deliverKV(b, g[2], back.DV, false, m.Dims)
}

// deliverKV is deliver of a gradient of keys or values, which may have been
// summed over the query heads of a group already.
func (a *attention) deliverKV(b *ir.Builder, x, old *ir.Value, swapped bool, dims [4]ir.Dim) error {
	if x.Type.Shape.Dims[1].Equal(dims[1]) {
		return a.deliver(b, x, old, swapped, dims)
	}
	return a.replace(groupSum(old, swapped, dims), x)
}

// reduced reports whether the gradients of keys and values are summed over
// groups right after they are made.
func (a *attention) reduced(m *attnmatch.Match) bool {
	return groupSum(m.Back.DK, m.Back.Swapped, m.Dims) != nil && groupSum(m.Back.DV, false, m.Dims) != nil
}

// groupSum follows a gradient of keys or values, [.., heads, positions, width],
// to its sum over the query heads of each group; nil if there is none.
func groupSum(v *ir.Value, swapped bool, dims [4]ir.Dim) *ir.Value {
	for range 8 {
		if len(v.Uses()) != 1 || v.IsOutput() {
			return nil
		}
		n := v.Uses()[0].Node
		out := n.Out[0]
		switch {
		case n.Domain != ir.OnnxDomain:
			return nil
		case n.Op == "Reshape" && splits(out, v, dims), changesNothing(n):
		case n.Op == "Transpose" && swapped && v.Type.Shape.Rank() == 4 && swapsLast(n):
			swapped = false
		case n.Op == "Reshape" && !swapped && out.Type.Shape.Rank() == 5:
			w := out.Type.Shape.Dims
			s := v.Type.Shape.Dims
			r := len(s)
			if !w[0].Equal(dims[0]) || !w[1].Mul(w[2]).Equal(dims[1]) || !w[3].Equal(s[r-2]) || !w[4].Equal(s[r-1]) {
				return nil
			}
		case n.Op == "ReduceSum" && v.Type.Shape.Rank() == 5:
			return groupReduced(n, v)
		default:
			return nil
		}
		v = out
	}
	return nil
}

// groupReduced is the sum of v over axis 2 without that axis.
func groupReduced(n *ir.Node, v *ir.Value) *ir.Value {
	axes, _ := n.IntList("axes")
	if len(n.In) > 1 && n.In[1] != nil && n.In[1].Const() != nil {
		axes = n.In[1].Const().Ints()
	}
	if len(axes) != 1 || axes[0] != 2 && axes[0] != -3 {
		return nil
	}
	out := n.Out[0]
	if n.Int("keepdims", 1) == 0 {
		return out
	}
	if len(out.Uses()) != 1 || out.IsOutput() {
		return nil
	}
	next := out.Uses()[0].Node
	if next.Domain != ir.OnnxDomain || next.Op != "Squeeze" && next.Op != "Reshape" {
		return nil
	}
	s, w := next.Out[0].Type.Shape, v.Type.Shape.Dims
	if s.Equal(ir.Dims(w[0], w[1], w[3], w[4])) {
		return next.Out[0]
	}
	return nil
}

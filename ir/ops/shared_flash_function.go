package ops

import "memoc/ir"

// flashGraph is attention in standard operators, S x T scores and all, with
// query heads in groups: Q is [B,G,R,S,D] and K, V are [B,G,1,T,·].
type flashGraph struct {
	b          *ir.Builder
	n          *ir.Node
	work       ir.DType
	q, k, v    *ir.Value
	grouped    func(x *ir.Value) *ir.Value // [B,H,S,·] to [B,G,R,S,·]
	scores     *ir.Value                   // [B,H,S,T], masked
	slope      *ir.Value                   // derivative of the capped score by the product; nil: scale
	rows       *ir.Value                   // shape [B,H,S] of the rows
	scale      float64
	scoreShape *ir.Value
	peak       *ir.Value // the largest bias that a row sees; nil: 0
	empty      int64     // see emptyZero
	share      *ir.Value // weight of a key in an empty row: 1/T; nil: 0
}

// evened gives the weights p of empty rows.
func (g *flashGraph) evened(p, dead *ir.Value) *ir.Value {
	if g.share == nil {
		return p
	}
	return g.b.Op("Where", []*ir.Value{dead, g.share, p})
}

// masks is the mask and the segments of queries and keys, nil where absent.
func newFlashGraph(b *ir.Builder, n *ir.Node, q, k, v *ir.Value, masks [3]*ir.Value) *flashGraph {
	mask := masks[0]
	g := &flashGraph{b: b, n: n, work: workType(q.Type.DType)}
	heads, groups := b.DimOf(q, 1), b.DimOf(k, 1)
	per := b.Div(heads, groups)
	g.grouped = func(x *ir.Value) *ir.Value {
		shape := b.Concat(0, b.DimOf(x, 0), groups, per, b.DimOf(x, 2), b.DimOf(x, 3))
		return b.Op("Reshape", []*ir.Value{x, shape}, allowZero(b)...)
	}
	g.q = g.grouped(b.Cast(q, g.work))
	g.k = b.Unsqueeze(b.Cast(k, g.work), 2)
	g.v = b.Unsqueeze(b.Cast(v, g.work), 2)
	g.scale = float64(0)
	raw := b.MatMul(g.q, g.swap(g.k))
	if a := n.Attr("scale"); a != nil {
		g.scale = float64(a.F)
		raw = b.MulScalar(raw, g.scale)
	} else {
		raw = b.Mul(raw, g.defaultScale(q))
	}
	g.scoreShape = b.Concat(0, b.DimOf(q, 0), heads, b.DimOf(q, 2), b.DimOf(k, 2))
	s := b.Op("Reshape", []*ir.Value{raw, g.scoreShape}, allowZero(b)...)
	if c := float64(n.Float("softcap", 0)); c > 0 {
		th := b.Op("Tanh", []*ir.Value{b.MulScalar(s, 1/c)})
		s = b.MulScalar(th, c)
		g.slope = b.Sub(b.Scalar(g.work, 1), b.Mul(th, th))
	}
	var seen []*ir.Value
	if allowed := g.allowed(q, k); allowed != nil {
		seen = append(seen, allowed)
	}
	if sq, sk := masks[1], masks[2]; sq != nil && sk != nil {
		seen = append(seen, b.Op("Equal", []*ir.Value{b.Unsqueeze(sq, 1, 3), b.Unsqueeze(sk, 1, 2)}))
	}
	hide := func(x *ir.Value) *ir.Value {
		for _, c := range seen {
			x = b.Op("Where", []*ir.Value{c, x, b.Scalar(g.work, negInf)})
		}
		return x
	}
	switch {
	case mask == nil:
	case mask.Type.DType == ir.Bool:
		seen = append(seen, mask)
	default:
		bias := b.Cast(mask, g.work)
		s = b.Add(s, bias)
		all := hide(b.Op("Expand", []*ir.Value{bias, g.scoreShape}))
		g.peak, _ = g.finite(b.ReduceMax(g.padded(all), true, 3))
	}
	g.scores = hide(s)
	g.empty = n.Int("empty_rows", emptyZero)
	if g.empty != emptyZero {
		g.share = b.Div(b.Scalar(g.work, 1), b.Cast(b.Squeeze(b.DimOf(k, 2), 0), g.work))
	}
	return g
}

// allowZero lets a Reshape take dims of 0 as they are.
func allowZero(b *ir.Builder) []ir.Attr {
	if b.Opset() < 14 {
		return nil
	}
	return []ir.Attr{ir.IntAttr("allowzero", 1)}
}

func (g *flashGraph) swap(x *ir.Value) *ir.Value { return g.b.TransposeLast2(x) }

// defaultScale is 1/sqrt(D).
func (g *flashGraph) defaultScale(q *ir.Value) *ir.Value {
	d := g.b.Cast(g.b.Squeeze(g.b.DimOf(q, 3), 0), g.work)
	return g.b.Div(g.b.Scalar(g.work, 1), g.b.Op("Sqrt", []*ir.Value{d}))
}

// allowed is which keys a query may see by position, nil for all.
func (g *flashGraph) allowed(q, k *ir.Value) *ir.Value {
	b := g.b
	left, right := g.n.Int("left_window_size", -1), g.n.Int("right_window_size", -1)
	causal := g.n.Int("is_causal", 0)
	if causal != 0 {
		right = 0
	}
	if left < 0 && right < 0 {
		return nil
	}
	zero, one := b.Const(ir.FromInts(ir.Int64, []int64{0})), b.Const(ir.FromInts(ir.Int64, []int64{1}))
	rows, cols := b.Squeeze(b.DimOf(q, 2), 0), b.Squeeze(b.DimOf(k, 2), 0)
	i := b.Unsqueeze(b.Op("Range", []*ir.Value{zero, rows, one}), 1)
	j := b.Unsqueeze(b.Op("Range", []*ir.Value{zero, cols, one}), 0)
	if causal == 2 {
		i = b.Add(i, b.Sub(cols, rows))
	}
	ahead := b.Sub(j, i)
	var ok *ir.Value
	if right >= 0 {
		ok = b.Op("Less", []*ir.Value{ahead, b.Const(ir.FromInts(ir.Int64, []int64{right + 1}))})
	}
	if left >= 0 {
		within := b.Op("Less", []*ir.Value{b.Const(ir.FromInts(ir.Int64, []int64{-left - 1})), ahead})
		if ok != nil {
			within = b.Op("And", []*ir.Value{ok, within})
		}
		ok = within
	}
	return ok
}

// finite replaces -inf by 0, so that rows without keys make no NaN.
func (g *flashGraph) finite(x *ir.Value) (safe, dead *ir.Value) {
	dead = g.b.Op("Less", []*ir.Value{x, g.b.Scalar(g.work, -3e38)})
	return g.b.Op("Where", []*ir.Value{dead, g.b.Scalar(g.work, 0), x}), dead
}

// ungrouped gives x [B,G,R,S,·] the shape [B,H,S,·] of like with x's width.
func (g *flashGraph) ungrouped(x, like *ir.Value) *ir.Value {
	b := g.b
	shape := b.Concat(0, b.DimOf(like, 0), b.DimOf(like, 1), b.DimOf(like, 2), b.DimOf(x, 4))
	return b.Op("Reshape", []*ir.Value{x, shape}, allowZero(b)...)
}

func flashFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	q := in[0]
	g := newFlashGraph(b, n, q, in[1], in[2], [3]*ir.Value{optional(in, 3), optional(in, 4), optional(in, 5)})
	top, dead := g.finite(b.ReduceMax(g.padded(g.scores), true, 3))
	e := b.Op("Exp", []*ir.Value{b.Sub(g.scores, top)})
	sum := b.ReduceSum(e, true, 3)
	one := b.Scalar(g.work, 1)
	safe := b.Op("Where", []*ir.Value{dead, one, sum})
	y := g.ungrouped(b.MatMul(g.grouped(g.evened(b.Div(e, safe), dead)), g.v), q)
	lse := b.Op("Where", []*ir.Value{dead, b.Scalar(g.work, negInf), b.Add(g.belowPeak(top), b.Op("Log", []*ir.Value{safe}))})
	return []*ir.Value{b.Cast(y, q.Type.DType), b.Squeeze(lse, 3)}
}

// belowPeak is x less the largest bias of its row.
func (g *flashGraph) belowPeak(x *ir.Value) *ir.Value {
	if g.peak == nil {
		return x
	}
	return g.b.Sub(x, g.peak)
}

// padded is x with one more key of -inf, so that a maximum exists even where
// there are no keys.
func (g *flashGraph) padded(x *ir.Value) *ir.Value {
	b := g.b
	shape := b.Concat(0, b.SliceAxis(g.scoreShape, 0, 0, 3, 1), b.Int64s(1))
	return b.Concat(3, x, b.Op("Expand", []*ir.Value{b.Scalar(g.work, negInf), shape}))
}

func optional(in []*ir.Value, i int) *ir.Value {
	if i >= len(in) {
		return nil
	}
	return in[i]
}

func flashGradFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	dy, q, k, v, y, lse, mask := in[0], in[1], in[2], in[3], in[4], in[5], optional(in, 6)
	g := newFlashGraph(b, n, q, k, v, [3]*ir.Value{mask, optional(in, 7), optional(in, 8)})
	dyw := b.Cast(dy, g.work)
	safe, dead := g.finite(b.Unsqueeze(b.Cast(lse, g.work), 3))
	p := g.evened(b.Op("Exp", []*ir.Value{b.Sub(g.belowPeak(g.scores), safe)}), dead)
	dy5, p5 := g.grouped(dyw), g.grouped(p)
	dv := b.ReduceSum(b.MatMul(g.swap(p5), dy5), false, 2)
	dp := b.Op("Reshape", []*ir.Value{b.MatMul(dy5, g.swap(g.v)), g.scoreShape}, allowZero(b)...)
	delta := b.ReduceSum(b.Mul(dyw, b.Cast(y, g.work)), true, 3)
	ds := b.Mul(p, b.Sub(dp, delta))
	if g.empty == emptyMeanReplaced {
		ds = b.Op("Where", []*ir.Value{dead, b.Scalar(g.work, 0), ds})
	}
	out := []*ir.Value{nil, nil, b.Cast(dv, v.Type.DType)}
	if len(n.Out) > 3 {
		// The scores have no known dims here, the mask's ones are known.
		ds.Type.Shape = ir.Dims(knownLike(ds.Type.Shape, mask.Type.Shape)...)
		out = append(out, b.Cast(b.SumTo(ds, mask), mask.Type.DType))
	}
	if g.slope != nil {
		ds = b.Mul(ds, g.slope)
	}
	if n.Attr("scale") != nil {
		ds = b.MulScalar(ds, g.scale)
	} else {
		ds = b.Mul(ds, g.defaultScale(q))
	}
	ds5 := g.grouped(ds)
	out[0] = b.Cast(g.ungrouped(b.MatMul(ds5, g.k), q), q.Type.DType)
	out[1] = b.Cast(b.ReduceSum(b.MatMul(g.swap(ds5), g.q), false, 2), k.Type.DType)
	return out
}

// knownLike is dims where those of like, aligned at the end, are taken unless
// they are 1: a dim of a mask is 1 or that of the scores.
func knownLike(s, like ir.Shape) []ir.Dim {
	dims := append([]ir.Dim{}, s.Dims...)
	for i, d := range like.Dims {
		if !isOne(d) {
			dims[i+len(dims)-like.Rank()] = d
		}
	}
	return dims
}

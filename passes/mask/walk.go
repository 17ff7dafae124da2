package mask

import (
	"math"

	"memoc/ir"
)

// walk is one evaluation.
type walk struct {
	extent [axes]ir.Dim
	work   int // elements that may still be looked at
}

// maxWork bounds the elements looked at for one mask.
const maxWork = 20000

// element is v's element at the given place.
func (w *walk) element(v *ir.Value, at []*Expr) *Expr {
	e := w.see(v, at)
	if e == nil || e.size > maxSize {
		return leafOf(v, at)
	}
	return w.whole(v, at, e)
}

// whole takes an element of v for a leaf where v itself varies with no more
// axes than e: then v is as small as what it is made of.
func (w *walk) whole(v *ir.Value, at []*Expr, e *Expr) *Expr {
	if e.kind == affine || e.kind == number || e.kind == truth || e.kind == atMost || e.kind == leaf || v.Def == nil || e.on(Query) && e.on(Key) {
		return e
	}
	l := leafOf(v, at)
	if l.deps != e.deps || v.Type.DType == ir.Undefined {
		return e
	}
	return l
}

// see is the element in terms of what computes v, nil where it cannot tell.
func (w *walk) see(v *ir.Value, at []*Expr) *Expr {
	if w.work--; w.work < 0 || !v.Type.Shape.Ranked || v.Type.Shape.Rank() != len(at) {
		return nil
	}
	for _, i := range at {
		if i.kind != affine {
			return nil
		}
	}
	if e := w.known(v, at); e != nil {
		return e
	}
	n := v.Def
	if n == nil || n.Domain != ir.OnnxDomain || v.Port != 0 {
		return nil
	}
	if rule := moves[n.Op]; rule != nil {
		return rule(w, n, at)
	}
	if rule := maths[n.Op]; rule != nil {
		in := make([]*Expr, len(n.In))
		for i, o := range n.In {
			place := w.broadcast(o, v, at)
			if place == nil {
				return nil
			}
			in[i] = w.element(o, place)
		}
		return rule(w, n, in)
	}
	return nil
}

// broadcast is the place in an operand that is aligned with a place in a
// result; nil where it cannot tell whether an axis is broadcast.
func (w *walk) broadcast(o, v *ir.Value, at []*Expr) []*Expr {
	if o == nil || !o.Type.Shape.Ranked || o.Type.Shape.Rank() > len(at) {
		return nil
	}
	lead := len(at) - o.Type.Shape.Rank()
	place := make([]*Expr, o.Type.Shape.Rank())
	for k, d := range o.Type.Shape.Dims {
		switch {
		case d.Equal(ir.N(1)):
			place[k] = intOf(0)
		case d.Equal(v.Type.Shape.Dims[lead+k]):
			place[k] = at[lead+k]
		default:
			return nil
		}
	}
	return place
}

// known is an element of a constant, or of a value that inference knows.
func (w *walk) known(v *ir.Value, at []*Expr) *Expr {
	if v.Ints != nil && v.Type.DType.IsInt() && len(at) <= 1 {
		return knownInt(v.Ints, at)
	}
	if t := constantOf(v); t != nil {
		return w.constant(t, at)
	}
	return nil
}

func knownInt(ints []ir.Dim, at []*Expr) *Expr {
	if len(at) == 0 {
		return dimOf(ints[0])
	}
	if at[0].constant() {
		if n, ok := at[0].c.Int(); ok && n >= 0 && n < int64(len(ints)) {
			return dimOf(ints[n])
		}
		return nil
	}
	if len(ints) < 2 {
		return nil
	}
	step, ok := ints[1].Sub(ints[0]).Int()
	for i := range ints {
		ok = ok && ints[i].Equal(ints[0].Add(ir.N(step*int64(i))))
	}
	if !ok {
		return nil
	}
	return dimOf(ints[0]).plus(at[0], step)
}

// maxConstant bounds the elements of a constant that is read: the triangular
// buffers that exporters leave in a file are a few million.
const maxConstant = 1 << 22

// constantOf is v's tensor if training cannot change it and it is at hand.
func constantOf(v *ir.Value) *ir.Tensor {
	dims, static := v.Type.Shape.Static()
	if !static || ir.Elems(dims) > maxConstant {
		return nil
	}
	switch {
	case v.Init != nil:
		if v.Init.External != nil || v.IsInput() {
			return nil
		}
		t, err := v.Init.Tensor()
		if err != nil || t.DType.IsFloat() && !v.Init.Constant && t.Len() > 1 && !masking(t) {
			return nil
		}
		return t
	case v.Def != nil && v.Def.Op == "Constant" && v.Def.Domain == ir.OnnxDomain:
		if a := v.Def.Attr("value"); a != nil {
			return a.T
		}
		return v.Const()
	}
	return nil
}

// masking reports whether a float tensor holds zeros and numbers that hide
// keys alone: no parameter does.
func masking(t *ir.Tensor) bool {
	for _, x := range t.Floats() {
		if x != 0 && !Low(t.DType, x) {
			return false
		}
	}
	return true
}

// round is x as type d holds it.
func round(d ir.DType, x float64) float64 {
	if !d.IsFloat() {
		return x
	}
	return ir.FromFloats(d, []float64{x}).Floats()[0]
}

// constant is an element of a constant tensor: a number, a number that grows
// evenly along the axes, or one of two values inside and outside a band.
func (w *walk) constant(t *ir.Tensor, at []*Expr) *Expr {
	if !t.DType.IsInt() && !t.DType.IsFloat() && t.DType != ir.Bool {
		return nil
	}
	base, free := int64(0), []int{}
	strides := make([]int64, len(at))
	step := int64(1)
	for k := len(at) - 1; k >= 0; k-- {
		strides[k] = step
		step *= t.Dims[k]
	}
	for k, i := range at {
		n, ok := i.c.Int()
		switch {
		case !i.constant():
			free = append(free, k)
		case !ok || n < 0 || n >= t.Dims[k]:
			return nil
		default:
			base += n * strides[k]
		}
	}
	r := reader{t: t, at: at, base: base, strides: strides, free: free}
	if t.Len() == 0 {
		return nil
	}
	if t.DType.IsFloat() {
		r.floats = t.Floats()
	} else {
		r.ints = t.Ints()
	}
	if e := r.even(); e != nil {
		return e
	}
	return r.band(w)
}

// reader reads a constant along its free axes.
type reader struct {
	t       *ir.Tensor
	at      []*Expr
	base    int64
	strides []int64
	free    []int
	ints    []int64
	floats  []float64
}

func (r *reader) value(offset int64) float64 {
	if r.floats != nil {
		return r.floats[offset]
	}
	return float64(r.ints[offset])
}

// each calls f with every place of the free axes until it says no.
func (r *reader) each(f func(place []int64, x float64) bool) bool {
	place := make([]int64, len(r.free))
	for {
		offset := r.base
		for k, a := range r.free {
			offset += place[k] * r.strides[a]
		}
		if !f(place, r.value(offset)) {
			return false
		}
		k := len(place) - 1
		for ; k >= 0; k-- {
			if place[k]++; place[k] < r.t.Dims[r.free[k]] {
				break
			}
			place[k] = 0
		}
		if k < 0 {
			return true
		}
	}
}

// expr is a value of the tensor as a constant.
func (r *reader) expr(x float64) *Expr {
	switch {
	case r.t.DType == ir.Bool:
		return truthOf(x != 0)
	case r.t.DType.IsInt():
		return intOf(int64(x))
	}
	return numberOf(x)
}

// even is base + sum of step*index, nil if the constant is none.
func (r *reader) even() *Expr {
	first := r.value(r.base)
	steps := make([]float64, len(r.free))
	any := false
	for k, a := range r.free {
		if r.t.Dims[a] > 1 {
			steps[k] = r.value(r.base+r.strides[a]) - first
			any = any || steps[k] != 0
		}
	}
	ok := r.each(func(place []int64, x float64) bool {
		want := first
		for k, n := range place {
			if steps[k] != 0 {
				want += steps[k] * float64(n)
			}
		}
		return x == want || math.IsNaN(x) && math.IsNaN(want)
	})
	switch {
	case !ok:
		return nil
	case !any:
		return r.expr(first)
	case r.t.DType == ir.Bool:
		return nil // two values: a band of its own
	}
	out := numberOf(first).asAffine()
	if out == nil {
		return nil
	}
	for k, a := range r.free {
		if steps[k] != math.Trunc(steps[k]) || math.Abs(steps[k]) > 1<<40 {
			return nil
		}
		out = out.plus(r.at[a], int64(steps[k]))
	}
	return out
}

// band is one value where lo <= second axis - first axis <= hi and another
// elsewhere, for a pair of free axes along which alone the constant varies.
func (r *reader) band(w *walk) *Expr {
	vary := r.varying()
	if len(vary) == 0 || len(vary) > 2 {
		return nil
	}
	diff := func(place []int64) int64 {
		d := place[vary[len(vary)-1]]
		if len(vary) == 2 {
			d -= place[vary[0]]
		}
		return d
	}
	in, out, two := r.sides(diff)
	if !two {
		return nil
	}
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	first, last := lo, hi
	r.each(func(place []int64, x float64) bool {
		d := diff(place)
		first, last = min(first, d), max(last, d)
		if x == in {
			lo, hi = min(lo, d), max(hi, d)
		}
		return true
	})
	if !r.each(func(place []int64, x float64) bool { d := diff(place); return (x == in) == (d >= lo && d <= hi) }) {
		return nil
	}
	d := r.at[r.free[vary[len(vary)-1]]]
	if len(vary) == 2 {
		d = d.plus(r.at[r.free[vary[0]]], -1)
	}
	inside := truthOf(true)
	if hi < last {
		inside = andOf(inside, w.atMostZero(d.plus(intOf(hi), -1)))
	}
	if lo > first {
		inside = andOf(inside, w.atMostZero(intOf(lo).plus(d, -1)))
	}
	return w.pickOf(inside, r.expr(in), r.expr(out))
}

// varying lists the free axes along which the constant varies.
func (r *reader) varying() []int {
	var vary []int
	for k, a := range r.free {
		stride := r.strides[a]
		if !r.each(func(place []int64, x float64) bool {
			if place[k] == 0 {
				return true
			}
			offset := r.base
			for j, b := range r.free {
				offset += place[j] * r.strides[b]
			}
			return r.value(offset-stride) == x
		}) {
			vary = append(vary, k)
		}
	}
	return vary
}

// sides finds the two values of the constant and which of them fills a range
// of differences; two is false if there are more values.
func (r *reader) sides(diff func([]int64) int64) (in, out float64, two bool) {
	first, second, seen := 0.0, 0.0, 0
	ok := r.each(func(place []int64, x float64) bool {
		switch {
		case seen == 0:
			first, seen = x, 1
		case x == first || seen == 2 && x == second:
		case seen == 1:
			second, seen = x, 2
		default:
			return false
		}
		return true
	})
	if !ok || seen < 2 {
		return 0, 0, false
	}
	for _, p := range [][2]float64{{first, second}, {second, first}} {
		kinds := map[int64]float64{}
		flips, ok := 0, true
		low, high := int64(math.MaxInt64), int64(math.MinInt64)
		r.each(func(place []int64, x float64) bool {
			d := diff(place)
			if old, there := kinds[d]; there && old != x {
				ok = false
			}
			kinds[d] = x
			low, high = min(low, d), max(high, d)
			return ok
		})
		if !ok {
			return 0, 0, false
		}
		inside := false
		for d := low; d <= high; d++ {
			if now := kinds[d] == p[0]; now != inside {
				inside = now
				flips++
			}
		}
		if flips <= 2 {
			return p[0], p[1], true
		}
	}
	return 0, 0, false
}

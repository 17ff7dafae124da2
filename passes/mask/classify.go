package mask

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"memoc/ir"
)

// Class is what a mask is: the conjunction of what is set in it. Nothing in it
// varies with query and key both but Lo and Hi.
type Class struct {
	Lo, Hi     *ir.Dim // a query i sees keys from i+Lo on, and up to i+Hi; nil: no bound
	Keys       *Expr   // bool: which keys are seen
	SegQ, SegK *Expr   // integers: a query sees the keys whose number equals its own
	Bias       *Expr   // added to the scores

	// Hidden is what the mask adds to the score of a key that is not seen, or
	// puts in its place: -Inf, or a finite number. Mixed says that several parts
	// hide, so that it may come twice.
	Hidden float64
	Mixed  bool
	// Empty says that there may be a query that sees no key.
	Empty bool

	extent [axes]ir.Dim
}

// None reports whether the mask changes nothing.
func (c *Class) None() bool { return !c.Hides() && c.Bias == nil }

// Hides reports whether the class hides keys.
func (c *Class) Hides() bool {
	return c.Lo != nil || c.Hi != nil || c.Keys != nil || c.SegQ != nil
}

// String names the class: "causal", "window", "segments", "keys", "bias".
func (c *Class) String() string {
	var parts []string
	switch {
	case c.Hi != nil && c.Lo == nil && (c.Hi.Equal(ir.N(0)) || c.Hi.Equal(c.extent[Key].Sub(c.extent[Query]))):
		parts = append(parts, "causal")
	case c.Hi != nil || c.Lo != nil:
		bound := func(d *ir.Dim) string {
			if d == nil {
				return ""
			}
			return d.String()
		}
		parts = append(parts, fmt.Sprintf("window[%s,%s]", bound(c.Lo), bound(c.Hi)))
	}
	for _, p := range []struct {
		e    *Expr
		name string
	}{{c.SegQ, "segments"}, {c.Keys, "keys"}, {c.Bias, "bias"}} {
		if p.e != nil {
			parts = append(parts, p.name)
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "+")
}

// Part is one of the masks of an attention. A value of type bool says which
// keys are seen (Not: hidden); what it does to the score of the others is Low.
// A value of a floating-point type is added to the scores.
type Part struct {
	V   *ir.Value
	Not bool
	Low float64
}

// Of classifies the masks of one attention, each of which is broadcast to
// [batch, heads, queries, keys]. Where they are nothing that a Class can say,
// class is nil and why tells the reason.
func Of(parts []Part, batch, heads, queries, keys ir.Dim) (class *Class, why string) {
	w := &walk{extent: [axes]ir.Dim{batch, heads, queries, keys}, work: maxWork}
	class = &Class{Hidden: math.Inf(-1), extent: w.extent}
	for _, p := range parts {
		at, why := w.root(p.V)
		if why != "" {
			return nil, why
		}
		if p.V.Type.DType != ir.Bool {
			why = class.addend(w, p.V, at)
		} else {
			seen := w.element(p.V, at)
			if p.Not {
				seen = w.notOf(seen)
			}
			why = class.hide(w, seen, p.Low)
		}
		if why != "" {
			return nil, why
		}
	}
	// A vector that is added may hide keys for all that is known; beside a
	// finite mask that is a query that sees none.
	class.Empty = class.Hides() && (!class.seesOne(w) || class.Bias != nil && !math.IsInf(class.Hidden, -1))
	return class, ""
}

// hide takes in a condition for a key to be seen, and what hides the others.
func (c *Class) hide(w *walk, seen *Expr, low float64) string {
	if seen.isTrue() {
		return ""
	}
	if !c.Hides() {
		c.Hidden = low
	} else {
		c.Mixed = true
		c.Hidden = max(c.Hidden, low)
	}
	return c.conjunct(w, seen)
}

// root is the place of the mask's element for batch, head, query and key.
func (w *walk) root(v *ir.Value) (at []*Expr, why string) {
	s := v.Type.Shape
	if !s.Ranked || s.Rank() > axes {
		return nil, fmt.Sprintf("the mask %q has shape %s", v.Name, s)
	}
	for k, d := range s.Dims {
		axis := axes - s.Rank() + k
		switch {
		case d.Equal(ir.N(1)):
			at = append(at, intOf(0))
		case d.Equal(w.extent[axis]):
			at = append(at, axisOf(axis))
		default:
			return nil, fmt.Sprintf("dim %s of the mask %q may or may not be broadcast to %s", d, v.Name, w.extent[axis])
		}
	}
	return at, ""
}

// addend takes in a mask that is added to the scores, and the parts of a sum.
func (c *Class) addend(w *walk, v *ir.Value, at []*Expr) string {
	e := w.element(v, at)
	if e.kind == number && e.x == 0 {
		return ""
	}
	if !e.on(Query) || !e.on(Key) {
		switch {
		case c.Bias != nil:
			return fmt.Sprintf("the mask %q is a sum of two vectors", v.Name)
		case !w.emittable(e):
			return fmt.Sprintf("the vector in the mask %q is computed from %s", v.Name, e)
		}
		c.Bias = e
		return ""
	}
	if e.kind == pick {
		seen, hidden, ok := w.split(e)
		if ok {
			return c.hide(w, seen, hidden)
		}
	}
	if v.Def != nil && v.Def.Op == "Add" && v.Def.Domain == ir.OnnxDomain {
		for _, o := range v.Def.In {
			place := w.broadcast(o, v, at)
			if place == nil {
				return reason(v, e)
			}
			if why := c.addend(w, o, place); why != "" {
				return why
			}
		}
		return ""
	}
	return reason(v, e)
}

// reason says what stands in the way of a class.
func reason(v *ir.Value, e *Expr) string {
	if l := e.culprit(); l != nil {
		if l.v == v {
			return fmt.Sprintf("the mask %q varies with query and key in a way that is not seen through", v.Name)
		}
		return fmt.Sprintf("the mask %q varies with query and key through %q", v.Name, l.v.Name)
	}
	text := e.String()
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return fmt.Sprintf("the mask %q is %s", v.Name, text)
}

// culprit is a leaf that varies with query and key.
func (e *Expr) culprit() *Expr {
	if e == nil || !e.on(Query) || !e.on(Key) {
		return nil
	}
	if e.kind == leaf {
		return e
	}
	for _, p := range []*Expr{e.cond, e.a, e.b} {
		if l := p.culprit(); l != nil {
			return l
		}
	}
	return nil
}

// split makes choices between 0 and one negative number the condition for 0.
func (w *walk) split(e *Expr) (seen *Expr, hidden float64, ok bool) {
	switch e.kind {
	case number:
		return truthOf(e.x == 0), e.x, e.x <= 0
	case pick:
		a, low, okA := w.split(e.a)
		b, low2, okB := w.split(e.b)
		if low == 0 {
			low = low2
		}
		if !okA || !okB || low2 != 0 && low2 != low {
			return nil, 0, false
		}
		return w.orOf(andOf(e.cond, a), andOf(w.notOf(e.cond), b)), low, true
	}
	return nil, 0, false
}

// conjunct takes in a condition for a key to be seen.
func (c *Class) conjunct(w *walk, e *Expr) string {
	switch {
	case e.isTrue():
		return ""
	case e.kind == and:
		if why := c.conjunct(w, e.a); why != "" {
			return why
		}
		return c.conjunct(w, e.b)
	case e.isFalse():
		return "the mask hides every key"
	case !e.on(Query):
		return c.keys(w, e)
	case !e.on(Key):
		return fmt.Sprintf("the mask hides whole queries by %s", e)
	case e.kind == atMost:
		return c.bound(e)
	case e.kind == equal:
		return c.segments(w, e)
	}
	if l := e.culprit(); l != nil {
		return fmt.Sprintf("the mask varies with query and key through %q", l.v.Name)
	}
	text := e.String()
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return "the mask is " + text
}

func (c *Class) keys(w *walk, e *Expr) string {
	if !w.emittable(e) {
		return fmt.Sprintf("the seen keys are computed from %s", e)
	}
	if c.Keys == nil {
		c.Keys = e
	} else {
		c.Keys = andOf(c.Keys, e)
	}
	return ""
}

// bound takes in key-query+c <= 0 or query-key+c <= 0.
func (c *Class) bound(e *Expr) string {
	ok := false
	switch e.coef {
	case [axes]int64{Query: -1, Key: 1}:
		c.Hi, ok = tighter(c.Hi, e.c.Neg(), 1)
	case [axes]int64{Query: 1, Key: -1}:
		c.Lo, ok = tighter(c.Lo, e.c, -1)
	}
	if !ok {
		return fmt.Sprintf("the mask is %s", e)
	}
	return ""
}

// tighter is the smaller (sign 1) or larger (sign -1) of two bounds; ok is
// false where it cannot tell.
func tighter(old *ir.Dim, d ir.Dim, sign int64) (*ir.Dim, bool) {
	switch {
	case old == nil || old.Sub(d).Mul(ir.N(sign)).NonNegative():
		return &d, true
	case d.Sub(*old).Mul(ir.N(sign)).NonNegative():
		return old, true
	}
	return old, false
}

func (c *Class) segments(w *walk, e *Expr) string {
	q, k := e.a, e.b
	if q.on(Key) {
		q, k = k, q
	}
	switch {
	case q.on(Key) || k.on(Query) || !q.on(Query) || !k.on(Key) || q.on(Head) || k.on(Head):
		return fmt.Sprintf("the mask is %s", e)
	case c.SegQ != nil && (!c.SegQ.same(q) || !c.SegK.same(k)):
		return "the mask compares two kinds of segments"
	case !w.emittable(q) || !w.emittable(k):
		return fmt.Sprintf("the segments are computed from %s", e)
	}
	c.SegQ, c.SegK = q, k
	return ""
}

// seesOne reports whether every query is proven to see a key: the one at its
// own place, or the one as far from the last.
func (c *Class) seesOne(w *walk) bool {
	if c.Keys != nil {
		return false
	}
	for _, delta := range []ir.Dim{ir.N(0), w.extent[Key].Sub(w.extent[Query])} {
		inside := delta.NonNegative() && w.extent[Key].Sub(w.extent[Query]).Sub(delta).NonNegative()
		low := c.Lo == nil || delta.Sub(*c.Lo).NonNegative()
		high := c.Hi == nil || c.Hi.Sub(delta).NonNegative()
		own := c.SegQ == nil || delta.Equal(ir.N(0)) && c.SegK.renamed(Key, Query).same(c.SegQ)
		if inside && low && high && own {
			return true
		}
	}
	return false
}

// renamed is e with one axis in place of another.
func (e *Expr) renamed(from, to int) *Expr {
	if e == nil || !e.on(from) {
		return e
	}
	f := *e
	f.coef[to], f.coef[from] = f.coef[to]+f.coef[from], 0
	f.at = slices.Clone(e.at)
	for k := range f.at {
		f.at[k] = f.at[k].renamed(from, to)
	}
	f.cond, f.a, f.b = e.cond.renamed(from, to), e.a.renamed(from, to), e.b.renamed(from, to)
	f.deps[to], f.deps[from] = true, false
	return &f
}

// Low reports whether adding hidden to a score of type d hides a key for good
// wherever another is seen: the scores would have to reach half the range of
// the type for it not to.
func Low(d ir.DType, hidden float64) bool {
	if d == ir.Float16 {
		return hidden <= -6e4
	}
	return hidden <= -1e30
}

// Absorbs reports whether adding hidden to a score of type d leaves nothing of
// the score.
func Absorbs(d ir.DType, hidden float64) bool {
	return d != ir.Float16 && hidden <= -1e30 && !math.IsInf(hidden, -1)
}

// NaN reports whether the vector that is added is known to hold -Inf: if it
// does for all keys, a softmax makes NaN.
func (c *Class) NaN() bool { return c.Bias.holds(math.Inf(-1)) }

func (e *Expr) holds(x float64) bool {
	if e == nil {
		return false
	}
	return e.kind == number && e.x == x || e.a.holds(x) || e.b.holds(x)
}

// Fits reports whether a tensor is broadcast to a shape without changing it.
func Fits(v *ir.Value, s ir.Shape) bool {
	d := v.Type.Shape.Dims
	for k := range d {
		if to := s.Dims[len(s.Dims)-len(d)+k]; !d[k].Equal(ir.N(1)) && !d[k].Equal(to) {
			return false
		}
	}
	return v.Type.Shape.Ranked
}

// Infinite reports whether a mask that is added is known to hold -Inf.
func Infinite(v *ir.Value, s ir.Shape) bool {
	w := &walk{extent: [axes]ir.Dim(s.Dims), work: maxWork}
	at, why := w.root(v)
	return why == "" && w.element(v, at).holds(math.Inf(-1))
}

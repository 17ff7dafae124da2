// Package mask finds out what an attention mask is by following it back to
// what computes it, and never by computing it: a mask over S queries and T
// keys has S x T elements. It evaluates one element of the mask at a symbolic
// place (batch, head, query, key); every operator on the way is an equation
// between that element and elements of its inputs. What it cannot see through
// is a leaf: an element of a tensor of which nothing is known.
//
// It knows nothing of attention operators, of plans, or of what a class is
// used for.
package mask

import (
	"fmt"
	"math"
	"strings"

	"memoc/ir"
)

// The axes of a mask.
const (
	Batch = iota
	Head
	Query
	Key
	axes
)

type kind uint8

const (
	affine kind = iota // sum of coef[k]*axis k, plus c: an integer
	number             // x: a floating-point constant
	leaf               // element at of value v
	pick               // a where cond holds, else b
	truth              // yes
	atMost             // sum of coef[k]*axis k, plus c, is at most 0
	equal              // a == b
	and                // a && b
	or                 // a || b
	not                // !a
)

// Expr is one element of a tensor as a function of batch, head, query and key.
// It is immutable.
type Expr struct {
	kind kind
	coef [axes]int64
	c    ir.Dim
	x    float64
	yes  bool
	v    *ir.Value
	at   []*Expr
	cond *Expr
	a, b *Expr
	deps [axes]bool // the axes it varies with
	size int
}

// maxSize bounds an expression: masks are small formulas.
const maxSize = 256

func intOf(n int64) *Expr         { return &Expr{kind: affine, c: ir.N(n), size: 1} }
func dimOf(d ir.Dim) *Expr        { return &Expr{kind: affine, c: d, size: 1} }
func numberOf(x float64) *Expr    { return &Expr{kind: number, x: x, size: 1} }
func truthOf(yes bool) *Expr      { return &Expr{kind: truth, yes: yes, size: 1} }
func axisOf(axis int) *Expr       { e := intOf(0); e.coef[axis] = 1; e.deps[axis] = true; return e }
func (e *Expr) isTrue() bool      { return e.kind == truth && e.yes }
func (e *Expr) isFalse() bool     { return e.kind == truth && !e.yes }
func (e *Expr) isBool() bool      { return e.kind >= truth || e.kind == leaf && e.v.Type.DType == ir.Bool }
func (e *Expr) varies() bool      { return e.deps != [axes]bool{} }
func (e *Expr) on(ax int) bool    { return e.deps[ax] }
func (e *Expr) same(f *Expr) bool { return e == f || e.String() == f.String() }

func made(e *Expr, parts ...*Expr) *Expr {
	e.size = 1
	for _, p := range parts {
		e.size += p.size
		for k := range e.deps {
			e.deps[k] = e.deps[k] || p.deps[k]
		}
	}
	return e
}

func leafOf(v *ir.Value, at []*Expr) *Expr {
	return made(&Expr{kind: leaf, v: v, at: at}, at...)
}

// String prints the expression; two that print alike are the same.
func (e *Expr) String() string {
	var b strings.Builder
	e.print(&b)
	return b.String()
}

func (e *Expr) print(b *strings.Builder) {
	switch e.kind {
	case affine, atMost:
		for k, n := range e.coef {
			if n != 0 {
				fmt.Fprintf(b, "%+d%c", n, "bhij"[k])
			}
		}
		fmt.Fprintf(b, "+(%s)", e.c)
		if e.kind == atMost {
			b.WriteString("<=0")
		}
	case number:
		fmt.Fprintf(b, "%g", e.x)
	case truth:
		fmt.Fprint(b, e.yes)
	case leaf:
		fmt.Fprintf(b, "%q", e.v.Name)
		printList(b, "[", e.at, "]")
	case pick:
		printList(b, "pick(", []*Expr{e.cond, e.a, e.b}, ")")
	case not:
		printList(b, "not(", []*Expr{e.a}, ")")
	default:
		printList(b, map[kind]string{equal: "equal(", and: "and(", or: "or("}[e.kind], []*Expr{e.a, e.b}, ")")
	}
}

func printList(b *strings.Builder, open string, list []*Expr, shut string) {
	b.WriteString(open)
	for i, e := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		e.print(b)
	}
	b.WriteString(shut)
}

// plus is e + s*f for affine e and f.
func (e *Expr) plus(f *Expr, s int64) *Expr {
	out := &Expr{kind: affine, c: e.c.Add(f.c.Mul(ir.N(s))), size: 1}
	for k := range out.coef {
		out.coef[k] = e.coef[k] + s*f.coef[k]
		out.deps[k] = out.coef[k] != 0
	}
	return out
}

// constant reports whether e is an integer that no axis changes.
func (e *Expr) constant() bool { return e.kind == affine && !e.varies() }

// asAffine is e as an integer expression, nil if it is none.
func (e *Expr) asAffine() *Expr {
	switch {
	case e.kind == affine:
		return e
	case e.kind == number && e.x == math.Trunc(e.x) && math.Abs(e.x) < 1<<52:
		return intOf(int64(e.x))
	}
	return nil
}

// most is the largest value of an affine form; each axis k runs from 0 to
// extent[k]-1. Where there is an element at all, extents are at least 1.
func (w *walk) most(e *Expr, sign int64) ir.Dim {
	top := e.c.Mul(ir.N(sign))
	for k, n := range e.coef {
		if n *= sign; n > 0 {
			top = top.Add(w.extent[k].Sub(ir.N(1)).Mul(ir.N(n)))
		}
	}
	return top
}

// nonNegative reports whether an affine form is proven to be at least 0.
func (w *walk) nonNegative(e *Expr) bool { return w.most(e, -1).Neg().NonNegative() }

// atMostZero is the condition e <= 0 for affine e.
func (w *walk) atMostZero(e *Expr) *Expr {
	if w.most(e, 1).Neg().NonNegative() {
		return truthOf(true)
	}
	if w.most(e, -1).Add(ir.N(1)).Neg().NonNegative() {
		return truthOf(false)
	}
	out := *e
	out.kind = atMost
	return &out
}

func andOf(a, b *Expr) *Expr {
	switch {
	case a.isFalse() || b.isTrue() || a.same(b) || a.kind == and && a.holdsPart(b):
		return a
	case b.isFalse() || a.isTrue() || b.kind == and && b.holdsPart(a):
		return b
	case a.excludes(b):
		return truthOf(false)
	}
	return made(&Expr{kind: and, a: a, b: b}, a, b)
}

// holdsPart reports whether b is one of the conditions that a joins.
func (e *Expr) holdsPart(b *Expr) bool {
	if e.kind == and {
		return e.a.holdsPart(b) || e.b.holdsPart(b)
	}
	return e.same(b)
}

// excludes reports whether two bounds contradict each other: their sum is
// positive everywhere.
func (e *Expr) excludes(f *Expr) bool {
	if e.kind != atMost || f.kind != atMost {
		return false
	}
	sum := e.plus(f, 1)
	n, ok := sum.c.Int()
	return ok && n > 0 && !sum.varies()
}

func (w *walk) orOf(a, b *Expr) *Expr {
	switch {
	case a.isTrue() || b.isFalse() || a.same(b) || b.kind == and && b.holdsPart(a):
		return a
	case b.isTrue() || a.isFalse() || a.kind == and && a.holdsPart(b):
		return b
	}
	return made(&Expr{kind: or, a: a, b: b}, a, b)
}

func (w *walk) notOf(a *Expr) *Expr {
	switch a.kind {
	case truth:
		return truthOf(!a.yes)
	case not:
		return a.a
	case atMost: // x <= 0 fails where 1-x <= 0
		form := *a
		form.kind = affine
		return w.atMostZero(intOf(1).plus(&form, -1))
	case and:
		return w.orOf(w.notOf(a.a), w.notOf(a.b))
	case or:
		return andOf(w.notOf(a.a), w.notOf(a.b))
	}
	return made(&Expr{kind: not, a: a}, a)
}

// pickOf is a where cond holds, else b.
func (w *walk) pickOf(cond, a, b *Expr) *Expr {
	switch {
	case cond.isTrue() || a.same(b):
		return a
	case cond.isFalse():
		return b
	case a.isBool() && b.isBool():
		return w.orOf(andOf(cond, a), andOf(w.notOf(cond), b))
	case cond.kind == atMost && w.pinned(cond, a, b):
		return b
	}
	return made(&Expr{kind: pick, cond: cond, a: a, b: b}, cond, a, b)
}

// pinned reports whether cond can hold at one place of one axis only, the
// first, and a and b agree there.
func (w *walk) pinned(cond, a, b *Expr) bool {
	axis := -1
	for k, n := range cond.coef {
		if n == 0 {
			continue
		}
		if axis >= 0 || n != 1 {
			return false
		}
		axis = k
	}
	if axis < 0 || !cond.c.Equal(ir.N(0)) || a.kind != affine || b.kind != affine {
		return false
	}
	first := func(e *Expr) *Expr { f := *e; f.coef[axis] = 0; return &f }
	return first(a).same(first(b))
}

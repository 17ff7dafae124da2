package ir

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Dim is one dimension of a shape: an integer, or a polynomial with integer
// coefficients over symbols ("batch*seq + 1"). The zero value is the integer 0.
// Dims are immutable and compared with Equal.
//
// Something the polynomials cannot express (a floor division that is not
// exact) is a fresh symbol: two unknown dims are equal only if they are the
// same symbol.
type Dim struct {
	c int64  // value where p is empty
	p []term // sorted, without zero coefficients; nil for an integer
}

// term is coef * product of syms; syms is sorted, with repetition for powers.
type term struct {
	coef int64
	syms []string
}

// N is the integer dim n.
func N(n int64) Dim { return Dim{c: n} }

// Sym is the symbol of that name.
func Sym(name string) Dim { return Dim{p: []term{{1, []string{name}}}} }

// Int is the dim's value; ok is false where it holds a symbol.
func (d Dim) Int() (n int64, ok bool) { return d.c, d.p == nil }

// IsSym reports whether d is a single symbol, and which.
func (d Dim) IsSym() (name string, ok bool) {
	if len(d.p) == 1 && d.p[0].coef == 1 && len(d.p[0].syms) == 1 {
		return d.p[0].syms[0], true
	}
	return "", false
}

// Symbols lists the symbols of d, sorted, each once.
func (d Dim) Symbols() []string {
	var out []string
	for _, t := range d.p {
		out = append(out, t.syms...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Equal reports whether d and e are the same polynomial. False does not mean
// that they differ for every binding of their symbols; see Differ.
func (d Dim) Equal(e Dim) bool {
	if d.p == nil || e.p == nil {
		return d.p == nil && e.p == nil && d.c == e.c
	}
	return slices.EqualFunc(d.p, e.p, func(a, b term) bool {
		return a.coef == b.coef && slices.Equal(a.syms, b.syms)
	})
}

// Differ reports whether d and e differ for every binding of their symbols.
func (d Dim) Differ(e Dim) bool {
	n, ok := d.Sub(e).Int()
	return ok && n != 0
}

func (d Dim) terms() []term {
	if d.p != nil {
		return d.p
	}
	if d.c == 0 {
		return nil
	}
	return []term{{d.c, nil}}
}

func compareTerms(a, b term) int {
	if c := len(b.syms) - len(a.syms); c != 0 {
		return c
	}
	return slices.Compare(a.syms, b.syms)
}

func fromTerms(ts []term) Dim {
	slices.SortFunc(ts, compareTerms)
	out := ts[:0]
	for _, t := range ts {
		if n := len(out); n > 0 && slices.Equal(out[n-1].syms, t.syms) {
			out[n-1].coef += t.coef
			if out[n-1].coef == 0 {
				out = out[:n-1]
			}
			continue
		}
		if t.coef != 0 {
			out = append(out, t)
		}
	}
	switch {
	case len(out) == 0:
		return Dim{}
	case len(out) == 1 && len(out[0].syms) == 0:
		return Dim{c: out[0].coef}
	}
	return Dim{p: out}
}

// Add is d + e.
func (d Dim) Add(e Dim) Dim {
	if d.p == nil && e.p == nil {
		return N(d.c + e.c)
	}
	return fromTerms(slices.Concat(d.terms(), e.terms()))
}

// Neg is -d.
func (d Dim) Neg() Dim { return d.Mul(N(-1)) }

// Sub is d - e.
func (d Dim) Sub(e Dim) Dim { return d.Add(e.Neg()) }

// Mul is d * e.
func (d Dim) Mul(e Dim) Dim {
	if d.p == nil && e.p == nil {
		return N(d.c * e.c)
	}
	var ts []term
	for _, a := range d.terms() {
		for _, b := range e.terms() {
			syms := slices.Concat(a.syms, b.syms)
			slices.Sort(syms)
			ts = append(ts, term{a.coef * b.coef, syms})
		}
	}
	return fromTerms(ts)
}

// Div is d / e where e divides d exactly, as integers or as polynomials. ok is
// false otherwise. It is long division by leading terms: terms are kept in
// graded lexicographic order, which multiplication preserves.
func (d Dim) Div(e Dim) (q Dim, ok bool) {
	et := e.terms()
	if len(et) == 0 {
		return Dim{}, false
	}
	for rest := d; ; {
		rt := rest.terms()
		if len(rt) == 0 {
			return q, true
		}
		if rt[0].coef%et[0].coef != 0 {
			return Dim{}, false
		}
		syms, ok := withoutSyms(rt[0].syms, et[0].syms)
		if !ok {
			return Dim{}, false
		}
		t := fromTerms([]term{{rt[0].coef / et[0].coef, syms}})
		q = q.Add(t)
		rest = rest.Sub(t.Mul(e))
	}
}

// NonNegative reports whether d is at least 0 for every binding of its symbols
// (which stand for extents, so they are at least 0 themselves). False does not
// mean that it can be negative.
func (d Dim) NonNegative() bool {
	for _, t := range d.terms() {
		if t.coef < 0 {
			return false
		}
	}
	return true
}

func withoutSyms(from, take []string) ([]string, bool) {
	rest := slices.Clone(from)
	for _, s := range take {
		i := slices.Index(rest, s)
		if i < 0 {
			return nil, false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return rest, true
}

// Bind replaces the symbols that env holds by their values.
func (d Dim) Bind(env map[string]Dim) Dim {
	if d.p == nil || len(env) == 0 {
		return d
	}
	out := Dim{}
	for _, t := range d.p {
		m := N(t.coef)
		for _, s := range t.syms {
			if v, ok := env[s]; ok {
				m = m.Mul(v)
			} else {
				m = m.Mul(Sym(s))
			}
		}
		out = out.Add(m)
	}
	return out
}

// String prints d in a form that ParseDim reads: "8", "seq", "2*batch*seq+1".
func (d Dim) String() string { return d.format(func(s string) string { return s }) }

// format prints d with each symbol as name gives it.
func (d Dim) format(name func(string) string) string {
	if d.p == nil {
		return fmt.Sprint(d.c)
	}
	var b strings.Builder
	for i, t := range d.p {
		coef := t.coef
		switch {
		case coef < 0:
			b.WriteByte('-')
			coef = -coef
		case i > 0:
			b.WriteByte('+')
		}
		if len(t.syms) == 0 || coef != 1 {
			fmt.Fprint(&b, uint64(coef))
			if len(t.syms) > 0 {
				b.WriteByte('*')
			}
		}
		for j, s := range t.syms {
			if j > 0 {
				b.WriteByte('*')
			}
			b.WriteString(name(s))
		}
	}
	return b.String()
}

// MulSizes multiplies non-negative sizes; ok is false on overflow of int64 or
// a negative factor.
func MulSizes(factors ...int64) (n int64, ok bool) {
	n = 1
	for _, f := range factors {
		if f < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(uint64(n), uint64(f))
		if hi != 0 || lo > 1<<63-1 {
			return 0, false
		}
		n = int64(lo)
	}
	return n, true
}

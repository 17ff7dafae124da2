package ir

import (
	"strconv"
	"strings"
)

// ParseDim reads a dim as String prints it: integers, symbols, sums and
// products ("2*batch*seq+1"; blanks are allowed). A symbol is an identifier,
// or any text in single quotes (” is a quote). ok is false for everything
// else: exporters put arbitrary text where a dim's name goes, and such text is
// a symbol as a whole.
func ParseDim(s string) (d Dim, ok bool) {
	p := dimParser{s}
	for first := true; ; first = false {
		sign := N(1)
		switch {
		case p.accept('-'):
			sign = N(-1)
		case !first && !p.accept('+'):
			return d, p.rest() == ""
		}
		t, ok := p.product()
		if !ok {
			return Dim{}, false
		}
		d = d.Add(sign.Mul(t))
	}
}

type dimParser struct{ s string }

func (p *dimParser) rest() string {
	p.s = strings.TrimLeft(p.s, " ")
	return p.s
}

func (p *dimParser) accept(c byte) bool {
	if r := p.rest(); r != "" && r[0] == c {
		p.s = r[1:]
		return true
	}
	return false
}

func (p *dimParser) product() (Dim, bool) {
	d := N(1)
	for {
		f, ok := p.factor()
		if !ok {
			return Dim{}, false
		}
		d = d.Mul(f)
		if !p.accept('*') {
			return d, true
		}
	}
}

func (p *dimParser) factor() (Dim, bool) {
	r := p.rest()
	if p.accept('\'') {
		return p.quoted()
	}
	n := 0
	for n < len(r) && isIdentByte(r[n], true) {
		n++
	}
	word := r[:n]
	p.s = r[n:]
	if isIdent(word) {
		return Sym(word), true
	}
	// Up to 2^63, the absolute value of the least coefficient.
	v, err := strconv.ParseUint(word, 10, 64)
	return N(int64(v)), err == nil && v <= 1<<63
}

func (p *dimParser) quoted() (Dim, bool) {
	var b strings.Builder
	for i := 0; i < len(p.s); i++ {
		if p.s[i] != '\'' {
			b.WriteByte(p.s[i])
			continue
		}
		if i+1 < len(p.s) && p.s[i+1] == '\'' {
			b.WriteByte('\'')
			i++
			continue
		}
		p.s = p.s[i+1:]
		return Sym(b.String()), true
	}
	return Dim{}, false
}

// dimName prints d such that dimOf(dimName(d)) is d whatever its symbols hold.
func dimName(d Dim) string {
	if s, ok := d.IsSym(); ok {
		if _, reads := ParseDim(s); !reads {
			return s
		}
	}
	return d.format(func(s string) string {
		if isIdent(s) {
			return s
		}
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	})
}

// dimOf is the dim of that name: an expression, or else one symbol.
func dimOf(s string) Dim {
	if d, ok := ParseDim(s); ok {
		return d
	}
	return Sym(s)
}

// DimName is the name under which d is written in a file, for DimOf to read.
func DimName(d Dim) string { return dimName(d) }

// DimOf is the dim that a name in a file stands for: an expression where it
// reads as one, else a symbol of that name.
func DimOf(name string) Dim { return dimOf(name) }

func isIdent(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isIdentByte(s[i], i > 0) {
			return false
		}
	}
	return s != ""
}

func isIdentByte(c byte, inner bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || inner && '0' <= c && c <= '9'
}

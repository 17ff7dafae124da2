package ir

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"memoc/ir/diag"
)

// textScanner reads the words of the text form. Its methods panic with a
// textError; Parse turns it into a located one.
type textScanner struct {
	file  string
	src   string
	pos   int
	depth int
	noted []*textNote // comments `#@ …` passed over and not yet taken
}

type textError struct {
	at  int
	msg string
}

// maxTextDepth bounds nested types and graphs.
const maxTextDepth = 200

func (p *textScanner) fail(at int, format string, args ...any) {
	panic(textError{at, fmt.Sprintf(format, args...)})
}

// diagnostic gives an error its line and column, both from 1; columns count
// bytes.
func (p *textScanner) diagnostic(e textError) *diag.Diagnostic {
	before := p.src[:min(e.at, len(p.src))]
	line := 1 + strings.Count(before, "\n")
	col := len(before) - strings.LastIndexByte(before, '\n')
	return &diag.Diagnostic{ID: "text", Severity: diag.Error, Message: e.msg,
		Loc: diag.Location{File: fmt.Sprintf("%s:%d:%d", p.file, line, col)}}
}

// enter counts a level of nesting; use with defer p.leave().
func (p *textScanner) enter() {
	if p.depth++; p.depth > maxTextDepth {
		p.fail(p.pos, "nested more than %d levels deep", maxTextDepth)
	}
}

func (p *textScanner) leave() { p.depth-- }

// next skips blanks and comments, keeps notes, and is the position of what
// follows.
func (p *textScanner) next() int {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || '\t' <= c && c <= '\r':
			p.pos++
		case c == '#':
			end := strings.IndexByte(p.src[p.pos:], '\n')
			if end < 0 {
				end = len(p.src) - p.pos
			}
			if text := p.src[p.pos : p.pos+end]; strings.HasPrefix(text, "#@") {
				p.noted = append(p.noted, &textNote{p: p, at: p.pos, s: text[2:]})
			}
			p.pos += end
		default:
			return p.pos
		}
	}
	return p.pos
}

// peek is the next byte after blanks, 0 at the end.
func (p *textScanner) peek() byte {
	if at := p.next(); at < len(p.src) {
		return p.src[at]
	}
	return 0
}

func (p *textScanner) accept(c byte) bool {
	if p.peek() == c && p.pos < len(p.src) {
		p.pos++
		return true
	}
	return false
}

func (p *textScanner) expect(c byte) {
	if !p.accept(c) {
		p.fail(p.pos, "expected %q, found %s", string(c), p.found())
	}
}

// found names what stands at the position, for messages.
func (p *textScanner) found() string {
	if p.pos >= len(p.src) {
		return "the end of the text"
	}
	if w := p.peekIdent(); w != "" {
		return strconv.Quote(w)
	}
	return strconv.Quote(p.src[p.pos : p.pos+1])
}

func (p *textScanner) peekIdent() string {
	at := p.next()
	end := at
	for end < len(p.src) && isIdentByte(p.src[end], end > at) {
		end++
	}
	return p.src[at:end]
}

// ident reads an identifier.
func (p *textScanner) ident(what string) string {
	s := p.peekIdent()
	if s == "" {
		p.fail(p.pos, "expected %s, found %s", what, p.found())
	}
	p.pos += len(s)
	return s
}

// name reads an identifier or a quoted text; ok is false if neither is there.
func (p *textScanner) optName() (s string, ok bool) {
	if p.peek() == '"' {
		return p.quoted(), true
	}
	s = p.peekIdent()
	p.pos += len(s)
	return s, s != ""
}

func (p *textScanner) name(what string) string {
	s, ok := p.optName()
	if !ok {
		p.fail(p.pos, "expected %s, found %s", what, p.found())
	}
	return s
}

// quoted reads a text in double quotes; a backslash makes the next byte stand
// for itself.
func (p *textScanner) quoted() string {
	at := p.next()
	if !p.accept('"') {
		p.fail(p.pos, "expected a quoted text, found %s", p.found())
	}
	var b strings.Builder
	for ; p.pos < len(p.src); p.pos++ {
		switch c := p.src[p.pos]; c {
		case '"':
			p.pos++
			return b.String()
		case '\\':
			if p.pos++; p.pos < len(p.src) {
				b.WriteByte(p.src[p.pos])
			}
		default:
			b.WriteByte(c)
		}
	}
	p.fail(at, "the quoted text does not end")
	return ""
}

// number reads a number; word is true for nan and infinities, which have no
// digits.
func (p *textScanner) number() (s string, word bool) {
	at := p.next()
	digits := func() (n int) {
		for p.pos < len(p.src) && '0' <= p.src[p.pos] && p.src[p.pos] <= '9' {
			p.pos++
			n++
		}
		return n
	}
	have := func(set string) bool {
		if p.pos < len(p.src) && strings.IndexByte(set, p.src[p.pos]) >= 0 {
			p.pos++
			return true
		}
		return false
	}
	have("-")
	if w := p.peekIdent(); p.pos < len(p.src) && isFloatWord(w) && p.src[p.pos:p.pos+len(w)] == w {
		p.pos += len(w)
		return p.src[at:p.pos], true
	}
	if digits() == 0 {
		p.pos = at
		p.fail(at, "expected a number, found %s", p.found())
	}
	if have(".") {
		digits()
	}
	if have("eE") {
		have("+-")
		if digits() == 0 {
			p.fail(at, "the exponent of %s has no digits", p.src[at:p.pos])
		}
	}
	return p.src[at:p.pos], false
}

func (p *textScanner) integer(lo, hi int64) int64 {
	at := p.next()
	s, _ := p.number()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.fail(at, "%s is no integer of 64 bits", s)
	}
	if n < lo || n > hi {
		p.fail(at, "%d is outside of [%d, %d]", n, lo, hi)
	}
	return n
}

func (p *textScanner) unsigned() uint64 {
	at := p.next()
	s, _ := p.number()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.fail(at, "%s is no unsigned integer of 64 bits", s)
	}
	return n
}

func (p *textScanner) int() int64 { return p.integer(math.MinInt64, math.MaxInt64) }

// textNote is a comment `#@ …` that carries a part of the IR.
type textNote struct {
	p  *textScanner
	at int
	s  string
}

func (n *textNote) fail(format string, args ...any) { n.p.fail(n.at, format, args...) }

// take removes and returns the notes passed over so far, the blanks ahead
// included.
func (p *textScanner) take() []*textNote {
	p.next()
	ns := p.noted
	p.noted = nil
	return ns
}

// note takes the last note if it begins with that word.
func (p *textScanner) note(word string) *textNote {
	last := len(p.noted) - 1
	if last < 0 || !strings.HasPrefix(strings.TrimLeft(p.noted[last].s, " "), word+" ") {
		return nil
	}
	n := p.noted[last]
	p.noted = p.noted[:last]
	n.word()
	return n
}

func (n *textNote) done() bool {
	n.s = strings.TrimLeft(n.s, " \t\r")
	return n.s == ""
}

func (n *textNote) end() {
	if !n.done() {
		n.fail("%q is one word too many", n.s)
	}
}

// word reads up to the next blank, or a bracket or comma.
func (n *textNote) word() string {
	n.done()
	end := strings.IndexAny(n.s, " []\",")
	switch {
	case end < 0:
		end = len(n.s)
	case end == 0:
		end = 1
	}
	w := n.s[:min(end, len(n.s))]
	n.s = n.s[len(w):]
	return w
}

// text reads a Go string literal.
func (n *textNote) text() string {
	n.done()
	q, err := strconv.QuotedPrefix(n.s)
	if err != nil || q[0] != '"' {
		n.fail("expected a quoted text at %q", n.s)
	}
	n.s = n.s[len(q):]
	s, _ := strconv.Unquote(q)
	return s
}

// pair reads two texts.
func (n *textNote) pair() KV {
	key := n.text()
	return KV{key, n.text()}
}

func (n *textNote) int() int {
	w := n.word()
	i, err := strconv.Atoi(w)
	if err != nil {
		n.fail("%q is no integer", w)
	}
	return i
}

// ints reads "[2, N, \"N+1\"]".
func (n *textNote) ints() []Dim {
	if n.word() != "[" {
		n.fail("expected [ after ints")
	}
	ds := []Dim{}
	for {
		if n.done(); strings.HasPrefix(n.s, `"`) {
			ds = append(ds, dimOf(n.text()))
		} else if w := n.word(); w == "]" {
			return ds
		} else if w != "," {
			d, ok := ParseDim(w)
			if !ok {
				n.fail("%q is no dim", w)
			}
			ds = append(ds, d)
		}
	}
}

package ir

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The NaNs that "nan" and "-nan" stand for; others say their bits.
const (
	nan32 = 0x7fc00000
	nan64 = 0x7ff8000000000000
)

func isFloatWord(s string) bool {
	switch strings.ToLower(s) {
	case "nan", "inf", "infinity":
		return true
	}
	return false
}

func (p *textPrinter) tensor(t *Tensor) {
	if t == nil {
		p.str("undefined {}")
		return
	}
	p.typ(t.Type())
	p.str(" ")
	if p.opt.Brief && !p.opt.prints(t.Len()) {
		p.str("{…}")
		return
	}
	p.data(t)
}

// data prints the elements in braces: half and 8-bit float types as their bit
// patterns, smaller types as packed bytes, complex numbers as pairs.
func (p *textPrinter) data(t *Tensor) {
	switch t.DType {
	case String:
		list(p, "{", ", ", "}", t.Strings, p.quoted)
	case Float, Complex64:
		list(p, "{", ",", "}", wordsOf[uint32](t), func(u uint32) { p.float32(math.Float32frombits(u)) })
	case Double, Complex128:
		list(p, "{", ",", "}", wordsOf[uint64](t), p.float64)
	case Int64:
		list(p, "{", ",", "}", wordsOf[int64](t), func(n int64) { p.str(strconv.FormatInt(n, 10)) })
	case Int32:
		list(p, "{", ",", "}", wordsOf[int32](t), func(n int32) { p.str(strconv.Itoa(int(n))) })
	case Int16:
		list(p, "{", ",", "}", wordsOf[int16](t), func(n int16) { p.str(strconv.Itoa(int(n))) })
	case Int8:
		list(p, "{", ",", "}", wordsOf[int8](t), func(n int8) { p.str(strconv.Itoa(int(n))) })
	case Uint64:
		list(p, "{", ",", "}", wordsOf[uint64](t), func(n uint64) { p.str(strconv.FormatUint(n, 10)) })
	case Uint32:
		list(p, "{", ",", "}", wordsOf[uint32](t), func(n uint32) { p.str(strconv.FormatUint(uint64(n), 10)) })
	case Uint16, Float16, BFloat16:
		list(p, "{", ",", "}", wordsOf[uint16](t), func(n uint16) { p.str(strconv.Itoa(int(n))) })
	default:
		list(p, "{", ",", "}", t.Data, func(n byte) { p.str(strconv.Itoa(int(n))) })
	}
}

// wordsOf reads the data as numbers, whatever its alignment.
func wordsOf[E element](t *Tensor) []E {
	var e E
	out := make([]E, len(t.Data)/binary.Size(e))
	if _, err := binary.Decode(t.Data, binary.LittleEndian, out); err != nil {
		panic(fmt.Sprintf("BUG: data of %s: %v", t.Type(), err))
	}
	return out
}

func (p *textPrinter) float32(f float32) {
	u := math.Float32bits(f)
	if f == f {
		p.str(formatFloat(float64(f), 32))
		return
	}
	p.nan(u>>31 != 0, u&^(1<<31) == nan32, fmt.Sprintf("%08x", u))
}

func (p *textPrinter) float64(u uint64) {
	f := math.Float64frombits(u)
	if f == f {
		p.str(formatFloat(f, 64))
		return
	}
	p.nan(u>>63 != 0, u&^(1<<63) == nan64, fmt.Sprintf("%016x", u))
}

func (p *textPrinter) nan(negative, canonical bool, bits string) {
	if negative {
		p.str("-")
	}
	p.str("nan")
	if !canonical && !p.opt.Brief {
		p.str(" #@ bits ", bits)
		p.line()
	}
}

// formatFloat is the shortest text that reads as f; the sign of zero survives
// a reader that takes digits alone for an integer.
func formatFloat(f float64, bits int) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == 0 && math.Signbit(f):
		return "-0.0"
	}
	return strconv.FormatFloat(f, 'g', -1, bits)
}

// tensorData reads the elements of a tensor literal after its type.
func (p *textParser) tensorData(t Type, at int) *Tensor {
	dims, ok := t.Shape.Static()
	if !t.IsTensor() || !ok || t.DType == Undefined {
		p.fail(at, "a tensor literal needs an element type and integer dims, not %s", t)
	}
	n, ok := MulSizes(dims...)
	if _, err := t.Bytes(); !ok || err != nil && t.DType != String {
		p.fail(at, "no tensor can have the dims of %s", t)
	}
	x := &Tensor{DType: t.DType, Dims: dims, Data: []byte{}}
	p.expect('{')
	count := int64(0)
	for !p.accept('}') {
		if count > 0 {
			p.expect(',')
		}
		p.element(x)
		count++
	}
	p.fitElements(x, n, count, at)
	return x
}

// fitElements checks the count and packs types below 8 bits.
func (p *textParser) fitElements(x *Tensor, n, count int64, at int) {
	bits := int64(x.DType.Bits())
	switch {
	case x.DType == String:
		x.Data = nil
		if x.Strings == nil {
			x.Strings = []string{}
		}
	case x.DType == Complex64 || x.DType == Complex128:
		n *= 2
	case bits < 8:
		packed := (n*bits + 7) / 8
		if count == n && n != packed {
			x.Data = packBits(x.Data, bits)
			return
		}
		n = packed
	}
	if count != n {
		p.fail(at, "%s needs %d numbers, found %d", x.Type(), n, count)
	}
}

func packBits(elems []byte, bits int64) []byte {
	per := 8 / bits
	out := make([]byte, (int64(len(elems))+per-1)/per)
	for i, e := range elems {
		out[int64(i)/per] |= e & (1<<bits - 1) << (int64(i) % per * bits)
	}
	return out
}

// element reads one number or string and appends it to x.
func (p *textParser) element(x *Tensor) {
	le := binary.LittleEndian
	switch x.DType {
	case String:
		x.Strings = append(x.Strings, p.quoted())
	case Float, Complex64:
		x.Data = le.AppendUint32(x.Data, math.Float32bits(p.float32()))
	case Double, Complex128:
		x.Data = le.AppendUint64(x.Data, p.float64())
	case Int64:
		x.Data = le.AppendUint64(x.Data, uint64(p.integer(math.MinInt64, math.MaxInt64)))
	case Uint64:
		x.Data = le.AppendUint64(x.Data, p.unsigned())
	case Int32:
		x.Data = le.AppendUint32(x.Data, uint32(p.integer(math.MinInt32, math.MaxInt32)))
	case Uint32:
		x.Data = le.AppendUint32(x.Data, uint32(p.integer(0, math.MaxUint32)))
	case Int16:
		x.Data = le.AppendUint16(x.Data, uint16(p.integer(math.MinInt16, math.MaxInt16)))
	case Uint16, Float16, BFloat16:
		x.Data = le.AppendUint16(x.Data, uint16(p.integer(0, math.MaxUint16)))
	case Int8:
		x.Data = append(x.Data, byte(p.integer(math.MinInt8, math.MaxInt8)))
	case Int4, Int2:
		x.Data = append(x.Data, byte(p.integer(math.MinInt8, math.MaxUint8)))
	default:
		x.Data = append(x.Data, byte(p.integer(0, math.MaxUint8)))
	}
}

// float32 reads a number in float32's range.
func (p *textParser) float32() float32 {
	at := p.next()
	s, word := p.number()
	if word && strings.HasSuffix(strings.ToLower(s), "nan") {
		return math.Float32frombits(uint32(p.nanBits(at, s, nan32, 32)))
	}
	f, err := strconv.ParseFloat(s, 32)
	if err != nil {
		p.fail(at, "%s is no float", s)
	}
	return float32(f)
}

// float64 reads a number's bits.
func (p *textParser) float64() uint64 {
	at := p.next()
	s, word := p.number()
	if word && strings.HasSuffix(strings.ToLower(s), "nan") {
		return p.nanBits(at, s, nan64, 64)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.fail(at, "%s is no double", s)
	}
	return math.Float64bits(f)
}

// nanBits is the NaN that s and a comment `#@ bits …` behind it stand for.
func (p *textParser) nanBits(at int, s string, quiet uint64, size int) uint64 {
	if s[0] == '-' {
		quiet |= 1 << (size - 1)
	}
	p.next()
	note := p.note("bits")
	if note == nil {
		return quiet
	}
	bits, err := strconv.ParseUint(note.word(), 16, size)
	f := math.Float64frombits(bits)
	if size == 32 {
		f = float64(math.Float32frombits(uint32(bits)))
	}
	if err != nil || f == f {
		p.fail(at, "bits are not those of a NaN of %d bits", size)
	}
	note.end()
	return bits
}

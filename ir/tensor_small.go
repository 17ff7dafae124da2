package ir

import "math"

// Floating-point types of a byte or less. Their values are few, so that
// conversions search a table instead of juggling bits.

// smallFloat describes one of them: sign, exponent and mantissa bits.
type smallFloat struct {
	exp, man uint
	bias     int
	// codes of non-negative values run from 0 to top, which is the largest
	// finite one; what lies above is infinity or NaN where the type has them.
	top      byte
	inf, nan byte // codes; 0 where the type has none
	signed   bool // negative zero and negative NaN have codes of their own
}

var smallFloats = map[DType]smallFloat{
	Float8E4M3FN:   {exp: 4, man: 3, bias: 7, top: 0x7e, nan: 0x7f, signed: true},
	Float8E4M3FNUZ: {exp: 4, man: 3, bias: 8, top: 0x7f, nan: 0x80},
	Float8E5M2:     {exp: 5, man: 2, bias: 15, top: 0x7b, inf: 0x7c, nan: 0x7e, signed: true},
	Float8E5M2FNUZ: {exp: 5, man: 2, bias: 16, top: 0x7f, nan: 0x80},
	Float4E2M1:     {exp: 2, man: 1, bias: 1, top: 0x7, signed: true},
}

// IsSmallFloat reports whether d is a floating-point type of a byte or less.
func (d DType) IsSmallFloat() bool {
	_, ok := smallFloats[d]
	return ok || d == Float8E8M0
}

// value is the number a code of 0..top stands for.
func (f smallFloat) value(code byte) float64 {
	e, m := int(code>>f.man), float64(code&(1<<f.man-1))/float64(int(1)<<f.man)
	if e == 0 {
		return math.Ldexp(m, 1-f.bias)
	}
	return math.Ldexp(1+m, e-f.bias)
}

func (f smallFloat) signBit() byte { return 1 << (f.exp + f.man) }

// SmallFloat is the number that a code of type d stands for.
func SmallFloat(d DType, code byte) float64 {
	if d == Float8E8M0 {
		if code == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(code)-127)
	}
	f := smallFloats[d]
	abs := code &^ f.signBit()
	sign := 1.0
	if code&f.signBit() != 0 {
		sign = math.Copysign(1, -1)
	}
	switch {
	case !f.signed && code == f.nan, f.signed && f.nan != 0 && abs > f.top && (f.inf == 0 || abs != f.inf):
		return math.NaN()
	case f.inf != 0 && abs == f.inf:
		return sign * math.Inf(1)
	}
	return sign * f.value(abs)
}

// SmallFloatBits rounds x to type d, to nearest even. What is too large (and
// infinity) becomes the largest finite value if saturate is set, and infinity
// or NaN otherwise, as ONNX's Cast defines it.
func SmallFloatBits(d DType, x float64, saturate bool) byte {
	if d == Float8E8M0 {
		return PowerOfTwoBits(x, "up", saturate)
	}
	f := smallFloats[d]
	sign := byte(0)
	if math.Signbit(x) {
		sign = f.signBit()
	}
	switch {
	case x != x && f.nan == 0:
		return f.signBit() // no NaN to give: ONNX's cases have negative zero for it
	case x != x && f.signed:
		return sign | f.nan
	case x != x:
		return f.nan
	}
	code, over := f.nearest(math.Abs(x))
	switch {
	case over && (saturate || f.nan == 0):
		code = f.top
	case over && f.inf != 0:
		code = f.inf
	case over && !f.signed:
		return f.nan
	case over:
		code = f.nan
	}
	if code == 0 && !f.signed {
		return 0 // the code of negative zero is NaN
	}
	return sign | code
}

// nearest is the code whose value is nearest to x >= 0; over where x rounds
// beyond the largest.
func (f smallFloat) nearest(x float64) (code byte, over bool) {
	lo, hi := 0, int(f.top)
	for lo < hi { // the largest code with value <= x
		mid := (lo + hi + 1) / 2
		if f.value(byte(mid)) <= x {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	below, above := f.value(byte(lo)), f.value(byte(lo+1))
	up := x-below > above-x || x-below == above-x && lo%2 == 1
	if math.IsInf(x, 1) {
		up = true
	}
	if up {
		lo++
	}
	return byte(lo), lo > int(f.top)
}

// PowerOfTwoBits rounds |x| to a power of two, the type float8e8m0, by mode
// "up", "down" or "nearest"; it follows the arithmetic on the bits of a
// float32 by which ONNX defines it.
func PowerOfTwoBits(x float64, mode string, saturate bool) byte {
	u := math.Float32bits(float32(x))
	e, man := int(u>>23&0xff), u&0x7fffff
	if e == 0xff {
		return 0xff
	}
	up := false
	switch mode {
	case "nearest":
		up = man > 0x400000 || man == 0x400000 && e > 0
	case "up":
		up = man > 0
	}
	if up {
		e++
	}
	if saturate {
		e = min(e, 0xfe)
	}
	return byte(e)
}

// packedBits reads unsigned fields of 2 or 4 bits, low bits first.
func packedBits(t *Tensor) []byte {
	bits := t.DType.Bits()
	out := make([]byte, t.Len())
	per := 8 / bits
	for i := range out {
		out[i] = t.Data[i/per] >> (bits * (i % per)) & (1<<bits - 1)
	}
	return out
}

// setPackedBits is its inverse; higher bits of vals are dropped.
func setPackedBits(t *Tensor, val func(i int) byte) {
	bits := t.DType.Bits()
	per := 8 / bits
	clear(t.Data)
	for i := range int(t.Len()) {
		t.Data[i/per] |= val(i) & (1<<bits - 1) << (bits * (i % per))
	}
}

// codes are the elements of a type of a byte or less.
func codes(t *Tensor) []byte {
	if t.DType.Bits() == 8 {
		return t.Data
	}
	return packedBits(t)
}

// smallToFloats reads elements of a small floating-point type.
func smallToFloats(t *Tensor) []float64 {
	return convert(codes(t), func(c byte) float64 { return SmallFloat(t.DType, c) })
}

// SetSmallFloats stores vals in a tensor of a small floating-point type.
func SetSmallFloats(t *Tensor, vals []float64, saturate bool) {
	code := func(i int) byte { return SmallFloatBits(t.DType, vals[i], saturate) }
	if t.DType.Bits() == 8 {
		for i := range t.Data {
			t.Data[i] = code(i)
		}
		return
	}
	setPackedBits(t, code)
}

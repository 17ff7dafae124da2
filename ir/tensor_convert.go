package ir

import (
	"fmt"
	"math"

	"github.com/x448/float16"
)

// Floats reads the elements as float64. Every numeric type up to 32 bits and
// float64 converts exactly; int64 and uint64 beyond 2^53 round. The result may
// share storage with a Double tensor and must not be written.
func (t *Tensor) Floats() []float64 {
	switch t.DType {
	case Double:
		return View[float64](t)
	case Float:
		return convert(View[float32](t), func(x float32) float64 { return float64(x) })
	case Float16:
		return convert(View[uint16](t), func(x uint16) float64 { return float64(float16.Frombits(x).Float32()) })
	case BFloat16:
		return convert(View[uint16](t), func(x uint16) float64 { return float64(math.Float32frombits(uint32(x) << 16)) })
	}
	if t.DType.IsSmallFloat() {
		return smallToFloats(t)
	}
	if t.DType == Uint64 {
		return convert(View[uint64](t), func(x uint64) float64 { return float64(x) })
	}
	return convert(t.Ints(), func(x int64) float64 { return float64(x) })
}

// Ints reads the elements as int64 (uint64 above 2^63 wraps; floats truncate
// toward zero). The result may share storage with an Int64 tensor and must not
// be written.
func (t *Tensor) Ints() []int64 {
	switch t.DType {
	case Int64:
		return View[int64](t)
	case Int32:
		return toInts(View[int32](t))
	case Int16:
		return toInts(View[int16](t))
	case Int8:
		return toInts(View[int8](t))
	case Uint8, Bool:
		return toInts(View[uint8](t))
	case Uint16:
		return toInts(View[uint16](t))
	case Uint32:
		return toInts(View[uint32](t))
	case Uint64:
		return toInts(View[uint64](t))
	case Int4, Uint4, Int2, Uint2:
		return smallInts(t)
	case Float, Double, Float16, BFloat16:
		return convert(t.Floats(), func(x float64) int64 { return int64(x) })
	}
	if t.DType.IsSmallFloat() {
		return convert(t.Floats(), func(x float64) int64 { return int64(x) })
	}
	panic(fmt.Sprintf("BUG: Ints of %s", t.DType))
}

func smallInts(t *Tensor) []int64 {
	bits := t.DType.Bits()
	return convert(packedBits(t), func(c byte) int64 {
		v := int64(c)
		if (t.DType == Int4 || t.DType == Int2) && v >= 1<<(bits-1) {
			v -= 1 << bits
		}
		return v
	})
}

func convert[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, x := range in {
		out[i] = f(x)
	}
	return out
}

func toInts[E element](in []E) []int64 {
	return convert(in, func(x E) int64 { return int64(x) })
}

// SetFloats stores float64 values, rounded to nearest even (integers: toward
// zero, saturating; see intRange).
func SetFloats(t *Tensor, vals []float64) {
	switch t.DType {
	case Double:
		copy(View[float64](t), vals)
	case Float:
		for i, d := 0, View[float32](t); i < len(d); i++ {
			d[i] = float32(vals[i])
		}
	case Float16:
		for i, d := 0, View[uint16](t); i < len(d); i++ {
			d[i] = Float16Bits(vals[i])
		}
	case BFloat16:
		for i, d := 0, View[uint16](t); i < len(d); i++ {
			d[i] = BFloat16Bits(vals[i])
		}
	case Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Float4E2M1, Float8E8M0:
		SetSmallFloats(t, vals, true)
	case Bool:
		for i, v := range vals {
			t.Data[i] = 0
			if v != 0 {
				t.Data[i] = 1
			}
		}
	case Uint64:
		for i, d := 0, View[uint64](t); i < len(d); i++ {
			d[i] = saturateUint64(vals[i])
		}
	default:
		lo, hi := intRange(t.DType)
		SetInts(t, convert(vals, func(x float64) int64 { return saturate(x, lo, hi) }))
	}
}

// intRange is the smallest and largest value of an integer type other than
// uint64. The packed types take those of int64: ONNX defines that they keep
// the low bits of what is too large.
func intRange(d DType) (lo, hi int64) {
	switch bits := d.Bits(); d {
	case Int64, Int4, Int2, Uint4, Uint2:
		return math.MinInt64, math.MaxInt64
	case Int32, Int16, Int8:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	default:
		return 0, 1<<bits - 1
	}
}

func saturate(x float64, lo, hi int64) int64 {
	switch {
	case x != x:
		return 0
	case x >= float64(hi): // float64(MaxInt64) is 2^63
		return hi
	case x <= float64(lo):
		return lo
	}
	return int64(x)
}

func saturateUint64(x float64) uint64 {
	switch {
	case !(x > 0):
		return 0
	case x >= 1<<64:
		return math.MaxUint64
	}
	return uint64(x)
}

// SetInts stores integers, wrapping like C (Bool: nonzero is 1).
func SetInts(t *Tensor, vals []int64) {
	switch t.DType {
	case Int64:
		copy(View[int64](t), vals)
	case Int32:
		fromInts(View[int32](t), vals)
	case Int16:
		fromInts(View[int16](t), vals)
	case Int8:
		fromInts(View[int8](t), vals)
	case Uint8:
		fromInts(View[uint8](t), vals)
	case Uint16:
		fromInts(View[uint16](t), vals)
	case Uint32:
		fromInts(View[uint32](t), vals)
	case Uint64:
		fromInts(View[uint64](t), vals)
	case Bool:
		for i := range t.Data {
			t.Data[i] = 0
			if vals[i] != 0 {
				t.Data[i] = 1
			}
		}
	case Int4, Uint4, Int2, Uint2:
		setPackedBits(t, func(i int) byte { return byte(vals[i]) })
	case Float, Double, Float16, BFloat16, Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Float4E2M1, Float8E8M0:
		SetFloats(t, convert(vals, func(x int64) float64 { return float64(x) }))
	default:
		panic(fmt.Sprintf("BUG: SetInts of %s", t.DType))
	}
}

func fromInts[E element](dst []E, vals []int64) {
	for i := range dst {
		dst[i] = E(vals[i])
	}
}

// Float16Bits rounds to IEEE binary16, to nearest even in one step (a
// detour over float32 would round twice).
func Float16Bits(x float64) uint16 {
	return float16.Fromfloat32(roundToOdd(x)).Bits()
}

// BFloat16Bits rounds to bfloat16, to nearest even in one step.
func BFloat16Bits(x float64) uint16 {
	f := roundToOdd(x)
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// roundToOdd converts to float32 such that a second rounding to a narrower
// type gives what one rounding of x would: inexact results get an odd
// significand (Boldo and Melquiond, "Emulation of FMA and correctly rounded
// sums", 2008).
func roundToOdd(x float64) float32 {
	f := float32(x)
	if float64(f) == x || f != f || math.IsInf(float64(f), 0) {
		return f
	}
	u := math.Float32bits(f)
	if u&1 == 1 {
		return f
	}
	// f was rounded to an even neighbour; the odd one lies on x's other side.
	if math.Abs(float64(f)) < math.Abs(x) {
		return math.Float32frombits(u + 1)
	}
	return math.Float32frombits(u - 1)
}

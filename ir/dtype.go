package ir

// DType is an element type. The numbers are those of ONNX's
// TensorProto.DataType, so that reading and writing need no table.
type DType uint8

// The element types of ONNX (IR version 13).
const (
	Undefined      DType = 0
	Float          DType = 1
	Uint8          DType = 2
	Int8           DType = 3
	Uint16         DType = 4
	Int16          DType = 5
	Int32          DType = 6
	Int64          DType = 7
	String         DType = 8
	Bool           DType = 9
	Float16        DType = 10
	Double         DType = 11
	Uint32         DType = 12
	Uint64         DType = 13
	Complex64      DType = 14
	Complex128     DType = 15
	BFloat16       DType = 16
	Float8E4M3FN   DType = 17
	Float8E4M3FNUZ DType = 18
	Float8E5M2     DType = 19
	Float8E5M2FNUZ DType = 20
	Uint4          DType = 21
	Int4           DType = 22
	Float4E2M1     DType = 23
	Float8E8M0     DType = 24
	Uint2          DType = 25
	Int2           DType = 26
)

type dtypeInfo struct {
	name string // as in ONNX's textual syntax
	bits int    // 0: no fixed size
}

var dtypes = [...]dtypeInfo{
	Undefined: {"undefined", 0}, Float: {"float", 32}, Uint8: {"uint8", 8}, Int8: {"int8", 8},
	Uint16: {"uint16", 16}, Int16: {"int16", 16}, Int32: {"int32", 32}, Int64: {"int64", 64},
	String: {"string", 0}, Bool: {"bool", 8}, Float16: {"float16", 16}, Double: {"double", 64},
	Uint32: {"uint32", 32}, Uint64: {"uint64", 64}, Complex64: {"complex64", 64},
	Complex128: {"complex128", 128}, BFloat16: {"bfloat16", 16}, Float8E4M3FN: {"float8e4m3fn", 8},
	Float8E4M3FNUZ: {"float8e4m3fnuz", 8}, Float8E5M2: {"float8e5m2", 8},
	Float8E5M2FNUZ: {"float8e5m2fnuz", 8}, Uint4: {"uint4", 4}, Int4: {"int4", 4},
	Float4E2M1: {"float4e2m1", 4}, Float8E8M0: {"float8e8m0", 8}, Uint2: {"uint2", 2}, Int2: {"int2", 2},
}

// Valid reports whether d is an element type of ONNX other than Undefined.
func (d DType) Valid() bool { return d > 0 && int(d) < len(dtypes) }

// String is the type's name in ONNX's textual syntax.
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return "dtype?"
}

// ParseDType is the inverse of String; ok is false for an unknown name.
func ParseDType(s string) (d DType, ok bool) {
	for i, t := range dtypes {
		if i > 0 && t.name == s {
			return DType(i), true
		}
	}
	return Undefined, false
}

// Bits is the size of one element in bits, 0 where it has none (String).
func (d DType) Bits() int {
	if int(d) < len(dtypes) {
		return dtypes[d].bits
	}
	return 0
}

// IsFloat reports whether d is a floating-point type of 16 bits or more: the
// types gradients exist for.
func (d DType) IsFloat() bool {
	return d == Float || d == Double || d == Float16 || d == BFloat16
}

// IsInt reports whether d is an integer type of 8 bits or more (not Bool).
func (d DType) IsInt() bool {
	switch d {
	case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64:
		return true
	}
	return false
}

// IsUnsigned reports whether d is an unsigned integer type of 8 bits or more.
func (d DType) IsUnsigned() bool {
	return d == Uint8 || d == Uint16 || d == Uint32 || d == Uint64
}

// DTypeSet is a set of element types.
type DTypeSet uint32

// Has reports whether d is in the set.
func (s DTypeSet) Has(d DType) bool { return s&(1<<d) != 0 }

// SetOf makes a set of its arguments.
func SetOf(ds ...DType) DTypeSet {
	var s DTypeSet
	for _, d := range ds {
		s |= 1 << d
	}
	return s
}

// The sets that operator declarations name.
var (
	Floats   = SetOf(Float, Double, Float16, BFloat16)
	Ints     = SetOf(Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64)
	Signed   = SetOf(Int8, Int16, Int32, Int64) | Floats
	Numeric  = Floats | Ints
	Indices  = SetOf(Int32, Int64)
	Bools    = SetOf(Bool)
	AnyDType = DTypeSet(1<<27 - 2)
)

package ir

import (
	"fmt"
	"unsafe"
)

// Datum is a run-time value: *Tensor, Sequence, or nil for an absent optional.
type Datum interface{ isDatum() }

// Sequence is a run-time value of a sequence type.
type Sequence []Datum

// Tensor is a dense array: row-major elements, little-endian, sub-byte types
// packed low bits first. Data belongs to whoever made it and is not changed by
// readers. It may be backed by a mapped file, unaligned: read it through Load
// functions or Floats/Ints64s/View, which handle that.
type Tensor struct {
	DType   DType
	Dims    []int64
	Data    []byte   // len = ceil(elements*bits/8); nil for String
	Strings []string // String only
}

func (*Tensor) isDatum()  {}
func (Sequence) isDatum() {}

// NewTensor is a tensor of zeros. It panics on a size over 64 bits: callers
// have checked sizes with Type.Bytes.
func NewTensor(d DType, dims ...int64) *Tensor {
	n, ok := MulSizes(dims...)
	if !ok {
		panic(fmt.Sprintf("BUG: tensor %v overflows", dims))
	}
	t := &Tensor{DType: d, Dims: append([]int64{}, dims...)}
	if d == String {
		t.Strings = make([]string, n)
		return t
	}
	bytes := (n*int64(d.Bits()) + 7) / 8
	// Backed by 8-byte words, so that typed views are aligned.
	words := make([]uint64, (bytes+7)/8)
	if len(words) > 0 {
		t.Data = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[:bytes]
	} else {
		t.Data = []byte{}
	}
	return t
}

// Len is the number of elements.
func (t *Tensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Type is the tensor's type.
func (t *Tensor) Type() Type { return TensorOf(t.DType, Ints64(t.Dims...)) }

// Element types of Go that View may show a tensor's data as.
type element interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// View shows the tensor's data as a slice of E without copying where it is
// aligned, else as a copy. sizeof(E) must be the element size: float16 and
// bfloat16 are viewed as uint16, bool as uint8.
func View[E element](t *Tensor) []E {
	var e E
	size := int(unsafe.Sizeof(e))
	if t.DType.Bits() != 8*size {
		panic(fmt.Sprintf("BUG: View of %s as elements of %d bytes", t.DType, size))
	}
	n := len(t.Data) / size
	if n == 0 {
		return nil
	}
	p := unsafe.Pointer(&t.Data[0])
	if uintptr(p)%uintptr(size) == 0 {
		return unsafe.Slice((*E)(p), n)
	}
	out := make([]E, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), n*size), t.Data)
	return out
}

// Reshaped is t with other dims of the same element count, sharing its data.
func (t *Tensor) Reshaped(dims ...int64) *Tensor {
	u := *t
	u.Dims = append([]int64{}, dims...)
	return &u
}

// FromFloats makes a tensor of floating-point type d from float64 values,
// each rounded to nearest even.
func FromFloats(d DType, vals []float64, dims ...int64) *Tensor {
	t := NewTensor(d, dims...)
	SetFloats(t, vals)
	return t
}

// FromInts makes a tensor of integer or bool type d.
func FromInts(d DType, vals []int64, dims ...int64) *Tensor {
	t := NewTensor(d, dims...)
	SetInts(t, vals)
	return t
}

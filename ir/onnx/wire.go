package onnx

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// record is one field of an encoded message.
type record struct {
	num  protowire.Number
	typ  protowire.Type
	n    uint64 // value of a varint or fixed field
	b    []byte // content of a length-delimited field
	raw  []byte // the whole record, tag included
	off  int64  // where raw begins in the file
	boff int64  // where b begins in the file
}

func (r record) float() float32  { return math.Float32frombits(uint32(r.n)) }
func (r record) double() float64 { return math.Float64frombits(r.n) }

// wireError is a malformed encoding at a byte of the file.
type wireError struct {
	off int64
	msg string
}

func (e *wireError) Error() string { return fmt.Sprintf("at byte %d: %s", e.off, e.msg) }

// each calls f for every field of the message b, which begins at byte off of
// the file.
func each(b []byte, off int64, f func(record) error) error {
	for pos := 0; pos < len(b); {
		r, err := next(b[pos:], off+int64(pos))
		if err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
		pos += len(r.raw)
	}
	return nil
}

func next(b []byte, off int64) (record, error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return record{}, malformed(off, "a field's tag", n)
	}
	r := record{num: num, typ: typ, off: off}
	m := 0
	switch typ {
	case protowire.VarintType:
		r.n, m = varint(b[n:])
	case protowire.Fixed32Type:
		var v uint32
		v, m = protowire.ConsumeFixed32(b[n:])
		r.n = uint64(v)
	case protowire.Fixed64Type:
		r.n, m = protowire.ConsumeFixed64(b[n:])
	case protowire.BytesType:
		return nextBytes(b, n, r)
	default:
		m = protowire.ConsumeFieldValue(num, typ, b[n:])
	}
	if m < 0 {
		return record{}, malformed(off, fmt.Sprintf("field %d", num), m)
	}
	r.raw = b[: n+m : n+m]
	return r, nil
}

// varint reads a varint as other readers do: of a tenth byte only the lowest
// bit counts. n is negative on error, as in protowire.
func varint(b []byte) (v uint64, n int) {
	for i := range min(len(b), 10) {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	if len(b) < 10 {
		return 0, -1
	}
	return 0, -3
}

func nextBytes(b []byte, n int, r record) (record, error) {
	size, m := varint(b[n:])
	if m < 0 {
		return record{}, malformed(r.off, fmt.Sprintf("the length of field %d", r.num), m)
	}
	start := n + m
	if size > uint64(len(b)-start) {
		return record{}, &wireError{r.off, fmt.Sprintf("field %d says it has %d bytes, but only %d follow (is the file cut off?)",
			r.num, size, len(b)-start)}
	}
	end := start + int(size)
	r.b, r.raw, r.boff = b[start:end:end], b[:end:end], r.off+int64(start)
	return r, nil
}

func malformed(off int64, what string, code int) error {
	err := protowire.ParseError(code)
	if errors.Is(err, errTruncated) {
		return &wireError{off, what + " is cut off"}
	}
	return &wireError{off, what + " is not valid protobuf"}
}

var errTruncated = protowire.ParseError(-1)

// varints reads the values of a repeated varint field, packed or not.
func (r record) varints(dst []int64) ([]int64, error) {
	if r.typ == protowire.VarintType {
		return append(dst, int64(r.n)), nil
	}
	b := r.b
	for len(b) > 0 {
		v, n := varint(b)
		if n < 0 {
			return nil, malformed(r.boff+int64(len(r.b)-len(b)), fmt.Sprintf("a value of field %d", r.num), n)
		}
		dst = append(dst, int64(v))
		b = b[n:]
	}
	return dst, nil
}

// floats reads the values of a repeated float field, packed or not.
func (r record) floats(dst []float32) ([]float32, error) {
	if r.typ == protowire.Fixed32Type {
		return append(dst, r.float()), nil
	}
	if len(r.b)%4 != 0 {
		return nil, &wireError{r.boff, fmt.Sprintf("field %d holds %d bytes, which is no whole number of floats", r.num, len(r.b))}
	}
	for b := r.b; len(b) > 0; b = b[4:] {
		v, _ := protowire.ConsumeFixed32(b)
		dst = append(dst, math.Float32frombits(v))
	}
	return dst, nil
}

// isBytes, isVarint, isInts and isFloats say whether a record has a wire type that
// its field may have; protobuf treats others as unknown fields.
func (r record) isBytes() bool  { return r.typ == protowire.BytesType }
func (r record) isVarint() bool { return r.typ == protowire.VarintType }
func (r record) isInts() bool   { return r.isBytes() || r.isVarint() }
func (r record) isFloats() bool { return r.isBytes() || r.typ == protowire.Fixed32Type }

package ir

import (
	"fmt"
	"slices"
	"strings"
)

// Kind tells the forms of a Type apart.
type Kind uint8

// The forms of a Type.
const (
	NoType Kind = iota // nothing is known
	TensorKind
	SequenceKind
	OptionalKind
	MapKind
	SparseKind
)

// Type is what is known of a value: its form, element type and shape. Types
// are immutable.
type Type struct {
	Kind  Kind
	DType DType // TensorKind, SparseKind; the key of MapKind
	Shape Shape // TensorKind, SparseKind
	Elem  *Type // SequenceKind, OptionalKind, MapKind
}

// Shape is a list of dims, or unknown (Ranked false).
type Shape struct {
	Ranked bool
	Dims   []Dim
}

// Dims makes a ranked shape.
func Dims(dims ...Dim) Shape { return Shape{Ranked: true, Dims: dims} }

// Ints64 makes a ranked shape of integers.
func Ints64(ns ...int64) Shape {
	dims := make([]Dim, len(ns))
	for i, n := range ns {
		dims[i] = N(n)
	}
	return Dims(dims...)
}

// TensorOf is the tensor type of that element type and shape.
func TensorOf(d DType, s Shape) Type { return Type{Kind: TensorKind, DType: d, Shape: s} }

// SequenceOf is the type of sequences of elem.
func SequenceOf(elem Type) Type { return Type{Kind: SequenceKind, Elem: &elem} }

// OptionalOf is the type of optional elem.
func OptionalOf(elem Type) Type { return Type{Kind: OptionalKind, Elem: &elem} }

// Rank is the number of dims, -1 where the shape is unknown.
func (s Shape) Rank() int {
	if !s.Ranked {
		return -1
	}
	return len(s.Dims)
}

// Static is the shape as integers; ok is false where a dim is not known.
func (s Shape) Static() (ns []int64, ok bool) {
	if !s.Ranked {
		return nil, false
	}
	ns = make([]int64, len(s.Dims))
	for i, d := range s.Dims {
		n, ok := d.Int()
		if !ok {
			return nil, false
		}
		ns[i] = n
	}
	return ns, true
}

// NumElements is the product of the dims (1 for a scalar); unknown rank gives
// ok false.
func (s Shape) NumElements() (n Dim, ok bool) {
	if !s.Ranked {
		return Dim{}, false
	}
	n = N(1)
	for _, d := range s.Dims {
		n = n.Mul(d)
	}
	return n, true
}

// Equal reports whether both shapes are known to the same degree and equal.
func (s Shape) Equal(t Shape) bool {
	return s.Ranked == t.Ranked && slices.EqualFunc(s.Dims, t.Dims, Dim.Equal)
}

// Bind replaces symbols by values.
func (s Shape) Bind(env map[string]Dim) Shape {
	if !s.Ranked || len(env) == 0 {
		return s
	}
	dims := make([]Dim, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = d.Bind(env)
	}
	return Dims(dims...)
}

// String prints "[2,seq]", or "?" for an unknown rank.
func (s Shape) String() string {
	if !s.Ranked {
		return "?"
	}
	parts := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// IsTensor reports whether t is a tensor type.
func (t Type) IsTensor() bool { return t.Kind == TensorKind }

// Equal reports whether t and u are the same type.
func (t Type) Equal(u Type) bool {
	if t.Kind != u.Kind || t.DType != u.DType || !t.Shape.Equal(u.Shape) {
		return false
	}
	if t.Elem == nil || u.Elem == nil {
		return t.Elem == u.Elem
	}
	return t.Elem.Equal(*u.Elem)
}

// Bind replaces symbols by values.
func (t Type) Bind(env map[string]Dim) Type {
	t.Shape = t.Shape.Bind(env)
	if t.Elem != nil {
		e := t.Elem.Bind(env)
		t.Elem = &e
	}
	return t
}

// String prints "float[2,seq]", "seq(int64[])", ….
func (t Type) String() string {
	switch t.Kind {
	case TensorKind:
		return t.DType.String() + t.Shape.String()
	case SparseKind:
		return "sparse_tensor(" + t.DType.String() + t.Shape.String() + ")"
	case SequenceKind:
		return "seq(" + t.Elem.String() + ")"
	case OptionalKind:
		return "optional(" + t.Elem.String() + ")"
	case MapKind:
		return "map(" + t.DType.String() + "," + t.Elem.String() + ")"
	}
	return "?"
}

// Bytes is the size of a value of type t: elements times bits, rounded up to
// whole bytes (sub-byte types are packed). It is an error, naming what is not
// known, if t is no tensor, a dim is symbolic, or the size overflows int64.
func (t Type) Bytes() (int64, error) {
	if t.Kind != TensorKind {
		return 0, fmt.Errorf("type %s has no size", t)
	}
	if t.DType.Bits() == 0 {
		return 0, fmt.Errorf("elements of type %s have no fixed size", t.DType)
	}
	if !t.Shape.Ranked {
		return 0, fmt.Errorf("the rank is not known")
	}
	for _, d := range t.Shape.Dims {
		if _, ok := d.Int(); !ok {
			if d.anyFresh() {
				return 0, fmt.Errorf("dim %q is computed at run time", d)
			}
			return 0, fmt.Errorf("dim %q is not bound (use --dim %s=N)", d, strings.Join(d.Symbols(), "=N --dim "))
		}
	}
	ns, _ := t.Shape.Static()
	elems, ok := MulSizes(ns...)
	if !ok {
		return 0, fmt.Errorf("shape %s overflows 64 bits", t.Shape)
	}
	size, ok := MulSizes(elems, int64(t.DType.Bits()))
	if !ok || size > 1<<63-8 {
		return 0, fmt.Errorf("the size of %s overflows 64 bits", t)
	}
	return (size + 7) / 8, nil
}

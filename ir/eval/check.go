package eval

import (
	"fmt"

	"memoc/ir"
)

// mismatch says how a run-time value contradicts a type; "" if it does not.
// What the type leaves open (no type, unknown rank, symbolic dims) fits all.
func mismatch(t ir.Type, d ir.Datum) string {
	if x, ok := d.(*ir.Tensor); ok && x != nil {
		if why := malformed(x); why != "" {
			return why
		}
	}
	switch t.Kind {
	case ir.NoType, ir.MapKind, ir.SparseKind:
		return ""
	case ir.OptionalKind:
		if d == nil {
			return ""
		}
		return mismatch(*t.Elem, d)
	case ir.SequenceKind:
		seq, ok := d.(ir.Sequence)
		if !ok {
			return "the value is " + typeName(d)
		}
		for i, e := range seq {
			if why := mismatch(*t.Elem, e); why != "" {
				return fmt.Sprintf("of element %d %s", i, why)
			}
		}
		return ""
	}
	x, ok := d.(*ir.Tensor)
	if !ok || x == nil || !fits(t, x) {
		return "the value is " + typeName(d)
	}
	return ""
}

func fits(t ir.Type, x *ir.Tensor) bool {
	if t.DType != ir.Undefined && t.DType != x.DType {
		return false
	}
	if !t.Shape.Ranked {
		return true
	}
	if len(x.Dims) != t.Shape.Rank() {
		return false
	}
	for i, d := range t.Shape.Dims {
		if n, ok := d.Int(); ok && n != x.Dims[i] {
			return false
		}
	}
	return true
}

// malformed says how a tensor's data does not fit its own type.
func malformed(x *ir.Tensor) string {
	n, ok := ir.MulSizes(x.Dims...)
	if !ok {
		return fmt.Sprintf("the value has the impossible dims %v", x.Dims)
	}
	if x.DType == ir.String {
		if int64(len(x.Strings)) != n {
			return fmt.Sprintf("the value %s holds %d strings", x.Type(), len(x.Strings))
		}
		return ""
	}
	if want := (n*int64(x.DType.Bits()) + 7) / 8; int64(len(x.Data)) != want {
		return fmt.Sprintf("the value %s holds %d bytes, not %d", x.Type(), len(x.Data), want)
	}
	return ""
}

package onnx

import (
	"fmt"

	"memoc/ir"
)

// DecodeDatum reads a file that holds one value of type t: a TensorProto, a
// SequenceProto or an OptionalProto, as the data sets of ONNX's test cases do.
func DecodeDatum(b []byte, t ir.Type) (ir.Datum, error) {
	return decodeDatum(b, t, 0)
}

func decodeDatum(b []byte, t ir.Type, depth int) (ir.Datum, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values are nested too deeply")
	}
	elem := func(r record) (ir.Datum, error) {
		var e ir.Type
		if t.Elem != nil {
			e = *t.Elem
		}
		return decodeDatum(r.b, e, depth+1)
	}
	switch t.Kind {
	case ir.SequenceKind:
		seq := ir.Sequence{}
		err := each(b, 0, func(r record) error {
			if (r.num == 3 || r.num == 5 || r.num == 7) && r.isBytes() {
				d, err := elem(r)
				seq = append(seq, d)
				return err
			}
			return nil
		})
		return seq, err
	case ir.OptionalKind:
		var d ir.Datum
		err := each(b, 0, func(r record) (err error) {
			if (r.num == 3 || r.num == 5 || r.num == 7) && r.isBytes() {
				d, err = elem(r)
			}
			return err
		})
		return d, err
	case ir.NoType, ir.TensorKind:
		_, x, err := DecodeTensor(b)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	return nil, fmt.Errorf("values of type %s are not read", t)
}

package ir

import "fmt"

// External is where an initializer's bytes lie outside the model file.
type External struct {
	Location string // as written in the model, relative to its folder
	Offset   int64
	Length   int64 // 0: not stated
	Checksum string
}

// Weight is the data of an initializer: a reference, loaded when first asked
// for and never copied by the graph. A weight whose file is absent has a Type
// like any other; only Tensor fails.
type Weight struct {
	Type     Type
	External *External // nil where the data is in the model file
	Raw      []byte    // the encoded TensorProto as read; nil for one memoc made
	Load     func() (*Tensor, error)
	Sparse   bool // stored as a sparse tensor
	Constant bool // made by memoc to hold a constant: nothing trains it
}

// WeightOf wraps a tensor in memory.
func WeightOf(t *Tensor) *Weight {
	return &Weight{Type: t.Type(), Load: func() (*Tensor, error) { return t, nil }}
}

// Tensor loads the data; the caller must not write it. The error says which
// file is missing or why it is refused.
func (w *Weight) Tensor() (*Tensor, error) {
	if w.Load == nil {
		return nil, fmt.Errorf("the data is not available")
	}
	return w.Load()
}

// smallConst bounds what counts as a compile-time constant, in elements:
// large enough for every shape, axis list and scalar, small enough that no
// weight is ever read while planning.
const smallConst = 1024

// Const is the value's tensor where it is a small constant whose data is at
// hand (an initializer that is not a graph input, or a Constant node), else
// nil. Data in external files is not read.
func (v *Value) Const() *Tensor {
	if v == nil || v.Init != nil && v.IsInput() {
		return nil
	}
	return v.assumed()
}

// assumed is Const, and the default of a graph input that has one: ONNX infers
// shapes from it, and before IR version 4 every initializer is such an input.
func (v *Value) assumed() *Tensor {
	if v.Init != nil {
		n, ok := v.Type.Shape.NumElements()
		if !ok || v.Init.External != nil {
			return nil
		}
		if k, ok := n.Int(); !ok || k > smallConst {
			return nil
		}
		t, err := v.Init.Tensor()
		if err != nil {
			return nil
		}
		return t
	}
	if v.Def != nil && v.Def.Op == "Constant" && v.Def.Domain == "" {
		return v.Def.constantTensor()
	}
	return nil
}

// constantTensor is the value of a Constant node, nil if it is large or of a
// form that is no tensor.
func (n *Node) constantTensor() *Tensor {
	for _, a := range n.Attrs {
		switch a.Name {
		case "value":
			if a.T != nil && a.T.Len() <= smallConst {
				return a.T
			}
		case "value_int":
			return FromInts(Int64, []int64{a.I})
		case "value_ints":
			return FromInts(Int64, a.Ints, int64(len(a.Ints)))
		case "value_float":
			if a.Kind == AttrInt { // exporters write value_float: 0 as an integer
				return FromFloats(Float, []float64{float64(a.I)})
			}
			return FromFloats(Float, []float64{float64(a.F)})
		case "value_floats":
			vals := convert(a.Floats, func(x float32) float64 { return float64(x) })
			return FromFloats(Float, vals, int64(len(vals)))
		case "value_string":
			return &Tensor{DType: String, Dims: []int64{}, Strings: []string{a.S}}
		case "value_strings":
			return &Tensor{DType: String, Dims: []int64{int64(len(a.Strings))}, Strings: a.Strings}
		}
	}
	return nil
}

package onnxgo

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"memoc/ir"
)

// dtypes are the element types that both sides have.
var dtypes = []struct {
	memoc    ir.DType
	gorgonia tensor.Dtype
}{
	{ir.Float, tensor.Float32}, {ir.Double, tensor.Float64}, {ir.Bool, tensor.Bool}, {ir.String, tensor.String},
	{ir.Int8, tensor.Int8}, {ir.Int16, tensor.Int16}, {ir.Int32, tensor.Int32}, {ir.Int64, tensor.Int64},
	{ir.Uint8, tensor.Uint8}, {ir.Uint16, tensor.Uint16}, {ir.Uint32, tensor.Uint32}, {ir.Uint64, tensor.Uint64},
	{ir.Complex64, tensor.Complex64}, {ir.Complex128, tensor.Complex128},
}

// ToTensor copies a tensor of gorgonia's.
func ToTensor(t tensor.Tensor) (*ir.Tensor, error) {
	d := ir.Undefined
	for _, e := range dtypes {
		if e.gorgonia == t.Dtype() {
			d = e.memoc
		}
	}
	if d == ir.Undefined {
		return nil, fmt.Errorf("element type %s is not known to memoc", t.Dtype())
	}
	if dense, ok := t.(*tensor.Dense); ok && dense.RequiresIterator() {
		t = dense.Materialize()
	}
	dims := make([]int64, len(t.Shape()))
	for i, n := range t.Shape() {
		dims[i] = int64(n)
	}
	out := ir.NewTensor(d, dims...)
	data := reflect.ValueOf(t.Data())
	if data.Kind() != reflect.Slice { // a scalar
		s := reflect.MakeSlice(reflect.SliceOf(data.Type()), 1, 1)
		s.Index(0).Set(data)
		data = s
	}
	if int64(data.Len()) < out.Len() {
		return nil, fmt.Errorf("a tensor of shape %v holds %d elements", t.Shape(), data.Len())
	}
	if d == ir.String {
		copy(out.Strings, data.Interface().([]string))
		return out, nil
	}
	if len(out.Data) > 0 {
		copy(out.Data, unsafe.Slice((*byte)(data.UnsafePointer()), len(out.Data)))
	}
	return out, nil
}

// FromTensor copies a tensor into one of gorgonia's.
func FromTensor(t *ir.Tensor) (tensor.Tensor, error) {
	shape := make([]int, len(t.Dims))
	for i, n := range t.Dims {
		shape[i] = int(n)
	}
	for _, e := range dtypes {
		if e.memoc != t.DType {
			continue
		}
		data := reflect.MakeSlice(reflect.SliceOf(e.gorgonia.Type), int(t.Len()), int(t.Len()))
		if t.DType == ir.String {
			reflect.Copy(data, reflect.ValueOf(t.Strings))
		} else if len(t.Data) > 0 {
			copy(unsafe.Slice((*byte)(data.UnsafePointer()), len(t.Data)), t.Data)
		}
		switch {
		case len(shape) == 0:
			return tensor.New(tensor.FromScalar(data.Index(0).Interface())), nil
		case t.Len() == 0:
			return nil, fmt.Errorf("gorgonia has no tensor of shape %v", shape)
		}
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data.Interface())), nil
	}
	return nil, fmt.Errorf("gorgonia has no element type %s", t.DType)
}

// attributes converts what onnx-go makes of attributes, sorted by name.
func attributes(m map[string]interface{}) ([]ir.Attr, error) {
	var out []ir.Attr
	for _, name := range slices.Sorted(maps.Keys(m)) {
		a := ir.Attr{Name: name}
		switch v := m[name].(type) {
		case float32:
			a.Kind, a.F = ir.AttrFloat, v
		case int64:
			a.Kind, a.I = ir.AttrInt, v
		case string:
			a.Kind, a.S = ir.AttrString, v
		case []float32:
			a.Kind, a.Floats = ir.AttrFloats, v
		case []int64:
			a.Kind, a.Ints = ir.AttrInts, v
		case []string:
			a.Kind, a.Strings = ir.AttrStrings, v
		case tensor.Tensor:
			t, err := ToTensor(v)
			if err != nil {
				return nil, fmt.Errorf("attribute %q: %w", name, err)
			}
			a.Kind, a.T = ir.AttrTensor, t
		case struct{}: // an attribute without a value
			continue
		default:
			return nil, fmt.Errorf("attribute %q has a form that memoc does not know (%T)", name, v)
		}
		out = append(out, a)
	}
	return out, nil
}

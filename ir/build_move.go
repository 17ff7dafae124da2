package ir

import (
	"fmt"
	"math"
)

// Methods of Builder that move data: what gradients of indexing operators are
// made of.

// DimOf is the extent of x along axis as an int64 tensor of shape [1].
func (b *Builder) DimOf(x *Value, axis int) *Value {
	if n, ok := x.Type.Shape.Dims[axis].Int(); ok {
		return b.Int64s(n)
	}
	return b.Op("Gather", []*Value{b.Op("Shape", []*Value{x}), b.Int64s(int64(axis))}, IntAttr("axis", 0))
}

// DimsValue is dims as an int64 tensor of shape [len(dims)] where they are
// integers or extents of the given values; ok is false where one is neither.
func (b *Builder) DimsValue(dims []Dim, from ...*Value) (v *Value, ok bool) {
	if ns, ok := Dims(dims...).Static(); ok {
		return b.Int64s(ns...), true
	}
	parts := make([]*Value, len(dims))
	for i, d := range dims {
		if n, isInt := d.Int(); isInt {
			parts[i] = b.Int64s(n)
			continue
		}
		if parts[i] = b.findDim(d, from); parts[i] == nil {
			return nil, false
		}
	}
	return b.Concat(0, parts...), true
}

func (b *Builder) findDim(d Dim, from []*Value) *Value {
	for _, v := range from {
		for a, e := range v.Type.Shape.Dims {
			if e.Equal(d) {
				return b.DimOf(v, a)
			}
		}
	}
	return nil
}

// Concat joins values along axis.
func (b *Builder) Concat(axis int64, vs ...*Value) *Value {
	if len(vs) == 1 {
		return vs[0]
	}
	return b.Op("Concat", vs, IntAttr("axis", axis))
}

// Zeros is a tensor of zeros; shape is a 1-D int64 value.
func (b *Builder) Zeros(d DType, shape *Value) *Value {
	if b.Opset() < 9 {
		return b.Op("Expand", []*Value{b.Scalar(d, 0), shape})
	}
	return b.Op("ConstantOfShape", []*Value{shape}, TensorAttr("value", NewTensor(d, 1)))
}

// ZerosLike is a tensor of zeros of x's type and shape.
func (b *Builder) ZerosLike(x *Value) *Value {
	return b.keepShape(b.Zeros(x.Type.DType, b.ShapeOf(x)), x)
}

// Like records that v has the type of like, which a rule knows better than
// inference where dims are computed at run time.
func (b *Builder) Like(v, like *Value) *Value {
	if v == like || v.Type.Equal(like.Type) {
		return v
	}
	if v.Def == nil || v.Type.DType != like.Type.DType {
		b.Fail(fmt.Errorf("BUG: %q of type %s cannot be taken for %s", v.Name, v.Type, like.Type))
	}
	return b.keepShape(v, like)
}

// Pad adds zeros: before[a] and after[a] elements on every axis; negative
// numbers crop.
func (b *Builder) Pad(x *Value, before, after []int64) *Value {
	pads := append(append([]int64{}, before...), after...)
	for i, p := range pads {
		if p != 0 {
			break
		}
		if i == len(pads)-1 {
			return x
		}
	}
	switch {
	case len(pads) == 0:
		return x
	case b.Opset() < 2:
		return b.Op("Pad", []*Value{x}, IntsAttr("paddings", pads...))
	case b.Opset() < 11:
		return b.Op("Pad", []*Value{x}, IntsAttr("pads", pads...))
	}
	return b.Op("Pad", []*Value{x, b.Int64s(pads...)})
}

// SliceAxis is x[start:end:step] along axis, with ONNX's meaning of negative
// and large numbers. A step other than 1 needs opset 10.
func (b *Builder) SliceAxis(x *Value, axis, start, end, step int64) *Value {
	if b.Opset() < 10 {
		if step != 1 {
			b.NeedOpset(10, "a slice with a step")
		}
		return b.Op("Slice", []*Value{x}, IntsAttr("starts", start), IntsAttr("ends", end), IntsAttr("axes", axis))
	}
	return b.Op("Slice", []*Value{x, b.Int64s(start), b.Int64s(end), b.Int64s(axis), b.Int64s(step)})
}

// SliceValues is x[start:end] along axis; the bounds are int64 values of shape
// [1], computed at run time if need be (which takes opset 10).
func (b *Builder) SliceValues(x *Value, axis int, start, end *Value) *Value {
	if b.Opset() >= 10 {
		return b.Op("Slice", []*Value{x, start, end, b.Int64s(int64(axis))})
	}
	from, to := constDim(start), constDim(end)
	s, ok := from.Int()
	e, ok2 := to.Int()
	if !ok || !ok2 {
		b.NeedOpset(10, "a slice with computed bounds")
	}
	return b.SliceAxis(x, int64(axis), s, e, 1)
}

// constDim is the element of a known [1] integer value, else a symbol.
func constDim(v *Value) Dim {
	if len(v.Ints) == 1 {
		return v.Ints[0]
	}
	return Sym("?")
}

// ReverseAxis turns the order of elements along axis round.
func (b *Builder) ReverseAxis(x *Value, axis int64) *Value {
	return b.SliceAxis(x, axis, -1, math.MinInt64, -1)
}

// MoveAxis moves axis from to position to, keeping the order of the others.
func (b *Builder) MoveAxis(x *Value, from, to int) *Value {
	if from == to {
		return x
	}
	var perm []int64
	for a := range x.Type.Shape.Rank() {
		if a != from {
			perm = append(perm, int64(a))
		}
	}
	perm = append(perm[:to:to], append([]int64{int64(from)}, perm[to:]...)...)
	return b.Transpose(x, perm...)
}

// ScatterSum makes zeros of like's extent along axis (and y's extents along
// the others) and adds every slice of y along axis to the slice that the 1-D
// int64 idx names: the transpose of Gather. distinct promises that no index is
// repeated. Sums of half types are done in float.
func (b *Builder) ScatterSum(y *Value, axis int, idx, like *Value, distinct bool) *Value {
	d := y.Type.DType
	y = b.MoveAxis(y, axis, 0)
	dims := append([]Dim{like.Type.Shape.Dims[axis]}, y.Type.Shape.Dims[1:]...)
	shape, _ := b.DimsValue(dims, like, y) // each dim is one of theirs
	var out *Value
	switch {
	case b.Opset() >= 16:
		sum := d
		if d == Float16 || d == BFloat16 {
			sum = Float
		}
		zeros := b.Zeros(sum, shape)
		out = b.Cast(b.Op("ScatterND", []*Value{zeros, b.Unsqueeze(idx, 1), b.Cast(y, sum)}, StringAttr("reduction", "add")), d)
	case b.Opset() >= 11 && distinct:
		out = b.Op("ScatterND", []*Value{b.Zeros(d, shape), b.Unsqueeze(idx, 1), y})
	default:
		out = b.scatterByMatMul(y, idx, b.DimOf(like, axis), shape)
	}
	return b.MoveAxis(out, 0, axis)
}

// scatterByMatMul is ScatterSum along axis 0 for opsets whose ScatterND cannot
// add: a one-hot matrix times the rows.
func (b *Builder) scatterByMatMul(y, idx, extent, shape *Value) *Value {
	b.NeedOpset(9, "a sum by index")
	// OneHot before opset 11 takes a negative index for out of range.
	zero := b.Int64s(0)
	wrapped := b.Op("Where", []*Value{b.Op("Less", []*Value{idx, zero}), b.Add(idx, extent), idx})
	depth := b.Op("Reshape", []*Value{extent, b.Int64s()})
	hot := b.Op("OneHot", []*Value{wrapped, depth, b.Const(FromFloats(Float, []float64{0, 1}, 2))})
	hot = b.Cast(b.Transpose(hot, 1, 0), y.Type.DType)
	switch y.Type.Shape.Rank() {
	case 1:
		return b.Squeeze(b.MatMul(hot, b.Unsqueeze(y, 1)), 1)
	case 2:
		return b.MatMul(hot, y)
	}
	flat := b.Op("Flatten", []*Value{y}, IntAttr("axis", 1))
	return b.Op("Reshape", []*Value{b.MatMul(hot, flat), shape})
}

// NeedOpset refuses a formula that the model's opset cannot express.
func (b *Builder) NeedOpset(since int, what string) {
	if b.Opset() < since {
		b.Fail(fmt.Errorf("%s has no form in opset %d; convert the model to opset %d or newer", what, b.Opset(), since))
	}
}

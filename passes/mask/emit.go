package mask

import (
	"memoc/ir"
)

// Emitter makes the nodes that compute a part of a Class.
type Emitter struct {
	*ir.Builder
	// Extent is the extent of an axis as an int64 value of shape [1].
	Extent func(axis int) *ir.Value
}

// Emit computes e as a tensor of rank 4, [batch, heads, queries, keys], whose
// axes are of extent 1 where e does not vary. d is the type of its numbers.
func (m *Emitter) Emit(e *Expr, d ir.DType) *ir.Value {
	switch e.kind {
	case number:
		return m.Const(ir.FromFloats(d, []float64{e.x}, 1, 1, 1, 1))
	case truth:
		n := int64(0)
		if e.yes {
			n = 1
		}
		return m.Const(ir.FromInts(ir.Bool, []int64{n}, 1, 1, 1, 1))
	case affine:
		return m.Cast(m.form(e), d)
	case atMost:
		form := *e
		form.kind = affine
		return m.Not(m.Op("Greater", []*ir.Value{m.form(&form), m.Const(ir.FromInts(ir.Int64, []int64{0}))}))
	case leaf:
		return m.leaf(e)
	case pick:
		return m.Where(m.Emit(e.cond, d), m.Emit(e.a, d), m.Emit(e.b, d))
	case equal:
		t := e.typed()
		return m.Op("Equal", []*ir.Value{m.Emit(e.a, t), m.Emit(e.b, t)})
	case and:
		return m.And(m.Emit(e.a, d), m.Emit(e.b, d))
	case or:
		return m.Op("Or", []*ir.Value{m.Emit(e.a, d), m.Emit(e.b, d)})
	}
	return m.Not(m.Emit(e.a, d))
}

// typed is the type of the numbers that an equality compares.
func (e *Expr) typed() ir.DType {
	for _, side := range []*Expr{e.a, e.b} {
		if side.kind == leaf {
			return side.v.Type.DType
		}
	}
	return ir.Int64
}

// form is an integer form of int64.
func (m *Emitter) form(e *Expr) *ir.Value {
	n, _ := e.c.Int()
	sum := m.Const(ir.FromInts(ir.Int64, []int64{n}, 1, 1, 1, 1))
	for k, coef := range e.coef {
		if coef == 0 {
			continue
		}
		zero, one := m.Const(ir.FromInts(ir.Int64, []int64{0})), m.Const(ir.FromInts(ir.Int64, []int64{1}))
		line := m.Op("Range", []*ir.Value{zero, m.Squeeze(m.Extent(k), 0), one})
		var others []int64
		for j := range int64(axes) {
			if int(j) != k {
				others = append(others, j)
			}
		}
		line = m.Unsqueeze(line, others...)
		if coef != 1 {
			line = m.Mul(line, m.Const(ir.FromInts(ir.Int64, []int64{coef})))
		}
		sum = m.Add(sum, line)
	}
	return sum
}

// axisAt is the axis that a leaf's place follows; -1 for a place that is 0 on
// an axis of extent 1. ok is false for any other place.
func (w *walk) axisAt(i *Expr, extent ir.Dim) (axis int, ok bool) {
	if i.constant() {
		return -1, i.c.Equal(ir.N(0)) && extent.Equal(ir.N(1))
	}
	for k, n := range i.coef {
		if n == 1 {
			return k, i.same(axisOf(k)) && extent.Equal(w.extent[k])
		}
	}
	return 0, false
}

// emittable reports whether Emit can compute e.
func (w *walk) emittable(e *Expr) bool {
	switch e.kind {
	case number, truth:
		return true
	case affine, atMost:
		_, ok := e.c.Int()
		return ok
	case leaf:
		used := [axes]bool{}
		for k, i := range e.at {
			axis, ok := w.axisAt(i, e.v.Type.Shape.Dims[k])
			if !ok || axis >= 0 && used[axis] {
				return false
			}
			if axis >= 0 {
				used[axis] = true
			}
		}
		return true
	}
	for _, p := range []*Expr{e.cond, e.a, e.b} {
		if p != nil && !w.emittable(p) {
			return false
		}
	}
	return true
}

// leaf arranges a tensor's axes as batch, head, query, key.
func (m *Emitter) leaf(e *Expr) *ir.Value {
	var units, order []int64
	place := map[int]int64{}
	for k, i := range e.at {
		if !i.varies() {
			units = append(units, int64(k))
			continue
		}
		for axis, n := range i.coef {
			if n != 0 {
				place[axis] = int64(k)
			}
		}
	}
	inPlace := len(e.at) == axes
	var missing []int64
	for axis := range axes {
		k, ok := place[axis]
		if !ok {
			missing = append(missing, int64(axis))
			continue
		}
		inPlace = inPlace && k == int64(axis)
		order = append(order, k)
	}
	if inPlace {
		return e.v
	}
	perm := append(append([]int64{}, units...), order...)
	x := e.v
	for k, p := range perm {
		if p != int64(k) {
			x = m.Transpose(x, perm...)
			break
		}
	}
	lead := make([]int64, len(units))
	for k := range lead {
		lead[k] = int64(k)
	}
	return m.Unsqueeze(m.Squeeze(x, lead...), missing...)
}

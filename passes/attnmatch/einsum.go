package attnmatch

import (
	"strings"

	"memoc/ir"
)

// Perms says how the axes of operands and result that an Einsum names in an
// order of its own are those of a product of matrices; nil: as they are. Axis
// k of the product's operand is axis Perms[k] of the tensor.
type Perms struct{ Q, K, V, Out []int64 }

// equation is an Einsum of two operands taken apart.
type equation struct{ a, b, out string }

func equationOf(n *ir.Node) (e equation, ok bool) {
	if !is(n, "Einsum") || len(n.In) != 2 {
		return e, false
	}
	text := strings.ReplaceAll(n.Str("equation", ""), " ", "")
	in, out, explicit := strings.Cut(text, "->")
	a, b, two := strings.Cut(in, ",")
	if !explicit || !two || strings.Contains(text, ".") {
		return e, false
	}
	for _, s := range []string{a, b, out} {
		for k := range s {
			if strings.IndexByte(s[k+1:], s[k]) >= 0 {
				return e, false // a diagonal
			}
		}
	}
	return equation{a, b, out}, len(a) == len(b) && len(a) == len(out) && len(a) >= 3
}

// order is where the labels of want stand in labels; nil if one does not.
func order(labels, want string) []int64 {
	var perm []int64
	for k := range want {
		at := strings.IndexByte(labels, want[k])
		if at < 0 {
			return nil
		}
		perm = append(perm, int64(at))
	}
	return perm
}

// scores reads an equation as queries by keys: [.., i, d] and [.., j, d] give
// [.., i, j].
func (e equation) scores() (q, k []int64, ok bool) {
	r := len(e.out)
	lead, i, j := e.out[:r-2], e.out[r-2:r-1], e.out[r-1:]
	for x := range e.a {
		d := e.a[x : x+1]
		if !strings.Contains(e.out, d) {
			q, k = order(e.a, lead+i+d), order(e.b, lead+j+d)
			return q, k, q != nil && k != nil
		}
	}
	return nil, nil, false
}

// context reads an equation as weights by values: [.., i, j], in this order,
// and [.., j, d] give [.., i, d]. out makes the product's result e's.
func (e equation) context() (v, out []int64, ok bool) {
	r := len(e.a)
	lead, i, j := e.a[:r-2], e.a[r-2:r-1], e.a[r-1:]
	for x := range e.b {
		d := e.b[x : x+1]
		if !strings.Contains(e.a, d) {
			v, out = order(e.b, lead+j+d), order(lead+i+d, e.out)
			return v, out, v != nil && out != nil
		}
	}
	return nil, nil, false
}

// permuted is a shape with its axes in another order; nil: the same.
func permuted(s ir.Shape, perm []int64) ir.Shape {
	if perm == nil || !s.Ranked || len(perm) != s.Rank() {
		return s
	}
	dims := make([]ir.Dim, len(perm))
	for k, p := range perm {
		dims[k] = s.Dims[p]
	}
	return ir.Dims(dims...)
}

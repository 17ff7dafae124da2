package chunks

import (
	"memoc/ir"
)

// addSum adds chunk k's part of what n sums over the tokens to those before.
func (u *unroller) addSum(n *ir.Node, k int) error {
	in := make([]*ir.Value, len(n.In))
	for p, v := range n.In {
		w, err := u.input(n, k, v, u.r.info.Varies(v))
		if err != nil {
			return err
		}
		in[p] = w
	}
	u.near(n, k)
	y := n.Out[0].Type
	switch to := sumType(y.DType); {
	case isProduct(n):
		attrs := []ir.Attr{ir.IntAttr("transA", n.Int("transA", 0)), ir.IntAttr("transB", n.Int("transB", 0))}
		u.sums[n] = u.accumulate(in[0], in[1], u.sums[n], to, attrs...)
	case to != y.DType && u.sumsRows(n):
		u.sums[n] = u.addRows(n, in[0], k, u.sums[n], to)
	default:
		part := u.e.InsertBefore(u.b.At, ir.NodeSpec{Name: u.g.Fresh(u.b.Prefix + n.Op), Domain: n.Domain, Op: n.Op, Version: n.Version,
			In: in, Out: []string{u.g.Fresh(u.b.Prefix + n.Out[0].Name)}, Attrs: n.Attrs, Origin: u.b.Origin, Backward: u.b.Backward, Loc: u.b.Loc})
		if err := ir.InferNode(u.g, part); err != nil {
			return err
		}
		if !part.Out[0].Type.Equal(y) {
			return n.Errorf("internal", "BUG: chunk %d of the sum %q is %s, must be %s", k, n.Out[0].Name, part.Out[0].Type, y)
		}
		x := u.b.Cast(part.Out[0], to)
		if old := u.sums[n]; old != nil {
			x = u.b.Add(old, x)
		}
		u.sums[n] = x
	}
	return nil
}

// sumType is the type that values of type d are summed in.
func sumType(d ir.DType) ir.DType {
	if d.IsFloat() && d.Bits() < 32 {
		return ir.Float
	}
	return d
}

// isProduct reports whether n is the plain product of two matrices.
func isProduct(n *ir.Node) bool {
	if n.Domain != ir.OnnxDomain || !n.Out[0].Type.DType.IsFloat() || n.In[0].Type.Shape.Rank() != 2 || n.In[1].Type.Shape.Rank() != 2 {
		return false
	}
	return n.Op == "MatMul" || n.Op == "Gemm" && (len(n.In) < 3 || n.In[2] == nil) && n.Float("alpha", 1) == 1
}

// accumulate is sum + A' B', the sum of type to.
func (u *unroller) accumulate(a, b, sum *ir.Value, to ir.DType, attrs ...ir.Attr) *ir.Value {
	if to != a.Type.DType {
		attrs = append(attrs, ir.IntAttr("to", int64(to)))
	}
	return u.b.OpN(ir.MemocDomain, "MatMulAccumulate", 1, []*ir.Value{a, b, sum}, attrs...)[0]
}

// sumsRows reports whether n sums over all leading axes of its first input.
func (u *unroller) sumsRows(n *ir.Node) bool {
	if n.Domain != ir.OnnxDomain || n.Op != "ReduceSum" {
		return false
	}
	for i, ref := range n.Decl.Axes(n).Sum {
		if ref.In != 0 || ref.Axis != i {
			return false
		}
	}
	return true
}

// addRows sums the rows of x as a product with ones: no sum over tokens is
// rounded to a half type on the way.
func (u *unroller) addRows(n *ir.Node, x *ir.Value, k int, sum *ir.Value, to ir.DType) *ir.Value {
	dims, _ := x.Type.Shape.Static()
	lead := len(n.Decl.Axes(n).Sum)
	rows := ir.Elems(dims[:lead])
	x = u.b.Reshape(x, rows, ir.Elems(dims[lead:]))
	key := onesOf{x.Type.DType, rows}
	if u.ones[key] == nil {
		one := u.b.Const(ir.FromFloats(x.Type.DType, []float64{1}, 1, 1))
		u.ones[key] = u.b.Op("Expand", []*ir.Value{one, u.b.Int64s(rows, 1)})
	}
	return u.accumulate(u.ones[key], x, sum, to, ir.IntAttr("transA", 1))
}

// onesOf names a column of ones.
type onesOf struct {
	d    ir.DType
	rows int64
}

// results puts together what the round's chunks made for use outside, and
// gives the sums their types.
func (u *unroller) results(nodes []*ir.Node) {
	for _, n := range nodes {
		u.near(n, len(u.made))
		u.b.Prefix = n.Name + ".chunks/"
		if sum := u.sums[n]; sum != nil {
			v := u.b.Cast(sum, n.Out[0].Type.DType)
			u.wholes = append(u.wholes, whole{n.Out[0], u.b.ReshapeLike(v, n.Out[0])})
		}
		for _, v := range n.Out {
			if parts := u.parts[v]; v != nil && parts != nil {
				u.wholes = append(u.wholes, whole{v, u.join(v, parts)})
			}
		}
	}
}

// join is v, whose chunks are parts.
func (u *unroller) join(v *ir.Value, parts []*ir.Value) *ir.Value {
	a, _ := u.r.info.Axis(v)
	if a.Outer == 1 && a.Inner == 1 {
		return u.b.Concat(int64(a.Dim), parts...)
	}
	dims, _ := v.Type.Shape.Static()
	pieces := make([]*ir.Value, len(parts))
	for k, x := range parts {
		pieces[k] = u.b.Reshape(x, split(dims, a, u.width(k))...)
	}
	return u.b.ReshapeLike(u.b.Concat(int64(a.Dim+1), pieces...), v)
}

package ops

import (
	"slices"

	"memoc/ir"
)

// axesOf reads the axes of a node that older opsets give as attribute and
// newer ones as the input of that port. Either form is taken at any opset,
// since files mix them. known is false where the input is computed at run
// time.
func axesOf(n *ir.Node, port int) (axes []int64, given, known bool) {
	return intsOf(n, "axes", port)
}

// intsOf is axesOf for any list of integers.
func intsOf(n *ir.Node, attr string, port int) (vals []int64, given, known bool) {
	if port < len(n.In) && n.In[port] != nil {
		vals, known = (&ir.NodeCtx{Node: n}).StaticInts(port)
		return vals, true, known
	}
	if vals, ok := n.IntList(attr); ok {
		return vals, true, true
	}
	return nil, false, true
}

// evalInts is intsOf at run time.
func evalInts(c *ir.EvalCtx, attr string, port int) (vals []int64, given bool) {
	if c.Has(port) {
		return c.In(port).Ints(), true
	}
	return c.Node.IntList(attr)
}

// normAxes maps axes to [0, rank) and sorts them; bad is the first that is out
// of range or repeated.
func normAxes(axes []int64, rank int) (out []int, bad int64, ok bool) {
	for _, a := range axes {
		n, ok := ir.NormAxis(a, rank)
		if !ok || slices.Contains(out, n) {
			return nil, a, false
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out, 0, true
}

// dimsWithout drops the given axes of a list.
func dimsWithout[E any](dims []E, axes []int) []E {
	out := []E{}
	for i, d := range dims {
		if !slices.Contains(axes, i) {
			out = append(out, d)
		}
	}
	return out
}

// followAxes is an AxisMap of one output in which output axis a follows axis
// from(a) of input 0; a negative number claims nothing.
func followAxes(n *ir.Node, from func(a int) int) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	if n.Out[0] == nil || !n.Out[0].Type.Shape.Ranked {
		return m
	}
	axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
	for a := range axes {
		if f := from(a); f >= 0 {
			axes[a] = ir.OutAxis{{In: 0, Axis: f}}
		}
	}
	m.Out[0] = axes
	return m
}

// wholeToo says of an axis that its positions are those of the linked axes, but
// that each needs these whole.
func wholeToo(links ir.OutAxis) ir.OutAxis {
	for _, l := range links {
		links = append(links, ir.AxisLink{In: l.In, Axis: l.Axis, Rel: ir.Whole})
	}
	return links
}

// regroupAxes is the AxisMap of operators that keep the row-major order of
// elements: runs of input and output axes with equal products correspond.
func regroupAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
	if !in.Ranked || !out.Ranked {
		return m
	}
	axes := make([]ir.OutAxis, out.Rank())
	m.Out[0] = axes
	for i, j := 0, 0; i < in.Rank() && j < out.Rank(); {
		i1, j1 := matchRun(in.Dims, out.Dims, i, j)
		if i1 < 0 {
			return m
		}
		linkRun(axes, in.Dims, out.Dims, i, i1, j, j1)
		i, j = i1, j1
	}
	return m
}

// matchRun finds the shortest runs in[i:i1] and out[j:j1] of equal product;
// i1 is -1 if there are none. Zero extents match nothing: their positions mean
// nothing.
func matchRun(in, out []ir.Dim, i, j int) (i1, j1 int) {
	for i1 = i + 1; i1 <= len(in); i1++ {
		p := product(in[i:i1])
		if p.Equal(ir.N(0)) {
			return -1, -1
		}
		for j1 = j + 1; j1 <= len(out); j1++ {
			if product(out[j:j1]).Equal(p) {
				return i1, j1
			}
		}
	}
	return -1, -1
}

func product(dims []ir.Dim) ir.Dim {
	p := ir.N(1)
	for _, d := range dims {
		p = p.Mul(d)
	}
	return p
}

// linkRun links the run in[i:i1] with out[j:j1]. Extents of 1 beside one real
// axis are no obstacle; of a merge or split only the outermost axis can be cut.
func linkRun(axes []ir.OutAxis, in, out []ir.Dim, i, i1, j, j1 int) {
	one := ir.N(1)
	for i < i1-1 && in[i].Equal(one) {
		i++
	}
	for j < j1-1 && out[j].Equal(one) {
		j++
	}
	innerIn, okIn := product(in[i+1 : i1]).Int()
	innerOut, okOut := product(out[j+1 : j1]).Int()
	switch {
	case in[i].Equal(out[j]):
		axes[j] = ir.OutAxis{{In: 0, Axis: i, Rel: ir.Follow}}
	case j1-j == 1 && okIn:
		axes[j] = ir.OutAxis{{In: 0, Axis: i, Rel: ir.Merge, Inner: innerIn}}
	case i1-i == 1 && okOut:
		axes[j] = ir.OutAxis{{In: 0, Axis: i, Rel: ir.Split, Inner: innerOut}}
	}
}

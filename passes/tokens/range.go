package tokens

import (
	"fmt"

	"memoc/ir"
)

// verdict is what is known of a node: which inputs it reads at the range that
// it makes, or why it only runs whole.
type verdict struct {
	in  []bool
	why string
}

// Range reports whether n may run on tokens [a,b) and then gives exactly
// tokens [a,b) of every output. in is parallel to n.In: whether that input is
// taken at the same range (true) or whole.
//
// That is so if all outputs have the token axis, follow on it every input that
// has it, and no other input varies by token; if the node is a function of its
// inputs; and if what it is told of extents can be told anew (see OnRange).
func (i *Info) Range(n *ir.Node) (in []bool, ok bool) {
	v := i.verdict(n)
	return v.in, v.why == ""
}

// Why says why n may not run by token; it is empty if it may.
func (i *Info) Why(n *ir.Node) string { return i.verdict(n).why }

func (i *Info) verdict(n *ir.Node) *verdict {
	if int(n.ID) >= len(i.nodes) || n.Graph != i.graph {
		return &verdict{why: "it is no node of the graph that was looked at"}
	}
	if i.nodes[n.ID] == nil {
		v := &verdict{in: make([]bool, len(n.In))}
		if v.why = i.judge(n, v.in); v.why != "" {
			v.in = nil
		}
		i.nodes[n.ID] = v
	}
	return i.nodes[n.ID]
}

// judge sets in and returns "", or why n does not run by token.
func (i *Info) judge(n *ir.Node, in []bool) string {
	switch {
	case i.tokens == 0:
		return "the graph has no token axis"
	case n.Decl == nil:
		return "the operator is unknown"
	case len(n.Subgraphs()) > 0:
		return "it has subgraphs"
	}
	if ok, why := n.Decl.Recompute.OK(); !ok {
		return why
	}
	m, made := axesOf(n), 0
	for o, v := range n.Out {
		if v == nil {
			continue
		}
		if why := i.judgeOutput(n, m, o, in); why != "" {
			return why
		}
		made++
	}
	if made == 0 {
		return "it makes nothing"
	}
	for _, width := range []int64{1, i.tokens - 1} {
		if _, err := i.restate(n, in, width); err != nil {
			return err.Error()
		}
	}
	return ""
}

// judgeOutput looks at the links of output o's token axis.
func (i *Info) judgeOutput(n *ir.Node, m ir.AxisMap, o int, in []bool) string {
	v := n.Out[o]
	at, ok := i.Axis(v)
	switch {
	case !ok && i.varies[v.ID]:
		return fmt.Sprintf("%q varies by token, but not along one dimension", v.Name)
	case !ok:
		return fmt.Sprintf("%q has no token axis", v.Name)
	case o >= len(m.Out) || at.Dim >= len(m.Out[o]):
		return fmt.Sprintf("the operator says nothing of the axes of %q", v.Name)
	}
	if !wholeBytes(v) {
		return fmt.Sprintf("a token of %q is no whole number of bytes", v.Name)
	}
	dim, links := covering(n, m.Out[o], v, at.Dim)
	if links == nil {
		return fmt.Sprintf("the operator says nothing of axis %d of %q", at.Dim, v.Name)
	}
	follows := make([]bool, len(n.In))
	for _, l := range links {
		if why := i.judgeLink(n, o, dim, l); why != "" {
			return why
		}
		follows[l.In] = true
		in[l.In] = true
	}
	for p, u := range n.In {
		if u != nil && !follows[p] && i.varies[u.ID] {
			return fmt.Sprintf("every token of %q needs other tokens of %q", v.Name, u.Name)
		}
	}
	return ""
}

// covering is the links that say where positions of v's dimension dim come
// from: its own, or those of the dimension before it from which on an input's
// dimension is split.
func covering(n *ir.Node, axes []ir.OutAxis, v *ir.Value, dim int) (at int, links ir.OutAxis) {
	if axes[dim] != nil {
		return dim, axes[dim]
	}
	for a := dim - 1; a >= 0; a-- {
		for _, l := range axes[a] {
			if _, out := linked(n, v, a, l); l.Rel == ir.Split && a+len(out) > dim {
				return a, ir.OutAxis{l}
			}
		}
	}
	return dim, nil
}

// judgeLink looks at one link of axis a of output o.
func (i *Info) judgeLink(n *ir.Node, o, a int, l ir.AxisLink) string {
	v := n.Out[o]
	from, _ := linked(n, v, a, l)
	if from == nil {
		if l.In >= 0 && l.In < len(n.In) && n.In[l.In] != nil {
			return fmt.Sprintf("every token of %q needs other tokens of %q", v.Name, n.In[l.In].Name)
		}
		return "the operator links an axis to an input that is not there"
	}
	u := n.In[l.In]
	made, _ := i.Axis(v)
	read, ok := i.Axis(u)
	if !ok {
		return fmt.Sprintf("%q varies by token, but not along one dimension", u.Name)
	}
	if !wholeBytes(u) {
		return fmt.Sprintf("a token of %q is no whole number of bytes", u.Name)
	}
	if l.Rel == ir.Follow {
		if read.Dim != l.Axis || read.Outer != made.Outer || read.Inner != made.Inner {
			return fmt.Sprintf("%q and %q have their tokens at different places of one axis", v.Name, u.Name)
		}
		return ""
	}
	// Of a merge or split the operator claims only that the outermost part can
	// be cut. Where it moves no data, both ends are the same elements in the
	// same order, and a cut of one factor is the same cut of both.
	if n.Decl.View == nil || n.Decl.View(n, o) != l.In || read.Dim < from[0] || read.Dim > from[len(from)-1] || !i.sameOrder(u, v) {
		return fmt.Sprintf("%q and %q have their tokens at different places", v.Name, u.Name)
	}
	return ""
}

// wholeBytes reports whether every element of v has bytes of its own.
func wholeBytes(v *ir.Value) bool {
	return v.Type.DType != ir.String && v.Type.DType.Bits()%8 == 0
}

// sameOrder reports whether the elements before, within and after a token are
// as many in u as in v.
func (i *Info) sameOrder(u, v *ir.Value) bool {
	ru, bu, ok := i.rowsOf(u)
	rv, bv, ok2 := i.rowsOf(v)
	return ok && ok2 && ru == rv && bu == bv
}

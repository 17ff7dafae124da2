package ops

import "memoc/ir"

// Before opset 7 two operands broadcast only with the attribute broadcast=1,
// and the second one's axes are laid at `axis` of the first's (default: at its
// end, as numpy does). legacyShape is the second operand's shape in today's
// form, with the 1s that lay it there; ok is false where it does not fit.
func legacyShape(n *ir.Node, version int, a, b ir.Shape) (shape ir.Shape, ok bool) {
	if version >= 7 || n.Int("broadcast", 0) == 0 || n.Attr("axis") == nil || !a.Ranked || !b.Ranked {
		return b, true
	}
	axis, ok := ir.NormAxis(n.Int("axis", 0), max(a.Rank(), 1))
	if !ok || axis+b.Rank() > a.Rank() {
		return b, false
	}
	dims := append([]ir.Dim{}, b.Dims...)
	for len(dims) < a.Rank()-axis {
		dims = append(dims, ir.N(1))
	}
	return ir.Dims(dims...), true
}

// legacyMoved reports whether the node has the old form and it differs from
// today's broadcasting.
func legacyMoved(n *ir.Node, version int) bool {
	if len(n.In) < 2 || n.In[0] == nil || n.In[1] == nil {
		return false
	}
	b := n.In[1].Type.Shape
	s, ok := legacyShape(n, version, n.In[0].Type.Shape, b)
	return ok && s.Rank() != b.Rank()
}

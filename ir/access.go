package ir

import "slices"

// place is where v's bytes are; ok is false if it has none.
func (p *Program) place(v *Value) (Place, bool) {
	if v == nil || v.Graph != p.Graph || int(v.ID) >= len(p.Places) || p.Places[v.ID].Buffer < 0 || p.Places[v.ID].Size == 0 {
		return Place{Buffer: -1}, false
	}
	return p.Places[v.ID], true
}

// SliceOf is where in the place of its input the bytes lie that a Slice takes:
// what it reads where it is a step, and what it is where it is none. ok is
// false for any other node, and for a Slice that takes no such range.
func (p *Program) SliceOf(n *Node) (part Place, ok bool) {
	axis, from, to, ok := SliceRange(n)
	if !ok {
		return Place{Buffer: -1}, false
	}
	in, ok := p.place(n.In[0])
	if !ok {
		return in, false
	}
	return in.Part(n.In[0].Type, axis, from, to)
}

// ConcatPart is where in the place of its output the bytes of one input of a
// Concat belong.
func (p *Program) ConcatPart(n *Node, port int) (part Place, ok bool) {
	if n.Op != "Concat" || n.Domain != OnnxDomain || len(n.Out) != 1 || port >= len(n.In) {
		return Place{Buffer: -1}, false
	}
	out, ok := p.place(n.Out[0])
	axis, known := NormAxis(n.Int("axis", 1), n.Out[0].Type.Shape.Rank())
	if !ok || !known {
		return Place{Buffer: -1}, false
	}
	from := int64(0)
	for i, v := range n.In {
		dims, static := v.Type.Shape.Static()
		if !static || axis >= len(dims) {
			return Place{Buffer: -1}, false
		}
		if i == port {
			return out.Part(n.Out[0].Type, axis, from, from+dims[axis])
		}
		from += dims[axis]
	}
	return Place{Buffer: -1}, false
}

// InOutput reports whether an input of a Concat already lies where it belongs
// in the output.
func (p *Program) InOutput(n *Node, port int) bool {
	part, ok := p.ConcatPart(n, port)
	if !ok {
		return false
	}
	in, ok := p.place(n.In[port])
	return ok && in.Same(part)
}

// Accesses is what a step of node n reads and writes, its workspace left out:
// the places of its operands and results, but of a Slice only the range that it
// takes, and of a Concat only the inputs that are not yet where they belong.
func (p *Program) Accesses(n *Node) (reads, writes []Access) {
	if reads, writes, ok := p.joins(n); ok {
		return reads, writes
	}
	part, isRange := p.SliceOf(n)
	for port, v := range slices.Concat(n.In, n.Captures) {
		if isRange && port == 0 {
			reads = addAccess(reads, part)
		} else if pl, ok := p.place(v); ok {
			reads = addAccess(reads, pl)
		}
	}
	for _, v := range n.Out {
		if pl, ok := p.place(v); ok {
			writes = addAccess(writes, pl)
		}
	}
	return reads, writes
}

// joins is Accesses for a Concat with an input in its output.
func (p *Program) joins(n *Node) (reads, writes []Access, ok bool) {
	for port, v := range n.In {
		if p.InOutput(n, port) {
			ok = true
			continue
		}
		in, has := p.place(v)
		part, known := p.ConcatPart(n, port)
		if has && known {
			reads, writes = addAccess(reads, in), addAccess(writes, part)
		}
	}
	return reads, writes, ok
}

// addAccess adds a place, once for the same bytes.
func addAccess(as []Access, pl Place) []Access {
	for _, a := range as {
		if a.Buffer == pl.Buffer && a.Covers(pl) {
			return as
		}
	}
	return append(as, pl)
}

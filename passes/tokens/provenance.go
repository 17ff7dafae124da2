package tokens

import "memoc/ir"

// provenance holds the factors of every dimension of every value: nil for a
// value of which no static shape is known.
type provenance struct {
	dims [][][]*factor // [ValueID][dimension]
}

func (p *provenance) graph(g *ir.Graph) {
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			p.source(v)
		}
	}
	for _, n := range g.Nodes {
		p.node(n)
	}
}

// source gives v dimensions that are like no others.
func (p *provenance) source(v *ir.Value) {
	if p.dims[v.ID] != nil {
		return // an input with a default is an initializer, too
	}
	dims, ok := v.Type.Shape.Static()
	if !ok || !v.Type.IsTensor() {
		return
	}
	p.dims[v.ID] = make([][]*factor, len(dims))
	for d, extent := range dims {
		p.dims[v.ID][d] = fresh(extent)
	}
}

func (p *provenance) node(n *ir.Node) {
	m := axesOf(n)
	for o, v := range n.Out {
		if v == nil {
			continue
		}
		p.source(v)
		if o >= len(m.Out) {
			continue
		}
		for a, links := range m.Out[o] {
			for _, l := range links {
				p.link(n, v, a, l)
			}
		}
	}
}

// axesOf is what the operator declares of n; nothing for an unknown operator
// and for a node that lacks what the operator must have, or ranks.
func axesOf(n *ir.Node) ir.AxisMap {
	if n.Decl == nil || len(n.Out) == 0 || n.Out[0] == nil || len(n.In) < required(n.Decl.In) || len(n.In) > 0 && len(n.Decl.In) == 0 {
		return ir.AxisMap{}
	}
	for k, v := range n.In {
		switch {
		case v == nil && !n.Decl.In[min(k, len(n.Decl.In)-1)].Optional, v != nil && !v.Type.Shape.Ranked:
			return ir.AxisMap{}
		}
	}
	return n.Decl.Axes(n)
}

// required is how many inputs come before the first that may be left out.
func required(ports []ir.Port) int {
	for k, p := range ports {
		if p.Optional || p.Variadic {
			return k
		}
	}
	return len(ports)
}

// link joins the factors of axis a of output v and of the input axes that the
// link leads to.
func (p *provenance) link(n *ir.Node, v *ir.Value, a int, l ir.AxisLink) {
	in, out := linked(n, v, a, l)
	if in == nil {
		return
	}
	u := n.In[l.In]
	var from, to []*factor
	for _, d := range in {
		from = append(from, p.dims[u.ID][d]...)
	}
	for _, d := range out {
		to = append(to, p.dims[v.ID][d]...)
	}
	unify(to, from)
}

// linked is the axes of the input and of output v between which a link of v's
// axis a goes, such that row-major positions within the one group are those
// within the other; nil if there are none: the link is a shift, a window, a
// prefix or leads to an axis of another extent.
func linked(n *ir.Node, v *ir.Value, a int, l ir.AxisLink) (in, out []int) {
	if l.In < 0 || l.In >= len(n.In) || n.In[l.In] == nil {
		return nil, nil
	}
	id, okIn := n.In[l.In].Type.Shape.Static()
	od, okOut := v.Type.Shape.Static()
	if !okIn || !okOut || l.Axis < 0 || l.Axis >= len(id) || a >= len(od) {
		return nil, nil
	}
	switch {
	case l.Rel == ir.Follow && l.Lo == 0 && id[l.Axis] == od[a]:
		return []int{l.Axis}, []int{a}
	case l.Rel == ir.Merge:
		if run := runOf(id[l.Axis:], od[a]); run > 0 && l.Inner > 0 && id[l.Axis]*l.Inner == od[a] {
			return span(l.Axis, run), []int{a}
		}
	case l.Rel == ir.Split:
		if run := runOf(od[a:], id[l.Axis]); run > 0 && l.Inner > 0 && od[a]*l.Inner == id[l.Axis] {
			return []int{l.Axis}, span(a, run)
		}
	}
	return nil, nil
}

// runOf is how many leading dims multiply to the extent, 0 if no number does.
func runOf(dims []int64, extent int64) int {
	product := int64(1)
	for k, d := range dims {
		if product *= d; product == extent {
			return k + 1
		}
		if product == 0 || product > extent {
			return 0
		}
	}
	return 0
}

func span(from, n int) []int {
	out := make([]int, n)
	for k := range out {
		out[k] = from + k
	}
	return out
}

// find is the one place of the token axis in a value's dimensions: dimension
// d, from its k-th factor on. ok is false where there is none, or where its
// factors occur elsewhere, too.
func find(dims [][]*factor, token []*factor) (d, k int, ok bool) {
	count := 0
	for i, fs := range dims {
		fs = leaves(fs)
		for j, f := range fs {
			if !contains(token, f) {
				continue
			}
			if count++; f == token[0] && hasPrefix(fs[j:], token) {
				d, k, ok = i, j, true
			}
		}
	}
	return d, k, ok && count == len(token)
}

// varies reports whether a factor of the token axis is in dims.
func varies(dims [][]*factor, token []*factor) bool {
	for _, fs := range dims {
		for _, f := range leaves(fs) {
			if contains(token, f) {
				return true
			}
		}
	}
	return false
}

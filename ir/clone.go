package ir

import (
	"maps"
	"slices"
)

// Clone is a copy of a root graph, so that edits of one leave the other alone.
// IDs, names and the order of nodes are the same; the data of weights and
// attributes, which nothing writes, is shared.
func (g *Graph) Clone() *Graph {
	names := *g.names
	names.used, names.next = maps.Clone(g.names.used), maps.Clone(g.names.next)
	c := &twin{names: &names, values: make([]*Value, g.NumValues()), nodes: make([]*Node, g.NumNodes())}
	h := c.graph(g)
	c.uses()
	return h
}

// twin maps a graph to its copy, by ID.
type twin struct {
	names     *nameTable
	values    []*Value
	nodes     []*Node
	originals []*Value
}

func (c *twin) value(v *Value) *Value {
	if v == nil {
		return nil
	}
	return c.values[v.ID]
}

func (c *twin) list(vs []*Value) []*Value {
	if vs == nil {
		return nil
	}
	out := make([]*Value, len(vs))
	for i, v := range vs {
		out[i] = c.value(v)
	}
	return out
}

// graph copies g and its subgraphs, without uses.
func (c *twin) graph(g *Graph) *Graph {
	h := *g
	h.names, h.Meta, h.Owner = c.names, slices.Clone(g.Meta), nil
	for _, vs := range [][]*Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			if c.values[v.ID] == nil {
				c.define(v, &h, nil)
			}
		}
	}
	h.Inputs, h.Inits = c.list(g.Inputs), c.list(g.Inits)
	h.Nodes = make([]*Node, len(g.Nodes))
	for i, n := range g.Nodes {
		h.Nodes[i] = c.node(n, &h)
	}
	h.Outputs = c.list(g.Outputs)
	return &h
}

func (c *twin) define(v *Value, g *Graph, def *Node) {
	w := *v
	w.Graph, w.Def, w.uses = g, def, nil
	c.values[v.ID] = &w
	c.originals = append(c.originals, v)
}

func (c *twin) node(n *Node, g *Graph) *Node {
	m := *n
	m.Graph, m.Attrs, m.Meta = g, slices.Clone(n.Attrs), slices.Clone(n.Meta)
	c.nodes[n.ID] = &m
	m.In, m.Captures = c.list(n.In), c.list(n.Captures)
	for i := range m.Attrs {
		a := &m.Attrs[i]
		if a.G != nil {
			a.G = c.graph(a.G)
			a.G.Owner = &m
		}
		a.Graphs = slices.Clone(a.Graphs)
		for k, sub := range a.Graphs {
			a.Graphs[k] = c.graph(sub)
			a.Graphs[k].Owner = &m
		}
	}
	for _, v := range n.Out {
		if v != nil {
			c.define(v, g, &m)
		}
	}
	m.Out = c.list(n.Out)
	return &m
}

// uses gives every copy the readers of its original, in the same order.
func (c *twin) uses() {
	for _, v := range c.originals {
		w := c.values[v.ID]
		for _, u := range v.uses {
			w.uses = append(w.uses, Use{c.nodes[u.Node.ID], u.Port})
		}
	}
}

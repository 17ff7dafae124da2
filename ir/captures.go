package ir

// OuterValues lists the values that n's subgraphs, however deep, read from
// outside of n, each once, in the order of their first reading: what
// SetCaptures is given.
func (n *Node) OuterValues() []*Value {
	w := outerWalk{inside: map[*Graph]bool{}, seen: map[*Value]bool{}}
	for _, g := range n.Subgraphs() {
		w.graph(g)
	}
	return w.out
}

type outerWalk struct {
	inside map[*Graph]bool
	seen   map[*Value]bool
	out    []*Value
}

func (w *outerWalk) graph(g *Graph) {
	w.inside[g] = true
	for _, n := range g.Nodes {
		w.values(n.In)
		for _, sub := range n.Subgraphs() {
			w.graph(sub)
		}
	}
	w.values(g.Outputs)
}

func (w *outerWalk) values(vs []*Value) {
	for _, v := range vs {
		if v != nil && !w.inside[v.Graph] && !w.seen[v] {
			w.seen[v] = true
			w.out = append(w.out, v)
		}
	}
}

package chunks

import (
	"fmt"

	"memoc/ir"
)

// absorbed bounds the nodes that are added to make one result of several.
const absorbed = 16

// narrow orders the region in rounds, each of which must give what it makes
// of a token as one narrow tensor. Where it gives several, nodes that join
// them token by token are added (the gradients of the input of two
// projections are added up).
func (b *border) narrow(r *Region) string {
	for tries := 0; ; tries++ {
		depth := b.rounds(r)
		many, results := b.results(r)
		if many == nil {
			return ""
		}
		n := b.joining(r, depth, results)
		if n == nil || tries == absorbed {
			return fmt.Sprintf("it gives %d results for each token, %q and %q among them", len(results), results[0].Name, many.Name)
		}
		b.add(n)
	}
}

// rounds numbers the rounds and returns by value the round from which on it is
// there.
func (b *border) rounds(r *Region) []int {
	depth := make([]int, b.g.NumValues())
	r.rounds = 0
	for i, n := range b.g.Nodes {
		d := 0
		for _, vs := range [][]*ir.Value{n.In, n.Captures} {
			for _, v := range vs {
				if v != nil {
					d = max(d, b.since(v, n, depth))
				}
			}
		}
		if b.in[n] {
			if i >= b.backward {
				d = max(d, 1) // also what of the backward pass could run before
			}
			r.round[n] = d
			r.rounds = max(r.rounds, d+1)
		}
		for _, v := range n.Out {
			if v != nil {
				depth[v.ID] = d
			}
		}
	}
	return depth
}

// since is the round from which on n can read v: a whole result, which nodes
// outside read, and a sum over the tokens are there once their round is over.
func (b *border) since(v *ir.Value, n *ir.Node, depth []int) int {
	if v.Def == nil || !b.in[v.Def] {
		return depth[v.ID]
	}
	if _, perToken := b.info.Range(v.Def); perToken && b.in[n] {
		return depth[v.ID]
	}
	return depth[v.ID] + 1
}

// results finds a round that gives more than one tensor along the tokens:
// many is the second of them, nil if there is no such round.
func (b *border) results(r *Region) (many *ir.Value, results []*ir.Value) {
	for round := range r.rounds {
		results = results[:0]
		for _, n := range b.nodes {
			if r.round[n] != round {
				continue
			}
			for _, v := range n.Out {
				if v != nil && b.leaves(v) {
					results = append(results, v)
				}
			}
		}
		if len(results) > 1 {
			return results[1], results
		}
	}
	return nil, nil
}

// leaves reports whether v is made for each token in the region and used
// outside.
func (b *border) leaves(v *ir.Value) bool {
	if _, ok := b.info.Axis(v); !ok {
		return false
	}
	if v.IsOutput() {
		return true
	}
	for _, u := range v.Uses() {
		if !b.in[u.Node] {
			return true
		}
	}
	return false
}

// joining finds a node outside that makes something narrow, token by token,
// of nothing but results of one round.
func (b *border) joining(r *Region, depth []int, results []*ir.Value) *ir.Node {
	for _, v := range results {
		for _, u := range v.Uses() {
			n := u.Node
			in, ok := b.info.Range(n)
			if !ok || b.in[n] || u.Port < 0 || len(n.Out) != 1 || b.wide(n.Out[0]) {
				continue
			}
			fits := true
			for p, w := range n.In {
				switch {
				case w == nil:
				case in[p]:
					fits = fits && w.Def != nil && b.in[w.Def] && r.round[w.Def] == r.round[v.Def]
				default:
					fits = fits && b.since(w, n, depth) <= r.round[v.Def]
				}
			}
			if fits {
				return n
			}
		}
	}
	return nil
}

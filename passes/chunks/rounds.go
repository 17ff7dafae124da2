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
		since := b.rounds(r)
		many, results := b.results(r)
		if many == nil {
			return ""
		}
		n := b.joining(r, since, results)
		if n == nil || tries == absorbed {
			return fmt.Sprintf("it gives %d results for each token, %q and %q among them", len(results), results[0].Name, many.Name)
		}
		b.add(n)
	}
}

// since is the rounds from which on a value can be read by nodes of the region
// and by those outside.
type since struct{ inside, outside int }

// by is the round from which on a node inside or outside can read it.
func (s since) by(inside bool) int {
	if inside {
		return s.inside
	}
	return s.outside
}

// rounds numbers the rounds and returns when each value is there. It looks at
// the nodes from the first of the region to the last that reads what it makes:
// before, nothing depends on it, and nobody asks for what is behind.
func (b *border) rounds(r *Region) []since {
	if b.since == nil {
		b.since = make([]since, b.g.NumValues())
	}
	clear(b.since)
	r.rounds = 0
	first, last := b.reach()
	for i, n := range b.g.Nodes[first : last+1] {
		d, inside := 0, b.in[n]
		for _, vs := range [][]*ir.Value{n.In, n.Captures} {
			for _, v := range vs {
				if v != nil {
					d = max(d, b.since[v.ID].by(inside))
				}
			}
		}
		if inside {
			if first+i >= b.backward {
				d = max(d, 1) // also what of the backward pass could run before
			}
			r.round[n] = d
			r.rounds = max(r.rounds, d+1)
		}
		for _, v := range n.Out {
			if v != nil {
				b.since[v.ID] = b.made(n, d)
			}
		}
	}
	return b.since
}

// made is from when on what n makes in round d is there: a whole result, which
// nodes outside read, and a sum over the tokens are once their round is over.
func (b *border) made(n *ir.Node, d int) since {
	if !b.in[n] {
		return since{d, d}
	}
	if _, perToken := b.info.Range(n); perToken {
		return since{d, d + 1}
	}
	return since{d + 1, d + 1}
}

// reach is the positions of the first node of the region, and of the last that
// belongs to it or reads what it makes.
func (b *border) reach() (first, last int) {
	first = len(b.g.Nodes) - 1
	for _, n := range b.nodes {
		first, last = min(first, b.at[n]), max(last, b.at[n])
		for _, v := range n.Out {
			if v == nil {
				continue
			}
			for _, u := range v.Uses() {
				last = max(last, b.at[u.Node])
			}
		}
	}
	return first, last
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
func (b *border) joining(r *Region, since []since, results []*ir.Value) *ir.Node {
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
					fits = fits && since[w.ID].by(false) <= r.round[v.Def]
				}
			}
			if fits {
				return n
			}
		}
	}
	return nil
}

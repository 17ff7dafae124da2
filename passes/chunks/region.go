// Package chunks finds the parts of a graph that may run in chunks of tokens
// because they widen every token and narrow it again, as the feed-forward
// layers of a transformer do, and unrolls them. What is wide then exists a
// chunk at a time.
//
// A region is found by what its tensors are, in the forward pass and the
// backward pass together: from a product that widens its tokens on, whoever
// makes or reads a wide tensor belongs to it, and must either work token by
// token or sum over the tokens (the gradients of weights). It knows of
// operators only what passes/tokens makes of their declarations.
package chunks

import (
	"fmt"
	"slices"

	"memoc/ir"
	"memoc/passes/liveness"
	"memoc/passes/tokens"
)

// wideness is how many times wider than what it is made of a tensor must be
// to count as wide.
const wideness = 2

// Region is nodes that may run in chunks of tokens.
type Region struct {
	Nodes []*ir.Node // in the graph's order
	// Inner is the bytes of the wide tensors that the forward pass makes (the
	// backward pass, where the region has no part in the forward pass), Widest
	// that of the largest.
	Inner, Widest int64

	info *tokens.Info
	// round tells the parts of a region apart: a node whose inputs depend, by
	// way of nodes outside, on results of round r is of round r+1. The forward
	// pass is round 0, the backward pass round 1. Each is unrolled by itself.
	round  map[*ir.Node]int
	rounds int
}

// Refusal is why the wide tensors of a product stay whole.
type Refusal struct {
	Node *ir.Node // the product
	Why  string
}

// Find lists the regions of a graph in order, and the products that widen
// their tokens and belong to none. No node is in two regions.
func Find(info *tokens.Info, g *ir.Graph) (found []*Region, refused []Refusal) {
	f := &finder{info: info, g: g, backward: liveness.BackwardFrom(g), at: make(map[*ir.Node]int, len(g.Nodes)), taken: map[*ir.Node]bool{}}
	for i, n := range g.Nodes {
		f.at[n] = i
	}
	for _, n := range g.Nodes {
		if f.taken[n] || !f.widens(n) {
			continue
		}
		r, why := f.grow(n)
		if why != "" {
			refused = append(refused, Refusal{n, why})
			continue
		}
		for _, m := range r.Nodes {
			f.taken[m] = true
		}
		found = append(found, r)
	}
	return found, refused
}

type finder struct {
	info     *tokens.Info
	g        *ir.Graph
	backward int // position of the first node of the backward pass
	at       map[*ir.Node]int
	taken    map[*ir.Node]bool
	since    []since // room of rounds, by value
}

// width is the elements of v for each token, 0 where it has no token axis.
func (f *finder) width(v *ir.Value) int64 {
	if _, ok := f.info.Axis(v); !ok {
		return 0
	}
	dims, ok := v.Type.Shape.Static()
	if !ok {
		return 0
	}
	return ir.Elems(dims) / f.info.Tokens()
}

// widens reports whether n is a product of tokens with weights that makes each
// of them at least twice as wide.
func (f *finder) widens(n *ir.Node) bool {
	return f.narrowOf(n) > 0
}

// narrowOf is the width of what a widening product reads, 0 for other nodes.
func (f *finder) narrowOf(n *ir.Node) int64 {
	if n.Decl == nil || len(n.In) < 2 || len(n.Out) != 1 || len(n.Decl.Axes(n).Sum) < 2 {
		return 0
	}
	in, ok := f.info.Range(n)
	if !ok {
		return 0
	}
	narrow, weights := int64(0), false
	for p, v := range n.In {
		if v != nil && in[p] {
			narrow = max(narrow, f.width(v))
		}
		weights = weights || v != nil && !in[p]
	}
	if !weights || f.width(n.Out[0]) < wideness*narrow {
		return 0
	}
	return narrow
}

// grow finds the region around a widening product, or says why there is none.
func (f *finder) grow(seed *ir.Node) (*Region, string) {
	r := &Region{info: f.info, round: map[*ir.Node]int{}}
	b := &border{finder: f, limit: wideness * f.narrowOf(seed), in: map[*ir.Node]bool{}}
	if why := b.close(seed); why != "" {
		return nil, why
	}
	if why := b.narrow(r); why != "" {
		return nil, why
	}
	for _, n := range b.nodes {
		if f.taken[n] {
			return nil, fmt.Sprintf("%s belongs to another such part", n)
		}
	}
	r.Nodes = b.nodes
	slices.SortFunc(r.Nodes, func(a, c *ir.Node) int { return f.at[a] - f.at[c] })
	b.measure(r)
	return r, ""
}

// measure counts what is wide in the region's first round.
func (b *border) measure(r *Region) {
	first := r.rounds
	for _, n := range r.Nodes {
		first = min(first, r.round[n])
	}
	for _, n := range r.Nodes {
		for o, v := range n.Out {
			if v == nil || r.round[n] > first || !b.wide(v) || n.Decl.View != nil && n.Decl.View(n, o) >= 0 {
				continue
			}
			bytes, _ := v.Type.Bytes() // its shape is static
			r.Inner += bytes
			r.Widest = max(r.Widest, bytes)
		}
	}
}

// border is a region while it grows.
type border struct {
	*finder
	limit int64 // elements for each token from which on a tensor is wide
	nodes []*ir.Node
	in    map[*ir.Node]bool
}

func (b *border) wide(v *ir.Value) bool { return b.width(v) >= b.limit }

func (b *border) add(n *ir.Node) {
	if !b.in[n] {
		b.in[n] = true
		b.nodes = append(b.nodes, n)
	}
}

// close adds whoever makes or reads a wide tensor of the region, until there
// is nobody else; why says what does not go in chunks.
func (b *border) close(seed *ir.Node) (why string) {
	b.add(seed)
	for i := 0; i < len(b.nodes); i++ {
		n := b.nodes[i]
		if why := b.refuse(n); why != "" {
			return why
		}
		for _, v := range n.In {
			if v != nil && v.Def != nil && b.wide(v) {
				b.add(v.Def)
			}
		}
		for _, v := range n.Out {
			if v == nil || !b.wide(v) {
				continue
			}
			if v.IsOutput() {
				return fmt.Sprintf("%q is wide and an output", v.Name)
			}
			for _, u := range v.Uses() {
				if u.Port < 0 {
					return fmt.Sprintf("a subgraph of %s reads %q", u.Node, v.Name)
				}
				b.add(u.Node)
			}
		}
	}
	return ""
}

// refuse is why n, which makes or reads something wide, cannot run in chunks.
func (b *border) refuse(n *ir.Node) string {
	if _, ok := b.info.Range(n); ok || sumsTokens(b.info, n) {
		return ""
	}
	return fmt.Sprintf("%s: %s", n, b.info.Why(n))
}

// sumsTokens reports whether n adds up what it makes of each token, so that
// results of chunks add up to its result.
func sumsTokens(info *tokens.Info, n *ir.Node) bool {
	if n.Decl == nil || len(n.Out) != 1 || len(n.Subgraphs()) > 0 || info.Varies(n.Out[0]) {
		return false
	}
	if pure, _ := n.Decl.Recompute.OK(); !pure {
		return false
	}
	at := map[int]tokens.Axis{} // by input that varies by token
	for p, v := range n.In {
		if v == nil || !info.Varies(v) {
			continue
		}
		a, ok := info.Axis(v)
		if !ok {
			return false
		}
		at[p] = a
	}
	for _, axis := range summedAxes(n) {
		if coversTokens(axis, at) {
			return true
		}
	}
	return false
}

// coversTokens reports whether one axis that is summed over is the token axis
// of every input that has one, and of no other input, in the same places.
func coversTokens(axis []ir.AxisRef, at map[int]tokens.Axis) bool {
	if len(axis) != len(at) {
		return false
	}
	first := at[axis[0].In]
	for _, r := range axis {
		a, ok := at[r.In]
		if !ok || a.Dim != r.Axis || a.Outer != first.Outer || a.Inner != first.Inner {
			return false
		}
	}
	return true
}

// summedAxes groups the axes that n sums over: references to different inputs
// in a row are one axis (the columns of A and the rows of B).
func summedAxes(n *ir.Node) (axes [][]ir.AxisRef) {
	for _, ref := range n.Decl.Axes(n).Sum {
		if k := len(axes); k > 0 && !slices.ContainsFunc(axes[k-1], func(r ir.AxisRef) bool { return r.In == ref.In }) {
			axes[k-1] = append(axes[k-1], ref)
			continue
		}
		axes = append(axes, []ir.AxisRef{ref})
	}
	return axes
}

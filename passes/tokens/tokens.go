// Package tokens finds the token axis of a graph: the one axis along which
// what a step computes for a token depends on that token alone, so that a
// tensor can be made, dropped and made again in parts. It knows of an operator
// only what its declaration says (Axes, View, Recompute, Infer).
//
// Axes are told apart by where they come from, never by size: in real models
// the sequence is as long as the hidden size. Every dimension of every value
// is a product of factors, outermost first. The dimensions of inputs and
// weights start as factors of their own; a link of an operator's Axes makes
// the factors of its two ends the same; a Reshape that merges dimensions puts
// their factors side by side and one that splits a dimension parts them.
package tokens

import "memoc/ir"

// Axis is where the tokens lie in a value: dimension Dim has the extent
// Outer*Tokens*Inner, outermost first. Batch rows that a Reshape merged into
// the dimension lie outside, parts of heads or channels inside.
type Axis struct {
	Dim                  int
	Outer, Tokens, Inner int64
}

// Info is the token axis of a graph. Values and nodes that were made after
// Find have none.
type Info struct {
	graph  *ir.Graph
	tokens int64
	axis   []Axis     // by ValueID; Dim -1 for values without
	varies []bool     // by ValueID: the token axis' factors are among the value's
	nodes  []*verdict // by NodeID, nil where nothing has been asked yet
	trial  *ir.Graph  // scope of the types that inference is tried on
}

// Find finds the token axis of g's top level. Where g holds attention in
// memoc's own form it is the axis of the queries; else, and among several, the
// one along which most bytes of what waits for the backward pass can be made
// by token. Values without static shape have no token axis.
func Find(g *ir.Graph) *Info {
	p := &provenance{dims: make([][][]*factor, g.NumValues())}
	p.graph(g)
	return choose(g, p)
}

// along is the Info of the token axis that consists of these factors.
func along(g *ir.Graph, p *provenance, token []*factor) *Info {
	i := &Info{graph: g, axis: make([]Axis, g.NumValues()), varies: make([]bool, g.NumValues()),
		nodes: make([]*verdict, g.NumNodes()), trial: ir.NewGraph("", g.Opsets)}
	for v := range i.axis {
		i.axis[v].Dim = -1
	}
	if len(token) > 0 {
		i.tokens = extentOf(token)
		i.locate(p, token)
	}
	return i
}

// Tokens is the extent of the token axis, 0 if there is none.
func (i *Info) Tokens() int64 { return i.tokens }

// Axis is where the tokens lie in v; ok is false where v has no token axis: it
// does not vary by token, or not along one dimension, or along two (scores).
// A weight has one only where a node reads it position by position (a table of
// positions).
func (i *Info) Axis(v *ir.Value) (a Axis, ok bool) {
	if v == nil || int(v.ID) >= len(i.axis) || v.Graph != i.graph || i.axis[v.ID].Dim < 0 {
		return Axis{}, false
	}
	return i.axis[v.ID], true
}

// Varies reports whether v is not the same for all tokens. What varies and has
// no Axis has its tokens in no one place.
func (i *Info) Varies(v *ir.Value) bool {
	return v != nil && int(v.ID) < len(i.varies) && v.Graph == i.graph && i.varies[v.ID]
}

// Rows is the byte pattern of the token axis in a storage, given all values
// that share its bytes: a range of tokens is rows pieces, and one token is
// tokenBytes bytes over all of them. ok is false where a value has no token
// axis, where two disagree, or where a token is no whole number of bytes.
func (i *Info) Rows(views ...*ir.Value) (rows, tokenBytes int64, ok bool) {
	for k, v := range views {
		r, b, ok := i.rowsOf(v)
		if !ok || k > 0 && (r != rows || b != tokenBytes) {
			return 0, 0, false
		}
		rows, tokenBytes = r, b
	}
	return rows, tokenBytes, len(views) > 0
}

func (i *Info) rowsOf(v *ir.Value) (rows, tokenBytes int64, ok bool) {
	a, ok := i.Axis(v)
	if !ok {
		return 0, 0, false
	}
	dims, _ := v.Type.Shape.Static()
	rows = ir.Elems(dims[:a.Dim]) * a.Outer
	perPiece := a.Inner * ir.Elems(dims[a.Dim+1:])
	tokenBytes, ok = ir.MulSizes(rows, perPiece, int64(v.Type.DType.Bits()/8))
	return rows, tokenBytes, ok && wholeBytes(v)
}

// locate sets axis and varies of every value.
func (i *Info) locate(p *provenance, token []*factor) {
	for id, dims := range p.dims {
		i.varies[id] = varies(dims, token)
		if d, k, ok := find(dims, token); ok {
			fs := leaves(dims[d])
			i.axis[id] = Axis{Dim: d, Outer: extentOf(fs[:k]), Tokens: i.tokens, Inner: extentOf(fs[k+len(token):])}
		}
	}
}

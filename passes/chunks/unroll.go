package chunks

import (
	"fmt"
	"slices"

	"memoc/ir"
	"memoc/passes/tokens"
)

// tile is what chunks are multiples of, in tokens, where there are enough.
const tile = 128

// Unroll lets regions of one graph run in count chunks each: of every node of
// a region there is one for each chunk, all of a chunk before the next. What a
// region reads from outside is sliced chunk by chunk, so that no two slices
// need live together; what it makes is put together at its end; what it sums
// over the tokens is summed chunk after chunk, in float where it is of a half
// type. Later rounds go through the chunks backwards: what was made last is
// read first.
func Unroll(g *ir.Graph, regions []*Region, count int) (err error) {
	defer ir.Catch(&err)
	u := &unroller{g: g, e: ir.NewEdit(g)}
	u.b = ir.NewBuilder(u.e)
	for _, r := range regions {
		if err := u.region(r, count); err != nil {
			return err
		}
	}
	if err := u.replace(regions); err != nil {
		return err
	}
	u.e.Done()
	return inGroups(g, u.groups)
}

// Bounds is where chunks begin, and the number of tokens at the end: equal
// chunks but for the last.
func Bounds(tokens int64, count int) []int64 {
	width := (tokens + int64(count) - 1) / int64(count)
	if width > tile {
		width = (width + tile - 1) / tile * tile
	}
	var out []int64
	for at := int64(0); at < tokens; at += width {
		out = append(out, at)
	}
	return append(out, tokens)
}

type unroller struct {
	g      *ir.Graph
	e      *ir.Edit
	b      *ir.Builder
	wholes []whole
	groups [][2]int // of node IDs, half-open: what stands together

	r      *Region
	bounds []int64
	made   []map[*ir.Value]*ir.Value // by chunk: what the region makes
	// of the round that is being unrolled:
	taken []map[*ir.Value]*ir.Value // by chunk: slices of what comes from outside
	sums  map[*ir.Node]*ir.Value
	parts map[*ir.Value][]*ir.Value // of what is used outside, by chunk
	ones  map[onesOf]*ir.Value
}

// whole is a result of a region, before and after.
type whole struct{ old, made *ir.Value }

// replace lets everybody read the new results, and takes the regions' nodes
// out. An output of the graph keeps its name.
func (u *unroller) replace(regions []*Region) error {
	var outputs []whole
	for _, w := range u.wholes {
		if w.old.IsOutput() {
			outputs = append(outputs, w)
		}
		if err := u.e.ReplaceUses(w.old, w.made); err != nil {
			return err
		}
	}
	for _, r := range slices.Backward(regions) {
		for _, n := range slices.Backward(r.Nodes) {
			if err := u.e.Remove(n); err != nil {
				return err
			}
		}
	}
	for _, w := range outputs {
		u.e.Rename(w.made, w.old.Name)
	}
	return nil
}

func (u *unroller) region(r *Region, count int) error {
	u.r, u.bounds = r, Bounds(r.info.Tokens(), count)
	u.made = make([]map[*ir.Value]*ir.Value, len(u.bounds)-1)
	for k := range u.made {
		u.made[k] = map[*ir.Value]*ir.Value{}
	}
	for round := range r.rounds {
		if err := u.round(round); err != nil {
			return err
		}
	}
	return nil
}

func (u *unroller) round(round int) error {
	nodes := slices.DeleteFunc(slices.Clone(u.r.Nodes), func(n *ir.Node) bool { return u.r.round[n] != round })
	if len(nodes) == 0 {
		return nil
	}
	from := u.g.NumNodes()
	u.b.At = nodes[len(nodes)-1]
	u.taken = make([]map[*ir.Value]*ir.Value, len(u.made))
	u.sums, u.parts, u.ones = map[*ir.Node]*ir.Value{}, map[*ir.Value][]*ir.Value{}, map[onesOf]*ir.Value{}
	for i := range u.made {
		k := i
		if round > 0 {
			k = len(u.made) - 1 - i
		}
		u.taken[k] = map[*ir.Value]*ir.Value{}
		for _, n := range nodes {
			var err error
			if _, perToken := u.r.info.Range(n); perToken {
				err = u.clone(n, k)
			} else {
				err = u.addSum(n, k)
			}
			if err != nil {
				return err
			}
		}
	}
	u.results(nodes)
	u.groups = append(u.groups, [2]int{from, u.g.NumNodes()})
	return nil
}

// near lets new nodes be named after n and be told to come from it.
func (u *unroller) near(n *ir.Node, k int) {
	u.b.Prefix = fmt.Sprintf("%s.chunk%d/", n.Name, k)
	u.b.Origin, u.b.Loc, u.b.Backward = n.OriginName(), n.Loc, n.Backward
}

// input is what the node of chunk k reads in the place of v, which n reads at
// the range of its output if ranged, whole if not.
func (u *unroller) input(n *ir.Node, k int, v *ir.Value, ranged bool) (*ir.Value, error) {
	if v == nil || !ranged {
		return v, nil
	}
	for _, known := range []map[*ir.Value]*ir.Value{u.made[k], u.taken[k]} {
		if w := known[v]; w != nil {
			return w, nil
		}
	}
	var w *ir.Value
	var err error
	if base := u.viewed(v); base >= 0 {
		w, err = u.view(v, base, k)
	} else {
		u.near(n, k)
		w = u.slice(v, k)
	}
	u.taken[k][v] = w
	return w, err
}

// viewed is the input that v only views, so that a slice of that serves both;
// -1 if it views none.
func (u *unroller) viewed(v *ir.Value) int {
	n := v.Def
	if n == nil || n.Decl.View == nil || len(n.Out) != 1 {
		return -1
	}
	in, ok := u.r.info.Range(n)
	base := n.Decl.View(n, v.Port)
	if !ok || base < 0 || !in[base] {
		return -1
	}
	return base
}

func (u *unroller) view(v *ir.Value, base, k int) (*ir.Value, error) {
	x, err := u.input(v.Def, k, v.Def.In[base], true)
	if err != nil {
		return nil, err
	}
	in := slices.Clone(v.Def.In)
	in[base] = x
	n, err := u.copyNode(v.Def, in, k)
	if err != nil {
		return nil, err
	}
	return n.Out[v.Port], nil
}

// slice is chunk k of v.
func (u *unroller) slice(v *ir.Value, k int) *ir.Value {
	a, _ := u.r.info.Axis(v)
	dims, _ := v.Type.Shape.Static()
	x, axis := v, a.Dim
	if a.Outer > 1 || a.Inner > 1 {
		x, axis = u.b.Reshape(v, split(dims, a, a.Tokens)...), a.Dim+1
	}
	x = u.b.SliceAxis(x, int64(axis), u.bounds[k], u.bounds[k+1], 1)
	if axis != a.Dim {
		x = u.b.Reshape(x, cut(dims, a, u.width(k))...)
	}
	return x
}

func (u *unroller) width(k int) int64 { return u.bounds[k+1] - u.bounds[k] }

// cut is dims with that many tokens.
func cut(dims []int64, a tokens.Axis, width int64) []int64 {
	out := slices.Clone(dims)
	out[a.Dim] = a.Outer * width * a.Inner
	return out
}

// split is dims with that many tokens and the token axis a dimension of its
// own.
func split(dims []int64, a tokens.Axis, width int64) []int64 {
	return slices.Concat(dims[:a.Dim], []int64{a.Outer, width, a.Inner}, dims[a.Dim+1:])
}

// clone makes chunk k of a node that works token by token.
func (u *unroller) clone(n *ir.Node, k int) error {
	ranged, _ := u.r.info.Range(n)
	in := make([]*ir.Value, len(n.In))
	for p, v := range n.In {
		w, err := u.input(n, k, v, ranged[p])
		if err != nil {
			return err
		}
		in[p] = w
	}
	m, err := u.copyNode(n, in, k)
	if err != nil {
		return err
	}
	for o, v := range n.Out {
		if v == nil {
			continue
		}
		u.made[k][v] = m.Out[o]
		if u.leaves(v) {
			if u.parts[v] == nil {
				u.parts[v] = make([]*ir.Value, len(u.made))
			}
			u.parts[v][k] = m.Out[o]
		}
	}
	return nil
}

// leaves reports whether v is used outside of the region.
func (u *unroller) leaves(v *ir.Value) bool {
	if v.IsOutput() {
		return true
	}
	return slices.ContainsFunc(v.Uses(), func(use ir.Use) bool { _, inside := u.r.round[use.Node]; return !inside })
}

// copyNode is n on chunk k with these inputs.
func (u *unroller) copyNode(n *ir.Node, in []*ir.Value, k int) (*ir.Node, error) {
	spec, err := u.r.info.OnRange(n, u.bounds[k], u.bounds[k+1])
	if err != nil {
		return nil, err
	}
	for _, c := range spec.Consts {
		in[c.Port] = u.b.Int64s(c.Ints...)
	}
	out := make([]string, len(n.Out))
	for o, v := range n.Out {
		if v != nil {
			out[o] = u.g.Fresh(fmt.Sprintf("%s.chunk%d", v.Name, k))
		}
	}
	m := u.e.InsertBefore(u.b.At, ir.NodeSpec{Name: u.g.Fresh(fmt.Sprintf("%s.chunk%d", n.Name, k)), Domain: n.Domain, Op: n.Op,
		Version: n.Version, In: in, Out: out, Attrs: spec.Attrs, Origin: n.OriginName(), Backward: n.Backward, Loc: n.Loc})
	m.Overload = n.Overload
	if err := ir.InferNode(u.g, m); err != nil {
		return nil, err
	}
	for o, v := range n.Out {
		if v == nil {
			continue
		}
		a, _ := u.r.info.Axis(v)
		dims, _ := v.Type.Shape.Static()
		if want := ir.TensorOf(v.Type.DType, ir.Ints64(cut(dims, a, u.width(k))...)); !m.Out[o].Type.Equal(want) {
			return nil, n.Errorf("internal", "BUG: chunk %d of %q is %s, must be %s", k, v.Name, m.Out[o].Type, want)
		}
	}
	return m, nil
}

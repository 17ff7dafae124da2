package passes

import (
	"fmt"
	"slices"

	"memoc/ir"
	"memoc/passes/plan"
)

// A tensor that is split along its tokens appears in the graph as
//
//	t.head = Slice (t)                   the first tiles
//	t.head.out = SwapOut (t.head)
//	...
//	t.head.in = SwapIn (t.head.out)
//	t.tail.remat = clone on the tokens that follow
//	t.whole = Concat (t.head.in, t.tail.remat)
//
// In the Program the parts are ranges of one buffer, so that neither Slice nor
// Concat is a step; where the token axis is not outermost, a range lies in rows
// and is packed into a buffer of its own for the kernels.

// tokenRange is tokens from <= k < to.
type tokenRange struct{ from, to int64 }

func (g tokenRange) extent() int64 { return g.to - g.from }

func (r *rewriter) tokens(from, to int) tokenRange { return tokensOf(r.c.Problem, from, to) }

func tokensOf(p *plan.Problem, from, to int) tokenRange {
	if to == 0 {
		return tokenRange{0, p.Tokens}
	}
	return tokenRange{int64(from) * p.Tile, min(int64(to)*p.Tile, p.Tokens)}
}

// madePart is a range of a whole instance that one entry made, with the rows
// that are merged into the token axis' dimension parted from it.
type madePart struct {
	tokenRange
	v *ir.Value
}

// rows is v's n tokens in w with what is merged outside of them parted, or back
// (parted false). It moves no bytes: w lies in one piece.
func (r *rewriter) rows(i int, w, v *ir.Value, n int64, parted bool, name string) (*ir.Value, error) {
	if a, _ := r.c.Tokens.Axis(v); a.Outer <= 1 {
		return w, nil
	}
	dims, _ := cutType(r.c.Tokens, v, n, parted).Shape.Static()
	m, err := r.node(i, "Reshape", name, []*ir.Value{w, r.build.Int64s(dims...)})
	if err != nil {
		return nil, err
	}
	r.holds[m.Out[0]] = r.placeOf(w)
	return m.Out[0], nil
}

// slice is tokens g of w, a value that stands for the whole of v, with merged
// rows parted. Its place is for the caller to say.
func (r *rewriter) slice(i int, w, v *ir.Value, g tokenRange, name string) (*ir.Value, error) {
	a, _ := r.c.Tokens.Axis(v)
	w, err := r.rows(i, w, v, a.Tokens, true, v.Name+".rows")
	if err != nil {
		return nil, err
	}
	axis := int64(a.Dim)
	if a.Outer > 1 {
		axis++
	}
	n, err := r.node(i, "Slice", name, []*ir.Value{w, r.build.Int64s(g.from * a.Inner), r.build.Int64s(g.to * a.Inner), r.build.Int64s(axis)})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// node makes a node of one output before entry i's anchor.
func (r *rewriter) node(i int, op, name string, in []*ir.Value, attrs ...ir.Attr) (*ir.Node, error) {
	g := r.c.Graph
	n := r.edit.InsertBefore(r.anchor[i], ir.NodeSpec{Name: g.Fresh(name + "/" + op), Op: op, In: in, Out: []string{g.Fresh(name)}, Attrs: attrs,
		Origin: nameOfDef(in[0]), Backward: r.s.Entries[i].Kind != plan.CopyOut})
	return n, ir.InferNode(g, n)
}

// placeOf is the place of a value: known for what was made here, that of its
// instance for an original one.
func (r *rewriter) placeOf(v *ir.Value) ir.Place {
	if p, ok := r.holds[v]; ok {
		return p
	}
	return r.own[r.c.Live.Of[v.ID]]
}

// instancePlace is where tiles [from, to) of instance x lie; to 0: all it holds.
func instancePlace(p *plan.Problem, s *plan.Schedule, x, from, to int) ir.Place {
	in := &s.Instances[x]
	t := &p.Tensors[in.Tensor]
	all := ir.Place{Buffer: in.Buffer, Size: s.Buffers[in.Buffer].Bytes}
	if p.Tokens == 0 || t.Rows == 0 {
		return all
	}
	held, want := tokensOf(p, in.From, in.To), tokensOf(p, from, to)
	if to == 0 || want == held {
		if in.To != 0 {
			all.Size = held.extent() * t.TokenBytes
		}
		return all
	}
	piece := t.TokenBytes / t.Rows
	out := ir.Place{Buffer: in.Buffer, Offset: (want.from - held.from) * piece, Size: want.extent() * t.TokenBytes}
	if t.Rows > 1 {
		out.Rows, out.Pitch = t.Rows, held.extent()*piece
	}
	return out
}

// place is instancePlace without padding.
func (r *rewriter) place(x, from, to int) ir.Place {
	p := instancePlace(r.c.Problem, r.s, x, from, to)
	in := &r.s.Instances[x]
	if in.To == 0 && p.Size == r.s.Buffers[in.Buffer].Bytes {
		p.Size = r.c.Live.Storages[r.c.Origin.storage[in.Tensor]].Bytes
	}
	return p
}

// copyOutHead copies the first tiles of an instance to the host.
func (r *rewriter) copyOutHead(i int, e *plan.Entry) (ir.Step, error) {
	x := e.In[0]
	root := r.root(x)
	w, err := r.value(i, x, root)
	if err != nil {
		return ir.Step{}, err
	}
	head, err := r.slice(i, w, root, r.tokens(e.From, e.To), root.Name+".head")
	if err != nil {
		return ir.Step{}, err
	}
	r.holds[head] = r.place(x, e.From, e.To)
	n := r.copyStep(i, "SwapOut", head, root.Name+".head.out")
	r.onHost(r.s.Instances[x].Tensor, n.Out[0])
	return r.step(ir.CopyOutStep, ir.OutLane, n), nil
}

// copyInHead brings them back to their range of a new instance.
func (r *rewriter) copyInHead(i int, e *plan.Entry) ir.Step {
	x := e.Out[0]
	n := r.copyStep(i, "SwapIn", r.hosted[r.s.Instances[x].Tensor], r.root(x).Name+".head.in")
	r.addPart(x, e, n.Out[0])
	r.holds[n.Out[0]] = r.place(x, e.From, e.To)
	return r.step(ir.CopyInStep, ir.InLane, n)
}

func (r *rewriter) addPart(x int, e *plan.Entry, v *ir.Value) {
	if r.values[x] == nil {
		r.values[x] = map[*ir.Value]*ir.Value{}
	}
	r.parts[x] = append(r.parts[x], madePart{r.tokens(e.From, e.To), v})
}

// cloneRange runs a node again on a part of the tokens.
func (r *rewriter) cloneRange(i int, e *plan.Entry) (ir.Step, error) {
	n := r.c.Origin.node[e.Op]
	at, _ := r.c.Tokens.Range(n)
	in, k := make([]*ir.Value, len(n.In)), 0
	for port, v := range r.c.Origin.in[e.Op] {
		if v == nil {
			continue
		}
		x := -1
		if r.c.Origin.of(r.c, v) >= 0 {
			x = e.In[k]
			k++
		}
		var err error
		if in[port], err = r.readingRange(i, e, x, v, at[port]); err != nil {
			return ir.Step{}, err
		}
	}
	whole := *n
	whole.In = r.c.Origin.in[e.Op] // n itself may read restored values by now
	m, err := r.onRange(i, &whole, in, r.tokens(e.From, e.To))
	if err != nil {
		return ir.Step{}, err
	}
	for k, t := range r.c.Problem.Ops[e.Op].Out {
		x, root := e.Out[k], r.c.Live.Storages[r.c.Origin.storage[t]].Root
		w := m.Out[root.Port]
		r.holds[w] = r.place(x, e.From, e.To)
		if r.s.Instances[x].To != 0 {
			r.values[x] = map[*ir.Value]*ir.Value{root: w}
		} else {
			r.addPart(x, e, w)
		}
	}
	r.clones++
	return r.step(ir.RunStep, ir.ComputeLane, m), nil
}

// readingRange is what a clone on the entry's range reads for v, which lies in
// instance x (-1: persistent).
func (r *rewriter) readingRange(i int, e *plan.Entry, x int, v *ir.Value, cut bool) (*ir.Value, error) {
	if x >= 0 && r.s.Instances[x].To != 0 {
		return r.rangeValue(i, x, v)
	}
	w := v
	if x >= 0 {
		var err error
		if w, err = r.value(i, x, v); err != nil {
			return nil, err
		}
	}
	if !cut {
		return w, nil
	}
	g := r.tokens(e.From, e.To)
	key := sliceKey{w, g}
	if s := r.slices[key]; s != nil {
		return s, nil
	}
	s, err := r.slice(i, w, v, g, v.Name+".tail")
	if err != nil {
		return nil, err
	}
	r.slices[key] = s
	if x >= 0 {
		r.holds[s] = r.place(x, e.From, e.To)
		if !r.holds[s].Contiguous() {
			return nil, fmt.Errorf("BUG: a clone reads tokens %d to %d of %q in rows", g.from, g.to, v.Name)
		}
		return s, nil
	}
	_, bytes, _ := r.c.Tokens.Rows(v)
	at := r.placeOf(v)
	r.holds[s] = ir.Place{Buffer: at.Buffer, Offset: at.Offset + g.from*bytes, Size: g.extent() * bytes}
	return s, nil
}

// sliceKey names a slice of a value.
type sliceKey struct {
	v *ir.Value
	tokenRange
}

// rangeValue is what stands for v in instance x, which holds a part of the
// tokens: the views that lead to v are made anew for them.
func (r *rewriter) rangeValue(i, x int, v *ir.Value) (*ir.Value, error) {
	if w := r.values[x][v]; w != nil {
		return w, nil
	}
	n := v.Def
	base := n.Decl.View(n, v.Port)
	in := slices.Clone(n.In)
	w, err := r.rangeValue(i, x, in[base])
	if err != nil {
		return nil, err
	}
	in[base] = w
	inst := &r.s.Instances[x]
	m, err := r.onRange(i, n, in, r.tokens(inst.From, inst.To))
	if err != nil {
		return nil, err
	}
	w = m.Out[v.Port]
	r.values[x][v] = w
	r.holds[w] = r.place(x, 0, 0)
	return w, nil
}

// onRange makes a clone of n on tokens g, with inputs in, before entry i's
// anchor. Inference must give the types that the cut gives.
func (r *rewriter) onRange(i int, n *ir.Node, in []*ir.Value, g tokenRange) (*ir.Node, error) {
	spec, err := r.c.Tokens.OnRange(n, g.from, g.to)
	if err != nil {
		return nil, err
	}
	for _, k := range spec.Consts {
		in[k.Port] = r.build.Int64s(k.Ints...)
	}
	graph := r.c.Graph
	out := make([]string, len(n.Out))
	for k, v := range n.Out {
		if v != nil {
			out[k] = graph.Fresh(v.Name + ".tail.remat")
		}
	}
	m := r.edit.InsertBefore(r.anchor[i], ir.NodeSpec{Name: graph.Fresh(n.Name + ".tail.remat"), Domain: n.Domain, Op: n.Op, Version: n.Version,
		In: in, Out: out, Attrs: spec.Attrs, Origin: n.OriginName(), Backward: true, Loc: n.Loc})
	if err := ir.InferNode(graph, m); err != nil {
		return nil, err
	}
	for k, v := range n.Out {
		if v == nil {
			continue
		}
		if want := cutType(r.c.Tokens, v, g.extent(), false); !m.Out[k].Type.Equal(want) {
			return nil, fmt.Errorf("BUG: %q is %s on tokens [%d,%d), expected %s", v.Name, m.Out[k].Type, g.from, g.to, want)
		}
	}
	return m, nil
}

// pack moves a range that lies in rows to a buffer of its own.
func (r *rewriter) pack(i int, e *plan.Entry) (ir.Step, error) {
	x, y := e.In[0], e.Out[0]
	root := r.root(x)
	w, err := r.value(i, x, root)
	if err != nil {
		return ir.Step{}, err
	}
	g := r.tokens(e.From, e.To)
	part, err := r.slice(i, w, root, g, root.Name+".tail")
	if err != nil {
		return ir.Step{}, err
	}
	r.holds[part] = r.place(y, 0, 0)
	step := r.step(ir.RunStep, ir.ComputeLane, part.Def)
	flat, err := r.rows(i, part, root, g.extent(), false, root.Name+".tail.flat")
	r.values[y] = map[*ir.Value]*ir.Value{root: flat}
	return step, err
}

// unpack moves a range that was made in a buffer of its own into its rows of
// the whole: the Concat as a step.
func (r *rewriter) unpack(i int, e *plan.Entry) (ir.Step, error) {
	z, x := e.In[0], e.Out[0]
	root := r.root(x)
	g := r.tokens(e.From, e.To)
	w, err := r.rows(i, r.values[z][root], root, g.extent(), true, root.Name+".tail.rows")
	if err != nil {
		return ir.Step{}, err
	}
	r.addPart(x, e, w)
	n, err := r.join(i, x)
	if err != nil {
		return ir.Step{}, err
	}
	return r.step(ir.RunStep, ir.ComputeLane, n), nil
}

// join makes the whole of instance x of its parts, and returns the Concat.
func (r *rewriter) join(i, x int) (*ir.Node, error) {
	root, parts := r.root(x), r.parts[x]
	slices.SortFunc(parts, func(a, b madePart) int { return compare(a.from, b.from) })
	in, at := make([]*ir.Value, len(parts)), int64(0)
	for k, p := range parts {
		if p.from != at {
			return nil, fmt.Errorf("BUG: the parts of %q have a gap or overlap at token %d", root.Name, at)
		}
		in[k], at = p.v, p.to
	}
	a, _ := r.c.Tokens.Axis(root)
	if at != a.Tokens {
		return nil, fmt.Errorf("BUG: %q of %d tokens is read when %d are there", root.Name, a.Tokens, at)
	}
	axis := int64(a.Dim)
	if a.Outer > 1 {
		axis++
	}
	n, err := r.node(i, "Concat", root.Name+".whole", in, ir.IntAttr("axis", axis))
	if err != nil {
		return nil, err
	}
	r.holds[n.Out[0]] = r.place(x, 0, 0)
	w, err := r.rows(i, n.Out[0], root, a.Tokens, false, root.Name+".whole.flat")
	r.values[x][root] = w
	return n, err
}

// cutConstants is the bytes that the constants of a schedule's cuts take at
// most: bounds of slices and shapes of parts, each once.
func cutConstants(c *Context, s *plan.Schedule) ir.Bytes {
	seen := map[string]bool{}
	add := func(ns ...int64) { seen[fmt.Sprint(ns)] = true }
	ofValue := func(v *ir.Value, g tokenRange) {
		a, ok := c.Tokens.Axis(v)
		if !ok {
			return
		}
		for _, n := range []int64{g.from * a.Inner, g.to * a.Inner, int64(a.Dim), int64(a.Dim) + 1} {
			add(n)
		}
		shape := func(n int64, parted bool) {
			dims, _ := cutType(c.Tokens, v, n, parted).Shape.Static()
			add(dims...)
		}
		shape(g.extent(), false)
		if a.Outer > 1 {
			shape(g.extent(), true)
			shape(a.Tokens, true)
			shape(a.Tokens, false)
		}
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.To == 0 {
			continue
		}
		g := tokensOf(c.Problem, e.From, e.To)
		for _, x := range slices.Concat(e.In, e.Out) {
			for _, v := range c.Live.Storages[c.Origin.storage[s.Instances[x].Tensor]].Values {
				ofValue(v, g)
			}
		}
		if e.Kind != plan.Clone {
			continue
		}
		for _, v := range c.Origin.in[e.Op] {
			if v != nil && c.Origin.of(c, v) < 0 {
				ofValue(v, g)
			}
		}
	}
	return ir.Bytes(len(seen)) * ir.Align
}

package passes

import (
	"slices"

	"memoc/ir"
	"memoc/passes/plan"
	"memoc/passes/tokens"
)

// sliceVersion is the first version of Slice that takes its bounds as inputs:
// models of an older opset are not cut.
const sliceVersion = 10

// defaultTile is the tokens of a tile where the sequence has at least
// leastTiles of them.
const (
	defaultTile = 128
	leastTiles  = 8
)

// tokenAxis finds the token axis of the graph and states it in p, where there
// is one that may be cut.
func (c *Context) tokenAxis(p *plan.Problem) {
	if c.Tokens == nil {
		c.Tokens = tokens.Find(c.Graph)
	}
	n := c.Tokens.Tokens()
	if n <= 1 || c.Graph.Opsets[ir.OnnxDomain] < sliceVersion {
		return
	}
	p.Tokens, p.Tile = n, c.Options.Tile
	if p.Tile <= 0 {
		p.Tile = max(1, min(defaultTile, n/leastTiles))
	}
	dev := c.Options.Device
	// A part is read once and written once.
	p.PackRate, p.PackLatency = dev.MemoryGBps*dev.MemoryShare/2, dev.Launch
}

// ranges states whether n may run on a range of tokens. Every output must be
// cut; an input that is read at the same tokens must be one that can be made
// for a range alone, through all views that lead to it.
func (o *origin) ranges(c *Context, p *plan.Problem, n *ir.Node, op *plan.Op) error {
	at, ok := c.Tokens.Range(n)
	if !ok || p.Tokens == 0 || !op.Clone || len(n.Captures) > 0 {
		return nil
	}
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		if t := o.of(c, v); t < 0 || p.Tensors[t].Rows == 0 || c.Live.Storages[o.storage[t]].Root != v {
			return nil
		}
	}
	flags := make([]bool, 0, len(op.In))
	for port, v := range n.In {
		if v == nil {
			continue
		}
		t := o.of(c, v)
		if t < 0 {
			if rows, bytes, ok := c.Tokens.Rows(v); at[port] && (!ok || rows != 1 || bytes == 0) {
				return nil // nothing packs a persistent tensor
			}
			continue
		}
		if at[port] && (p.Tensors[t].Rows == 0 || !c.cutsThrough(v, c.Live.Storages[o.storage[t]].Root)) {
			return nil
		}
		flags = append(flags, at[port])
	}
	m, err := c.onRange(n, 0, min(p.Tile, p.Tokens))
	if err != nil || m == nil {
		return err
	}
	time, _, err := c.Options.Device.Node(m)
	if err != nil {
		return err
	}
	op.Range, op.TileTime = flags, min(time, op.Time)
	return nil
}

// cutsThrough reports whether v, a view of root, can be made for a range of
// tokens from a range of root.
func (c *Context) cutsThrough(v, root *ir.Value) bool {
	for ; v != root; v = v.Def.In[v.Def.Decl.View(v.Def, v.Port)] {
		at, ok := c.Tokens.Range(v.Def)
		if base := v.Def.Decl.View(v.Def, v.Port); !ok || !at[base] {
			return false
		}
	}
	return true
}

// attentionOps mix tokens: their first output is no per-token function of
// their inputs.
var attentionOps = []string{"FlashAttention", "Attention", "MultiHeadAttention", "GroupQueryAttention"}

// layers marks the tensors that every one of several repeated layers makes,
// what a layer reads from the one before, and the outputs of attention.
func (o *origin) layers(c *Context, p *plan.Problem) {
	if p.Tokens == 0 {
		return
	}
	mark := func(v *ir.Value, set func(*plan.Tensor)) {
		if t := o.of(c, v); t >= 0 {
			set(&p.Tensors[t])
		}
	}
	for _, n := range c.Graph.Nodes {
		if slices.Contains(attentionOps, n.Op) && len(n.Out) > 0 {
			mark(n.Out[0], func(t *plan.Tensor) { t.Attention = true })
		}
	}
	role, layer := 0, 0
	for _, l := range Layers(c.Live) {
		if !l.Backward {
			role = o.markLayers(c, p, &l, role, layer)
			layer += l.Count
		}
	}
}

// markLayers marks the tensors of one class of layers, which get roles above
// role and numbers above layer; it returns the last role given. What a layer
// gives to the next counts to the one that reads it, so that the last layer's
// is in none.
func (o *origin) markLayers(c *Context, p *plan.Problem, l *LayerClass, role, layer int) int {
	each := func(j int, pick func(*ir.Node) *ir.Value, input bool) {
		role++
		for k := range l.Count {
			if t := o.of(c, pick(l.Nodes[k*l.Period+j])); t >= 0 && p.Tensors[t].Role == 0 {
				x := &p.Tensors[t]
				x.Role, x.Layer, x.Input = role, layer+k+1, input
			}
		}
	}
	given := func(v *ir.Value) bool { return v != nil && l.Input != nil && o.of(c, v) == o.of(c, l.Input) }
	for j, n := range l.Nodes[(l.Count-1)/2*l.Period:][:l.Period] { // the layer that Input is the input of
		if port := slices.IndexFunc(n.In, given); port >= 0 {
			each(j, func(n *ir.Node) *ir.Value { return n.In[port] }, true)
			break
		}
	}
	for j := range l.Period {
		for port, v := range l.Nodes[j].Out {
			if t := o.of(c, v); t < 0 || !p.Tensors[t].Input {
				each(j, func(n *ir.Node) *ir.Value { return n.Out[port] }, false)
			}
		}
	}
	for i, s := range l.Skeletal {
		if t := o.of(c, s.Root); t >= 0 && l.SameAs[i] >= 0 && p.Tensors[t].Role > 0 {
			again := p.Tensors[t].Role
			for k := range p.Tensors {
				p.Tensors[k].Layout = p.Tensors[k].Layout || p.Tensors[k].Role == again
			}
		}
	}
	return role
}

// onRange is n on tokens [from, to), between values that are part of no graph:
// enough to tell its cost.
func (c *Context) onRange(n *ir.Node, from, to int64) (*ir.Node, error) {
	spec, err := c.Tokens.OnRange(n, from, to)
	if err != nil {
		return nil, err
	}
	at, _ := c.Tokens.Range(n)
	m := *n
	m.Attrs, m.In, m.Out = spec.Attrs, slices.Clone(n.In), slices.Clone(n.Out)
	cut := func(vs []*ir.Value, port int) {
		if v := vs[port]; v != nil {
			w := *v
			w.Type = cutType(c.Tokens, v, to-from, false)
			vs[port] = &w
		}
	}
	for port := range m.In {
		if at[port] {
			cut(m.In, port)
		}
	}
	for port := range m.Out {
		cut(m.Out, port)
	}
	for _, k := range spec.Consts {
		w := ir.WeightOf(ir.FromInts(ir.Int64, k.Ints, int64(len(k.Ints))))
		m.In[k.Port] = &ir.Value{Name: n.In[k.Port].Name, Type: w.Type, Init: w, Graph: n.Graph}
	}
	return &m, nil
}

// cutType is v's type with its token axis cut to n tokens; parted splits off
// what a Reshape merged outside of the tokens.
func cutType(info *tokens.Info, v *ir.Value, n int64, parted bool) ir.Type {
	a, _ := info.Axis(v)
	dims := slices.Clone(v.Type.Shape.Dims)
	dims[a.Dim] = ir.N(a.Outer * n * a.Inner)
	if parted && a.Outer > 1 {
		dims[a.Dim] = ir.N(n * a.Inner)
		dims = slices.Insert(dims, a.Dim, ir.N(a.Outer))
	}
	return ir.TensorOf(v.Type.DType, ir.Dims(dims...))
}

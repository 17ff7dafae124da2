package planfile

import (
	"slices"

	"memoc/ir"
)

// lister turns the places of a Program into values and steps.
type lister struct {
	p      *ir.Program
	isStep map[*ir.Node]bool
	base   map[*ir.Value]*ir.Value
}

func newLister(p *ir.Program) *lister {
	l := &lister{p, map[*ir.Node]bool{}, map[*ir.Value]*ir.Value{}}
	for i := range p.Steps {
		l.isStep[p.Steps[i].Node] = true
	}
	return l
}

// values lists the values that have bytes, in order of definition.
func (l *lister) values() (out []Value) {
	add := func(v *ir.Value) {
		if v == nil || l.p.Places[v.ID].Buffer < 0 {
			return
		}
		pl := rangeOf(l.p.Places[v.ID])
		l.base[v] = v
		if in := l.viewed(v); in != nil {
			l.base[v] = l.base[in]
		}
		x := Value{Name: v.Name, Base: l.base[v].Name, Buffer: l.p.Places[v.ID].Buffer, Offset: pl.Offset, Size: pl.Size, Rows: pl.Rows, Pitch: pl.Pitch}
		if v.Def != nil {
			x.Parts = l.parts(v.Def)
		}
		out = append(out, x)
	}
	for _, v := range l.p.Graph.Inputs {
		add(v)
	}
	for _, v := range l.p.Graph.Inits {
		if l.base[v] == nil {
			add(v)
		}
	}
	for _, n := range l.p.Graph.Nodes {
		for _, v := range n.Out {
			add(v)
		}
	}
	return out
}

// viewed is the input in whose bytes v lies: a view, or the range of a Slice
// that is no step.
func (l *lister) viewed(v *ir.Value) *ir.Value {
	n := v.Def
	if n == nil || n.Decl == nil {
		return nil
	}
	port := -1
	if n.Decl.View != nil {
		port = n.Decl.View(n, v.Port)
	} else if part, ok := l.p.SliceOf(n); ok && !l.isStep[n] && part.Same(l.p.Places[v.ID]) {
		port = 0
	}
	if port < 0 || port >= len(n.In) || n.In[port] == nil || l.p.Places[n.In[port].ID].Buffer != l.p.Places[v.ID].Buffer {
		return nil
	}
	return n.In[port]
}

// parts names the inputs of a Concat that lie in its output.
func (l *lister) parts(n *ir.Node) (out []string) {
	for port, v := range n.In {
		if l.p.InOutput(n, port) {
			out = append(out, v.Name)
		}
	}
	return out
}

func rangeOf(p ir.Place) Range {
	if p.Contiguous() {
		return Range{Offset: p.Offset, Size: p.Size}
	}
	return Range{Offset: p.Offset, Size: p.Size, Rows: p.Rows, Pitch: p.Pitch}
}

func (l *lister) step(s *ir.Step) Step {
	n := s.Node
	t := Step{Kind: stepKinds[s.Kind], Lane: s.Lane, Node: n.Name, Op: n.FullOp(), Reads: []string{}, Writes: []string{},
		Workspace: s.Workspace, Waits: append([]int{}, s.Waits...), Duration: s.Duration, Start: s.Start, Stall: s.Stall}
	parts := l.parts(n)
	for _, v := range slices.Concat(n.In, n.Captures) {
		if v != nil && l.p.Places[v.ID].Buffer >= 0 && !slices.Contains(parts, v.Name) {
			t.Reads = append(t.Reads, v.Name)
		}
	}
	if part, ok := l.p.SliceOf(n); ok && !l.readsWhole(s) {
		x := rangeOf(part)
		t.Part = &x
	}
	for _, v := range n.Out {
		if v != nil && l.p.Places[v.ID].Buffer >= 0 {
			t.Writes = append(t.Writes, v.Name)
		}
	}
	return t
}

// readsWhole reports whether the step states that it reads all of its first
// operand.
func (l *lister) readsWhole(s *ir.Step) bool {
	whole := l.p.Places[s.Node.In[0].ID]
	return slices.ContainsFunc(s.Reads, func(x ir.Access) bool { return x.Buffer == whole.Buffer && x.Covers(whole) })
}

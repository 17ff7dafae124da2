package planfile

import (
	"fmt"
	"slices"

	"memoc/ir"
)

// Program is the Program that p describes over the graph of the model it was
// written with, so that a compiled folder can be executed from its files.
// Every name must be in the graph; what a checker judges is not judged here.
func (p *Plan) Program(g *ir.Graph) (*ir.Program, error) {
	out := &ir.Program{Name: p.Name, Graph: g, Device: p.Device}
	for _, a := range p.Arenas {
		out.Arenas = append(out.Arenas, ir.Arena{Name: a.Name, Size: a.Size, Align: a.Align, LowerBound: a.LowerBound, Budget: a.Budget})
	}
	for _, l := range p.Lanes {
		out.Lanes = append(out.Lanes, ir.Lane{Name: l})
	}
	values, nodes := index(g)
	for _, b := range p.Buffers {
		class, ok := classes[b.Class]
		if !ok {
			return nil, fmt.Errorf("plan: buffer %q has class %q", b.Name, b.Class)
		}
		out.Buffers = append(out.Buffers, ir.Buffer{Name: b.Name, Value: values[b.Name], Arena: b.Arena, Offset: b.Offset, Size: b.Size,
			First: b.First, End: b.End, Class: class})
	}
	out.Places = make([]ir.Place, g.NumValues())
	for i := range out.Places {
		out.Places[i].Buffer = -1
	}
	for _, v := range p.Values {
		if values[v.Name] == nil {
			return nil, fmt.Errorf("plan: the model has no value %q", v.Name)
		}
		if v.Buffer < 0 || v.Buffer >= len(out.Buffers) {
			return nil, fmt.Errorf("plan: value %q lies in buffer %d of %d", v.Name, v.Buffer, len(out.Buffers))
		}
		pl := ir.Place{Buffer: v.Buffer, Offset: v.Offset, Size: v.Size, Rows: v.Rows, Pitch: v.Pitch}
		if !pl.Fits(out.Buffers[v.Buffer].Size) {
			return nil, fmt.Errorf("plan: value %q leaves its buffer", v.Name)
		}
		out.Places[values[v.Name].ID] = pl
	}
	for _, s := range p.Steps {
		if len(s.Writes) == 0 || nodes[s.Writes[0]] == nil {
			return nil, fmt.Errorf("plan: no node of the model makes what the step of %q writes", s.Node)
		}
		n := nodes[s.Writes[0]]
		step, err := s.step(n, out, values)
		if err != nil {
			return nil, err
		}
		out.Steps = append(out.Steps, step)
	}
	return out, nil
}

var classes = map[string]ir.Class{}

// KnownClass reports whether a buffer's class has that name.
func KnownClass(name string) bool {
	_, ok := classes[name]
	return ok
}

func init() {
	for c := ir.Transient; c <= ir.HostSlot; c++ {
		classes[c.String()] = c
	}
}

// index finds values by name, and nodes by the name of each of their outputs:
// files may leave nodes unnamed.
func index(g *ir.Graph) (map[string]*ir.Value, map[string]*ir.Node) {
	values, nodes := map[string]*ir.Value{}, map[string]*ir.Node{}
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			values[v.Name] = v
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v != nil {
				nodes[v.Name] = n
				values[v.Name] = v
			}
		}
	}
	return values, nodes
}

func (s *Step) step(n *ir.Node, p *ir.Program, values map[string]*ir.Value) (ir.Step, error) {
	out := ir.Step{Lane: s.Lane, Node: n, Workspace: s.Workspace, Waits: s.Waits, Duration: s.Duration, Start: s.Start, Stall: s.Stall}
	known := false
	for kind, name := range stepKinds {
		if name == s.Kind {
			out.Kind, known = kind, true
		}
	}
	if !known || s.Lane < 0 || s.Lane >= len(p.Lanes) || s.Workspace >= len(p.Buffers) {
		return out, fmt.Errorf("plan: step of %q has kind %q, lane %d, workspace %d", s.Node, s.Kind, s.Lane, s.Workspace)
	}
	for _, w := range s.Waits {
		if w < 0 || w >= len(p.Steps) {
			return out, fmt.Errorf("plan: step of %q waits for step %d, which is not before it", s.Node, w)
		}
	}
	var err error
	if out.Reads, err = s.accesses(s.Reads, p, values); err != nil {
		return out, err
	}
	if out.Writes, err = s.accesses(s.Writes, p, values); err != nil {
		return out, err
	}
	if x := s.Part; x != nil && len(s.Reads) > 0 {
		pl := p.Places[values[s.Reads[0]].ID]
		out.Reads = append([]ir.Access{{Buffer: pl.Buffer, Offset: x.Offset, Size: x.Size, Rows: x.Rows, Pitch: x.Pitch}}, others(out.Reads, pl)...)
	}
	if joined(p, n) {
		_, out.Writes = p.Accesses(n)
	}
	if s.Workspace >= 0 {
		out.Writes = append(out.Writes, ir.Access{Buffer: s.Workspace, Size: p.Buffers[s.Workspace].Size})
	}
	return out, nil
}

// accesses is the places of values, once for the same bytes.
func (s *Step) accesses(names []string, p *ir.Program, values map[string]*ir.Value) (as []ir.Access, err error) {
	for _, name := range names {
		v := values[name]
		if v == nil || p.Places[v.ID].Buffer < 0 {
			return nil, fmt.Errorf("plan: step of %q touches %q, which has no bytes", s.Node, name)
		}
		pl := p.Places[v.ID]
		if pl.Size > 0 && len(others(as, pl)) == len(as) {
			as = append(as, pl)
		}
	}
	return as, nil
}

// others is the accesses but those to the same bytes as pl.
func others(as []ir.Access, pl ir.Place) []ir.Access {
	return slices.DeleteFunc(slices.Clone(as), func(a ir.Access) bool { return a.Same(pl) })
}

// joined reports whether an input of n lies in its output.
func joined(p *ir.Program, n *ir.Node) bool {
	for port := range n.In {
		if p.InOutput(n, port) {
			return true
		}
	}
	return false
}

package planfile

import (
	"fmt"

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
		out.Places[values[v.Name].ID] = ir.Place{Buffer: v.Buffer, Offset: v.Offset, Size: v.Size}
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
	access := func(names []string) (as []ir.Access, err error) {
		seen := map[int]bool{}
		for _, name := range names {
			v := values[name]
			if v == nil || p.Places[v.ID].Buffer < 0 {
				return nil, fmt.Errorf("plan: step of %q touches %q, which has no bytes", s.Node, name)
			}
			if pl := p.Places[v.ID]; pl.Size > 0 && !seen[pl.Buffer] {
				seen[pl.Buffer] = true
				as = append(as, ir.Access{Buffer: pl.Buffer, Offset: pl.Offset, Size: pl.Size})
			}
		}
		return as, nil
	}
	var err error
	if out.Reads, err = access(s.Reads); err != nil {
		return out, err
	}
	if out.Writes, err = access(s.Writes); err != nil {
		return out, err
	}
	if s.Workspace >= 0 {
		out.Writes = append(out.Writes, ir.Access{Buffer: s.Workspace, Size: p.Buffers[s.Workspace].Size})
	}
	return out, nil
}

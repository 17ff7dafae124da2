package check

import (
	"memoc/ir"
	"memoc/ir/planfile"
)

// Model checks the plan against the graph it was written with: every node
// that does work is one step, in an order that respects the graph's edges;
// steps read and write what their nodes do; and every value has as many bytes
// as its type says.
func Model(p *planfile.Plan, g *ir.Graph) error {
	if err := Plan(p); err != nil {
		return err
	}
	step := map[string]int{} // by the name of the first value it writes: files may leave nodes unnamed
	for i, s := range p.Steps {
		if len(s.Writes) == 0 {
			return fault("steps", "step %d (%s) writes nothing", i, s.Node)
		}
		if _, twice := step[s.Writes[0]]; twice {
			return fault("steps", "node %q is executed twice", s.Node)
		}
		step[s.Writes[0]] = i
	}
	value := map[string]*planfile.Value{}
	for i := range p.Values {
		value[p.Values[i].Name] = &p.Values[i]
	}
	matched := make([]bool, len(p.Steps))
	for _, n := range g.Nodes {
		i, ok := step[firstOutput(n)]
		if !ok {
			if err := movesNothing(n, value); err != nil {
				return err
			}
			continue
		}
		matched[i] = true
		if err := sameValues(&p.Steps[i], n, value); err != nil {
			return err
		}
	}
	for i, s := range p.Steps {
		if !matched[i] {
			return fault("steps", "step of node %q, which the model does not have", s.Node)
		}
	}
	return sizes(g, value)
}

func firstOutput(n *ir.Node) string {
	for _, v := range n.Out {
		if v != nil {
			return v.Name
		}
	}
	return ""
}

// movesNothing: a node without a step is a constant, or gives views only.
func movesNothing(n *ir.Node, value map[string]*planfile.Value) error {
	if n.Op == "Constant" {
		return nil
	}
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		if pv := value[v.Name]; pv == nil || pv.Base == v.Name {
			return fault("steps", "node %q (%s) is never executed", n.Name, n.FullOp())
		}
	}
	return nil
}

func sameValues(s *planfile.Step, n *ir.Node, value map[string]*planfile.Value) error {
	if s.Op != n.FullOp() {
		return fault("steps", "step of node %q runs %s, the model has %s", n.Name, s.Op, n.FullOp())
	}
	for _, side := range []struct {
		what string
		have []string
		want [][]*ir.Value
	}{{"reads", s.Reads, [][]*ir.Value{n.In, n.Captures}}, {"writes", s.Writes, [][]*ir.Value{n.Out}}} {
		k := 0
		for _, vs := range side.want {
			for _, v := range vs {
				if v == nil || value[v.Name] == nil {
					continue
				}
				if k >= len(side.have) || side.have[k] != v.Name {
					return fault("steps", "step of node %q %s %v, the model says %q", n.Name, side.what, side.have, v.Name)
				}
				k++
			}
		}
		if k != len(side.have) {
			return fault("steps", "step of node %q %s %v, which is more than the model says", n.Name, side.what, side.have)
		}
	}
	return nil
}

// sizes: the bytes of every tensor of the graph are those of its type.
func sizes(g *ir.Graph, value map[string]*planfile.Value) error {
	check := func(v *ir.Value) error {
		if v == nil {
			return nil
		}
		bytes, err := v.Type.Bytes()
		if err != nil {
			return fault("sizes", "tensor %q of the model has no fixed size: %v", v.Name, err)
		}
		if pv := value[v.Name]; pv == nil || pv.Size < bytes {
			return fault("sizes", "tensor %q needs %d bytes and has fewer", v.Name, bytes)
		}
		return nil
	}
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits, g.Outputs} {
		for _, v := range vs {
			if err := check(v); err != nil {
				return err
			}
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if err := check(v); err != nil {
				return err
			}
		}
	}
	return nil
}

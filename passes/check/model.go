package check

import (
	"slices"

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
	j := newJudge(p)
	for i := range p.Values {
		j.value[p.Values[i].Name] = &p.Values[i]
	}
	value := j.value
	if err := sameInterface(p, g); err != nil {
		return err
	}
	matched := make([]bool, len(p.Steps))
	for _, n := range g.Nodes {
		i, ok := step[firstOutput(n)]
		if err := j.joined(n, ok); err != nil {
			return err
		}
		if !ok {
			if err := j.movesNothing(n); err != nil {
				return err
			}
			continue
		}
		if err := j.partOf(&p.Steps[i], n); err != nil {
			return err
		}
		matched[i] = true
		if err := j.sameValues(&p.Steps[i], n); err != nil {
			return err
		}
		if err := j.inPlace(&p.Steps[i], n); err != nil {
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

// movesNothing: a node without a step is a constant, gives views or a range of
// its input only, or joins parts that are in place.
func (j *judge) movesNothing(n *ir.Node) error {
	if n.Op == "Constant" {
		return nil
	}
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		pv := j.value[v.Name]
		if pv != nil && len(pv.Parts) > 0 {
			continue // see joined
		}
		if pv == nil || pv.Base == v.Name {
			return fault("steps", "node %q (%s) is never executed", n.Name, n.FullOp())
		}
		in := viewed(n, v.Port)
		if n.Op == "Slice" && n.Domain == "" {
			in = n.In[0]
		}
		if in == nil || j.value[in.Name] == nil || j.value[in.Name].Base != pv.Base {
			return fault("steps", "node %q (%s) is never executed, and its output %q is no view of %q", n.Name, n.FullOp(), v.Name, pv.Base)
		}
		where, ok := j.runs(j.value[in.Name]), true
		if n.Op == "Slice" && n.Domain == "" {
			where, ok = j.sliced(n, j.value[in.Name])
		}
		if !ok || !slices.Equal(where, j.runs(pv)) {
			return fault("ranges", "%q is %s of %q without a step, and lies elsewhere", v.Name, n.FullOp(), in.Name)
		}
	}
	return nil
}

// partOf: a step that reads a part of its first operand reads what its Slice
// takes.
func (j *judge) partOf(s *planfile.Step, n *ir.Node) error {
	if s.Part == nil {
		return nil
	}
	if n.Op == "Slice" && n.Domain == "" && n.In[0].Name == s.Reads[0] {
		if where, ok := j.sliced(n, j.value[s.Reads[0]]); ok && slices.Equal(where, runsOf(*s.Part)) {
			return nil
		}
	}
	return fault("ranges", "the step of node %q (%s) reads another part of %q than the model says", n.Name, n.FullOp(), s.Reads[0])
}

// viewed is the input whose bytes an output shows by the operator's own
// declaration, nil if it makes new ones.
func viewed(n *ir.Node, out int) *ir.Value {
	if n.Decl == nil || n.Decl.View == nil {
		return nil
	}
	if in := n.Decl.View(n, out); in >= 0 && in < len(n.In) {
		return n.In[in]
	}
	return nil
}

// sameInterface: the plan takes and gives what the model does.
func sameInterface(p *planfile.Plan, g *ir.Graph) error {
	for _, side := range []struct {
		what string
		have []string
		want []*ir.Value
	}{{"inputs", p.Inputs, g.Inputs}, {"weights", p.Weights, g.Inits}, {"outputs", p.Outputs, g.Outputs}} {
		want := make([]string, len(side.want))
		for i, v := range side.want {
			want[i] = v.Name
		}
		if !slices.Equal(side.have, want) {
			return fault("interface", "the plan's %s are %v, the model's %v", side.what, side.have, want)
		}
	}
	return nil
}

// inPlace: an output lies in the bytes of an input only where the operator
// allows that for these two, exactly on them, and reads them once. A step has a
// workspace as large as its operator asks for.
func (j *judge) inPlace(s *planfile.Step, n *ir.Node) error {
	for _, out := range n.Out {
		for port, in := range slices.Concat(n.In, n.Captures) {
			if in == nil || out == nil {
				continue
			}
			a, b := j.value[in.Name], j.value[out.Name]
			if a == nil || b == nil || a.Buffer != b.Buffer || slices.Contains(b.Parts, in.Name) {
				continue
			}
			if _, yes := meet(j.runs(a), 0, j.writes(b), 0); !yes {
				continue
			}
			exact := slices.Equal(j.runs(a), j.runs(b))
			if !exact || !overwrites(n, port, out.Port) {
				return fault("in-place", "node %q (%s) writes %q over %q, which it still reads", n.Name, n.FullOp(), out.Name, in.Name)
			}
		}
	}
	if n.Decl == nil {
		return nil
	}
	c, err := ir.NewNodeCtx(n)
	if err != nil {
		return fault("sizes", "%v", err)
	}
	need, have := n.Decl.Cost(c).Workspace, int64(0)
	if s.Workspace >= 0 {
		have = j.p.Buffers[s.Workspace].Size
	}
	if have < need {
		return fault("workspaces", "node %q (%s) needs a workspace of %d bytes and has %d", n.Name, n.FullOp(), need, have)
	}
	return nil
}

// overwrites reports whether the operator may write output out over the input
// at port (beyond the inputs: a capture).
func overwrites(n *ir.Node, port, out int) bool {
	if port >= len(n.In) || n.Decl == nil {
		return false
	}
	return slices.Contains(n.Decl.InPlace, ir.Alias{In: port, Out: out}) || viewed(n, out) == n.In[port]
}

// sameValues: a step names what its node does; operands that are parts of the
// result are not touched.
func (j *judge) sameValues(s *planfile.Step, n *ir.Node) error {
	if s.Op != n.FullOp() {
		return fault("steps", "step of node %q runs %s, the model has %s", n.Name, s.Op, n.FullOp())
	}
	if s.Node != "" && n.Name != "" && s.Node != n.Name { // files may leave nodes unnamed
		return fault("steps", "the step that makes %q is named after node %q, the model makes it by %q", firstOutput(n), s.Node, n.Name)
	}
	var parts []string
	if v := j.value[firstOutput(n)]; v != nil {
		parts = v.Parts
	}
	for _, side := range []struct {
		what string
		have []string
		want [][]*ir.Value
	}{{"reads", s.Reads, [][]*ir.Value{n.In, n.Captures}}, {"writes", s.Writes, [][]*ir.Value{n.Out}}} {
		k := 0
		for _, vs := range side.want {
			for _, v := range vs {
				if v == nil || j.value[v.Name] == nil || slices.Contains(parts, v.Name) {
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

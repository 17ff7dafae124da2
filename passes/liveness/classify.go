package liveness

import (
	"fmt"

	"memoc/ir"
	"memoc/ir/diag"
)

// classify sets Class and Derived of every storage.
func (r *Result) classify() {
	outputs := map[*ir.Value]bool{}
	for _, v := range r.Graph.Outputs {
		outputs[v] = true
	}
	backward := BackwardFrom(r.Graph)
	for i := range r.Storages {
		s := &r.Storages[i]
		switch {
		case s.Def < 0:
			s.Class = ir.Persistent
			s.Derived = !s.Root.IsInput()
			s.layout = true
		case r.anyOutput(s, outputs):
			s.Class = ir.Output
		case s.Def < backward && len(s.Reads) > 0 && s.Reads[len(s.Reads)-1] >= backward:
			s.Class = ir.Skeletal
		}
		if s.Def >= 0 {
			n := r.Graph.Nodes[s.Def]
			s.layout = r.relayout(n)
			s.Derived = s.layout || r.derived(n)
		}
	}
}

func (r *Result) anyOutput(s *Storage, outputs map[*ir.Value]bool) bool {
	for _, v := range s.Values {
		if outputs[v] {
			return true
		}
	}
	return false
}

// derived reports whether n computes from weights and constants alone. Inputs
// of the step are persistent too, but what follows from them is the data of
// the whole forward pass.
func (r *Result) derived(n *ir.Node) bool {
	if n.Decl == nil {
		return false
	}
	if ok, _ := n.Decl.Recompute.OK(); !ok || len(n.Subgraphs()) > 0 {
		return false
	}
	for _, v := range n.In {
		if v == nil {
			continue
		}
		s := r.Of[v.ID]
		if s < 0 || !r.Storages[s].Derived {
			return false
		}
	}
	return true
}

// BackwardFrom is the position of the first node of the backward pass,
// len(Nodes) where there is none: the first node marked so by grad or join, of
// an operator that only backward passes hold, or after a YieldOp. A step that
// was traced as a whole has none of these: there it is the node after the one
// that makes the loss, the only scalar among several outputs.
func BackwardFrom(g *ir.Graph) int {
	if i := MarkedBackward(g); i < len(g.Nodes) {
		return i
	}
	if loss := tracedLoss(g); loss != nil {
		for i, n := range g.Nodes {
			if n == loss.Def {
				return i + 1
			}
		}
	}
	return len(g.Nodes)
}

// MarkedBackward is BackwardFrom without the guess: len(Nodes) for a graph in
// which nothing says that it is part of a backward pass.
func MarkedBackward(g *ir.Graph) int {
	for i, n := range g.Nodes {
		if n.Backward || isGradientOp(n) {
			return i
		}
	}
	return len(g.Nodes)
}

// tracedLoss is the loss of a whole traced step, nil if g does not look like
// one.
func tracedLoss(g *ir.Graph) *ir.Value {
	var loss *ir.Value
	for _, v := range g.Outputs {
		if n, ok := v.Type.Shape.NumElements(); ok && v.Type.DType.IsFloat() && n.Equal(ir.N(1)) && v.Def != nil {
			if loss != nil {
				return nil
			}
			loss = v
		}
	}
	if len(g.Outputs) < 2 {
		return nil
	}
	return loss
}

// isGradientOp reports whether the operator's name says that it is part of a
// backward pass.
func isGradientOp(n *ir.Node) bool {
	const suffix = "Grad"
	name := n.Op
	for _, tail := range []string{"_13", "_dX", "V2"} {
		if l := len(name) - len(tail); l > 0 && name[l:] == tail {
			name = name[:l]
		}
	}
	return len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix || n.Op == "YieldOp"
}

// layoutOps only arrange the elements of their first input anew.
var layoutOps = map[string]bool{"Transpose": true, "Cast": true, "Reshape": true, "Identity": true,
	"Unsqueeze": true, "Squeeze": true, "Flatten": true, "Expand": true, "Slice": true}

// relayout reports whether n arranges a weight or an input of the step anew: a
// graph traced with its weights as inputs transposes and casts those.
func (r *Result) relayout(n *ir.Node) bool {
	if n.Domain != ir.OnnxDomain || !layoutOps[n.Op] || len(n.In) == 0 || n.In[0] == nil {
		return false
	}
	s := r.Of[n.In[0].ID]
	return s >= 0 && r.Storages[s].layout
}

func sizeError(v *ir.Value, err error) error {
	d := &diag.Diagnostic{ID: "dynamic", Severity: diag.Error,
		Message: fmt.Sprintf("tensor %q of type %s has no fixed size: %v", v.Name, v.Type, err)}
	if v.Def != nil {
		d.Loc = v.Def.DiagLoc()
	}
	return d
}

// Peak is the largest sum of live bytes (each padded to ir.Align) over g's own order, with nothing
// recomputed, moved or done in place, and the node where it is first reached.
// Persistent storages count throughout.
func (r *Result) Peak() (peak ir.Bytes, at int) {
	n := len(r.Graph.Nodes)
	delta := make([]ir.Bytes, n+1)
	base := ir.Bytes(0)
	for i := range r.Storages {
		s := &r.Storages[i]
		if s.Def < 0 {
			base += ir.Padded(s.Bytes)
			continue
		}
		delta[s.Def] += ir.Padded(s.Bytes)
		delta[s.End(n)] -= ir.Padded(s.Bytes)
	}
	live := base
	peak = base
	for i := range n {
		live += delta[i]
		if live > peak {
			peak, at = live, i
		}
	}
	return peak, at
}

// Persistent is the padded bytes of weights, inputs and constants.
func (r *Result) Persistent() ir.Bytes {
	sum := ir.Bytes(0)
	for i := range r.Storages {
		if r.Storages[i].Def < 0 {
			sum += ir.Padded(r.Storages[i].Bytes)
		}
	}
	return sum
}

package passes

import (
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

// Join makes one step of the two halves of a split export: the forward graph,
// whose outputs are results and stashed values, and the backward graph that
// takes those values and the cotangents of the results. Inputs of the second
// are bound by mapping (input of the second to value of the first) where it
// says so, else by position and exact type: the run of the first's outputs
// that its inputs follow. A choice that is not unique is refused. What no
// output of the first binds stays an input of the step: cotangents, and inputs
// that both halves take. The second result is the values that cross from the
// first half to the second.
func Join(first, second *ir.Model, mapping map[string]string) (*ir.Model, []*ir.Value, error) {
	j := &joiner{g: first.Graph, h: second.Graph, bound: map[*ir.Value]*ir.Value{}}
	for domain, v := range second.Opsets {
		if have, ok := first.Opsets[domain]; ok && have != v {
			return nil, nil, joinError("the halves import version %d and %d of domain %q", have, v, domain)
		}
		first.Opsets[domain] = v
	}
	if err := j.byName(mapping); err != nil {
		return nil, nil, err
	}
	if err := j.byPosition(); err != nil {
		return nil, nil, err
	}
	j.merge()
	first.Raw = nil
	first.Graph.Raw = nil
	var crossing []*ir.Value
	for _, in := range second.Graph.Inputs {
		if v := j.bound[in]; v != nil {
			crossing = append(crossing, v)
		}
	}
	return first, crossing, nil
}

func joinError(format string, args ...any) error {
	return &diag.Diagnostic{ID: "join", Severity: diag.Error, Message: "joining the halves: " + fmt.Sprintf(format, args...),
		Help: "state the pairs with --map input=value"}
}

type joiner struct {
	g, h  *ir.Graph
	bound map[*ir.Value]*ir.Value // input of h to value of g
}

func (j *joiner) byName(mapping map[string]string) error {
	for _, name := range sortedKeys(mapping) {
		in := byName(j.h.Inputs, name)
		if in == nil {
			return joinError("the second half has no input %q", name)
		}
		out := findValue(j.g, mapping[name])
		if out == nil {
			return joinError("the first half has no value %q", mapping[name])
		}
		if !mayEqual(in.Type, out.Type) {
			return joinError("%q is of type %s, %q of type %s", name, in.Type, out.Name, out.Type)
		}
		j.bound[in] = out
	}
	return nil
}

// byPosition aligns the second half's free inputs with the first half's
// outputs. AOT autograd hands the backward graph all stashed values in the
// order in which the forward graph returns them, after or before the
// cotangents of the results: so the longest suffix of the outputs that occurs
// as a run of the inputs is the stash.
func (j *joiner) byPosition() error {
	var free []*ir.Value
	for _, in := range j.h.Inputs {
		if in.Init == nil && j.bound[in] == nil {
			free = append(free, in)
		}
	}
	mapped := map[*ir.Value]bool{}
	for _, v := range j.bound {
		mapped[v] = true
	}
	outs := slices.DeleteFunc(slices.Clone(j.g.Outputs), func(v *ir.Value) bool { return mapped[v] })
	for n := min(len(outs), len(free)); n > 0; n-- {
		stash := outs[len(outs)-n:]
		var starts []int
		for at := 0; at+n <= len(free); at++ {
			if runMatches(free[at:at+n], stash) {
				starts = append(starts, at)
			}
		}
		switch len(starts) {
		case 0:
			continue
		case 1:
		default:
			return joinError("%d outputs of the first half fit the second half's inputs at %d places", n, len(starts))
		}
		for k := range n {
			j.bound[free[starts[0]+k]] = stash[k]
		}
		return nil
	}
	if len(j.bound) == 0 {
		return joinError("no input of the second half fits an output of the first by position and type")
	}
	return nil
}

func runMatches(ins, outs []*ir.Value) bool {
	for i := range ins {
		if !mayEqual(ins[i].Type, outs[i].Type) {
			return false
		}
	}
	return true
}

// mayEqual reports whether two declared types are the same as far as both are
// known; static dims must be equal.
func mayEqual(a, b ir.Type) bool {
	if a.Kind != b.Kind || a.DType != b.DType {
		return false
	}
	if !a.Shape.Ranked || !b.Shape.Ranked {
		return true
	}
	return compatible(a.Shape, b.Shape)
}

// merge moves the second half's nodes behind the first's and lets them read
// the bound values. The step's outputs are the first's results (those that
// are no stash) and all of the second's.
func (j *joiner) merge() {
	with := map[*ir.Value]*ir.Value{}
	stashed := map[*ir.Value]bool{}
	for in, v := range j.bound {
		with[in] = v
		stashed[v] = true
	}
	for _, in := range j.h.Inputs {
		if with[in] == nil && in.Init == nil {
			with[in] = j.g.AddInput(j.g.Fresh(in.Name), in.Type)
		}
	}
	for _, v := range j.h.Inits {
		with[v] = j.g.AddInit(j.g.Fresh(v.Name), v.Init)
	}
	e := ir.NewEdit(j.g)
	for _, n := range j.h.Nodes {
		made := moveTo(e, n, with)
		made.Backward = true
	}
	e.Done()
	var outs []*ir.Value
	for _, v := range j.g.Outputs {
		if !stashed[v] {
			outs = append(outs, v)
		}
	}
	for _, v := range j.h.Outputs {
		outs = append(outs, resolve(with, v))
	}
	j.g.Outputs = outs
}

// moveTo makes a copy of a node of another graph at the end of e's graph.
func moveTo(e *ir.Edit, n *ir.Node, with map[*ir.Value]*ir.Value) *ir.Node {
	in := make([]*ir.Value, len(n.In))
	for i, v := range n.In {
		if v != nil {
			in[i] = resolve(with, v)
		}
	}
	out := make([]string, len(n.Out))
	for i, v := range n.Out {
		if v != nil {
			out[i] = e.Graph().Fresh(v.Name)
		}
	}
	made := e.InsertBefore(nil, ir.NodeSpec{Name: e.Graph().Fresh(n.Name), Domain: n.Domain, Op: n.Op, Version: n.Version,
		In: in, Out: out, Attrs: n.Attrs, Loc: n.Loc, Meta: n.Meta})
	for i, v := range n.Out {
		if v != nil {
			made.Out[i].Type = v.Type
			with[v] = made.Out[i]
		}
	}
	return made
}

func byName(vs []*ir.Value, name string) *ir.Value {
	i := slices.IndexFunc(vs, func(v *ir.Value) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return vs[i]
}

func findValue(g *ir.Graph, name string) *ir.Value {
	for _, vs := range [][]*ir.Value{g.Outputs, g.Inputs, g.Inits} {
		if v := byName(vs, name); v != nil {
			return v
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v != nil && v.Name == name {
				return v
			}
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}

// Crossing sorts the values that cross between the halves of a joined step by
// what they are: skeletal activations, which are decided on, and what merely
// passes through: inputs, weights, and new layouts of those.
type Crossing struct {
	Values, Bytes               int64
	Skeletal, SkeletalBytes     int64
	Persistent, PersistentBytes int64 // inputs and weights handed through
	Derived, DerivedBytes       int64 // transposed or cast inputs and weights
	Output, OutputBytes         int64 // results of the step as well
	Unused, UnusedBytes         int64 // that nothing needs once attention is fused and constants are folded
}

// CrossingSummary classifies c.Crossing once liveness is known.
func (c *Context) CrossingSummary() Crossing {
	var s Crossing
	for _, v := range c.Crossing {
		bytes, err := v.Type.Bytes()
		if err != nil || c.Live == nil {
			continue
		}
		s.Values++
		s.Bytes += bytes
		if int(v.ID) >= len(c.Live.Of) || c.Live.Of[v.ID] < 0 {
			s.Unused++
			s.UnusedBytes += bytes
			continue
		}
		switch st := &c.Live.Storages[c.Live.Of[v.ID]]; {
		case st.Def < 0:
			s.Persistent++
			s.PersistentBytes += bytes
		case st.Derived:
			s.Derived++
			s.DerivedBytes += bytes
		case st.Class == ir.Output:
			s.Output++
			s.OutputBytes += bytes
		default:
			s.Skeletal++
			s.SkeletalBytes += bytes
		}
	}
	return s
}

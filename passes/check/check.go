// Package check is the independent judge of a plan: plain and quadratic, from
// the files alone. It shares no code with the planner, the placer or the
// passes; it re-derives from the emitted steps what must hold, and names what
// does not.
package check

import (
	"fmt"

	"memoc/ir/planfile"
)

// Fault is one broken rule.
type Fault struct {
	Rule    string // stable name, listed in docs/check.md
	Message string
}

// Error prints "rule: message".
func (f *Fault) Error() string { return f.Rule + ": " + f.Message }

// judge carries a plan with what every rule looks up.
type judge struct {
	p      *planfile.Plan
	value  map[string]*planfile.Value
	pieces map[string][]run  // by value: see runs
	makers map[string][]held // by value: see made
}

func newJudge(p *planfile.Plan) *judge {
	return &judge{p: p, value: map[string]*planfile.Value{}, pieces: map[string][]run{}, makers: map[string][]held{}}
}

// Plan checks every rule that needs the plan alone. It returns the first
// broken one, nil if all hold.
func Plan(p *planfile.Plan) error {
	j := newJudge(p)
	for _, rule := range []func() error{j.indices, j.bounds, j.views, j.rows, j.overlap, j.workspaces, j.contents, j.races, j.copies, j.metrics} {
		if err := rule(); err != nil {
			return err
		}
	}
	return nil
}

func fault(rule, format string, args ...any) error {
	return &Fault{Rule: rule, Message: fmt.Sprintf(format, args...)}
}

// indices: every reference is in range and every name known, once.
func (j *judge) indices() error {
	p := j.p
	for i := range p.Values {
		v := &p.Values[i]
		if j.value[v.Name] != nil {
			return fault("names", "value %q is listed twice", v.Name)
		}
		if v.Buffer < 0 || v.Buffer >= len(p.Buffers) {
			return fault("indices", "value %q lies in buffer %d of %d", v.Name, v.Buffer, len(p.Buffers))
		}
		j.value[v.Name] = v
		for _, name := range append([]string{v.Base}, v.Parts...) {
			if j.value[name] == nil || name == v.Name && name != v.Base {
				return fault("names", "value %q is a view of %q or has it as a part, which is not before it", v.Name, name)
			}
		}
	}
	for i, b := range p.Buffers {
		if b.Arena < 0 || b.Arena >= len(p.Arenas) {
			return fault("indices", "buffer %d (%s) lies in arena %d of %d", i, b.Name, b.Arena, len(p.Arenas))
		}
		if !planfile.KnownClass(b.Class) {
			return fault("indices", "buffer %d (%s) is of class %q", i, b.Name, b.Class)
		}
	}
	for i, s := range p.Steps {
		for _, name := range append(append([]string{}, s.Reads...), s.Writes...) {
			if j.value[name] == nil {
				return fault("names", "step %d (%s) names value %q, which has no bytes", i, s.Node, name)
			}
		}
		for _, w := range s.Waits {
			if w < 0 || w >= i {
				return fault("indices", "step %d (%s) waits for step %d, which is not before it", i, s.Node, w)
			}
		}
		if s.Kind != "run" && s.Kind != "copy-out" && s.Kind != "copy-in" {
			return fault("indices", "step %d (%s) is of kind %q", i, s.Node, s.Kind)
		}
		if s.Lane < 0 || s.Lane >= len(p.Lanes) || s.Workspace < -1 || s.Workspace >= len(p.Buffers) {
			return fault("indices", "step %d (%s) has lane %d and workspace %d", i, s.Node, s.Lane, s.Workspace)
		}
	}
	return nil
}

// bounds: buffers lie aligned inside their arena, arenas inside their budget,
// values inside their buffer.
func (j *judge) bounds() error {
	for i, b := range j.p.Buffers {
		a := j.p.Arenas[b.Arena]
		switch {
		case b.Size < 0 || b.Offset < 0 || b.Offset > a.Size-b.Size:
			return fault("bounds", "buffer %d (%s) at %d of %d bytes leaves arena %s of %d", i, b.Name, b.Offset, b.Size, a.Name, a.Size)
		case a.Align <= 0 || b.Offset%a.Align != 0:
			return fault("alignment", "buffer %d (%s) at %d is not aligned to %d", i, b.Name, b.Offset, a.Align)
		case b.First < 0 || b.End > len(j.p.Steps) || b.First >= b.End && len(j.p.Steps) > 0:
			return fault("lifetimes", "buffer %d (%s) lives for [%d,%d) of %d steps", i, b.Name, b.First, b.End, len(j.p.Steps))
		}
	}
	for _, a := range j.p.Arenas {
		if a.Budget > 0 && a.Size > a.Budget {
			return fault("budget", "arena %s takes %d bytes of a budget of %d", a.Name, a.Size, a.Budget)
		}
	}
	for i := range j.p.Values {
		v := &j.p.Values[i]
		if b := j.p.Buffers[v.Buffer]; !wellFormed(rangeOf(v), b.Size) {
			return fault("bounds", "value %q of %d bytes at %d leaves its buffer of %d", v.Name, v.Size, v.Offset, b.Size)
		}
	}
	for i, s := range j.p.Steps {
		if s.Part == nil {
			continue
		}
		if len(s.Reads) == 0 || !wellFormed(*s.Part, j.p.Buffers[j.value[s.Reads[0]].Buffer].Size) {
			return fault("bounds", "step %d (%s) reads a part of nothing, or beyond its operand's buffer", i, s.Node)
		}
	}
	return nil
}

// overlap: no two buffers alive at one step share a byte.
func (j *judge) overlap() error {
	bs := j.p.Buffers
	for i := range bs {
		for k := i + 1; k < len(bs); k++ {
			a, b := &bs[i], &bs[k]
			if a.Arena == b.Arena && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && alive(a, b) && a.Size > 0 && b.Size > 0 {
				return fault("overlap", "buffers %d (%s) and %d (%s) are alive together and share bytes from %d on", i, a.Name, k, b.Name, max(a.Offset, b.Offset))
			}
		}
	}
	return nil
}

func alive(a, b *planfile.Buffer) bool {
	pa, pb := a.Class == "persistent", b.Class == "persistent"
	return pa || pb || a.First < b.End && b.First < a.End
}

// contents: every read finds the value it names, written before and not
// overwritten since; outputs are intact at the end; persistent buffers are
// never written.
func (j *judge) contents() error {
	m := newMemory(j)
	for i, s := range j.p.Steps {
		for k, name := range s.Reads {
			v := j.value[name]
			if err := j.inLife(i, &s, v.Buffer, name); err != nil {
				return err
			}
			if other, ok := m.other(v, j.reads(&s, k)); ok {
				return fault("contents", "step %d (%s) reads %q, but its bytes hold %q", i, s.Node, name, other)
			}
		}
		for _, name := range s.Writes {
			v := j.value[name]
			if j.p.Buffers[v.Buffer].Class == "persistent" {
				return fault("contents", "step %d (%s) writes %q into a persistent buffer", i, s.Node, name)
			}
			if err := j.inLife(i, &s, v.Buffer, name); err != nil {
				return err
			}
			m.write(v)
		}
		if err := j.apart(i, &s); err != nil {
			return err
		}
	}
	for _, name := range j.p.Outputs {
		v := j.value[name]
		if v == nil {
			return fault("outputs", "output %q has no bytes", name)
		}
		if other, ok := m.other(v, j.runs(v)); ok {
			return fault("outputs", "output %q is not intact at the end of the step: its bytes hold %q", name, other)
		} else if b := j.p.Buffers[v.Buffer]; b.Class != "persistent" && b.End != len(j.p.Steps) {
			return fault("outputs", "the bytes of output %q are given up after step %d", name, b.End)
		}
	}
	return nil
}

func (j *judge) inLife(i int, s *planfile.Step, buffer int, what string) error {
	if b := j.p.Buffers[buffer]; b.Class != "persistent" && (i < b.First || i >= b.End) {
		return fault("lifetimes", "step %d (%s) touches %q, whose bytes are alive for [%d,%d)", i, s.Node, what, b.First, b.End)
	}
	return nil
}

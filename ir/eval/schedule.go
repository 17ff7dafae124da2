package eval

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"memoc/ir"
)

// schedule runs all steps, in issue order or, with Options.Order, in one of
// the orders that lanes and waits allow.
func (r *Runner) schedule() error {
	if r.opt.Order == 0 {
		for i := range r.p.Steps {
			if err := r.run(i); err != nil {
				return err
			}
		}
		return nil
	}
	queues := make([][]int, len(r.p.Lanes))
	for i, s := range r.p.Steps {
		queues[s.Lane] = append(queues[s.Lane], i)
	}
	c := newChooser(r.opt.Order+r.opt.Step, len(queues))
	done := make([]bool, len(r.p.Steps))
	for range r.p.Steps {
		var ready []int
		for lane, q := range queues {
			if len(q) > 0 && r.canStart(q[0], done) {
				ready = append(ready, lane)
			}
		}
		if len(ready) == 0 {
			return fmt.Errorf("BUG: the program stands still: every lane waits for a step that is behind it")
		}
		lane := c.choose(ready)
		i := queues[lane][0]
		queues[lane] = queues[lane][1:]
		if err := r.run(i); err != nil {
			return err
		}
		done[i] = true
	}
	return nil
}

func (r *Runner) canStart(i int, done []bool) bool {
	for _, w := range r.p.Steps[i].Waits {
		if !done[w] {
			return false
		}
	}
	return true
}

// chooser is an adversary: by its seed it is fair, holds one lane back as long
// as it can, lets one lane run ahead as far as it can, or stays with a lane
// for a while.
type chooser struct {
	rng  *rand.Rand
	mode uint64
	lane int // the one held back, run ahead, or stayed with
}

func newChooser(seed uint64, lanes int) *chooser {
	c := &chooser{rng: rand.New(rand.NewPCG(seed, 0x6d656d6f63)), mode: seed % 4}
	c.lane = c.rng.IntN(max(lanes, 1))
	return c
}

func (c *chooser) choose(ready []int) int {
	others := make([]int, 0, len(ready))
	there := false
	for _, l := range ready {
		if l == c.lane {
			there = true
		} else {
			others = append(others, l)
		}
	}
	switch {
	case c.mode == 1 && len(others) > 0:
		return others[c.rng.IntN(len(others))]
	case c.mode == 2 && there:
		return c.lane
	case c.mode == 3 && there && c.rng.IntN(8) > 0:
		return c.lane
	}
	l := ready[c.rng.IntN(len(ready))]
	if c.mode == 3 {
		c.lane = l
	}
	return l
}

// validate checks what indexing relies on, and that no step uses a buffer
// outside of its life.
func validate(p *ir.Program) error {
	for _, a := range p.Arenas {
		if a.Size < 0 {
			return fmt.Errorf("BUG: arena %q has %d bytes", a.Name, a.Size)
		}
	}
	for i, b := range p.Buffers {
		if b.Arena < 0 || b.Arena >= len(p.Arenas) {
			return fmt.Errorf("BUG: buffer %q lies in arena %d of %d", b.Name, b.Arena, len(p.Arenas))
		}
		if size := p.Arenas[b.Arena].Size; b.Offset < 0 || b.Size < 0 || b.Offset > size-b.Size {
			return fmt.Errorf("BUG: buffer %d (%q) takes [%d,%d) of an arena of %d bytes", i, b.Name, b.Offset, b.Offset+b.Size, size)
		}
	}
	for id, pl := range p.Places {
		if pl.Buffer >= len(p.Buffers) {
			return fmt.Errorf("BUG: value %d lies in buffer %d of %d", id, pl.Buffer, len(p.Buffers))
		}
		if pl.Buffer >= 0 && !pl.Fits(p.Buffers[pl.Buffer].Size) {
			return fmt.Errorf("BUG: value %d lies outside of its buffer %q", id, p.Buffers[pl.Buffer].Name)
		}
	}
	steps := map[*ir.Node]bool{}
	for i := range p.Steps {
		if err := validateStep(p, i); err != nil {
			return err
		}
		steps[p.Steps[i].Node] = true
	}
	for _, n := range p.Graph.Nodes {
		if !steps[n] && sharesBuffer(p, n) {
			if err := validateRange(p, n); err != nil {
				return err
			}
		}
	}
	for _, v := range p.Graph.Outputs {
		if int(v.ID) >= len(p.Places) || p.Places[v.ID].Buffer < 0 || p.Places[v.ID].Size == 0 {
			continue
		}
		if b := &p.Buffers[p.Places[v.ID].Buffer]; b.Class != ir.Persistent && b.End < len(p.Steps) {
			return fmt.Errorf("BUG: output %q lies in buffer %q, which is alive in steps [%d,%d) only", v.Name, b.Name, b.First, b.End)
		}
	}
	return nil
}

// sharesBuffer reports whether n is a Slice or a Concat whose output lies in the
// buffer of an input.
func sharesBuffer(p *ir.Program, n *ir.Node) bool {
	if n.Domain != ir.OnnxDomain || n.Op != "Slice" && n.Op != "Concat" || len(n.Out) != 1 {
		return false
	}
	buffer := func(v *ir.Value) int {
		if v == nil || int(v.ID) >= len(p.Places) {
			return -1
		}
		return p.Places[v.ID].Buffer
	}
	out := buffer(n.Out[0])
	return out >= 0 && slices.ContainsFunc(n.In, func(v *ir.Value) bool { return buffer(v) == out })
}

// validateRange checks that the range which a Slice without a step takes, or
// the parts of which a Concat without one is made, are where the output is.
func validateRange(p *ir.Program, n *ir.Node) error {
	if n.Op == "Slice" {
		if part, ok := p.SliceOf(n); !ok || !part.Same(p.Places[n.Out[0].ID]) {
			return n.Errorf("eval", "BUG: %q lies in the buffer of %q, but not in the bytes of its range", n.Out[0].Name, n.In[0].Name)
		}
		return nil
	}
	for port, v := range n.In {
		if size, err := v.Type.Bytes(); (err != nil || size > 0) && !p.InOutput(n, port) {
			return n.Errorf("eval", "BUG: nothing moves %q into %q, and it is no part of it", v.Name, n.Out[0].Name)
		}
	}
	return nil
}

// overlap finds two buffers with common bytes among those that a step uses.
func overlap(p *ir.Program, s *ir.Step) (a, b *ir.Buffer) {
	used := append(append([]ir.Access{}, s.Reads...), s.Writes...)
	if s.Workspace >= 0 {
		used = append(used, ir.Access{Buffer: s.Workspace})
	}
	for i, x := range used {
		for _, y := range used[:i] {
			a, b = &p.Buffers[y.Buffer], &p.Buffers[x.Buffer]
			if x.Buffer != y.Buffer && a.Arena == b.Arena && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
				return a, b
			}
		}
	}
	return nil, nil
}

func validateStep(p *ir.Program, i int) error {
	s := &p.Steps[i]
	if s.Node == nil {
		return fmt.Errorf("BUG: step %d has no node", i)
	}
	if s.Lane < 0 || s.Lane >= len(p.Lanes) {
		return s.Node.Errorf("eval", "BUG: step %d runs on lane %d of %d", i, s.Lane, len(p.Lanes))
	}
	for _, w := range s.Waits {
		if w < 0 || w >= i {
			return s.Node.Errorf("eval", "BUG: step %d waits for step %d, which is not before it", i, w)
		}
	}
	if s.Workspace >= len(p.Buffers) {
		return s.Node.Errorf("eval", "BUG: step %d has its workspace in buffer %d of %d", i, s.Workspace, len(p.Buffers))
	}
	for _, xs := range [][]ir.Access{s.Reads, s.Writes} {
		for _, x := range xs {
			if x.Buffer < 0 || x.Buffer >= len(p.Buffers) || !x.Fits(p.Buffers[x.Buffer].Size) {
				return s.Node.Errorf("eval", "BUG: step %d accesses bytes outside of a buffer", i)
			}
			b := &p.Buffers[x.Buffer]
			if b.Class != ir.Persistent && x.Size > 0 && (i < b.First || i >= b.End) {
				return s.Node.Errorf("eval", "BUG: step %d accesses buffer %q, which is alive in steps [%d,%d) only", i, b.Name, b.First, b.End)
			}
		}
	}
	if a, b := overlap(p, s); a != nil {
		return s.Node.Errorf("eval", "BUG: step %d uses the buffers %q and %q, which share bytes", i, a.Name, b.Name)
	}
	return nil
}

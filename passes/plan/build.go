package plan

import (
	"errors"

	"memoc/passes/sim"
)

// errTooLong stops a chain of recomputation that grows past all use.
var errTooLong = errors.New("plan: recomputation grows too long")

// builder carries out choices op by op. An instance is reused within the
// tensor's window and restored after it.
type builder struct {
	p      *Problem
	f      *facts
	choice []Choice
	limit  int64
	s      *Schedule
	clones int
	*scratch
}

// scratch is room that one build after another may use.
type scratch struct {
	current []int        // newest instance per tensor, -1 before it is made
	touched []int        // op at which the newest instance was last used
	copied  []bool       // by tensor: it has been copied out, or its head
	outs    []int        // by tensor: its copy out, then its host slot
	parts   map[int]part // by tensor: the newest instance of a range of it

	start, live, spare  []int64 // by entry
	issue, list1, list2 []int
	computed, arrived   []int // by instance: the last computation, or copy, that writes it
	moved               []Entry
	leaving             leaving
	clock               sim.Clock
	takenAt             []int
	seen                []bool
	profile             []int64
	left                *handovers
	old                 []*Schedule // that nobody needs any more
}

// Build carries out the choices. The result depends on nothing but its
// arguments.
func (p *Problem) Build(choice []Choice) (*Schedule, error) { return p.BuildWithin(choice, 0) }

// BuildWithin carries out the choices such that copies under way keep within
// limit bytes where they can: no copy in starts before there is room for it, and
// computation waits for copies out to end before it takes theirs. Limit 0:
// nothing waits for room.
func (p *Problem) BuildWithin(choice []Choice, limit int64) (*Schedule, error) {
	return p.build(p.facts(), choice, limit, &scratch{})
}

func (p *Problem) build(f *facts, choice []Choice, limit int64, room *scratch) (*Schedule, error) {
	choice, err := p.normal(f, choice)
	if err != nil {
		return nil, err
	}
	b := &builder{p: p, f: f, choice: choice, limit: limit, s: room.schedule(p), scratch: room}
	b.current, b.touched = filled(b.current, len(p.Tensors), -1), filled(b.touched, len(p.Tensors), 0)
	b.copied, b.outs = resized(b.copied, len(p.Tensors)), resized(b.outs, len(p.Tensors))
	clear(b.copied)
	if b.parts == nil {
		b.parts = map[int]part{}
	}
	clear(b.parts)
	for i := range p.Ops {
		if err := b.run(Run, i, i); err != nil {
			room.free(b.s)
			return nil, err
		}
	}
	b.s.lifetimes(p, room)
	b.s.roll(p, choice)
	b.placeCopies()
	b.s.measure(p, room)
	return b.s, nil
}

// schedule is an empty schedule with room for one of p.
func (r *scratch) schedule(p *Problem) *Schedule {
	if len(r.old) == 0 {
		return &Schedule{Entries: make([]Entry, 0, len(p.Ops)+len(p.Ops)/4), Instances: make([]Instance, 0, len(p.Tensors)+len(p.Tensors)/4)}
	}
	s := r.old[len(r.old)-1]
	r.old = r.old[:len(r.old)-1]
	*s = Schedule{Entries: s.Entries[:0], Instances: s.Instances[:0], Buffers: s.Buffers[:0], Host: s.Host[:0], ints: s.ints, copying: s.copying[:0]}
	return s
}

// free takes back a schedule that nobody needs any more.
func (r *scratch) free(s *Schedule) {
	if s != nil {
		r.old = append(r.old, s)
	}
}

func filled(s []int, n, v int) []int {
	s = resized(s, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// resized is s with n elements of any value.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// list is an empty list with room for n.
func (b *builder) list(n int) []int {
	s := b.s
	if s.used+n > len(s.ints) {
		s.ints, s.used = make([]int, max(n, 4*len(b.p.Ops), 2*len(s.ints))), 0
	}
	s.used += n
	return s.ints[s.used-n : s.used-n : s.used]
}

// run appends op, needed at position at of the original order.
func (b *builder) run(kind EntryKind, op, at int) error {
	o := &b.p.Ops[op]
	e := Entry{Kind: kind, Op: op, In: b.list(len(o.In)), Out: b.list(len(o.Out)), Wait: -1}
	for _, t := range o.In {
		if err := b.restore(t, at); err != nil {
			return err
		}
	}
	for _, t := range o.In {
		e.In = append(e.In, b.current[t])
		b.touched[t] = at
	}
	for _, t := range o.Out {
		if kind == Clone && b.current[t] >= 0 && b.available(t, at) {
			// Another output of the op is still there: the clone's copy of it
			// is a second instance that nothing reads.
			e.Out = append(e.Out, b.instance(t))
			continue
		}
		e.Out = append(e.Out, b.open(t, at))
	}
	b.s.Entries = append(b.s.Entries, e)
	if kind == Run {
		for k, t := range o.Out {
			if b.leaves(t) {
				b.copied[t] = true
				b.s.Entries = append(b.s.Entries, Entry{Kind: CopyOut, Op: -1, In: append(b.list(1), e.Out[k]), To: b.head(t), Wait: -1})
			}
		}
	}
	return nil
}

// leaves reports whether t is copied to the host: only if it is away from the
// device at some time.
func (b *builder) leaves(t int) bool {
	c := b.choice[t]
	return (c.Kind() == Swap || c.Kind() == Split) && !b.p.Tensors[t].Output && (b.f.skeletal(t) || c.IsTight() && b.f.gap[t] > 1)
}

// open makes a whole instance of t, from now on its newest.
func (b *builder) open(t, at int) int {
	b.current[t], b.touched[t] = b.instance(t), at
	return b.current[t]
}

func (b *builder) instance(t int) int {
	b.s.Instances = append(b.s.Instances, Instance{Tensor: t, Buffer: -1})
	return len(b.s.Instances) - 1
}

// available reports whether t's newest instance is still there at position at.
func (b *builder) available(t, at int) bool {
	c := b.choice[t]
	window := 1
	if !c.IsTight() {
		window = b.f.window(t)
	}
	return c.Kind() == Keep || b.p.Tensors[t].Output || at-b.touched[t] <= window ||
		!b.copied[t] && !b.p.Ops[b.f.producer[t]].Clone
}

// restore makes sure that t has a whole instance at position at.
func (b *builder) restore(t, at int) error {
	switch {
	case b.available(t, at):
		return nil
	case b.copied[t] && b.head(t) > 0:
		return b.join(t, at)
	case b.copied[t]:
		b.open(t, at)
		b.copyIn(t)
		return nil
	}
	if err := b.again(); err != nil {
		return err
	}
	return b.run(Clone, b.f.producer[t], at)
}

// again counts a clone.
func (b *builder) again() error {
	if b.clones++; b.clones > 4*len(b.p.Ops) {
		return errTooLong
	}
	return nil
}

// copyIn fills t's newest instance from the host, or its head.
func (b *builder) copyIn(t int) {
	b.s.Entries = append(b.s.Entries, Entry{Kind: CopyIn, Op: -1, Out: append(b.list(1), b.current[t]), To: b.head(t), Wait: -1})
}

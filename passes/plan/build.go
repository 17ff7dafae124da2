package plan

import "errors"

// errTooLong stops a chain of recomputation that grows past all use.
var errTooLong = errors.New("plan: recomputation grows too long")

// builder carries out choices op by op. An instance is reused within the
// tensor's window and restored after it.
type builder struct {
	p       *Problem
	f       *facts
	choice  []Choice
	s       *Schedule
	current []int // newest instance per tensor, -1 before it is made
	touched []int // op at which the newest instance was last used
	clones  int
	copied  []bool       // by tensor: it has been copied out, or its head
	parts   map[int]part // by tensor: the newest instance of a range of it
	ints    []int        // what is left of the newest of the schedule's lists
	lists   int          // of the schedule that are in use
}

// Build carries out the choices. The result depends on nothing but its
// arguments.
func (p *Problem) Build(choice []Choice) (*Schedule, error) {
	return p.build(p.facts(), &memory{}, choice)
}

func (p *Problem) build(f *facts, m *memory, choice []Choice) (*Schedule, error) {
	choice, err := p.normal(f, choice)
	if err != nil {
		return nil, err
	}
	s := m.schedule(p)
	b := &builder{p: p, f: f, choice: choice, s: s, current: ints(&m.current, len(p.Tensors), -1), touched: ints(&m.touched, len(p.Tensors), 0)}
	if len(m.copied) < len(p.Tensors) {
		m.copied = make([]bool, len(p.Tensors))
	}
	clear(m.copied)
	b.copied = m.copied
	for i := range p.Ops {
		if err := b.run(Run, i, i); err != nil {
			m.drop(s)
			return nil, err
		}
	}
	s.lifetimes(p)
	s.roll(p, choice)
	if err := s.placeCopies(p, choice); err != nil {
		return nil, err
	}
	s.measure(p)
	s.mem = nil
	return s, nil
}

func filled(n, v int) []int { return ints(new([]int), n, v) }

// list is an empty list with room for n.
func (b *builder) list(n int) []int {
	for len(b.ints) < n {
		if b.lists == len(b.s.lists) {
			b.s.lists = append(b.s.lists, make([]int, max(n, min(4*len(b.p.Ops), 4096))))
		}
		b.ints = b.s.lists[b.lists]
		b.lists++
	}
	l := b.ints[:0:n]
	b.ints = b.ints[n:]
	return l
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

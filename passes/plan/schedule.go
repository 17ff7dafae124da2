package plan

import (
	"errors"
	"slices"

	"memoc/passes/sim"
)

// Choice is what happens to a tensor in the gaps between its uses.
type Choice uint8

// The choices. Recompute of a tensor that nothing needs after a gap costs
// nothing: it is the default of every tensor that may be cloned.
const (
	Keep Choice = iota
	Swap
	Recompute
)

// EntryKind tells the forms of an Entry apart.
type EntryKind uint8

// The forms of an Entry.
const (
	Run     EntryKind = iota // the op itself
	Clone                    // the op once more
	CopyOut                  // instance to host
	CopyIn                   // host to a new instance
)

// Entry is one step of a Schedule, in issue order.
type Entry struct {
	Kind EntryKind
	Op   int   // Run, Clone
	In   []int // instances read: parallel to Op.In, or the one copied out
	Out  []int // instances made: parallel to Op.Out, or the one copied in
}

// Instance is one stay of a tensor on the device. Lifetimes are half-open in
// entries. Instances that take over each other's bytes in place share a Buffer.
type Instance struct {
	Tensor int
	Buffer int
	First  int
	End    int
}

// Buffer is a device range with a half-open lifetime in entries.
type Buffer struct {
	Bytes      int64
	First, End int
	Instance   int // the one that opened it
}

// HostSlot is a host range from its copy out to the use of its last copy in.
type HostSlot struct {
	Tensor     int
	Bytes      int64
	First, End int // half-open, in entries
}

// Schedule is a Problem with every choice carried out.
type Schedule struct {
	Entries   []Entry
	Instances []Instance
	Buffers   []Buffer
	Host      []HostSlot
	Peak      int64 // largest sum of live device bytes, workspaces included
	PeakAt    int   // entry where it is first reached
	HostPeak  int64
	Time      int64 // nanoseconds, stalls included
	Stall     int64 // of the compute lane
	Extra     int64 // time of the clones
}

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
	copied  []int // CopyOut entry per tensor, -1
}

// Build carries out the choices. The result depends on nothing but its
// arguments.
func (p *Problem) Build(choice []Choice) (*Schedule, error) { return p.build(p.facts(), choice) }

func (p *Problem) build(f *facts, choice []Choice) (*Schedule, error) {
	b := &builder{p: p, f: f, choice: choice, s: &Schedule{}, current: filled(len(p.Tensors), -1),
		touched: make([]int, len(p.Tensors)), copied: filled(len(p.Tensors), -1)}
	for i := range p.Ops {
		if err := b.run(Run, i, i); err != nil {
			return nil, err
		}
	}
	b.s.lifetimes(p)
	if err := b.s.placeCopies(p); err != nil {
		return nil, err
	}
	b.s.measure(p)
	return b.s, nil
}

func filled(n, v int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// run appends op, needed at position at of the original order.
func (b *builder) run(kind EntryKind, op, at int) error {
	e := Entry{Kind: kind, Op: op}
	for _, t := range b.p.Ops[op].In {
		if err := b.restore(t, at); err != nil {
			return err
		}
	}
	for _, t := range b.p.Ops[op].In {
		e.In = append(e.In, b.current[t])
		b.touched[t] = at
	}
	for _, t := range b.p.Ops[op].Out {
		if kind == Clone && b.current[t] >= 0 && b.available(t, at) {
			// Another output of the op is still there: the clone's copy of it
			// is a second instance that nothing reads.
			e.Out = append(e.Out, b.instance(t))
			continue
		}
		b.current[t] = b.instance(t)
		b.touched[t] = at
		e.Out = append(e.Out, b.current[t])
	}
	b.s.Entries = append(b.s.Entries, e)
	if kind == Run {
		for k, t := range b.p.Ops[op].Out {
			if b.choice[t] == Swap && b.f.skeletal(t) {
				b.copied[t] = len(b.s.Entries)
				b.s.Entries = append(b.s.Entries, Entry{Kind: CopyOut, Op: -1, In: []int{e.Out[k]}})
			}
		}
	}
	return nil
}

func (b *builder) instance(t int) int {
	b.s.Instances = append(b.s.Instances, Instance{Tensor: t, Buffer: -1})
	return len(b.s.Instances) - 1
}

// available reports whether t's newest instance is still there at position at.
func (b *builder) available(t, at int) bool {
	return b.choice[t] == Keep || b.p.Tensors[t].Output || at-b.touched[t] <= b.f.window(t) ||
		b.choice[t] == Recompute && !b.p.Ops[b.f.producer[t]].Clone
}

// restore makes sure that t has an instance at position at.
func (b *builder) restore(t, at int) error {
	if b.available(t, at) {
		return nil
	}
	if b.choice[t] == Swap && b.copied[t] >= 0 {
		b.current[t] = b.instance(t)
		b.touched[t] = at
		b.s.Entries = append(b.s.Entries, Entry{Kind: CopyIn, Op: -1, Out: []int{b.current[t]}})
		return nil
	}
	if b.clones++; b.clones > 4*len(b.p.Ops) {
		return errTooLong
	}
	return b.run(Clone, b.f.producer[t], at)
}

// lifetimes sets First and End of every instance from the entries.
func (s *Schedule) lifetimes(p *Problem) {
	for i := range s.Instances {
		s.Instances[i].First = -1
	}
	for i, e := range s.Entries {
		for _, x := range e.Out {
			s.Instances[x].First, s.Instances[x].End = i, i+1
		}
		for _, x := range e.In {
			s.Instances[x].End = i + 1
		}
	}
	last := make(map[int]int)
	for x, in := range s.Instances {
		if p.Tensors[in.Tensor].Output {
			if _, seen := last[in.Tensor]; !seen {
				last[in.Tensor] = x
				s.Instances[x].End = len(s.Entries)
			}
		}
	}
}

// duration is the predicted time of an entry.
func (s *Schedule) duration(p *Problem, e *Entry) int64 {
	switch e.Kind {
	case CopyOut:
		return p.outTime(p.Tensors[s.Instances[e.In[0]].Tensor].Bytes)
	case CopyIn:
		return p.inTime(p.Tensors[s.Instances[e.Out[0]].Tensor].Bytes)
	}
	return p.Ops[e.Op].Time
}

// lane is where an entry runs: 0 compute, 1 out, 2 in.
func (e *Entry) lane() int {
	switch e.Kind {
	case CopyOut:
		return 1
	case CopyIn:
		return 2
	}
	return 0
}

// placeCopies moves every copy in to where it is issued (just early enough
// that it ends when its first reader starts, given the copies before it), and
// keeps the source of every copy out alive until the copy is predicted to end.
func (s *Schedule) placeCopies(p *Problem) error {
	start := make([]int64, len(s.Entries)) // on an unstalled compute lane
	t := int64(0)
	for i := range s.Entries {
		start[i] = t
		if s.Entries[i].lane() == 0 {
			t += p.Ops[s.Entries[i].Op].Time
		}
	}
	issue := s.issuePoints(p, start)
	order := make([]int, len(s.Entries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return issue[a] - issue[b] })
	moved := make([]Entry, len(order))
	for i, j := range order {
		moved[i] = s.Entries[j]
	}
	s.Entries = moved
	s.lifetimes(p)
	return s.replay(p)
}

// issuePoints gives each entry a sort key: its own index for all but copies
// in, which get that of the entry they are issued before.
func (s *Schedule) issuePoints(p *Problem, start []int64) []int {
	key := make([]int, len(s.Entries))
	outAt := map[int]int{}
	for i, e := range s.Entries {
		key[i] = 2*i + 1
		if e.Kind == CopyOut {
			outAt[s.Instances[e.In[0]].Tensor] = i
		}
	}
	next := int64(1) << 62 // when the copy behind this one on the lane starts
	at := len(s.Entries)
	for i := len(s.Entries) - 1; i >= 0; i-- {
		if s.Entries[i].Kind != CopyIn {
			continue
		}
		end := min(start[i], next)
		next = end - s.duration(p, &s.Entries[i])
		at = min(at, i)
		earliest := outAt[s.Instances[s.Entries[i].Out[0]].Tensor]
		for at > earliest+1 && start[at] > next {
			at--
		}
		key[i] = 2 * max(at, earliest+1)
	}
	return key
}

// replay runs the lanes in time and extends lifetimes over copies under way.
func (s *Schedule) replay(p *Problem) error {
	made := filled(len(s.Instances), -1)
	copied := map[int]int{}
	tasks := make([]sim.Task, len(s.Entries))
	for i := range s.Entries {
		e := &s.Entries[i]
		t := sim.Task{Lane: e.lane(), Dur: s.duration(p, e)}
		for _, x := range e.In {
			if m := made[x]; m >= 0 && tasks[m].Lane != t.Lane {
				t.Deps = append(t.Deps, m)
			}
		}
		for _, x := range e.Out {
			made[x] = i
		}
		switch e.Kind {
		case CopyOut:
			copied[s.Instances[e.In[0]].Tensor] = i
		case CopyIn:
			t.Deps = append(t.Deps, copied[s.Instances[e.Out[0]].Tensor])
		}
		tasks[i] = t
	}
	r, err := sim.Run(3, tasks)
	if err != nil {
		return err
	}
	s.Time = r.Span
	s.Stall, s.Extra = 0, 0
	for i, e := range s.Entries {
		if tasks[i].Lane == 0 {
			s.Stall += r.Stall[i]
		}
		if e.Kind == Clone {
			s.Extra += tasks[i].Dur
		}
	}
	s.extendOverCopies(r, tasks)
	return nil
}

// extendOverCopies keeps the source of a copy out, and the host slot of a
// copy in, until a compute entry starts at or after the copy's predicted end.
func (s *Schedule) extendOverCopies(r *sim.Result, tasks []sim.Task) {
	var compute []int
	for i := range tasks {
		if tasks[i].Lane == 0 {
			compute = append(compute, i)
		}
	}
	after := func(at int64) int {
		k, _ := slices.BinarySearchFunc(compute, at, func(i int, at int64) int {
			if r.Start[i] >= at {
				return 1
			}
			return -1
		})
		if k == len(compute) {
			return len(tasks)
		}
		return compute[k]
	}
	slot := map[int]int{}
	for i, e := range s.Entries {
		switch e.Kind {
		case CopyOut:
			in := &s.Instances[e.In[0]]
			in.End = max(in.End, after(r.End(i, tasks)))
			slot[in.Tensor] = len(s.Host)
			s.Host = append(s.Host, HostSlot{Tensor: in.Tensor, First: i, End: i + 1})
		case CopyIn:
			h := &s.Host[slot[s.Instances[e.Out[0]].Tensor]]
			h.End = max(h.End, i+1, after(r.End(i, tasks)))
		}
	}
}

// measure merges in-place instances into buffers and takes the peaks.
func (s *Schedule) measure(p *Problem) {
	s.share(p)
	delta := make([]int64, len(s.Entries)+1)
	for _, b := range s.Buffers {
		delta[b.First] += b.Bytes
		delta[b.End] -= b.Bytes
	}
	live := int64(0)
	for i := range s.Entries {
		live += delta[i]
		at := live
		if e := s.Entries[i]; e.lane() == 0 {
			at += p.Ops[e.Op].Workspace
		}
		if at > s.Peak {
			s.Peak, s.PeakAt = at, i
		}
	}
	host := make([]int64, len(s.Entries)+1)
	for i := range s.Host {
		h := &s.Host[i]
		h.Bytes = p.Tensors[h.Tensor].Bytes
		host[h.First] += h.Bytes
		host[h.End] -= h.Bytes
	}
	live = 0
	for _, d := range host {
		live += d
		s.HostPeak = max(s.HostPeak, live)
	}
}

// share gives every instance a buffer: the one of an input that dies at the
// entry and may be overwritten, or a new one.
func (s *Schedule) share(p *Problem) {
	takenAt := map[int]int{} // buffer to the entry at which it last changed hands
	for i, e := range s.Entries {
		for k, x := range e.Out {
			in := &s.Instances[x]
			if e.lane() == 0 {
				if b := s.donor(p, i, k); b >= 0 && takenAt[b] != i+1 {
					takenAt[b] = i + 1
					in.Buffer = b
					s.Buffers[b].End = max(s.Buffers[b].End, in.End)
					continue
				}
			}
			in.Buffer = len(s.Buffers)
			s.Buffers = append(s.Buffers, Buffer{Bytes: p.Tensors[in.Tensor].Bytes, First: in.First, End: in.End, Instance: x})
		}
	}
}

// donor is the buffer that output k of entry i takes over, -1 if none: that of
// an input which may be overwritten and dies here.
func (s *Schedule) donor(p *Problem, i, k int) int {
	e := &s.Entries[i]
	op := &p.Ops[e.Op]
	for _, a := range op.InPlace {
		if a.Out != op.Out[k] {
			continue
		}
		for j, t := range op.In {
			x := e.In[j]
			if t != a.In || p.Tensors[t].Output || s.Instances[x].End != i+1 || p.Tensors[t].Bytes != p.Tensors[a.Out].Bytes {
				continue
			}
			if b := s.Instances[x].Buffer; s.Buffers[b].End == i+1 {
				return b
			}
		}
	}
	return -1
}

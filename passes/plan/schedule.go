package plan

import (
	"errors"
	"slices"

	"memoc/passes/sim"
)

// Choice is what happens to a tensor in the gaps between its uses.
type Choice uint32

// The choices. Recompute of a tensor that nothing needs after a gap costs
// nothing: it is the default of every tensor that may be cloned.
const (
	Keep Choice = iota
	Swap
	Recompute
	// Split swaps the first tiles of the token axis and recomputes the rest: see
	// SplitAt.
	Split
	// Tight is a bit beside Swap or Recompute: the tensor leaves between any two
	// uses that are not of successive ops. Computation waits for the copy out
	// before it goes on, and the copy back starts no sooner than it must: the
	// fewest bytes there are, at the price of stalls.
	Tight Choice = 4
)

// headShift is where the number of swapped tiles lies in a Choice.
const headShift = 8

// SplitAt is the Split whose first head tiles are swapped.
func SplitAt(head int) Choice { return Split | Choice(head)<<headShift }

// Head is the number of tiles that a Split swaps.
func (c Choice) Head() int { return int(c >> headShift) }

// Kind is the choice without Tight and the position of a split.
func (c Choice) Kind() Choice { return c & 3 }

// IsTight reports whether the tensor leaves at once.
func (c Choice) IsTight() bool { return c&Tight != 0 }

// EntryKind tells the forms of an Entry apart.
type EntryKind uint8

// The forms of an Entry.
const (
	Run     EntryKind = iota // the op itself
	Clone                    // the op once more
	CopyOut                  // instance to host
	CopyIn                   // host to a new instance
	Pack                     // a range of an instance to an instance of its own
	Unpack                   // such an instance to its range of a whole one
)

// Entry is one step of a Schedule, in issue order.
type Entry struct {
	Kind EntryKind
	Op   int   // Run, Clone
	In   []int // instances read: parallel to Op.In, or the one copied out
	Out  []int // instances made: parallel to Op.Out, or the one copied in
	// From and To bound the tiles that the entry reads and makes, half-open; To 0:
	// all of them. Several entries make a split instance part by part.
	From, To int
	// Wait is an entry of another lane that must have ended before this one
	// starts although no data flows between them; -1 for none.
	Wait int
}

// Instance is one stay of a tensor on the device. Lifetimes are half-open in
// entries. Instances that take over each other's bytes in place share a Buffer.
type Instance struct {
	Tensor int
	Buffer int
	First  int // the first entry that writes it
	End    int
	// From and To bound the tiles it holds, half-open; To 0: all of them.
	From, To int
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
	Head       int // tiles it holds; 0: all of them
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
	Moved     int64 // bytes copied to the host

	peaks int // entries at which Peak is reached
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
	copied  []bool // by tensor: it has been copied out
	ints    []int  // room for the lists of entries
}

// Build carries out the choices. The result depends on nothing but its
// arguments.
func (p *Problem) Build(choice []Choice) (*Schedule, error) { return p.build(p.facts(), choice) }

func (p *Problem) build(f *facts, choice []Choice) (*Schedule, error) {
	b := &builder{p: p, f: f, choice: choice, s: &Schedule{}, current: filled(len(p.Tensors), -1),
		touched: make([]int, len(p.Tensors)), copied: make([]bool, len(p.Tensors))}
	b.s.Entries = make([]Entry, 0, len(p.Ops)+len(p.Ops)/4)
	b.s.Instances = make([]Instance, 0, len(p.Tensors)+len(p.Tensors)/4)
	for i := range p.Ops {
		if err := b.run(Run, i, i); err != nil {
			return nil, err
		}
	}
	b.s.lifetimes(p)
	if err := b.s.placeCopies(p, choice); err != nil {
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

// list is an empty list with room for n.
func (b *builder) list(n int) []int {
	if len(b.ints) < n {
		b.ints = make([]int, max(n, min(4*len(b.p.Ops), 4096)))
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
		b.current[t] = b.instance(t)
		b.touched[t] = at
		e.Out = append(e.Out, b.current[t])
	}
	b.s.Entries = append(b.s.Entries, e)
	if kind == Run {
		for k, t := range o.Out {
			if b.leaves(t) {
				b.copied[t] = true
				b.s.Entries = append(b.s.Entries, Entry{Kind: CopyOut, Op: -1, In: append(b.list(1), e.Out[k]), Wait: -1})
			}
		}
	}
	return nil
}

// leaves reports whether t is copied to the host: only if it is away from the
// device at some time.
func (b *builder) leaves(t int) bool {
	c := b.choice[t]
	return c.Kind() == Swap && !b.p.Tensors[t].Output && (b.f.skeletal(t) || c.IsTight() && b.f.gap[t] > 1)
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
	return c == Keep || b.p.Tensors[t].Output || at-b.touched[t] <= window ||
		!b.copied[t] && !b.p.Ops[b.f.producer[t]].Clone
}

// restore makes sure that t has an instance at position at.
func (b *builder) restore(t, at int) error {
	if b.available(t, at) {
		return nil
	}
	if b.copied[t] {
		b.current[t] = b.instance(t)
		b.touched[t] = at
		b.s.Entries = append(b.s.Entries, Entry{Kind: CopyIn, Op: -1, Out: append(b.list(1), b.current[t]), Wait: -1})
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

// Duration is the predicted time of an entry.
func (s *Schedule) Duration(p *Problem, e *Entry) int64 {
	switch e.Kind {
	case CopyOut:
		return p.outTime(p.Tensors[s.Instances[e.In[0]].Tensor].Bytes)
	case CopyIn:
		return p.inTime(p.Tensors[s.Instances[e.Out[0]].Tensor].Bytes)
	}
	return p.Ops[e.Op].Time
}

// Lane is where an entry runs: 0 compute, 1 out, 2 in.
func (e *Entry) Lane() int {
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
func (s *Schedule) placeCopies(p *Problem, choice []Choice) error {
	start := make([]int64, len(s.Entries)) // on an unstalled compute lane
	t, moves := int64(0), false
	for i := range s.Entries {
		start[i] = t
		if s.Entries[i].Lane() == 0 {
			t += p.Ops[s.Entries[i].Op].Time
		}
		moves = moves || s.Entries[i].Lane() != 0
	}
	if !moves {
		return s.replay(p)
	}
	issue := s.issuePoints(p, start, choice)
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
	s.waits(choice)
	return s.replay(p)
}

// waits makes computation and the copies of tight tensors wait for each other.
func (s *Schedule) waits(choice []Choice) {
	compute, out := -1, -1 // last entry of computation, last tight copy out that nothing waits for yet
	for i := range s.Entries {
		e := &s.Entries[i]
		switch {
		case e.Lane() == 0:
			e.Wait, compute, out = out, i, -1
		case e.Kind == CopyOut && choice[s.Instances[e.In[0]].Tensor].IsTight():
			out = i
		case e.Kind == CopyIn && choice[s.Instances[e.Out[0]].Tensor].IsTight():
			e.Wait = compute
		}
	}
}

// issuePoints gives each entry a sort key: its own index for all but copies
// in, which get that of the entry they are issued before.
func (s *Schedule) issuePoints(p *Problem, start []int64, choice []Choice) []int {
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
		next = end - s.Duration(p, &s.Entries[i])
		at = min(at, i)
		t := s.Instances[s.Entries[i].Out[0]].Tensor
		earliest := outAt[t]
		for !choice[t].IsTight() && at > earliest+1 && start[at] > next {
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
	room := make([]int, 0, 2*len(s.Entries)) // of the lists of dependencies
	for i := range s.Entries {
		e := &s.Entries[i]
		t := sim.Task{Lane: e.Lane(), Dur: s.Duration(p, e)}
		from := len(room)
		for _, x := range e.In {
			if m := made[x]; m >= 0 && tasks[m].Lane != t.Lane {
				room = append(room, m)
			}
		}
		if e.Wait >= 0 {
			room = append(room, e.Wait)
		}
		for _, x := range e.Out {
			made[x] = i
		}
		switch e.Kind {
		case CopyOut:
			copied[s.Instances[e.In[0]].Tensor] = i
		case CopyIn:
			room = append(room, copied[s.Instances[e.Out[0]].Tensor])
		}
		t.Deps = room[from:len(room):len(room)]
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
	for i, at := range s.profile(p) {
		switch {
		case at > s.Peak:
			s.Peak, s.PeakAt, s.peaks = at, i, 1
		case at == s.Peak:
			s.peaks++
		}
	}
	host := make([]int64, len(s.Entries)+1)
	for i := range s.Host {
		h := &s.Host[i]
		h.Bytes = p.Tensors[h.Tensor].Bytes
		s.Moved += h.Bytes
		host[h.First] += h.Bytes
		host[h.End] -= h.Bytes
	}
	live := int64(0)
	for _, d := range host {
		live += d
		s.HostPeak = max(s.HostPeak, live)
	}
}

// profile is the live device bytes during every entry, workspaces included.
func (s *Schedule) profile(p *Problem) []int64 {
	live := make([]int64, len(s.Entries)+1)
	for _, b := range s.Buffers {
		live[b.First] += b.Bytes
		live[b.End] -= b.Bytes
	}
	sum := int64(0)
	for i := range s.Entries {
		sum += live[i]
		live[i] = sum
		if e := &s.Entries[i]; e.Lane() == 0 {
			live[i] += p.Ops[e.Op].Workspace
		}
	}
	return live[:len(s.Entries)]
}

// share gives every instance a buffer: the one of an input that dies at the
// entry and may be overwritten, or a new one.
func (s *Schedule) share(p *Problem) {
	takenAt := make([]int, len(s.Instances)) // by buffer: the entry after that at which it last changed hands
	s.Buffers = make([]Buffer, 0, len(s.Instances))
	for i, e := range s.Entries {
		for k, x := range e.Out {
			in := &s.Instances[x]
			if e.Lane() == 0 {
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

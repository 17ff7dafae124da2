package plan

import (
	"slices"

	"memoc/passes/sim"
)

// placeCopies moves every copy in to where it is issued (just early enough
// that it ends when its first reader starts, given the copies before it), and
// keeps the source of every copy out alive until the copy is predicted to end.
func (s *Schedule) placeCopies(p *Problem, choice []Choice) error {
	start := ints64(&s.mem.start, len(s.Entries)) // on an unstalled compute lane
	t, moves := int64(0), false
	for i := range s.Entries {
		start[i] = t
		if s.Entries[i].Lane() == 0 {
			t += s.Duration(p, &s.Entries[i])
		}
		moves = moves || s.Entries[i].Lane() != 0
	}
	if !moves {
		return s.replay(p)
	}
	issue := s.issuePoints(p, start, choice)
	s.issueRolling(p, issue)
	s.reorder(issue)
	s.lifetimes(p)
	s.waits(choice)
	return s.replay(p)
}

// reorder moves copies in to where they are issued: key 2*k is just before entry
// k, and 2*i+1 where entry i is.
func (s *Schedule) reorder(key []int) {
	n := len(s.Entries)
	first, next := ints(&s.mem.heads, n, -1), ints(&s.mem.nexts, n, -1) // lists of the copies before each entry
	for i := n - 1; i >= 0; i-- {
		if k := key[i]; k%2 == 0 {
			next[i] = first[k/2]
			first[k/2] = i
		}
	}
	moved := s.mem.entries[:0]
	for i := range s.Entries {
		for j := first[i]; j >= 0; j = next[j] {
			moved = append(moved, s.Entries[j])
		}
		if key[i]%2 != 0 {
			moved = append(moved, s.Entries[i])
		}
	}
	s.Entries, s.mem.entries = moved, s.Entries
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
	key, outAt := ints(&s.mem.points, len(s.Entries), 0), ints(&s.mem.writers[0], len(p.Tensors), 0)
	for i := range s.Entries {
		e := &s.Entries[i]
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
	tasks := s.tasks(p)
	r := &s.mem.result
	if err := r.Run(3, tasks); err != nil {
		return err
	}
	s.Time = r.Span
	s.Stall, s.Extra = 0, 0
	for i := range s.Entries {
		e := &s.Entries[i]
		if tasks[i].Lane == 0 {
			s.Stall += r.Stall[i]
		}
		if e.Kind == Clone || e.Kind == Pack || e.Kind == Unpack {
			s.Extra += tasks[i].Dur
		}
	}
	s.extendOverCopies(p, r, tasks)
	return nil
}

// tasks states the entries for the replay: each waits for the entries of other
// lanes that write what it reads, a copy in for the copy out of its tensor.
func (s *Schedule) tasks(p *Problem) []sim.Task {
	m := s.mem
	computed, copied := ints(&m.writers[0], len(s.Instances), -1), ints(&m.writers[1], len(s.Instances), -1) // last writer of each lane
	out := ints(&m.writers[2], len(p.Tensors), 0)
	tasks, room := m.tasks[:0], m.deps[:0]
	left := s.handovers()
	for i := range s.Entries {
		e := &s.Entries[i]
		lane, from := e.Lane(), len(room)
		for k, x := range e.In {
			if w := computed[x]; w >= 0 && lane != 0 {
				room = append(room, w)
			}
			if w := copied[x]; w >= 0 && lane != 2 && s.reads(p, e, k, w) {
				room = append(room, w)
			}
		}
		if e.Wait >= 0 {
			room = append(room, e.Wait)
		}
		if left != nil {
			room = left.touch(s, i, room)
		}
		for _, x := range e.Out {
			if lane == 2 {
				copied[x] = i
			} else {
				computed[x] = i
			}
		}
		switch e.Kind {
		case CopyOut:
			out[s.Instances[e.In[0]].Tensor] = i
		case CopyIn:
			room = append(room, out[s.Instances[e.Out[0]].Tensor])
		}
		tasks = append(tasks, sim.Task{Lane: lane, Dur: s.Duration(p, e), Deps: room[from:len(room):len(room)]})
	}
	m.tasks, m.deps = tasks, room
	return tasks
}

// reads reports whether e reads of its input k anything that copy m brings.
func (s *Schedule) reads(p *Problem, e *Entry, k, m int) bool {
	head := s.Entries[m].To
	from, to := p.Reads(e, k)
	return head == 0 || to == 0 || from < head
}

// extendOverCopies keeps the source of a copy out, and the host slot of a
// copy in, until a compute entry starts at or after the copy's predicted end.
func (s *Schedule) extendOverCopies(p *Problem, r *sim.Result, tasks []sim.Task) {
	compute := s.mem.compute[:0]
	for i := range tasks {
		if tasks[i].Lane == 0 {
			compute = append(compute, i)
		}
	}
	s.mem.compute = compute
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
	slot := ints(&s.mem.writers[0], len(p.Tensors), 0)
	s.copying = append(s.copying[:0], make([]bool, len(s.Instances))...)
	for i := range s.Entries {
		e := &s.Entries[i]
		switch e.Kind {
		case CopyOut:
			in := &s.Instances[e.In[0]]
			in.End = max(in.End, after(r.End(i, tasks)))
			s.copying[e.In[0]] = r.Start[in.End-1] < r.End(i, tasks)
			slot[in.Tensor] = len(s.Host)
			s.Host = append(s.Host, HostSlot{Tensor: in.Tensor, Head: e.To, First: i, End: i + 1})
		case CopyIn:
			h := &s.Host[slot[s.Instances[e.Out[0]].Tensor]]
			h.End = max(h.End, i+1, after(r.End(i, tasks)))
		}
	}
}

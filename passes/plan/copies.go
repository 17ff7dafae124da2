package plan

import "slices"

// placeCopies moves every copy in to where it is issued (just early enough
// that it ends when its first reader starts, given the copies before it), and
// keeps the source of every copy out alive until the copy is predicted to end.
func (b *builder) placeCopies() {
	s := b.s
	b.start = resized(b.start, len(s.Entries)) // on an unstalled compute lane
	t, moves := int64(0), false
	for i := range s.Entries {
		b.start[i] = t
		if s.Entries[i].Lane() == 0 {
			t += s.Duration(b.p, &s.Entries[i])
		} else {
			moves = true
		}
	}
	b.live = b.live[:0]
	if moves {
		if b.limit > 0 {
			s.share(b.p, b.scratch)
			b.live = append(b.live, s.profile(b.p, b.scratch)...)
			for _, x := range b.live {
				s.floor = max(s.floor, x)
			}
		}
		issue := b.issuePoints()
		s.issueRolling(b.p, issue)
		b.move(issue)
		s.lifetimes(b.p, b.scratch)
		if b.limit > 0 {
			s.waits()
		}
	}
	b.replay()
}

// move puts every copy in where it is issued, in the order of their entries
// where that rises with them.
func (b *builder) move(issue []int) {
	s := b.s
	b.moved = b.moved[:0]
	copies := b.copies(CopyIn)
	if s.group != nil {
		slices.SortStableFunc(copies, func(x, y int) int { return issue[x] - issue[y] })
	}
	live := b.live
	b.live = b.spare[:0]
	b.spare = live
	for i := range s.Entries {
		for len(copies) > 0 && issue[copies[0]] <= i {
			k := copies[0]
			b.moved = append(b.moved, s.Entries[k])
			if len(live) > 0 {
				at := live[k]
				if i > 0 && i < k {
					at = min(live[i], live[i-1]+s.bytes(b.p, s.Entries[k].Out[0]))
				}
				b.live = append(b.live, at)
			}
			copies = copies[1:]
		}
		if s.Entries[i].Kind != CopyIn {
			b.moved = append(b.moved, s.Entries[i])
			if len(live) > 0 {
				b.live = append(b.live, live[i])
			}
		}
	}
	s.Entries, b.moved = b.moved, s.Entries
}

// copies lists the entries of that kind.
func (b *builder) copies(kind EntryKind) []int {
	b.list1 = b.list1[:0]
	for i := range b.s.Entries {
		if b.s.Entries[i].Kind == kind {
			b.list1 = append(b.list1, i)
		}
	}
	return b.list1
}

// waits makes each copy in wait for the computation before it, which its bytes
// may be free only after.
func (s *Schedule) waits() {
	compute := -1
	for i := range s.Entries {
		e := &s.Entries[i]
		switch {
		case e.Lane() == 0:
			compute = i
		case e.Kind == CopyIn:
			e.Wait = compute
		}
	}
}

// issuePoints gives for each copy in the entry that it is issued before. With a
// limit it goes no further back than its bytes, and those of the copies before
// it on the lane, fit beside what is alive.
func (b *builder) issuePoints() []int {
	s := b.s
	b.issue = resized(b.issue, len(s.Entries))
	out := b.outs
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Kind == CopyOut {
			out[s.Instances[e.In[0]].Tensor] = i
		}
	}
	next := int64(1) << 62 // when the copy behind this one on the lane starts
	at := len(s.Entries)
	copies := b.copies(CopyIn)
	for k := len(copies) - 1; k >= 0; k-- {
		i := copies[k]
		e := &s.Entries[i]
		next = min(b.start[i], next) - s.Duration(b.p, e)
		bytes := s.bytes(b.p, e.Out[0])
		at = min(at, i)
		b.hold(at, i, bytes)
		earliest := out[s.Instances[e.Out[0]].Tensor] + 1
		passed := int64(0) // bytes of copies that would have to be issued as early
		for at > earliest && b.start[at] > next {
			if f := &s.Entries[at-1]; f.Kind == CopyIn {
				passed += s.bytes(b.p, f.Out[0])
			}
			if b.limit > 0 && b.live[at-1]+bytes+passed > b.limit {
				break
			}
			at--
			b.hold(at, at+1, bytes)
		}
		at = max(at, earliest)
		b.issue[i] = at
	}
	return b.issue
}

// hold adds bytes to what is alive in [from, to).
func (b *builder) hold(from, to int, bytes int64) {
	if b.limit > 0 {
		addTo(b.live[from:to], bytes)
	}
}

// replay runs the lanes in time, sets what computation waits for to stay within
// the limit, and extends lifetimes over copies under way.
func (b *builder) replay() {
	s := b.s
	b.clock.Reset(3)
	b.computed, b.arrived = filled(b.computed, len(s.Instances), -1), filled(b.arrived, len(s.Instances), -1)
	b.leaving.reset(len(s.Entries))
	b.left = s.handovers()
	for i := range s.Entries {
		e := &s.Entries[i]
		lane := e.Lane()
		start := b.clock.Ready(lane, b.deps(i, lane))
		if lane != 1 {
			start = b.makeRoom(i, start)
		}
		if lane == 0 {
			s.Stall += start - b.clock.Free(0)
		}
		dur := s.Duration(b.p, e)
		b.clock.Add(lane, dur, start)
		for _, x := range e.Out {
			if lane == 2 {
				b.arrived[x] = i
			} else {
				b.computed[x] = i
			}
		}
		switch e.Kind {
		case CopyOut:
			in := &s.Instances[e.In[0]]
			b.outs[in.Tensor] = i
			b.leaving.push(leaver{i, in.End, s.bytes(b.p, e.In[0])})
		case Clone, Pack, Unpack:
			s.Extra += dur
		}
	}
	s.Time = b.clock.Span
	b.extendOverCopies()
}

// deps lists what entry i waits for: the entries of other lanes that write what
// it reads, for a copy in the copy out of its tensor, what touched its rolling
// buffer before, and what it is made to wait for.
func (b *builder) deps(i, lane int) []int {
	e := &b.s.Entries[i]
	b.list1 = b.list1[:0]
	for k, x := range e.In {
		if m := b.computed[x]; m >= 0 && lane != 0 {
			b.list1 = append(b.list1, m)
		}
		if m := b.arrived[x]; m >= 0 && lane != 2 && b.s.reads(b.p, e, k, m) {
			b.list1 = append(b.list1, m)
		}
	}
	if e.Wait >= 0 {
		b.list1 = append(b.list1, e.Wait)
	}
	if e.Kind == CopyIn {
		b.list1 = append(b.list1, b.outs[b.s.Instances[e.Out[0]].Tensor])
	}
	if b.left != nil {
		b.list1 = b.left.touch(b.s, i, b.list1)
	}
	return b.list1
}

// leaver is a copy out under way: its entry, the end of its source but for the
// copy, and the bytes of that.
type leaver struct {
	entry, end int
	bytes      int64
}

// leaving is the copies out under way, and the bytes that are alive for their
// sake alone.
type leaving struct {
	queue []leaver
	head  int     // of the queue
	ends  []int64 // by entry: bytes of the queue's sources that end there, from swept on
	swept int
	bytes int64
}

func (l *leaving) reset(n int) {
	l.queue, l.head, l.ends, l.swept, l.bytes = l.queue[:0], 0, resized(l.ends, n+1), 0, 0
	clear(l.ends)
}

func (l *leaving) push(x leaver) {
	l.queue = append(l.queue, x)
	l.ends[x.end] += x.bytes
}

// pop takes the first off the queue at entry i.
func (l *leaving) pop(i int) {
	x := l.queue[l.head]
	l.head++
	if x.end <= i {
		l.bytes -= x.bytes
	} else {
		l.ends[x.end] -= x.bytes
	}
}

// makeRoom is when entry i, which could start at start, does: once enough copies
// out have ended for what is alive to fit the limit.
func (b *builder) makeRoom(i int, start int64) int64 {
	if len(b.live) == 0 {
		return start
	}
	l := &b.leaving
	for ; l.swept <= i; l.swept++ {
		l.bytes += l.ends[l.swept]
		l.ends[l.swept] = 0
	}
	for l.head < len(l.queue) && b.clock.Ends[l.queue[l.head].entry] <= start {
		l.pop(i)
	}
	for l.head < len(l.queue) && b.live[i]+l.bytes > b.limit && l.bytes > 0 {
		first := l.queue[l.head].entry
		start = b.clock.Ends[first]
		b.s.Entries[i].Wait = first
		l.pop(i)
	}
	return start
}

// reads reports whether e reads of its input k anything that copy m brings.
func (s *Schedule) reads(p *Problem, e *Entry, k, m int) bool {
	head := s.Entries[m].To
	from, to := p.Reads(e, k)
	return head == 0 || to == 0 || from < head
}

// extendOverCopies keeps the source of a copy out until all that starts later
// in the list also starts at or after the copy's predicted end, and the host
// slot of a copy in until computation does.
func (b *builder) extendOverCopies() {
	s := b.s
	starts := func(i int) int64 { return b.clock.Ends[i] - s.Duration(b.p, &s.Entries[i]) }
	// first is the first of a lane's entries that starts at or after a time.
	first := func(lane []int, at int64) int {
		k, _ := slices.BinarySearchFunc(lane, at, func(i int, at int64) int {
			if starts(i) >= at {
				return 1
			}
			return -1
		})
		return k
	}
	b.list1, b.list2 = b.list1[:0], b.list2[:0]
	for i := range s.Entries {
		switch s.Entries[i].Lane() {
		case 0:
			b.list1 = append(b.list1, i)
		case 2:
			b.list2 = append(b.list2, i)
		}
	}
	slot := b.outs
	s.copying = resized(s.copying, len(s.Instances))
	clear(s.copying)
	for i := range s.Entries {
		switch e := &s.Entries[i]; e.Kind {
		case CopyOut:
			in, end := &s.Instances[e.In[0]], b.clock.Ends[i]
			for _, lane := range [][]int{b.list1, b.list2} {
				if k := first(lane, end); k > 0 {
					in.End = max(in.End, lane[k-1]+1)
				}
			}
			s.copying[e.In[0]] = starts(in.End-1) < end
			slot[in.Tensor] = len(s.Host)
			s.Host = append(s.Host, HostSlot{Tensor: in.Tensor, Head: e.To, First: i, End: i + 1})
		case CopyIn:
			h, after := &s.Host[slot[s.Instances[e.Out[0]].Tensor]], len(s.Entries)
			if k := first(b.list1, b.clock.Ends[i]); k < len(b.list1) {
				after = b.list1[k]
			}
			h.End = max(h.End, i+1, after)
		}
	}
}

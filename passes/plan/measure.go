package plan

// lifetimes sets First and End of every instance from the entries.
func (s *Schedule) lifetimes(p *Problem, room *scratch) {
	for i := range s.Instances {
		s.Instances[i].First, s.Instances[i].End = -1, 0
	}
	for i := range s.Entries {
		e := &s.Entries[i]
		for _, x := range e.Out {
			if s.Instances[x].First < 0 {
				s.Instances[x].First = i
			}
			s.Instances[x].End = i + 1
		}
		for _, x := range e.In {
			s.Instances[x].End = i + 1
		}
	}
	room.seen = resized(room.seen, len(p.Tensors))
	seen := room.seen
	clear(seen)
	for x := range s.Instances {
		in := &s.Instances[x]
		if p.Tensors[in.Tensor].Output && !seen[in.Tensor] {
			seen[in.Tensor] = true
			in.End = len(s.Entries)
		}
	}
}

// measure merges in-place instances into buffers and takes the peaks.
func (s *Schedule) measure(p *Problem, room *scratch) {
	s.share(p, room)
	s.Peak, s.peaks = 0, 0
	high := false // the peak is reached since the last computation
	for i, at := range s.profile(p, room) {
		if at > s.Peak {
			s.Peak, s.PeakAt, s.peaks = at, i, 0
		}
		if high = high || at == s.Peak; high && (s.Entries[i].Lane() == 0 || i == len(s.Entries)-1) {
			s.peaks++
			high = false
		}
	}
	host := resized(room.profile, len(s.Entries)+1)
	clear(host)
	for i := range s.Host {
		h := &s.Host[i]
		h.Bytes = p.partBytes(h.Tensor, 0, h.Head)
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

// profile is the live device bytes during every entry, workspaces included. It
// lies in room until that is used again.
func (s *Schedule) profile(p *Problem, room *scratch) []int64 {
	room.profile = resized(room.profile, len(s.Entries)+1)
	live := room.profile
	clear(live)
	for _, b := range s.Buffers {
		live[b.First] += b.Bytes
		live[b.End] -= b.Bytes
	}
	sum := int64(0)
	for i := range s.Entries {
		sum += live[i]
		live[i] = sum
		if e := &s.Entries[i]; e.Op >= 0 {
			live[i] += p.Ops[e.Op].Workspace
		}
	}
	return live[:len(s.Entries)]
}

// share gives every instance a buffer where it is first written: the one of an
// input that dies at the entry and may be overwritten, or a new one.
func (s *Schedule) share(p *Problem, room *scratch) {
	room.takenAt = filled(room.takenAt, len(s.Instances), 0) // by buffer: the entry after that at which it last changed hands
	takenAt := room.takenAt
	s.Buffers = s.Buffers[:0]
	for i := range s.Entries {
		e := &s.Entries[i]
		for k, x := range e.Out {
			in := &s.Instances[x]
			if in.First < i {
				continue // another entry made part of it before
			}
			if s.rolling(x) >= 0 {
				s.shareRolling(p, x)
				continue
			}
			if e.Op >= 0 {
				if b := s.donor(p, i, k); b >= 0 && takenAt[b] != i+1 {
					takenAt[b] = i + 1
					in.Buffer = b
					s.Buffers[b].End = max(s.Buffers[b].End, in.End)
					continue
				}
			}
			in.Buffer = len(s.Buffers)
			s.Buffers = append(s.Buffers, Buffer{Bytes: s.bytes(p, x), First: in.First, End: in.End, Instance: x})
		}
	}
}

// donor is the buffer that output k of entry i takes over, -1 if none: that of
// an input which may be overwritten and dies here. On a range both must be
// parts in buffers of their own: an instance that holds more is not made, or not
// done with, in this entry.
func (s *Schedule) donor(p *Problem, i, k int) int {
	e := &s.Entries[i]
	op := &p.Ops[e.Op]
	for _, a := range op.InPlace {
		if a.Out != op.Out[k] {
			continue
		}
		for j, t := range op.In {
			x := e.In[j]
			y := e.Out[k]
			if t != a.In || p.Tensors[t].Output || s.rolling(x) >= 0 || len(s.copying) > 0 && s.copying[x] || s.Instances[x].End != i+1 || s.bytes(p, x) != s.bytes(p, y) ||
				e.To > 0 && (s.Instances[x].To == 0 || s.Instances[y].To == 0) {
				continue
			}
			if b := s.Instances[x].Buffer; s.Buffers[b].End == i+1 {
				return b
			}
		}
	}
	return -1
}

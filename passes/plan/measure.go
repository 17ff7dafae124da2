package plan

// lifetimes sets First and End of every instance from the entries.
func (s *Schedule) lifetimes(p *Problem) {
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
	seen := make([]bool, len(p.Tensors))
	for x, in := range s.Instances {
		if p.Tensors[in.Tensor].Output && !seen[in.Tensor] {
			seen[in.Tensor] = true
			s.Instances[x].End = len(s.Entries)
		}
	}
}

// measure merges in-place instances into buffers and takes the peaks.
func (s *Schedule) measure(p *Problem) {
	s.share(p)
	for i, at := range s.profileIn(p, &s.mem.live) {
		switch {
		case at > s.Peak:
			s.Peak, s.PeakAt, s.peaks = at, i, 1
		case at == s.Peak:
			s.peaks++
		}
	}
	host := ints64(&s.mem.live, len(s.Entries)+1)
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

// profile is the live device bytes during every entry, workspaces included.
func (s *Schedule) profile(p *Problem) []int64 { return s.profileIn(p, new([]int64)) }

func (s *Schedule) profileIn(p *Problem, room *[]int64) []int64 {
	live := ints64(room, len(s.Entries)+1)
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
func (s *Schedule) share(p *Problem) {
	takenAt := ints(&s.mem.taken, len(s.Instances), 0) // by buffer: the entry after that at which it last changed hands
	if s.Buffers == nil {
		s.Buffers = make([]Buffer, 0, len(s.Instances))
	}
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
			if t != a.In || p.Tensors[t].Output || s.rolling(x) >= 0 || s.copying[x] || s.Instances[x].End != i+1 || s.bytes(p, x) != s.bytes(p, y) ||
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

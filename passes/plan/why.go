package plan

// Price is what each way to treat a tensor costs beside a schedule that treats
// it in one of them. Times in nanoseconds, positions in entries.
type Price struct {
	First, End int // from its definition to the end of its last stay
	// AtPeak is the bytes that keeping it holds at the schedule's peak: none
	// where it is not yet made or no longer needed there.
	AtPeak int64
	// Above is the largest sum of live bytes while it waits, if it is kept beside
	// everything else of the schedule.
	Above int64
	// Copy is the time of its copies out and in, Idle that of the computation
	// between its last use before its widest gap and the next.
	Copy, Idle int64
	// Again is the time of running its operation once more, with whatever that
	// needs and is not there.
	Again int64
	// Copied, Made: how often it is copied in and made again in the schedule.
	Copied, Made int
	// Head is the tiles that it is copied for where it is split, 0 where not.
	Head int
}

// Prices judges every tensor beside the schedule of choices c.
func (p *Problem) Prices(c []Choice, s *Schedule) []Price {
	f := p.facts()
	w := &path{p: p, f: f, choice: c, chain: filled64(len(p.Tensors), -1)}
	out := make([]Price, len(p.Tensors))
	before := make([]int64, len(p.Ops)+1) // time of the ops before each
	for i := range p.Ops {
		before[i+1] = before[i] + p.Ops[i].Time
	}
	stays := make([][]int, len(p.Tensors))
	for x, in := range s.Instances {
		if in.First >= 0 {
			stays[in.Tensor] = append(stays[in.Tensor], x)
		}
	}
	live := s.profile(p, &scratch{})
	for t := range out {
		x := &out[t]
		x.First = len(s.Entries)
		for _, k := range stays[t] {
			x.First, x.End = min(x.First, s.Instances[k].First), max(x.End, s.Instances[k].End)
		}
		bytes := p.Tensors[t].Bytes
		if x.First <= s.PeakAt && s.PeakAt < x.End {
			x.AtPeak = bytes
		}
		x.Above = s.aboveWith(p, live, stays[t], x, bytes)
		x.Copy = p.outTime(bytes) + p.inTime(bytes)
		x.Again = w.chainTime(t)
		prev := f.producer[t]
		for _, u := range f.uses[t] {
			x.Idle = max(x.Idle, before[u]-before[prev+1])
			prev = u
		}
	}
	s.count(p, out)
	return out
}

// aboveWith is the peak between x.First and x.End with the tensor there
// throughout.
func (s *Schedule) aboveWith(p *Problem, live []int64, stays []int, x *Price, bytes int64) int64 {
	if len(stays) <= 1 { // it is there throughout as it is
		top := int64(0)
		for _, v := range live[min(x.First, x.End):x.End] {
			top = max(top, v)
		}
		return top
	}
	top := int64(0)
	for i := x.First; i < x.End; i++ {
		here := live[i] + bytes
		for _, k := range stays {
			if s.Instances[k].First <= i && i < s.Instances[k].End {
				here -= s.bytes(p, k)
			}
		}
		top = max(top, here)
	}
	return top
}

// count fills in how often tensors come back.
func (s *Schedule) count(p *Problem, out []Price) {
	for i := range s.Entries {
		switch e := &s.Entries[i]; e.Kind {
		case Clone:
			for _, t := range p.Ops[e.Op].Out {
				out[t].Made++
			}
		case CopyIn:
			t := s.Instances[e.Out[0]].Tensor
			out[t].Copied++
			out[t].Head = e.To
		}
	}
}

func filled64(n int, v int64) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

package plan

import "slices"

// roll finds the instances that share rolling buffers: those of one role in
// layers of one parity, each left before the next is made. Where that is not so,
// or sizes differ, the role has no rolling buffer.
func (s *Schedule) roll(p *Problem, choice []Choice) {
	if !slices.ContainsFunc(choice, Choice.IsRolling) {
		return
	}
	type key struct{ role, parity int }
	ids := map[key]int{}
	var last []int   // by group: its newest instance
	var fails []bool // by group
	group, before := filled(nil, len(s.Instances), -1), filled(nil, len(s.Instances), -1)
	for i := range s.Entries {
		for _, x := range s.Entries[i].Out {
			in := &s.Instances[x]
			t := &p.Tensors[in.Tensor]
			if in.First != i || in.To > 0 || !choice[in.Tensor].IsRolling() || t.Role == 0 || t.Output {
				continue
			}
			k := key{t.Role, t.Layer % 2}
			g, seen := ids[k]
			if !seen {
				g = len(last)
				ids[k] = g
				last, fails = append(last, x), append(fails, false)
			}
			if group[x] = g; seen {
				y := &s.Instances[last[g]]
				fails[g] = fails[g] || y.End > i || p.Tensors[y.Tensor].Bytes != t.Bytes
				before[x] = last[g]
			}
			last[g] = x
		}
	}
	if len(last) == 0 {
		return
	}
	for x, g := range group {
		if g >= 0 && fails[g] {
			group[x] = -1
		}
	}
	s.group, s.before = group, before
}

// rolling is the rolling buffer of instance x, -1 if it has none.
func (s *Schedule) rolling(x int) int {
	if s.group == nil {
		return -1
	}
	return s.group[x]
}

// issueRolling sets when rolling tensors are copied back: all those of a layer
// when the last of their buffers is left.
func (s *Schedule) issueRolling(p *Problem, issue []int) {
	if s.group == nil {
		return
	}
	free := map[int]int{} // by layer
	each := func(do func(i, x, layer int)) {
		for i := range s.Entries {
			if e := &s.Entries[i]; e.Kind == CopyIn && s.group[e.Out[0]] >= 0 {
				x := e.Out[0]
				do(i, x, p.Tensors[s.Instances[x].Tensor].Layer)
			}
		}
	}
	each(func(_, x, layer int) { free[layer] = max(free[layer], s.Instances[s.before[x]].End) })
	each(func(i, _, layer int) { issue[i] = min(i, free[layer]) })
}

// handovers follows who holds each rolling buffer through the entries.
type handovers struct {
	holder []int    // by group: the instance
	last   [][3]int // by group and lane: the last entry that touched it, -1 for none
	before [][3]int // the same of the holder before
}

func (s *Schedule) handovers() *handovers {
	if s.group == nil {
		return nil
	}
	n := 0
	for _, g := range s.group {
		n = max(n, g+1)
	}
	h := &handovers{filled(nil, n, -1), make([][3]int, n), make([][3]int, n)}
	for g := range n {
		h.last[g] = [3]int{-1, -1, -1}
	}
	return h
}

// touch adds to deps what entry i must wait for before it writes into rolling
// buffers: those that touched what lay there before, on other lanes.
func (h *handovers) touch(s *Schedule, i int, deps []int) []int {
	e := &s.Entries[i]
	lane := e.Lane()
	for _, x := range e.In {
		if g := s.group[x]; g >= 0 {
			h.last[g][lane] = i
		}
	}
	for _, x := range e.Out {
		g := s.group[x]
		if g < 0 {
			continue
		}
		if h.holder[g] != x {
			h.holder[g], h.before[g], h.last[g] = x, h.last[g], [3]int{-1, -1, -1}
		}
		for l, j := range h.before[g] {
			if j >= 0 && l != lane {
				deps = append(deps, j)
			}
		}
		h.last[g][lane] = i
	}
	return deps
}

// shareRolling puts instance x into its rolling buffer.
func (s *Schedule) shareRolling(p *Problem, x int) {
	in := &s.Instances[x]
	if y := s.before[x]; y >= 0 {
		in.Buffer = s.Instances[y].Buffer
		b := &s.Buffers[in.Buffer]
		b.End = max(b.End, in.End)
		return
	}
	in.Buffer = len(s.Buffers)
	s.Buffers = append(s.Buffers, Buffer{Bytes: s.bytes(p, x), First: in.First, End: in.End, Instance: x})
}

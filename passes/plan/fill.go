package plan

import (
	"cmp"
	"slices"
)

// fill brings back what fits: for budgets in steps of about a hundredth it
// takes the fastest plan that fits and keeps on the device whatever there is
// room for, dearest per byte first, until nothing is gained. The budgets are a
// grid between the least and the greatest peak of the path, not the user's, so
// that a larger one always has every plan of a smaller.
func (w *path) fill() {
	least, most := w.rungs[0].Peak, w.rungs[0].Peak
	for _, r := range w.rungs {
		least, most = min(least, r.Peak), max(most, r.Peak)
	}
	limit := w.work + w.atMost(fillWork)
	for target := least; target < most && w.work < limit; target = max(target+target/w.grain, target+1) {
		for range 4 {
			if !w.bringBack(w.fastest(target), target) {
				break
			}
		}
	}
}

// fillWork bounds the entries of all schedules built to fill one path's ladder.
const fillWork = 1 << 21

// fastest is the best rung that fits; the least peak always does.
func (w *path) fastest(target int64) *Rung {
	var best *Rung
	for i := range w.rungs {
		if r := &w.rungs[i]; r.Peak <= target && (best == nil || compareRungs(*r, *best) < 0) {
			best = r
		}
	}
	return best
}

// bringBack keeps what r moves and target has room for. It reports whether the
// result is a better plan for that room.
func (w *path) bringBack(r *Rung, target int64) bool {
	before := *r
	s := w.filled
	if w.filledBy != &before.Choice[0] {
		var err error
		if s, err = w.build(before.Choice); err != nil {
			return false
		}
		w.mem.drop(w.filled)
		w.filled, w.filledBy = s, &before.Choice[0]
	}
	room := target
	for range 2 {
		c := w.keepInto(before.Choice, s, room)
		if c == nil {
			return false
		}
		t, err := w.build(c)
		if err != nil {
			return false
		}
		w.add(c, t)
		if t.Peak <= target {
			if t.HostPeak > w.p.HostBytes || compareRungs(rungOf(c, t), before) >= 0 {
				w.mem.drop(t)
				return false
			}
			w.mem.drop(s)
			w.filled, w.filledBy = t, &w.rungs[len(w.rungs)-1].Choice[0]
			return true
		}
		room -= t.Peak - target // what was shared in place is no longer
		w.mem.drop(t)
	}
	return false
}

// stay is what it would take to keep a tensor, and what it would save.
type stay struct {
	tensor     int
	first, end int   // entries between its definition and its last use
	saved      int64 // nanoseconds
}

// keepInto is c with the tensors kept that fit below room beside what is alive
// in s, nil if none does.
func (w *path) keepInto(c []Choice, s *Schedule, room int64) []Choice {
	live := &w.mem.levels
	live.set(s.profileIn(w.p, &w.mem.live))
	stays, of := w.stays(c, s)
	move := func(t int, sign int64) {
		for i := of.first[t]; i >= 0; i = of.next[i] {
			live.raise(s.Instances[i].First, s.Instances[i].End, sign*s.bytes(w.p, i))
		}
	}
	var out []Choice
	for _, x := range stays {
		bytes := w.p.Tensors[x.tensor].Bytes
		move(x.tensor, -1)
		if live.max(x.first, x.end)+bytes > room {
			move(x.tensor, 1)
			continue
		}
		live.raise(x.first, x.end, bytes)
		if out == nil {
			out = slices.Clone(c)
		}
		out[x.tensor] = Keep
	}
	return out
}

// instances lists those of each tensor.
type instances struct {
	first []int // by tensor
	next  []int // by instance; -1 ends a list
}

// stays lists the tensors that leave and come back in s, what costs most per
// byte first, and the instances of each.
func (w *path) stays(c []Choice, s *Schedule) ([]stay, instances) {
	saved := w.saved(s)
	of := instances{filled(len(saved), -1), filled(len(s.Instances), -1)}
	for x, in := range s.Instances {
		if saved[in.Tensor] > 0 && in.First >= 0 {
			of.next[x] = of.first[in.Tensor]
			of.first[in.Tensor] = x
		}
	}
	var out []stay
	for t, ns := range saved {
		if ns == 0 || c[t] == Keep || w.p.Tensors[t].Bytes == 0 {
			continue
		}
		x := stay{t, len(s.Entries), 0, ns}
		for i := of.first[t]; i >= 0; i = of.next[i] {
			x.first, x.end = min(x.first, s.Instances[i].First), max(x.end, s.Instances[i].End)
		}
		out = append(out, x)
	}
	perByte := func(x stay) float64 { return float64(x.saved) / float64(w.p.Tensors[x.tensor].Bytes) }
	slices.SortFunc(out, func(a, b stay) int {
		return cmp.Or(cmp.Compare(perByte(b), perByte(a)), cmp.Compare(a.tensor, b.tensor))
	})
	return out, of
}

// saved is the time that keeping each tensor of s would save, in nanoseconds.
func (w *path) saved(s *Schedule) []int64 {
	saved := make([]int64, len(w.p.Tensors))
	for i := range s.Entries {
		switch e := &s.Entries[i]; e.Kind {
		case Clone:
			for _, x := range e.Out {
				saved[s.Instances[x].Tensor] += s.Duration(w.p, e) + 1
			}
		case CopyOut:
			t, bytes := s.Instances[e.In[0]].Tensor, s.moved(w.p, e.In[0], e)
			both := w.p.outTime(bytes) + w.p.inTime(bytes)
			if s.Stall == 0 {
				both /= 64 // hidden; yet less to move is better
			}
			saved[t] += both + 1
		}
	}
	return saved
}

package plan

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// lowerWork and climbWork bound the entries of all schedules built to lower
// one path's end, and to improve the plans on it.
const (
	lowerWork = 1 << 21
	climbWork = 1 << 16
)

// lower goes on from the least peak of the walk, one tensor at a time: whatever
// is alive at the peak is tried with every other choice, and the first that
// lowers the peak, or leaves fewer entries at it, is taken.
func (w *path) lower(work int64) {
	best := slices.MinFunc(w.rungs, func(a, b Rung) int { return cmp.Or(cmp.Compare(a.Peak, b.Peak), compareRungs(a, b)) })
	c := slices.Clone(best.Choice)
	s, err := w.build(c)
	limit := w.work + w.atMost(work)
	for err == nil && s != nil && w.work < limit {
		s = w.lowerOnce(c, s, limit)
	}
}

// lowerOnce changes one choice of c for the better and returns the schedule,
// nil if none is better.
func (w *path) lowerOnce(c []Choice, s *Schedule, limit int64) *Schedule {
	for _, t := range w.atPeak(s) {
		had := c[t]
		for _, k := range w.alternatives(t) {
			if k == had || w.work >= limit {
				continue
			}
			c[t] = k
			n, err := w.build(c)
			if err == nil && n.HostPeak <= w.p.HostBytes && (n.Peak < s.Peak || n.Peak == s.Peak && n.peaks < s.peaks) {
				w.add(c, n)
				w.mem.drop(s)
				return n
			}
			w.mem.drop(n)
		}
		c[t] = had
	}
	return nil
}

// alternatives lists the choices that this path has for t.
func (w *path) alternatives(t int) []Choice {
	x := &w.p.Tensors[t]
	if x.Output || x.Bytes == 0 || w.f.gap[t] <= 1 {
		return nil
	}
	out := []Choice{Keep}
	if w.swap && !x.Derived && !x.Spread {
		out = append(out, Swap, Swap|Tight)
	}
	if w.p.Ops[w.f.producer[t]].Clone && (w.remat || x.Derived) {
		out = append(out, Recompute, Recompute|Tight)
	}
	return out
}

// atPeak lists the tensors with an instance alive at the peak of s, largest
// first.
func (w *path) atPeak(s *Schedule) []int {
	var out []int
	seen := make([]bool, len(w.p.Tensors))
	for _, in := range s.Instances {
		if in.First <= s.PeakAt && s.PeakAt < in.End && !seen[in.Tensor] {
			seen[in.Tensor] = true
			out = append(out, in.Tensor)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.p.Tensors[b].Bytes, w.p.Tensors[a].Bytes), cmp.Compare(a, b))
	})
	return out
}

// climb improves the plans of the front by changing one choice at a time: every
// plan that no other beats in peak and time is tried, and so are those that this
// finds. First whatever moves is kept, then every choice is tried for every
// tensor. Problems for which a few such rounds are too much work are left as
// they are.
func (w *path) climb() {
	var tensors []int
	for t := range w.p.Tensors {
		if len(w.alternatives(t)) > 1 {
			tensors = append(tensors, t)
		}
	}
	if int64(len(tensors)*len(w.p.Ops)) > climbWork/16 {
		return
	}
	w.climbWith(tensors, climbWork, func(int) []Choice { return []Choice{Keep} })
	w.climbWith(tensors, climbWork/4, w.alternatives)
}

// climbWith climbs with the given choices for every tensor.
func (w *path) climbWith(tensors []int, work int64, choices func(t int) []Choice) {
	limit := w.work + work
	tried := map[string]bool{}
	for w.work < limit {
		r := w.next(tried)
		if r == nil {
			return
		}
		c := slices.Clone(r.Choice)
		for _, t := range tensors {
			had := c[t]
			for _, k := range choices(t) {
				if k == had || w.work >= limit {
					continue
				}
				c[t] = k
				s, err := w.build(c)
				if err == nil && !w.beaten(s) {
					w.add(c, s)
				}
				w.mem.drop(s)
			}
			c[t] = had
		}
	}
}

// beaten reports whether a rung is as good as s in peak and time.
func (w *path) beaten(s *Schedule) bool {
	for i := range w.rungs {
		if r := &w.rungs[i]; r.Peak <= s.Peak && (r.Time < s.Time || r.Time == s.Time && r.Moved <= s.Moved) {
			return true
		}
	}
	return false
}

// next is a plan of the front that has not been tried, the one with the least
// peak first; nil if all have.
func (w *path) next(tried map[string]bool) *Rung {
	order := slices.Clone(w.rungs)
	slices.SortStableFunc(order, compareRungs)
	front := (&Ladder{order}).Pareto()
	for i := len(front) - 1; i >= 0; i-- {
		key := keyOf(front[i].Choice)
		if !tried[key] {
			tried[key] = true
			return &front[i]
		}
	}
	return nil
}

// keyOf tells choices apart.
func keyOf(choice []Choice) string {
	key := make([]byte, 0, 4*len(choice))
	for _, c := range choice {
		key = binary.LittleEndian.AppendUint32(key, uint32(c))
	}
	return string(key)
}

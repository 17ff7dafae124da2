package plan

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
)

// lowerWork and climbWork bound the entries of all schedules built to lower one
// level's end from one start, and to improve the plans on it.
const (
	lowerWork = 1 << 18
	climbWork = 1 << 16
	// singlyWork is how many times as much work goes into single changes.
	singlyWork = 4
)

// lower goes on from the least peak within host bytes of host memory, and from
// that within half of them, which has room to copy more. The same choices are
// carried out within a little less, and whatever is alive at the peak is tried
// with every other choice, together with what is like it. With recomputation
// alone tensors are also changed one at a time, from where that starts: that is
// many more steps, each of which gives up less.
func (w *path) lower(host, work int64) {
	first := w.lowest(host)
	for _, from := range []int64{host / 2, host} {
		if k := w.lowest(from); k >= 0 {
			w.lowerFrom(k, host, work)
		}
	}
	if first >= 0 && !w.swap {
		w.lowerSingly(first, host, work*singlyWork)
	}
}

// lowerSingly takes, again and again, the first change for one tensor that
// lowers the peak or leaves fewer entries at it, and makes nothing wait.
func (w *path) lowerSingly(k int, host, work int64) {
	c := slices.Clone(w.rungs[k].Choice)
	s, err := w.build(c, 0)
	limit := w.work + w.atMost(work)
	for err == nil && s != nil && w.work < limit {
		next := w.lowerOneOf(c, s, host, limit)
		w.room.free(s)
		s = next
	}
	w.room.free(s)
}

// lowerOneOf makes such a change to c and returns the schedule, nil if there is
// none.
func (w *path) lowerOneOf(c []Choice, s *Schedule, host, limit int64) *Schedule {
	for _, t := range w.atPeak(s) {
		had := c[t]
		for _, k := range w.alternatives(t) {
			if k == had || w.work >= limit {
				continue
			}
			c[t] = k
			n, err := w.build(c, 0)
			if err == nil && n.HostPeak <= host && (n.Peak < s.Peak || n.Peak == s.Peak && n.peaks < s.peaks) {
				w.add(c, n, 0)
				return n
			}
			w.room.free(n)
		}
		c[t] = had
	}
	return nil
}

// lowest is the rung with the least peak within host bytes of host memory, -1
// if there is none.
func (w *path) lowest(host int64) int {
	best := -1
	for i := range w.rungs {
		if r := &w.rungs[i]; r.HostPeak <= host && (best < 0 ||
			cmp.Or(cmp.Compare(r.Peak, w.rungs[best].Peak), compareRungs(*r, w.rungs[best])) < 0) {
			best = i
		}
	}
	return best
}

func (w *path) lowerFrom(k int, host, work int64) {
	c := slices.Clone(w.rungs[k].Choice)
	s, err := w.build(c, w.rungs[k].Limit)
	limit := w.work + w.atMost(work)
	futile := map[change]bool{}
	for err == nil && s != nil && w.work < limit {
		next := w.lowerOnce(c, s, host, limit, futile)
		if next == nil && len(futile) > 0 { // once more with all of them
			clear(futile)
			next = w.lowerOnce(c, s, host, limit, futile)
		}
		w.room.free(s)
		s = next
	}
	w.room.free(s)
}

// change is another choice for a tensor, or that many like it.
type change struct {
	tensor, count int
	choice        Choice
}

// lowerTries is how many changes of choice a step of lower tries at most once
// it has one that is low enough.
const lowerTries = 8

// lowerOnce makes one change to c, or none but for waits, such that the peak is
// lower, and returns the schedule; nil if nothing does. The fastest that is a
// small part lower is taken, or else the lowest. Where no change for one tensor
// is, it may be the same for all like it. Changes that are futile are left out,
// and those that turn out to be are added.
func (w *path) lowerOnce(c []Choice, s *Schedule, host, limit int64, futile map[change]bool) *Schedule {
	target := s.Peak - max(s.Peak/40, 1)
	var best *Schedule
	var made []Choice
	worse := func(n *Schedule) bool {
		if low := max(n.Peak, best.Peak) <= target; low {
			return cmp.Or(cmp.Compare(n.Time, best.Time), cmp.Compare(n.Peak, best.Peak)) >= 0
		}
		return cmp.Or(cmp.Compare(n.Peak, best.Peak), cmp.Compare(n.peaks, best.peaks), cmp.Compare(n.Time, best.Time)) >= 0
	}
	try := func() bool {
		n, err := w.build(c, target)
		lower := err == nil && n.HostPeak <= host && (n.Peak < s.Peak || n.Peak == s.Peak && n.peaks < s.peaks)
		if !lower || best != nil && worse(n) {
			w.room.free(n)
			return lower
		}
		w.room.free(best)
		best, made = n, append(made[:0], c...)
		return true
	}
	if w.swap {
		try()
	}
	at := w.atPeak(s)
	for pass := 0; pass < 3 && (best == nil || pass < 2 && best.Peak > target); pass++ {
		tries := 0
		for _, t := range at {
			group := []int{t}
			if pass == 0 {
				group = w.alike(c, t)
			}
			had := c[t]
			for _, k := range w.alternatives(t) {
				x := change{group[0], len(group), k}
				if k == had || futile[x] || w.work >= limit || pass < 2 && tries >= lowerTries*(2-pass) {
					continue
				}
				tries++
				setAll(c, group, k)
				if !try() {
					futile[x] = true
				}
			}
			setAll(c, group, had)
		}
	}
	if best != nil {
		copy(c, made)
		w.add(c, best, target)
	}
	return best
}

func setAll(c []Choice, ts []int, k Choice) {
	for _, t := range ts {
		c[t] = k
	}
}

// alike lists the tensors that c treats like t and that are most probably the
// same in other layers: of its size, and made in as much time for as many uses.
func (w *path) alike(c []Choice, t int) []int {
	var out []int
	for _, u := range w.likes()[w.likeness(t)] {
		if c[u] == c[t] {
			out = append(out, u)
		}
	}
	return out
}

// likeness is what tensors have in common that are alike whatever is chosen.
type likeness struct {
	bytes, time int64
	uses        int
	skeletal    bool
}

func (w *path) likeness(t int) likeness {
	return likeness{w.p.Tensors[t].Bytes, w.p.Ops[w.f.producer[t]].Time, len(w.f.uses[t]), w.f.skeletal(t)}
}

// likes lists the tensors of each likeness, outputs left out.
func (w *path) likes() map[likeness][]int {
	if w.like == nil {
		w.like = map[likeness][]int{}
		for t := range w.p.Tensors {
			if k := w.likeness(t); !w.p.Tensors[t].Output {
				w.like[k] = append(w.like[k], t)
			}
		}
	}
	return w.like
}

// alternatives lists the choices that this path has for t.
func (w *path) alternatives(t int) []Choice {
	x := &w.p.Tensors[t]
	if x.Output || x.Bytes == 0 || w.f.gap[t] <= 1 {
		return nil
	}
	out := []Choice{Keep}
	if w.copied(t) {
		out = append(out, Swap, Swap|Tight)
	}
	if w.p.Ops[w.f.producer[t]].Clone && (w.remat || x.Derived) {
		out = append(out, Recompute, Recompute|Tight)
	}
	return out
}

// atPeak lists the tensors with an instance alive where the peak of s is
// reached, largest first.
func (w *path) atPeak(s *Schedule) []int {
	var out []int
	w.live.set(s.profile(w.p, &w.room))
	seen := make([]bool, len(w.p.Tensors))
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.First >= 0 && !seen[in.Tensor] && w.live.max(in.First, in.End) == s.Peak {
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
func (w *path) climb(host int64) {
	var tensors []int
	for t := range w.p.Tensors {
		if len(w.alternatives(t)) > 1 {
			tensors = append(tensors, t)
		}
	}
	if int64(len(tensors)*len(w.p.Ops)) > climbWork/16 {
		return
	}
	var keep, any [][]change
	for _, t := range tensors {
		keep = append(keep, []change{{t, 1, Keep}})
		for _, k := range w.alternatives(t) {
			any = append(any, []change{{t, 1, k}})
		}
	}
	w.climbWith(keep, host, climbWork)
	w.climbWith(any, host, climbWork/4)
	if len(w.p.Ops) <= tinyOps {
		w.climbWith(pairs(any), host, 2*climbWork)
	}
}

// pairs lists every two of the changes that are of different tensors.
func pairs(one [][]change) [][]change {
	var out [][]change
	for i, a := range one {
		for _, b := range one[:i] {
			if a[0].tensor != b[0].tensor {
				out = append(out, []change{a[0], b[0]})
			}
		}
	}
	return out
}

// exchange reports whether of two changes one takes a tensor from the host and
// the other brings one there.
func exchange(c []Choice, m []change) bool {
	goes := func(a, b change) bool {
		return c[a.tensor].Kind() == Swap && a.choice.Kind() != Swap && c[b.tensor].Kind() != Swap && b.choice.Kind() == Swap
	}
	return goes(m[0], m[1]) || goes(m[1], m[0])
}

// climbWith climbs with the given moves, each of one change or two. Where the
// host does not hold all that can be copied, of two changes one must make room
// there for the other.
func (w *path) climbWith(moves [][]change, host, work int64) {
	limit := w.work + work
	tried, full := map[string]bool{}, host < w.copyable()
	for w.work < limit {
		r := w.next(tried, host)
		if r == nil {
			return
		}
		from, peak := slices.Clone(r.Choice), r.Peak
		c := slices.Clone(from)
		for _, m := range moves {
			same := false
			for _, x := range m {
				same = same || from[x.tensor] == x.choice
				c[x.tensor] = x.choice
			}
			same = same || len(m) == 2 && full && !exchange(from, m)
			for _, within := range []int64{0, peak} {
				if same || w.work >= limit {
					break
				}
				s, err := w.build(c, within)
				if err == nil && s.HostPeak <= host && !w.beaten(s, host) {
					w.add(c, s, within)
				}
				w.room.free(s)
			}
			for _, x := range m {
				c[x.tensor] = from[x.tensor]
			}
		}
	}
}

// beaten reports whether a rung is as good as s in peak and time.
func (w *path) beaten(s *Schedule, host int64) bool {
	for i := range w.rungs {
		if r := &w.rungs[i]; r.fits(s.Peak, host) && (r.Time < s.Time || r.Time == s.Time && r.Moved <= s.Moved) {
			return true
		}
	}
	return false
}

// next is a plan of the front that has not been tried, the one with the least
// peak first; nil if all have.
func (w *path) next(tried map[string]bool, host int64) *Rung {
	order := slices.DeleteFunc(slices.Clone(w.rungs), func(r Rung) bool { return r.HostPeak > host })
	slices.SortStableFunc(order, compareRungs)
	front := (&Ladder{order}).Pareto()
	for i := len(front) - 1; i >= 0; i-- {
		key := keyOf(front[i].Choice) + strconv.FormatInt(front[i].Limit, 10)
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

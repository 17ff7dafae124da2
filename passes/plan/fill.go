package plan

import (
	"cmp"
	"math"
	"slices"
)

// fill looks for faster plans within host bytes of host memory, for budgets of
// device memory in steps of one part in fillSteps. Of each it takes the fastest
// plan so far and, until nothing is gained, lets slower copies of a larger one
// wait for room, copies what is made again while the host has room, and keeps
// on the device whatever there is room for. The budgets are a grid between the
// least and the greatest peak of the path, not the user's, so that a larger one
// always has every plan of a smaller.
func (w *path) fill(host, work int64) {
	least, most := int64(math.MaxInt64), int64(0)
	for i := range w.rungs {
		if r := &w.rungs[i]; r.HostPeak <= host {
			least, most = min(least, r.Peak), max(most, r.Peak)
		}
	}
	limit, steps := w.work+w.atMost(work), int64(fillSteps)
	large := len(w.p.Ops) > 1024
	if large {
		steps = fillSteps / 4
	}
	before := least
	for target := least; target < most && w.work < limit; target = max(target+target/steps, target+1) {
		w.improveAt(target, host)
		if large && before < target {
			w.fillBetween(before, target, host, limit)
		}
		before = target
	}
}

// improveAt makes the fastest plan for a budget faster, a few times over.
func (w *path) improveAt(target, host int64) {
	for range 4 {
		if !w.improve(target, host) {
			break
		}
	}
}

// fillBetween tries the budgets between two that were tried, the middle first,
// as long as there is 1/256 of the time to be gained between them.
func (w *path) fillBetween(low, high, host, limit int64) {
	slow, fast := w.rungs[w.fastest(low, host)].Time, w.rungs[w.fastest(high, host)].Time
	if w.work >= limit || (high-low)*2*fillSteps <= low || slow-fast <= fast/256 {
		return
	}
	mid := low + (high-low)/2
	w.improveAt(mid, host)
	w.fillBetween(low, mid, host, limit)
	w.fillBetween(mid, high, host, limit)
}

// fillSteps is the number of steps of fill between a budget and its double,
// and fillWork bounds the entries of all schedules built to fill one level.
const (
	fillSteps = 48
	fillWork  = 1 << 20
)

// fits reports whether r is a plan for these limits.
func (r *Rung) fits(target, host int64) bool { return r.Peak <= target && r.HostPeak <= host }

// fastest is the best rung that fits; the least peak always does.
func (w *path) fastest(target, host int64) int {
	best := -1
	for i := range w.rungs {
		if r := &w.rungs[i]; r.fits(target, host) && (best < 0 || compareRungs(*r, w.rungs[best]) < 0) {
			best = i
		}
	}
	return best
}

// improve makes the fastest plan for these limits faster, and reports whether
// it could.
func (w *path) improve(target, host int64) bool {
	k := w.fastest(target, host)
	better := w.squeeze(k, target, host)
	if better {
		k = len(w.rungs) - 1
	}
	r := w.rungs[k]
	if !w.swap && !w.remat || r.Moved == 0 && r.Extra == 0 {
		return better
	}
	s, err := w.build(r.Choice, r.Limit)
	if err != nil {
		return better
	}
	defer w.room.free(s)
	if w.try(w.copyInto(r.Choice, s, host), target, host, &r) == stepBetter {
		return true
	}
	room := target
	for range 2 {
		switch w.try(w.keepInto(r.Choice, s, room), target, host, &r) {
		case stepBetter:
			return true
		case stepNone:
			return better
		}
		room -= w.over // what was shared in place is no longer
	}
	return better
}

// outcome is what became of a change to a plan.
type outcome uint8

const (
	stepNone   outcome = iota // nothing changed, or for the worse
	stepBetter                // it fits, and is better
	stepOver                  // it does not fit
)

// try carries out choices in place of those of r, which fits target and host.
func (w *path) try(c []Choice, target, host int64, r *Rung) outcome {
	if c == nil {
		return stepNone
	}
	s, err := w.build(c, target)
	if err != nil {
		return stepNone
	}
	defer w.room.free(s)
	n := rungOf(s)
	if n.HostPeak > host {
		return stepNone
	}
	w.add(c, s, target)
	switch {
	case n.Peak > target:
		w.over = n.Peak - target
		return stepOver
	case compareRungs(n, *r) < 0:
		return stepBetter
	}
	return stepNone
}

// squeeze carries out faster plans that need more than target, and the fastest
// that does not, within it, and reports whether one of them became the fastest.
func (w *path) squeeze(k int, target, host int64) bool {
	r := w.rungs[k]
	tried := 0
	better := r.Stall > 0 && r.Limit != target && w.try(r.Choice, target, host, &r) == stepBetter
	if better {
		r = w.rungs[len(w.rungs)-1]
	}
	for tried < squeezeTries {
		next := -1
		for i := range w.rungs {
			q := &w.rungs[i]
			if q.Peak > target && q.Peak <= target+target/4 && q.floor <= target && q.squeezed > target && q.HostPeak <= host && q.Time < r.Time &&
				(next < 0 || compareRungs(*q, w.rungs[next]) < 0) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		tried++
		w.rungs[next].squeezed = target
		if w.try(w.rungs[next].Choice, target, host, &r) == stepBetter {
			return true
		}
	}
	return better
}

// squeezeTries is how many faster plans are tried within a budget below theirs.
const squeezeTries = 3

// gain is what changing the choice for a tensor would save.
type gain struct {
	tensor     int
	first, end int   // entries between its definition and its last use
	saved      int64 // nanoseconds
}

// copyInto is c with tensors copied that s makes again, dearest per byte first,
// as far as the host has room; nil if none is.
func (w *path) copyInto(c []Choice, s *Schedule, host int64) []Choice {
	if !w.swap || s.Extra == 0 || s.HostPeak >= host {
		return nil
	}
	gains, _ := w.gains(c, s)
	var out []Choice
	used := s.HostPeak
	for _, x := range gains {
		bytes := w.p.Tensors[x.tensor].Bytes
		if c[x.tensor].Kind() != Recompute || !w.copied(x.tensor) || !w.f.skeletal(x.tensor) || used+bytes > host {
			continue
		}
		if out == nil {
			out = slices.Clone(c)
		}
		used += bytes
		out[x.tensor] = Swap
	}
	return out
}

// keepInto is c with the tensors kept that fit below room beside what is alive
// in s, nil if none does.
func (w *path) keepInto(c []Choice, s *Schedule, room int64) []Choice {
	w.live.set(s.profile(w.p, &w.room))
	gains, of := w.gains(c, s)
	var out []Choice
	for _, x := range gains {
		bytes := w.p.Tensors[x.tensor].Bytes
		for _, i := range of[x.tensor] {
			w.live.raise(s.Instances[i].First, s.Instances[i].End, -s.bytes(w.p, i))
		}
		if w.live.max(x.first, x.end)+bytes > room {
			for _, i := range of[x.tensor] {
				w.live.raise(s.Instances[i].First, s.Instances[i].End, s.bytes(w.p, i))
			}
			continue
		}
		w.live.raise(x.first, x.end, bytes)
		if out == nil {
			out = slices.Clone(c)
		}
		out[x.tensor] = Keep
	}
	return out
}

func addTo(live []int64, bytes int64) {
	for i := range live {
		live[i] += bytes
	}
}

// gains lists the tensors that leave and come back in s, what costs most per
// byte first, and the instances of each.
func (w *path) gains(c []Choice, s *Schedule) ([]gain, map[int][]int) {
	w.saved = resized(w.saved, len(w.p.Tensors))
	saved := w.saved
	clear(saved)
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
	of := map[int][]int{}
	for x := range s.Instances {
		if in := &s.Instances[x]; saved[in.Tensor] > 0 && in.First >= 0 {
			of[in.Tensor] = append(of[in.Tensor], x)
		}
	}
	var out []gain
	for t, ns := range saved {
		if ns == 0 || c[t] == Keep || w.p.Tensors[t].Bytes == 0 {
			continue
		}
		x := gain{t, len(s.Entries), 0, ns}
		for _, i := range of[t] {
			x.first, x.end = min(x.first, s.Instances[i].First), max(x.end, s.Instances[i].End)
		}
		out = append(out, x)
	}
	perByte := func(x gain) float64 { return float64(x.saved) / float64(w.p.Tensors[x.tensor].Bytes) }
	slices.SortFunc(out, func(a, b gain) int {
		return cmp.Or(cmp.Compare(perByte(b), perByte(a)), cmp.Compare(a.tensor, b.tensor))
	})
	return out, of
}

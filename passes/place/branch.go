package place

// branch takes one section and tries each buffer that may lie on it next.
func (x *exact) branch(items []int32, lo, hi int32) verdict {
	key := x.key(items, lo, hi)
	if x.tech.Memory && x.dead.has(key) {
		return fails
	}
	t := x.choose(items, lo, hi)
	mark := len(x.stack)
	defer func() { x.stack = x.stack[:mark] }()
	for _, k := range items {
		if x.covers(k, t) && x.flat(k) && x.supported(k) {
			x.stack = append(x.stack, k)
		}
	}
	cands := x.stack[mark:]
	x.order(cands)
	f := x.floor[t]
	for _, k := range cands {
		undo := len(x.trail)
		v := x.put(k, items, lo, hi)
		if v == fits {
			return fits
		}
		x.undo(undo)
		x.done[k] = false
		x.addRest(k, x.in.size[k])
		if v == stops {
			return stops
		}
	}
	if f+x.rest[t] < x.cap {
		undo := len(x.trail)
		if v := x.leave(t, items, cands, lo, hi); v != fails {
			return v
		}
		x.undo(undo)
	}
	if x.tech.Memory {
		x.dead.add(key)
	}
	return fails
}

// put places k flat on the skyline and goes on.
func (x *exact) put(k int32, items []int32, lo, hi int32) verdict {
	in := x.in
	at := x.low[k]
	top := at + in.size[k]
	x.off[k], x.done[k] = at, true
	x.addRest(k, -in.size[k])
	mark := len(x.stack)
	for _, j := range items {
		if j != k {
			x.stack = append(x.stack, j)
		}
	}
	rest := x.stack[mark:len(x.stack):len(x.stack)]
	defer func() { x.stack = x.stack[:mark] }()
	var buf [1]span
	for _, s := range in.active(int(k), &buf) {
		for t := s.lo; t < s.hi; t++ {
			x.set(&x.base[t], top)
		}
		if !x.raise(rest, s.lo, s.hi, top) {
			return fails
		}
	}
	return x.node(rest, lo, hi)
}

func (x *exact) addRest(k int32, size int64) {
	var buf [1]span
	for _, s := range x.in.active(int(k), &buf) {
		for t := s.lo; t < s.hi; t++ {
			x.rest[t] += size
		}
	}
}

// flat reports whether all sections of k have one floor, the one it lies on.
func (x *exact) flat(k int32) bool {
	l := x.in.life[k]
	if x.in.spans[k] == nil {
		return x.level[l.lo] >= l.hi
	}
	f := x.floor[l.lo]
	for _, s := range x.in.spans[k] {
		if x.floor[s.lo] != f || x.level[s.lo] < s.hi {
			return false
		}
	}
	return true
}

// supported reports whether k would lie on a buffer or on the ground, and is the
// first of its twins. One that floats could be pushed down, which another branch
// does; twins can be exchanged.
func (x *exact) supported(k int32) bool {
	if j := x.twin[k]; x.tech.Twins && j >= 0 && !x.done[j] {
		return false
	}
	in := x.in
	if in.fixed[k] >= 0 {
		l := in.life[k]
		return x.floor[l.lo] == in.fixed[k]
	}
	if !x.tech.Support {
		return true
	}
	var buf [1]span
	var high int64
	for _, s := range in.active(int(k), &buf) {
		for t := s.lo; t < s.hi; t++ {
			high = max(high, x.base[t])
		}
	}
	return x.clear(k, high) == x.low[k]
}

// leave says that no candidate lies on the floor of section t, and raises it.
func (x *exact) leave(t int32, items, cands []int32, lo, hi int32) verdict {
	in := x.in
	f, next := x.floor[t], never
	reach := span{t, t + 1}
	for _, k := range x.cover[t] {
		if !x.done[k] && x.low[k] == f {
			reach.lo = min(reach.lo, in.life[k].lo)
			reach.hi = max(reach.hi, in.life[k].hi)
		}
	}
	for _, k := range items {
		l := in.life[k]
		switch {
		case l.lo >= reach.hi || l.hi <= reach.lo:
		case !x.covers(k, t):
			// A candidate pushed up lies on one of these, or on a floor
			// that is higher already.
			next = min(next, x.low[k]+in.size[k])
		case x.low[k] > f:
			next = min(next, x.low[k])
		}
	}
	x.work -= int64(len(items))
	next = max(next, f+1)
	if next+x.rest[t] > x.cap || !x.raise(items, t, t+1, next) {
		return fails
	}
	if x.tech.Support && !in.crooked {
		for _, k := range cands {
			if x.sinks(k) {
				return fails
			}
		}
	}
	return x.node(items, lo, hi)
}

// sinks reports whether k fits whole into space that has been given up.
func (x *exact) sinks(k int32) bool {
	l := x.in.life[k]
	high, floor := int64(0), never
	for t := l.lo; t < l.hi; t++ {
		high = max(high, x.base[t])
		floor = min(floor, x.floor[t])
	}
	return high+x.in.size[k] <= floor
}

// choose picks the section to branch on and fills in level for this skyline.
func (x *exact) choose(items []int32, lo, hi int32) int32 {
	x.work -= int64(len(items)) + 2*int64(hi-lo)
	end := hi
	for t := hi - 1; t >= lo; t-- {
		if t+1 < hi && (x.floor[t] != x.floor[t+1] || x.rest[t] == 0 || x.rest[t+1] == 0) {
			end = t + 1
		}
		x.level[t] = end
	}
	run := x.run[lo : hi+1]
	clear(run)
	for _, k := range items {
		if l := x.in.life[k]; x.flat(k) {
			run[l.lo-lo]++
			run[l.hi-lo]--
		}
	}
	best, where := 0.0, int32(-1)
	count, wall := int32(0), never
	for t := lo; t < hi; {
		e := x.level[t]
		f := x.floor[t]
		right := never
		if e < hi && x.rest[e] > 0 {
			right = x.floor[e]
		}
		valley := x.rest[t] > 0 && wall > f && right > f
		for ; t < e; t++ {
			count += run[t-lo]
			if !valley {
				continue
			}
			if v := x.worth(t, count); where < 0 || v < best {
				best, where = v, t
			}
		}
		wall = never
		if x.rest[e-1] > 0 {
			wall = f
		}
	}
	return where
}

// worth rates a section for branching; less is better.
func (x *exact) worth(t, count int32) float64 {
	choices := float64(count)
	if x.floor[t]+x.rest[t] < x.cap {
		choices++
	}
	pick := x.plan.pick
	if x.in.crooked || x.in.gapped {
		pick = pickLowest // the others need flat floors to be exact
	}
	switch pick {
	case pickFewest:
		return choices + float64(x.floor[t])/float64(x.cap+1)
	case pickTrouble:
		return choices / (1 + x.weight[t])
	}
	return float64(x.floor[t]) + choices/float64(len(x.low)+2)
}

// order sorts candidates, the most promising first.
func (x *exact) order(cands []int32) {
	for i := range cands {
		for j := i; j > 0; j-- {
			a, b := cands[j-1], cands[j]
			if x.score(b) <= x.score(a) {
				break
			}
			cands[j-1], cands[j] = b, a
		}
	}
}

func (x *exact) score(k int32) float64 {
	in := x.in
	life := float64(in.life[k].hi - in.life[k].lo)
	size := float64(in.size[k])
	var v float64
	switch x.plan.score {
	case scoreSize:
		v = size
	case scoreLife:
		v = life + size/float64(x.cap)
	case scoreArea:
		v = size * life
	case scoreSmall:
		v = 1 / size
	}
	if x.plan.noise > 0 {
		v *= 1 + x.plan.noise*float64(mix64(uint64(k), x.plan.seed)>>11)/(1<<53)
	}
	return v
}

// key names the state of a stretch: the items to place and the floors.
func (x *exact) key(items []int32, lo, hi int32) uint64 {
	h := mix64(uint64(x.cap), 11)
	for _, k := range items {
		h ^= x.name[k]
	}
	for t := lo; t < hi; t++ {
		if x.rest[t] > 0 {
			h = mix64(h^uint64(x.floor[t]), uint64(t))
			if x.tech.Support && x.base[t] != x.floor[t] {
				// What supports a buffer is part of the state.
				h = mix64(h^uint64(x.base[t]), uint64(t))
			}
		}
	}
	x.work -= int64(len(items)) + 3*int64(hi-lo)
	return h
}

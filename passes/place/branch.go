package place

// branch takes one section and tries each buffer that may lie on it next.
func (x *exact) branch(lo, hi int32) verdict {
	var key uint64
	if x.tech.Memory {
		if key = x.key(lo, hi); x.dead.has(key) {
			return fails
		}
	}
	t := x.choose(lo, hi)
	valley := x.valley(t, lo, hi)
	mark := len(x.stack)
	defer func() { x.stack = x.stack[:mark] }()
	for _, k := range x.cover[t] {
		if !x.done[k] && x.flat(k, valley) && x.supported(k) {
			x.stack = append(x.stack, k)
		}
	}
	cands := x.stack[mark:len(x.stack):len(x.stack)]
	x.work -= int64(len(x.cover[t]))
	x.order(cands)
	undo := len(x.trail)
	for _, k := range cands {
		if v := x.put(k, lo, hi); v != fails {
			return v
		}
		x.undo(undo)
	}
	if x.floor[t]+x.rest[t] < x.cap {
		if v := x.leave(t, cands, lo, hi); v != fails {
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
func (x *exact) put(k, lo, hi int32) verdict {
	in := x.in
	x.off[k] = x.low[k]
	top := x.low[k] + in.size[k]
	x.trail = append(x.trail, change{placedItem, k, 0})
	x.place(k, true)
	x.unwatch(k)
	var buf [1]span
	for _, s := range in.active(int(k), &buf) {
		for t := s.lo; t < s.hi; t++ {
			x.trail = append(x.trail, change{changedBase, t, x.base[t]})
			x.base[t] = top
		}
		if !x.raise(s.lo, s.hi, top) {
			x.dirty = x.dirty[:0]
			return fails
		}
	}
	if !x.settle() {
		return fails
	}
	return x.node(lo, hi)
}

// leave says that no candidate lies on the floor of section t, and raises it.
func (x *exact) leave(t int32, cands []int32, lo, hi int32) verdict {
	in := x.in
	f, next := x.floor[t], never
	reach := span{t, t + 1}
	for _, k := range x.cover[t] {
		switch {
		case x.done[k]:
		case x.low[k] == f:
			reach.lo = min(reach.lo, in.life[k].lo)
			reach.hi = max(reach.hi, in.life[k].hi)
		default:
			next = min(next, x.low[k])
		}
	}
	// A candidate that lies higher lies on one of those that do not cover t.
	next = min(next, x.lowestTop(x.cover[reach.lo], t))
	for s := reach.lo + 1; s < reach.hi; s++ {
		next = min(next, x.lowestTop(x.enter[s], t))
	}
	next = max(next, f+1)
	if next+x.rest[t] > x.cap || !x.raise(t, t+1, next) {
		x.dirty = x.dirty[:0]
		return fails
	}
	if x.tech.Support && !in.crooked && !in.gapped {
		for _, k := range cands {
			if x.sinks(k) {
				x.dirty = x.dirty[:0]
				return fails
			}
		}
	}
	if !x.settle() {
		return fails
	}
	return x.node(lo, hi)
}

// lowestTop is the least height that an item of the list reaches, if it is to
// place and does not cover t.
func (x *exact) lowestTop(list []int32, t int32) int64 {
	top := never
	for _, k := range list {
		if !x.done[k] && !x.covers(k, t) {
			top = min(top, x.low[k]+x.in.size[k])
		}
	}
	x.work -= int64(len(list)) + 1
	return top
}

func (x *exact) covers(k, t int32) bool {
	l := x.in.life[k]
	return l.lo <= t && t < l.hi && (x.in.spans[k] == nil || meets(x.in.spans[k], t, t+1))
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

// valley returns the stretch of equal floor around section t.
func (x *exact) valley(t, lo, hi int32) span {
	v := span{t, t + 1}
	for v.lo > lo && x.floor[v.lo-1] == x.floor[t] && x.rest[v.lo-1] > 0 {
		v.lo--
	}
	for v.hi < hi && x.floor[v.hi] == x.floor[t] && x.rest[v.hi] > 0 {
		v.hi++
	}
	return v
}

// flat reports whether all sections of k have the floor of a valley.
func (x *exact) flat(k int32, valley span) bool {
	l := x.in.life[k]
	if x.in.spans[k] == nil {
		return valley.lo <= l.lo && l.hi <= valley.hi
	}
	for _, s := range x.in.spans[k] {
		for t := s.lo; t < s.hi; t++ {
			if x.floor[t] != x.floor[valley.lo] {
				return false
			}
		}
	}
	return true
}

// supported reports whether k would lie on a buffer or on the ground, and is the
// first of its twins. One that floats could be pushed down, which another branch
// does; twins can be exchanged.
func (x *exact) supported(k int32) bool {
	in := x.in
	if j := x.twin[k]; x.tech.Twins && j >= 0 && !x.done[j] {
		return false
	}
	if in.fixed[k] >= 0 {
		return x.floor[in.life[k].lo] == in.fixed[k]
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
	if in.crooked {
		high = x.lowest(k, high)
	}
	return high == x.low[k]
}

// key names the state of a stretch: the items to place and the floors and, where
// it matters, what supports a buffer.
func (x *exact) key(lo, hi int32) uint64 {
	h := mix64(uint64(x.cap), 11)
	var sum uint64
	for t := lo; t < hi; t++ {
		h ^= x.born[t]
		if x.rest[t] == 0 {
			continue
		}
		sum += mix64(uint64(x.floor[t]), uint64(t)+1)
		if x.tech.Support && x.base[t] != x.floor[t] {
			sum += mix64(uint64(x.base[t]), ^uint64(t))
		}
	}
	x.work -= int64(hi - lo)
	return mix64(h, sum)
}

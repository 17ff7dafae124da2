package place

import "slices"

// never is above any offset. Validate keeps the sum of all sizes below it, so
// never and an offset can be added.
const never = int64(1) << 62

// verdict is what a subtree of the search says.
type verdict int8

const (
	fails verdict = iota // no placement of these buffers on this skyline
	fits                 // placed; offsets are in place
	stops                // out of work
)

// exact is a complete search for a placement below a ceiling.
//
// A placement in which every buffer is pushed down as far as it goes can be
// built from below: at every moment the placed buffers form a skyline, the
// height of each section, and the next buffer lies flat on it. So the state is
// the skyline and the set of buffers still to come. A node of the search takes a
// section in a valley of the skyline and asks which buffer lies there next: one
// that fits flat into the valley, or none, and then the floor of the section
// rises to the next height at which a buffer could lie. These cases exclude each
// other, so no placement is met twice.
type exact struct {
	in   *instance
	tech *Techniques
	cap  int64
	plan strategy

	cover  [][]int32 // by section: items live there
	enter  [][]int32 // by section: items one of whose spans starts there
	floor  []int64   // by section: no further buffer lies below this
	base   []int64   // by section: top of the highest buffer placed
	rest   []int64   // by section: sum of sizes still to place
	cross  []int32   // by section: items to place that live here and one before
	born   []uint64  // by section: names of the items to place that start here, mixed
	weight []float64 // by section: grows with each failure there
	low    []int64   // by item: no offset below this is possible
	done   []bool    // by item: placed
	off    []int64   // by item: offset when placed
	twin   []int32   // by item: the one before it that is just like it, or -1
	name   []uint64  // by item: random bits for hashing

	taken [][]addresses // by item: where fixed items keep it out
	watch watches
	trail []change
	dirty []int32 // sections to settle
	stack []int32 // memory for lists of the nodes on the path
	run   []int32 // by section: scratch of one node
	dead  *deadSet
	work  int64 // steps left; negative means stop
	halt  func() bool
	nodes int64
}

// change is an entry to undo.
type change struct {
	what kind
	at   int32
	old  int64
}

type kind int8

const (
	changedFloor kind = iota
	changedBase
	changedLow
	changedWatch
	placedItem
)

func newExact(in *instance, tech *Techniques) *exact {
	n, m := in.n, len(in.load)
	x := &exact{in: in, tech: tech, dead: newDeadSet(), halt: func() bool { return false },
		cover: make([][]int32, m), enter: make([][]int32, m),
		floor: make([]int64, m), base: make([]int64, m), rest: make([]int64, m), cross: make([]int32, m),
		born: make([]uint64, m), weight: make([]float64, m), run: make([]int32, m+1),
		low: make([]int64, n), done: make([]bool, n), off: make([]int64, n), twin: make([]int32, n), name: make([]uint64, n)}
	x.taken = in.fixedRanges()
	x.watch = newWatches(n, m)
	type look struct {
		life        span
		size, align int64
	}
	last := map[look]int32{}
	var buf [1]span
	for k := range int32(n) {
		x.name[k] = mix64(uint64(k)+1, 0x5bd1e995)
		x.twin[k] = -1
		if l := (look{in.life[k], in.size[k], in.align[k]}); in.spans[k] == nil && in.fixed[k] < 0 {
			if j, ok := last[l]; ok {
				x.twin[k] = j
			}
			last[l] = k
		}
		for _, s := range in.active(int(k), &buf) {
			x.enter[s.lo] = append(x.enter[s.lo], k)
			for t := s.lo; t < s.hi; t++ {
				x.cover[t] = append(x.cover[t], k)
			}
		}
	}
	return x
}

// top is the height of the placement that decide has found.
func (x *exact) top() int64 {
	var top int64
	for k, at := range x.off {
		top = max(top, at+x.in.size[k])
	}
	return top
}

// decide looks for a placement whose top is at most ceiling, within the given
// steps of work.
func (x *exact) decide(ceiling int64, plan strategy, work int64) verdict {
	in := x.in
	x.cap, x.plan, x.work = ceiling, plan, work
	clear(x.floor)
	clear(x.base)
	clear(x.done)
	clear(x.cross)
	clear(x.born)
	copy(x.rest, in.load)
	x.watch.reset()
	x.trail, x.stack, x.dirty = x.trail[:0], x.stack[:0], x.dirty[:0]
	for t, l := range in.load {
		if l > ceiling {
			return fails
		}
		x.dirty = append(x.dirty, int32(t))
	}
	for k := range int32(in.n) {
		if x.low[k] = in.fixed[k]; x.low[k] < 0 {
			x.low[k] = x.lowest(k, 0)
		}
		if x.low[k]+in.size[k] > ceiling {
			return fails
		}
		x.born[in.life[k].lo] ^= x.name[k]
		x.count(k, 1)
	}
	if !x.settle() {
		return fails
	}
	return x.node(0, int32(len(in.load)))
}

// count adds d to the number of items that cross into each section of k's life.
func (x *exact) count(k int32, d int32) {
	l := x.in.life[k]
	for t := l.lo + 1; t < l.hi; t++ {
		x.cross[t] += d
	}
}

// lowest returns the lowest offset from at up that k may have, by its alignment
// and the fixed buffers it conflicts with.
func (x *exact) lowest(k int32, at int64) int64 {
	in := x.in
	at = roundUp(at, in.align[k])
	for _, r := range x.taken[k] {
		if at+in.size[k] <= r.lo {
			break
		}
		if at < r.hi {
			at = roundUp(r.hi, in.align[k])
		}
	}
	x.work -= int64(len(x.taken[k]))
	return at
}

// addresses is a range of offsets, half-open.
type addresses struct{ lo, hi int64 }

// fixedRanges lists, for each item to place, the addresses of the fixed items it
// conflicts with, ascending and joined: a stack of them is one range.
func (in *instance) fixedRanges() [][]addresses {
	taken := make([][]addresses, in.n)
	pins := slices.Clone(in.pinned)
	slices.SortStableFunc(pins, func(a, b int32) int { return compare(in.fixed[a], in.fixed[b]) })
	for k := range int32(in.n) {
		for _, f := range pins {
			if in.fixed[k] >= 0 || !in.conflict(k, f) {
				continue
			}
			r := addresses{in.fixed[f], in.fixed[f] + in.size[f]}
			if n := len(taken[k]); n > 0 && r.lo <= taken[k][n-1].hi {
				taken[k][n-1].hi = max(taken[k][n-1].hi, r.hi)
			} else {
				taken[k] = append(taken[k], r)
			}
		}
	}
	return taken
}

func (x *exact) setFloor(t int32, v int64) {
	x.trail = append(x.trail, change{changedFloor, t, x.floor[t]})
	x.floor[t] = v
}

// undo takes everything back to a point of the trail.
func (x *exact) undo(mark int) {
	for i := len(x.trail) - 1; i >= mark; i-- {
		switch c := x.trail[i]; c.what {
		case changedFloor:
			x.floor[c.at] = c.old
		case changedBase:
			x.base[c.at] = c.old
		case changedLow:
			x.low[c.at] = c.old
		case changedWatch:
			x.watch.set(c.at, int32(c.old))
		case placedItem:
			x.place(c.at, false)
		}
	}
	x.trail = x.trail[:mark]
}

// place marks k as placed or, again, to place.
func (x *exact) place(k int32, done bool) {
	in := x.in
	size, d := in.size[k], int32(1)
	if done {
		size, d = -size, -1
	}
	x.done[k] = done
	x.born[in.life[k].lo] ^= x.name[k]
	x.count(k, d)
	var buf [1]span
	for _, s := range in.active(int(k), &buf) {
		for t := s.lo; t < s.hi; t++ {
			x.rest[t] += size
		}
	}
	x.work -= int64(in.life[k].hi - in.life[k].lo)
}

// raise lifts the floors of sections [lo,hi) to v and pushes up the items above.
func (x *exact) raise(lo, hi int32, v int64) bool {
	for t := lo; t < hi; t++ {
		if x.floor[t] < v {
			x.setFloor(t, v)
			if x.rest[t] > 0 && v+x.rest[t] > x.cap {
				return x.blame(t)
			}
		}
	}
	if !x.push(x.cover[lo], v) {
		return false
	}
	for t := lo + 1; t < hi; t++ {
		if !x.push(x.enter[t], v) {
			return false
		}
	}
	return true
}

// push says of the items in a list that they cannot lie below v.
func (x *exact) push(list []int32, v int64) bool {
	in := x.in
	x.work -= int64(len(list)) + 1
	for _, k := range list {
		if x.low[k] >= v || x.done[k] {
			continue
		}
		at := v
		if in.crooked {
			if in.fixed[k] >= 0 {
				return x.blame(in.life[k].lo)
			}
			at = x.lowest(k, v)
		}
		if at+in.size[k] > x.cap {
			return x.blame(in.life[k].lo)
		}
		x.trail = append(x.trail, change{changedLow, k, x.low[k]})
		x.low[k] = at
		x.unwatch(k)
	}
	return true
}

// blame records that section t was the end of a branch.
func (x *exact) blame(t int32) bool {
	x.weight[t]++
	return false
}

// unwatch makes the sections that rely on item k dirty.
func (x *exact) unwatch(k int32) {
	for t := x.watch.first[k]; t >= 0; t = x.watch.first[k] {
		x.setWatch(t, -1)
		x.dirty = append(x.dirty, t)
	}
}

func (x *exact) setWatch(t, k int32) {
	x.trail = append(x.trail, change{changedWatch, t, int64(x.watch.item[t])})
	x.watch.set(t, k)
}

// settle raises every floor on which no item can lie. Each dirty section needs to
// be looked at once: a floor rises to the lowest offset possible there, so no
// item is pushed up by it.
func (x *exact) settle() bool {
	ok := true
	for _, t := range x.dirty {
		if !ok || x.rest[t] == 0 || x.watch.item[t] >= 0 {
			continue
		}
		f, v, who := x.floor[t], never, int32(-1)
		for _, k := range x.cover[t] {
			if !x.done[k] && x.low[k] < v {
				who = k
				if v = x.low[k]; v == f {
					break
				}
			}
		}
		x.work -= int64(len(x.cover[t]))
		if v > f {
			x.setFloor(t, v)
			if v+x.rest[t] > x.cap {
				ok = x.blame(t)
				continue
			}
		}
		x.setWatch(t, who)
	}
	x.dirty = x.dirty[:0]
	return ok
}

// node decides whether the items to place in sections [lo,hi) can be. Items that
// share no section are independent, so it splits the stretch where none crosses,
// and solves short parts first: they fail soonest.
func (x *exact) node(lo, hi int32) verdict {
	x.nodes++
	if x.work < 0 || x.nodes&1023 == 0 && x.halt() {
		x.work = -1
		return stops
	}
	x.work -= int64(hi - lo)
	mark := len(x.stack)
	defer func() { x.stack = x.stack[:mark] }()
	for t := lo; t < hi; {
		from, left := t, false
		for ; t < hi && (t == from || x.cross[t] > 0 || !x.tech.Split); t++ {
			left = left || x.rest[t] > 0
		}
		if left {
			x.stack = append(x.stack, from, t)
		}
	}
	n := len(x.stack) - mark
	if n == 2 {
		return x.branch(x.stack[mark], x.stack[mark+1])
	}
	parts := x.stack[mark:]
	for i := 2; i < n; i += 2 {
		for j := i; j > 0 && parts[j+1]-parts[j] < parts[j-1]-parts[j-2]; j -= 2 {
			parts[j], parts[j-2] = parts[j-2], parts[j]
			parts[j+1], parts[j-1] = parts[j-1], parts[j+1]
		}
	}
	for i := 0; i < n; i += 2 {
		// What earlier parts placed is taken back by the caller, with the trail.
		if v := x.branch(x.stack[mark+i], x.stack[mark+i+1]); v != fits {
			return v
		}
	}
	return fits
}

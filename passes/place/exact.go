package place

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
	floor  []int64   // by section: no further buffer lies below this
	base   []int64   // by section: top of the highest buffer placed
	rest   []int64   // by section: sum of sizes still to place
	low    []int64   // by item: no offset below this is possible
	done   []bool    // by item: placed
	off    []int64   // by item: offset when placed
	twin   []int32   // by item: the one before it that is just like it, or -1
	name   []uint64  // by item: random bits for hashing
	weight []float64 // by section: grows with each failure there
	watch  []int32   // by section: an item likely to lie on the floor
	run    []int32   // by section: scratch of one node
	level  []int32   // by section: end of the stretch of equal floor; scratch

	trail []change
	stack []int32 // memory for the item lists of the nodes on the path
	dead  *deadSet
	work  int64 // steps left; negative means stop
	halt  func() bool
	nodes int64
}

// change is an entry to undo: floor, base or low had value old.
type change struct {
	what *int64
	old  int64
}

// strategy picks sections and orders buffers; see strategies.
type strategy struct {
	pick  pickRule
	score scoreRule
	noise float64 // scores are multiplied by up to 1+noise
	seed  uint64
}

type pickRule int8

const (
	pickLowest  pickRule = iota // the lowest floor
	pickFewest                  // the fewest choices
	pickTrouble                 // the fewest choices per failure seen
)

type scoreRule int8

const (
	scoreSize scoreRule = iota
	scoreLife
	scoreArea
	scoreSmall
)

func newExact(in *instance, tech *Techniques) *exact {
	n, m := in.n, len(in.load)
	x := &exact{in: in, tech: tech, dead: newDeadSet(),
		floor: make([]int64, m), base: make([]int64, m), rest: make([]int64, m),
		weight: make([]float64, m), watch: make([]int32, m), run: make([]int32, m+1), level: make([]int32, m),
		cover: make([][]int32, m),
		low:   make([]int64, n), done: make([]bool, n), off: make([]int64, n), twin: make([]int32, n), name: make([]uint64, n)}
	type look struct {
		life               span
		size, align, fixed int64
	}
	last := map[look]int32{}
	var buf [1]span
	for k := range int32(n) {
		x.name[k] = mix64(uint64(k)+1, 0x5bd1e995)
		l := look{in.life[k], in.size[k], in.align[k], in.fixed[k]}
		x.twin[k] = -1
		if in.spans[k] == nil && in.fixed[k] < 0 {
			if j, ok := last[l]; ok {
				x.twin[k] = j
			}
			last[l] = k
		}
		for _, s := range in.active(int(k), &buf) {
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

// mix64 is a fixed bijection that spreads bits.
func mix64(v, seed uint64) uint64 {
	v += seed * 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// decide looks for a placement whose top is at most ceiling, within the given
// steps of work.
func (x *exact) decide(ceiling int64, plan strategy, work int64) verdict {
	in := x.in
	x.cap, x.plan, x.work = ceiling, plan, work
	clear(x.floor)
	clear(x.base)
	clear(x.done)
	copy(x.rest, in.load)
	for _, l := range in.load {
		if l > ceiling {
			return fails
		}
	}
	items := x.stack[:0]
	for k := range int32(in.n) {
		x.low[k] = x.clear(k, 0)
		if in.fixed[k] >= 0 {
			x.low[k] = in.fixed[k]
		}
		if x.low[k]+in.size[k] > ceiling {
			return fails
		}
		items = append(items, k)
	}
	x.stack, x.trail = items, x.trail[:0]
	v := x.node(items, 0, int32(len(in.load)))
	x.stack = x.stack[:0]
	return v
}

// clear returns the lowest offset from at up that k may have, by its alignment
// and the fixed buffers it conflicts with.
func (x *exact) clear(k int32, at int64) int64 {
	in := x.in
	at = roundUp(at, in.align[k])
	for again := len(in.pinned) > 0; again; {
		again = false
		for _, f := range in.pinned {
			if f != k && at < in.fixed[f]+in.size[f] && in.fixed[f] < at+in.size[k] && in.conflict(k, f) {
				at, again = roundUp(in.fixed[f]+in.size[f], in.align[k]), true
			}
		}
	}
	return at
}

func (x *exact) set(p *int64, v int64) {
	x.trail = append(x.trail, change{p, *p})
	*p = v
}

func (x *exact) undo(mark int) {
	for i := len(x.trail) - 1; i >= mark; i-- {
		c := x.trail[i]
		*c.what = c.old
	}
	x.trail = x.trail[:mark]
}

// raise lifts the floors of sections [lo,hi) to v and pushes up the items above.
func (x *exact) raise(items []int32, lo, hi int32, v int64) bool {
	for t := lo; t < hi; t++ {
		if x.floor[t] < v {
			x.set(&x.floor[t], v)
			if x.rest[t] > 0 && v+x.rest[t] > x.cap {
				x.blame(t)
				return false
			}
		}
	}
	in := x.in
	x.work -= int64(len(items))
	for _, k := range items {
		l := in.life[k]
		if x.low[k] >= v || l.lo >= hi || l.hi <= lo || in.spans[k] != nil && !meets(in.spans[k], lo, hi) {
			continue
		}
		if in.fixed[k] >= 0 {
			x.blame(lo)
			return false
		}
		at := v
		if in.crooked {
			at = x.clear(k, v)
		}
		if at+in.size[k] > x.cap {
			x.blame(l.lo)
			return false
		}
		x.set(&x.low[k], at)
	}
	return true
}

func (x *exact) blame(t int32) { x.weight[t]++ }

func meets(sp []span, lo, hi int32) bool {
	for _, s := range sp {
		if s.lo < hi && lo < s.hi {
			return true
		}
	}
	return false
}

// settle raises every floor on which no item can lie. One pass is enough: a floor
// rises to the lowest offset possible there, so no item is pushed up by it.
func (x *exact) settle(lo, hi int32) bool {
	x.work -= int64(hi - lo)
	for t := lo; t < hi; t++ {
		if x.rest[t] == 0 {
			continue
		}
		f := x.floor[t]
		if w := x.watch[t]; !x.done[w] && x.low[w] == f && x.covers(w, t) {
			continue
		}
		v := never
		for _, k := range x.cover[t] {
			if !x.done[k] && x.low[k] < v {
				x.watch[t] = k
				if v = x.low[k]; v == f {
					break
				}
			}
		}
		x.work -= int64(len(x.cover[t]))
		if v > f {
			x.set(&x.floor[t], v)
			if v+x.rest[t] > x.cap {
				x.blame(t)
				return false
			}
		}
	}
	return true
}

func (x *exact) covers(k, t int32) bool {
	l := x.in.life[k]
	return l.lo <= t && t < l.hi && (x.in.spans[k] == nil || meets(x.in.spans[k], t, t+1))
}

// node decides whether items can be placed in sections [lo,hi). Items that share
// no section are independent, so it splits the stretch where nothing crosses.
func (x *exact) node(items []int32, lo, hi int32) verdict {
	if len(items) == 0 {
		return fits
	}
	x.nodes++
	if x.work < 0 || x.nodes&1023 == 0 && x.halt != nil && x.halt() {
		x.work = -1
		return stops
	}
	if !x.settle(lo, hi) {
		return fails
	}
	if !x.tech.Split {
		return x.branch(items, lo, hi)
	}
	x.work -= int64(len(items)) + int64(hi-lo)
	in, run := x.in, x.run[lo:hi+1]
	clear(run)
	for _, k := range items {
		// The number of items that cross from a section to the next.
		run[in.life[k].lo-lo+1]++
		run[in.life[k].hi-lo]--
	}
	mark := len(x.stack)
	defer func() { x.stack = x.stack[:mark] }()
	cuts, crossing := int32(0), int32(0)
	for t := range hi - lo {
		if crossing += run[t]; t == 0 || crossing == 0 && x.rest[lo+t] > 0 {
			x.stack = append(x.stack, lo+t)
			cuts++
		}
	}
	if cuts == 1 {
		return x.branch(items, lo, hi)
	}
	return x.parts(items, mark, cuts, hi)
}

// parts solves independent stretches, the ones with fewest items first: they
// fail soonest. Their starts are on the stack.
func (x *exact) parts(items []int32, mark int, cuts, hi int32) verdict {
	starts := x.stack[mark : mark+int(cuts)]
	first := len(x.stack)
	counts := make([]int, cuts)
	order := make([]int, cuts)
	which := func(k int32) int {
		a, b := 0, int(cuts)
		for b-a > 1 {
			if m := (a + b) / 2; starts[m] <= x.in.life[k].lo {
				a = m
			} else {
				b = m
			}
		}
		return a
	}
	for _, k := range items {
		counts[which(k)]++
	}
	for i := range order {
		order[i] = i
		for j := i; j > 0 && counts[order[j]] < counts[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	for _, i := range order {
		if counts[i] == 0 {
			continue
		}
		x.stack = x.stack[:first]
		for _, k := range items {
			if which(k) == i {
				x.stack = append(x.stack, k)
			}
		}
		end := hi
		if i+1 < int(cuts) {
			end = starts[i+1]
		}
		if v := x.branch(x.stack[first:len(x.stack):len(x.stack)], starts[i], end); v != fits {
			// Take back the parts that did fit: the caller tries elsewhere.
			for _, k := range items {
				if x.done[k] {
					x.done[k] = false
					x.addRest(k, x.in.size[k])
				}
			}
			return v
		}
	}
	return fits
}

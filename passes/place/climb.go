package place

import (
	"cmp"
	"slices"
)

// climb improves by first fit alone: it packs in several orders, and then again
// and again, each time with the buffers that have stood above the goal most often
// in front. Those are few, and once they stand low the others still find room.
type climb struct {
	s     *solver
	f     *packer
	lanes []lane
	turn  int
	cost  int64 // of one packing, estimated
}

// lane is one order on its way.
type lane struct {
	order []int32
	rank  []int32 // by item: place in the order that the lane began with
	blame []int32 // by item: packings in which it stood above the goal
	best  int64
	stale int // packings since best fell
}

// patience is the number of packings without progress, beside one for each item,
// after which a lane is given up.
const patience = 30

func newClimb(s *solver) *climb {
	c := &climb{s: s, f: newPacker(s.in, s.halted)}
	c.cost = c.f.cost()
	s.spend(int64(s.in.n))
	return c
}

// affordable reports whether there is work left for a packing. Where much of a
// large problem lives together one alone may be out of reach.
func (c *climb) affordable() bool { return c.cost <= c.s.left }

// start packs once in each of the orders, or until the goal is reached.
func (c *climb) start() {
	s := c.s
	if order := s.hinted(); order != nil && c.affordable() {
		c.launch(order)
	}
	for _, by := range sortings {
		if s.over() || !c.affordable() || len(c.lanes) > 0 && !s.tech.Orders {
			return
		}
		c.launch(s.in.sorted(by))
	}
}

func (c *climb) launch(order []int32) {
	l := lane{order: order, best: never, rank: make([]int32, len(order)), blame: make([]int32, len(order))}
	for i, k := range order {
		l.rank[k] = int32(i)
	}
	c.lanes = append(c.lanes, l)
	c.s.spend(8 * int64(len(order)))
	c.pack(&c.lanes[len(c.lanes)-1])
}

// hinted returns the order of the hints, with those that have none at the end, or
// nil when nobody has one. First fit in the order of addresses of a placement
// gives it back, or a lower one.
func (s *solver) hinted() []int32 {
	any := false
	hint := make([]int64, s.in.n)
	order := make([]int32, s.in.n)
	for k, i := range s.in.index {
		b := &s.p.Buffers[i]
		hint[k], order[k] = never, int32(k)
		if b.HasHint {
			hint[k], any = b.Hint, true
		}
	}
	if !any {
		return nil
	}
	slices.SortStableFunc(order, func(a, b int32) int { return compare(hint[a], hint[b]) })
	return order
}

func (c *climb) pack(l *lane) {
	c.f.work = 0
	height := c.f.pack(l.order)
	c.s.spend(c.f.work)
	if height == never {
		return
	}
	c.s.offer(c.f.off, height)
	l.stale++
	if height < l.best {
		l.best, l.stale = height, 0
	}
	if c.s.tech.Promote {
		c.promote(l)
	}
}

// promote blames the items that stand above the goal and sorts by blame.
func (c *climb) promote(l *lane) {
	in := c.s.in
	goal := c.s.lower
	if c.s.limit < never {
		goal = c.s.limit
	}
	for k := range l.blame {
		if c.f.off[k]+in.size[k] > goal {
			l.blame[k]++
		}
	}
	slices.SortFunc(l.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(l.blame[b], l.blame[a]), cmp.Compare(l.rank[a], l.rank[b]))
	})
	c.s.spend(4 * int64(in.n))
}

func (c *climb) live(l *lane) bool { return l.stale < patience+len(l.order) }

// useful reports whether there is a lane left that may improve.
func (c *climb) useful() bool {
	return c.s.tech.Promote && c.affordable() && slices.ContainsFunc(c.lanes, func(l lane) bool { return c.live(&l) })
}

// step packs once more: every other time in the lane that stands lowest, else in
// the lanes by turn.
func (c *climb) step() {
	c.turn++
	pick := -1
	if c.turn%2 == 0 {
		for i := range c.lanes {
			if l := &c.lanes[i]; c.live(l) && (pick < 0 || l.best < c.lanes[pick].best) {
				pick = i
			}
		}
	}
	for i := c.turn / 2; pick < 0; i++ {
		if c.live(&c.lanes[i%len(c.lanes)]) {
			pick = i % len(c.lanes)
		}
	}
	c.pack(&c.lanes[pick])
}

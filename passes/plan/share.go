package plan

import (
	"cmp"
	"math"
	"slices"
)

// share is the problem of one layer: which of its tensors, and how many of
// their tokens, go to the host within a limit of bytes, so that making the rest
// again takes the least time. Items are operations whose outputs wait for the
// backward pass; all outputs of one are split at the same place.
type share struct {
	p      *Problem
	items  []item  // cheapest per byte first
	extra  []extra // operations that more than one item runs again
	forced []int   // tensors that can only be swapped
	fixed  int64   // their bytes
	nodes  int     // that may still be looked at
	best   []state
	cost   int64
	head   int // of the items that are split in best
	found  bool
}

// item is one operation with its outputs.
type item struct {
	op      int
	tensors []int
	bytes   int64
	split   bool
	private []need  // operations that only this item runs again beside its own
	shared  []int   // indices of extra
	modes   []bool  // parallel to shared: on the range alone
	packs   []int   // tensors of which a part is packed or unpacked
	perByte float64 // a lower bound of the time for each byte not swapped
}

// need is an operation that is run again on the way, on the range or whole.
type need struct {
	op     int
	ranged bool
}

// extra is an operation that several items need.
type extra struct {
	op    int
	users int
}

// state is what is done with an item.
type state uint8

const (
	swapped state = iota
	remade
	cut // the head swapped, the rest made again
)

// shareNodes bounds the search for one layer: real layers need a few hundred.
const shareNodes = 1 << 14

// newShare states the problem for tensors, those of one layer that are not
// kept. What may not be made again has to be swapped.
func newShare(p *Problem, f *facts, tensors []int) *share {
	s := &share{p: p}
	of := map[int]int{} // op to item
	for _, t := range tensors {
		op := f.producer[t]
		if x := &p.Tensors[t]; x.Input || !p.Ops[op].Clone {
			s.fixed += x.Bytes
			s.forced = append(s.forced, t)
			continue
		}
		i, seen := of[op]
		if !seen {
			i = len(s.items)
			of[op] = i
			s.items = append(s.items, item{op: op, split: p.ranges(op)})
		}
		it := &s.items[i]
		it.tensors = append(it.tensors, t)
		it.bytes += p.Tensors[t].Bytes
		it.split = it.split && p.splittable(f, t)
		if p.Tensors[t].Rows > 1 {
			it.packs = append(it.packs, t)
		}
	}
	s.needs(f)
	slices.SortStableFunc(s.items, func(a, b item) int { return cmp.Or(cmp.Compare(a.perByte, b.perByte), cmp.Compare(a.op, b.op)) })
	return s
}

// needs finds what each item runs again beside its own operation.
func (s *share) needs(f *facts) {
	all := make([]map[int]bool, len(s.items)) // by item: op to whether it runs on the range
	users := map[int]int{}
	for i := range s.items {
		all[i] = map[int]bool{}
		s.chain(f, &s.items[i], s.items[i].op, s.items[i].split, all[i])
		for op := range all[i] {
			users[op]++
		}
	}
	index := map[int]int{}
	for i := range s.items {
		it := &s.items[i]
		ops := make([]int, 0, len(all[i]))
		for op := range all[i] {
			ops = append(ops, op)
		}
		slices.Sort(ops)
		for _, op := range ops {
			if users[op] == 1 {
				it.private = append(it.private, need{op, all[i][op]})
				continue
			}
			if _, seen := index[op]; !seen {
				index[op] = len(s.extra)
				s.extra = append(s.extra, extra{op, users[op]})
			}
			it.shared, it.modes = append(it.shared, index[op]), append(it.modes, all[i][op])
		}
		it.perByte = s.perByte(it)
	}
}

// chain adds to into what must run before op can: what makes those of its inputs
// that do not wait for their own sake.
func (s *share) chain(f *facts, it *item, op int, ranged bool, into map[int]bool) {
	o := &s.p.Ops[op]
	for k, t := range o.In {
		same := ranged && o.Range[k]
		v := f.producer[t]
		if f.skeletal(t) || s.p.Tensors[t].Output || !s.p.Ops[v].Clone {
			if same && s.p.Tensors[t].Rows > 1 {
				it.packs = append(it.packs, t)
			}
			continue
		}
		same = same && s.p.ranges(v)
		had, seen := into[v]
		if seen && (same || !had) {
			continue
		}
		into[v] = same
		s.chain(f, it, v, same, into)
	}
}

// time is the time of op on n tiles, all of them where it runs whole.
func (s *share) time(op, n int, ranged bool) int64 {
	if ranged && n < s.p.Tiles() {
		return s.p.rangeTime(op, n)
	}
	return s.p.Ops[op].Time
}

// alone is the time of making n tiles of an item again, without what it shares.
func (s *share) alone(it *item, n int) int64 {
	sum := s.time(it.op, n, true)
	for _, x := range it.private {
		sum += s.time(x.op, n, x.ranged)
	}
	if tiles := s.p.Tiles(); n < tiles {
		for _, t := range it.packs {
			sum += s.p.packTime(s.p.partBytes(t, tiles-n, tiles))
		}
	}
	return sum
}

// perByte is a lower bound of an item's time for each byte that is made again.
// Times are linear in the tiles, so that one of the ends has the least for each;
// of what several items need each bears a part.
func (s *share) perByte(it *item) float64 {
	tiles := max(s.p.Tiles(), 1)
	least := float64(s.alone(it, tiles))
	if it.split {
		for _, n := range []int{1, tiles - 1} {
			least = min(least, float64(s.alone(it, n))*float64(tiles)/float64(n))
		}
	}
	for k, x := range it.shared {
		op, part := s.extra[x].op, math.Inf(1)
		for _, n := range []int{1, tiles} {
			part = min(part, float64(s.time(op, n, it.modes[k]))*float64(tiles)/float64(n))
		}
		least += part / float64(s.extra[x].users)
	}
	return least / float64(max(it.bytes, 1))
}

// solve finds the least time for at most limit bytes on the host, and reports
// whether there is a way.
func (s *share) solve(limit int64) bool {
	s.nodes, s.found, s.cost = shareNodes, false, math.MaxInt64
	total := s.fixed
	for _, it := range s.items {
		total += it.bytes
	}
	s.branch(make([]state, 0, len(s.items)), 0, total-limit, 0)
	return s.found
}

// branch decides on the next item: done is the time of those that are remade,
// less what they share, and over the bytes still to be made again.
func (s *share) branch(st []state, done, over int64, cuts int) {
	if s.nodes--; s.nodes < 0 && s.found || float64(done)+s.bound(st, over) >= float64(s.cost) {
		return
	}
	switch {
	case over <= 0 && cuts > 0:
		return // no worse with what is cut swapped
	case over <= 0:
		for len(st) < len(s.items) {
			st = append(st, swapped)
		}
	}
	if len(st) == len(s.items) {
		s.leaf(st, done, over, cuts)
		return
	}
	it := &s.items[len(st)]
	s.branch(append(st, remade), done+s.alone(it, max(s.p.Tiles(), 1)), over-it.bytes, cuts)
	if it.split && (cuts == 0 || len(s.extra) > 0) {
		s.branch(append(st, cut), done, over, cuts+1)
	}
	s.branch(append(st, swapped), done, over, cuts)
}

// bound is a lower bound of the time that is still to come: the cheapest bytes
// of what is cut or not decided on.
func (s *share) bound(st []state, over int64) float64 {
	left, sum := float64(over), 0.0
	for i := 0; i < len(s.items) && left > 0; i++ {
		if i < len(st) && st[i] != cut {
			continue
		}
		take := min(left, float64(s.items[i].bytes))
		left -= take
		sum += take * s.items[i].perByte
	}
	if left > 0 {
		return math.Inf(1)
	}
	return sum
}

// leaf takes st, which decides on everything, if it is the best so far.
func (s *share) leaf(st []state, done, over int64, cuts int) {
	tiles := max(s.p.Tiles(), 1)
	head := 0
	if cuts > 0 {
		if head = s.longest(st, over); head == 0 {
			return
		}
		for i := range st {
			if st[i] == cut {
				done += s.alone(&s.items[i], tiles-head)
			}
		}
	} else if over > 0 {
		return
	}
	again := make([]int64, len(s.extra))
	for i := range st {
		if st[i] == swapped {
			continue
		}
		n := tiles
		if st[i] == cut {
			n -= head
		}
		for k, x := range s.items[i].shared {
			again[x] = max(again[x], s.time(s.extra[x].op, n, s.items[i].modes[k]))
		}
	}
	for _, t := range again {
		done += t
	}
	if done < s.cost {
		s.found, s.cost, s.head, s.best = true, done, head, slices.Clone(st)
	}
}

// longest is the greatest head, below the whole, with which what is cut fits:
// all of it but over bytes.
func (s *share) longest(st []state, over int64) int {
	room := -over
	for i := range st {
		if st[i] == cut {
			room += s.items[i].bytes
		}
	}
	lo, hi := 0, s.p.Tiles()-1
	for lo < hi {
		head := (lo + hi + 1) / 2
		sum := int64(0)
		for i := range st {
			if st[i] == cut {
				for _, t := range s.items[i].tensors {
					sum += s.p.partBytes(t, 0, head)
				}
			}
		}
		if sum <= room {
			lo = head
		} else {
			hi = head - 1
		}
	}
	return lo
}

// choices says what the solution is for every tensor.
func (s *share) choices(set func(t int, c Choice)) {
	for _, t := range s.forced {
		set(t, Swap)
	}
	for i, it := range s.items {
		for _, t := range it.tensors {
			set(t, []Choice{Swap, Recompute, SplitAt(s.head)}[s.best[i]])
		}
	}
}

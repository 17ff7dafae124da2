package place

import "slices"

// sweep gives the first answer: it walks through time as an allocator at run time
// would, first fit by address, in n log n steps whatever the problem looks like.
// Buffers with gaps keep their bytes through them, and everything lies above the
// fixed buffers.
func sweep(in *instance) (off []int64, height int64) {
	off = make([]int64, in.n)
	var ground int64
	byBirth := make([]int32, 0, in.n)
	for k := range int32(in.n) {
		if in.fixed[k] >= 0 {
			off[k] = in.fixed[k]
			ground = max(ground, in.fixed[k]+in.size[k])
			continue
		}
		byBirth = append(byBirth, k)
	}
	byDeath := slices.Clone(byBirth)
	slices.SortStableFunc(byBirth, func(a, b int32) int { return int(in.life[a].lo - in.life[b].lo) })
	slices.SortStableFunc(byDeath, func(a, b int32) int { return int(in.life[a].hi - in.life[b].hi) })
	free := newGapTree(ground, never)
	height = ground
	dead := 0
	for i := 0; i < len(byBirth); {
		now := in.life[byBirth[i]].lo
		for ; dead < len(byDeath) && in.life[byDeath[dead]].hi <= now; dead++ {
			k := byDeath[dead]
			free.give(off[k], off[k]+in.size[k])
		}
		first := i
		for i < len(byBirth) && in.life[byBirth[i]].lo == now {
			i++
		}
		born := byBirth[first:i]
		// Of those born together the ones that live longest go lowest.
		slices.SortStableFunc(born, func(a, b int32) int { return int(in.life[b].hi - in.life[a].hi) })
		for _, k := range born {
			off[k] = free.take(in.size[k], in.align[k])
			height = max(height, off[k]+in.size[k])
		}
	}
	return off, height
}

// gapTree holds the free ranges of an arena by address, as a treap in which each
// node knows the largest range below it.
type gapTree struct {
	nodes []gap
	spare []int32
	root  int32 // 0 is nil
}

type gap struct {
	lo, hi      int64
	large       int64 // largest hi-lo in this subtree
	left, right int32
	rank        uint64 // heap order; a function of lo, so that runs agree
}

func newGapTree(lo, hi int64) *gapTree {
	t := &gapTree{nodes: make([]gap, 1)}
	t.insert(lo, hi)
	return t
}

func (t *gapTree) insert(lo, hi int64) {
	if lo >= hi {
		return
	}
	var n int32
	if s := len(t.spare); s > 0 {
		n, t.spare = t.spare[s-1], t.spare[:s-1]
	} else {
		n = int32(len(t.nodes))
		t.nodes = append(t.nodes, gap{})
	}
	t.nodes[n] = gap{lo: lo, hi: hi, large: hi - lo, rank: mix64(uint64(lo), 7)}
	a, b := t.split(t.root, lo)
	t.root = t.merge(t.merge(a, n), b)
}

func (t *gapTree) fix(n int32) int32 {
	g := &t.nodes[n]
	g.large = max(g.hi-g.lo, t.nodes[g.left].large, t.nodes[g.right].large)
	return n
}

// split cuts a subtree into ranges that start below lo and the others.
func (t *gapTree) split(n int32, lo int64) (a, b int32) {
	if n == 0 {
		return 0, 0
	}
	if t.nodes[n].lo < lo {
		r, b := t.split(t.nodes[n].right, lo)
		t.nodes[n].right = r
		return t.fix(n), b
	}
	a, l := t.split(t.nodes[n].left, lo)
	t.nodes[n].left = l
	return a, t.fix(n)
}

func (t *gapTree) merge(a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case t.nodes[a].rank > t.nodes[b].rank:
		r := t.merge(t.nodes[a].right, b)
		t.nodes[a].right = r
		return t.fix(a)
	}
	l := t.merge(a, t.nodes[b].left)
	t.nodes[b].left = l
	return t.fix(b)
}

// remove takes out the range that starts at lo.
func (t *gapTree) remove(lo int64) gap {
	a, b := t.split(t.root, lo)
	n, b := t.split(b, lo+1)
	t.root = t.merge(a, b)
	t.spare = append(t.spare, n)
	return t.nodes[n]
}

// take cuts size bytes out of the lowest range that holds them at any alignment.
func (t *gapTree) take(size, align int64) int64 {
	need := size + align - 1
	n := t.root
	for {
		g := &t.nodes[n]
		if t.nodes[g.left].large >= need {
			n = g.left
		} else if g.hi-g.lo >= need {
			break
		} else {
			n = g.right
		}
	}
	g := t.remove(t.nodes[n].lo)
	at := roundUp(g.lo, align)
	t.insert(g.lo, at)
	t.insert(at+size, g.hi)
	return at
}

// give returns a range and joins it with its neighbours.
func (t *gapTree) give(lo, hi int64) {
	if before := t.last(lo); before != 0 && t.nodes[before].hi == lo {
		lo = t.remove(t.nodes[before].lo).lo
	}
	if after := t.find(hi); after != 0 {
		hi = t.remove(hi).hi
	}
	t.insert(lo, hi)
}

// last returns the highest range that starts below lo.
func (t *gapTree) last(lo int64) int32 {
	best := int32(0)
	for n := t.root; n != 0; {
		if t.nodes[n].lo < lo {
			best, n = n, t.nodes[n].right
		} else {
			n = t.nodes[n].left
		}
	}
	return best
}

// find returns the range that starts at lo.
func (t *gapTree) find(lo int64) int32 {
	n := t.root
	for n != 0 && t.nodes[n].lo != lo {
		if t.nodes[n].lo < lo {
			n = t.nodes[n].right
		} else {
			n = t.nodes[n].left
		}
	}
	return n
}

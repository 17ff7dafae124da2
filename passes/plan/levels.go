package plan

// levels holds a number for each entry, to add to a range of them and to find
// the largest of a range, both in logarithmic time.
type levels struct {
	size int     // leaves: a power of two
	top  []int64 // by node of the tree: the largest below it, with what was added at it
	add  []int64 // by node: what was added to all below it
}

// set starts from the numbers of live.
func (l *levels) set(live []int64) {
	l.size = 1
	for l.size < len(live) {
		l.size *= 2
	}
	l.top, l.add = resized(l.top, 2*l.size), resized(l.add, 2*l.size)
	clear(l.top)
	clear(l.add)
	copy(l.top[l.size:], live)
	for i := l.size - 1; i > 0; i-- {
		l.top[i] = max(l.top[2*i], l.top[2*i+1])
	}
}

// raise adds v to entries [from, to).
func (l *levels) raise(from, to int, v int64) { l.raiseIn(1, 0, l.size, from, to, v) }

func (l *levels) raiseIn(node, lo, hi, from, to int, v int64) {
	switch {
	case to <= lo || hi <= from:
		return
	case from <= lo && hi <= to:
		l.top[node] += v
		l.add[node] += v
		return
	}
	mid := (lo + hi) / 2
	l.raiseIn(2*node, lo, mid, from, to, v)
	l.raiseIn(2*node+1, mid, hi, from, to, v)
	l.top[node] = max(l.top[2*node], l.top[2*node+1]) + l.add[node]
}

// max is the largest of entries [from, to); there is at least one.
func (l *levels) max(from, to int) int64 { return l.maxIn(1, 0, l.size, from, to) }

func (l *levels) maxIn(node, lo, hi, from, to int) int64 {
	if from <= lo && hi <= to {
		return l.top[node]
	}
	mid := (lo + hi) / 2
	switch {
	case to <= mid:
		return l.maxIn(2*node, lo, mid, from, to) + l.add[node]
	case from >= mid:
		return l.maxIn(2*node+1, mid, hi, from, to) + l.add[node]
	}
	return max(l.maxIn(2*node, lo, mid, from, to), l.maxIn(2*node+1, mid, hi, from, to)) + l.add[node]
}

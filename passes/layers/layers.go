// Package layers finds repetition in a sequence of steps: the layers of a
// network, forward or backward, as runs of equal blocks. It is pure: it sees
// one number for each step, equal for steps that do the same work.
package layers

import (
	"cmp"
	"slices"
)

// Run is Count equal blocks of Period steps, one after the other from Start.
type Run struct {
	Start, Period, Count int
}

// End is the step after the last block.
func (r Run) End() int { return r.Start + r.Period*r.Count }

// minBlock is the length below which a repetition is no layer.
const minBlock = 4

// Find lists the disjoint runs of at least two equal blocks, ascending: of all
// runs the one that covers most steps first, then those left and right of it.
// Equal coverage goes to the shorter period, then to the earlier start.
func Find(seq []uint64) []Run {
	var out []Run
	find(seq, 0, &out)
	slices.SortFunc(out, func(a, b Run) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

func find(seq []uint64, offset int, out *[]Run) {
	if len(seq) < 2*minBlock {
		return
	}
	var best Run
	for _, p := range periods(seq) {
		if r := longest(seq, p); r.Count*r.Period > best.Count*best.Period {
			best = r
		}
	}
	if best.Count < 2 {
		return
	}
	find(seq[:best.Start], offset, out)
	find(seq[best.End():], offset+best.End(), out)
	best.Start += offset
	*out = append(*out, best)
}

// tried is how many periods are tried for one stretch: a layer's period is
// among the most frequent distances between equal steps.
const tried = 24

// periods lists likely periods, ascending: the most frequent distances
// between successive occurrences of a step.
func periods(seq []uint64) []int {
	last := map[uint64]int{}
	votes := map[int]int{}
	for i, s := range seq {
		if j, ok := last[s]; ok && i-j >= minBlock {
			votes[i-j]++
		}
		last[s] = i
	}
	var ps []int
	for p := range votes {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b int) int { return cmp.Or(cmp.Compare(votes[b]*b, votes[a]*a), cmp.Compare(a, b)) })
	ps = ps[:min(len(ps), tried)]
	slices.Sort(ps)
	return ps
}

// longest is the longest run of blocks of period p.
func longest(seq []uint64, p int) Run {
	best := Run{Period: p}
	start := 0
	for i := 0; i+p <= len(seq); i++ {
		if i+p < len(seq) && seq[i] == seq[i+p] {
			continue
		}
		// seq[start:i] equals seq[start+p:i+p].
		if n := (i-start)/p + 1; n > best.Count && n >= 2 {
			best.Start, best.Count = start, n
		}
		start = i + 1
	}
	return best
}

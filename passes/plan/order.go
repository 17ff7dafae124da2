package plan

import (
	"cmp"
	"slices"
)

// Reorder looks for an execution order with a lower peak, everything kept: the
// order in which a framework writes a graph often holds a large tensor for a
// reader that could have come first. Around the peak, operations that read
// their last of something large are tried earlier. It returns the operations
// in their new order and whether it differs; tries bounds the orders tried.
// Operations that must not be cloned stay where they are.
func (p *Problem) Reorder(tries int) (order []int, changed bool) {
	r := &reorderer{p: p, tries: tries, order: make([]int, len(p.Ops))}
	for i := range r.order {
		r.order[i] = i
	}
	peak, at := r.measure(r.order)
	for at >= 0 && r.tries > 0 {
		next, lower := r.improve(at, peak)
		if next == nil {
			break
		}
		r.order, changed = next, true
		peak, at = lower, r.at
	}
	return r.order, changed
}

type reorderer struct {
	p     *Problem
	order []int
	tries int
	at    int // position of the peak in the last improvement
}

// reach is how far behind the peak an operation is looked for.
const reach = 64

// Permuted is the problem with its operations in another order.
func (p *Problem) Permuted(order []int) *Problem {
	q := *p
	q.Ops = make([]Op, len(order))
	for i, o := range order {
		q.Ops[i] = p.Ops[o]
	}
	return &q
}

// measure is the peak of an order and the position of the operation where it
// is reached, -1 if there is none.
func (r *reorderer) measure(order []int) (peak int64, at int) {
	r.tries--
	q := r.p.Permuted(order)
	s, err := q.Build(q.Initial())
	if err != nil || len(s.Entries) == 0 {
		return 0, -1
	}
	at = -1
	for i := 0; i <= s.PeakAt; i++ {
		if s.Entries[i].Kind == Run {
			at++
		}
	}
	return s.Peak, max(at, 0)
}

// improve tries the candidates behind the peak and returns the first order
// that is lower, nil if none is.
func (r *reorderer) improve(at int, peak int64) ([]int, int64) {
	for _, c := range r.candidates(at) {
		for _, to := range slices.Compact([]int{c.earliest, at}) {
			if r.tries <= 0 {
				return nil, 0
			}
			next := moved(r.order, c.from, to)
			if lower, where := r.measure(next); lower < peak {
				r.at = where
				return next, lower
			}
		}
	}
	return nil, 0
}

// moved is order with the operation at position from at position to <= from.
func moved(order []int, from, to int) []int {
	next := slices.Clone(order)
	op := next[from]
	copy(next[to+1:from+1], next[to:from])
	next[to] = op
	return next
}

// candidate is an operation behind the peak that could run before it.
type candidate struct {
	from, earliest int
	frees          int64 // bytes it reads for the last time, less those it makes
}

// candidates lists the operations within reach behind position at that could
// run before it, those that free most first.
func (r *reorderer) candidates(at int) []candidate {
	made, last := r.positions()
	var out []candidate
	for from := at + 1; from < len(r.order) && from <= at+reach; from++ {
		op := &r.p.Ops[r.order[from]]
		if !op.Clone {
			continue
		}
		c := candidate{from: from}
		for _, t := range op.In {
			c.earliest = max(c.earliest, made[t]+1)
			if last[t] == from {
				c.frees += r.p.Tensors[t].Bytes
			}
		}
		for _, t := range op.Out {
			c.frees -= r.p.Tensors[t].Bytes
		}
		if c.earliest <= at && c.frees > 0 {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(b.frees, a.frees) })
	return out[:min(len(out), 8)]
}

// positions is where each tensor is made and last read.
func (r *reorderer) positions() (made, last []int) {
	made, last = make([]int, len(r.p.Tensors)), filled(nil, len(r.p.Tensors), -1)
	for i, o := range r.order {
		for _, t := range r.p.Ops[o].Out {
			made[t] = i
		}
		for _, t := range r.p.Ops[o].In {
			last[t] = i
		}
	}
	return made, last
}

package place

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// solver is one run of Solve: the best placement so far, what is proved, and
// what is left to spend. Heights here are in grains.
type solver struct {
	ctx      context.Context
	p        *Problem
	in       *instance
	tech     Techniques
	progress func(Progress)
	deadline time.Time // zero when there is none

	off    []int64 // best placement, by item
	height int64
	lower  int64 // proved
	limit  int64 // the capacity, or never
	left   int64 // steps
	spent  int64
	cut    bool // by the clock or by the context
	cannot bool // proved that nothing fits below limit
}

func solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	s := &solver{ctx: ctx, p: p, progress: opt.Progress, tech: DefaultTechniques(), limit: never, left: opt.Work}
	if opt.Techniques != nil {
		s.tech = *opt.Techniques
	}
	switch {
	case opt.Work == 0 && opt.TimeLimit > 0:
		s.left = never
	case opt.Work == 0:
		s.left = DefaultWork
	}
	if opt.TimeLimit > 0 {
		s.deadline = time.Now().Add(opt.TimeLimit)
	}
	s.in = compile(p)
	s.lower = s.in.bound
	if p.Capacity > 0 {
		s.limit = p.Capacity / s.in.grain
	}
	if err := s.checkFixed(); err != nil {
		return nil, err
	}
	s.height = never
	s.offer(sweep(s.in))
	if s.lower > s.limit {
		s.cannot = true
	}
	s.improve()
	out := s.solution()
	if s.cannot {
		out.Conflict, out.ConflictReducible = s.conflict()
		out.Work, out.Reproducible = s.spent, !s.cut
	}
	return out, nil
}

// checkFixed reports fixed buffers that overlap, which no placement can mend.
func (s *solver) checkFixed() error {
	in := s.in
	pins := slices.Clone(in.pinned)
	slices.SortStableFunc(pins, func(a, b int32) int { return compare(in.fixed[a], in.fixed[b]) })
	for i, a := range pins {
		for _, b := range pins[i+1:] {
			if in.fixed[b] >= in.fixed[a]+in.size[a] {
				break
			}
			if in.conflict(a, b) {
				x, y := in.index[a], in.index[b]
				return fmt.Errorf("place: fixed buffers %d (%q) and %d (%q) overlap", x, s.p.Buffers[x].ID, y, s.p.Buffers[y].ID)
			}
		}
	}
	return nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// offer keeps a placement if it is the lowest so far.
func (s *solver) offer(off []int64, height int64) bool {
	if height >= s.height {
		return false
	}
	s.off = append(s.off[:0], off...)
	s.height = height
	s.report()
	return true
}

func (s *solver) report() {
	if s.progress != nil {
		g := s.in.grain
		s.progress(Progress{Height: s.height * g, LowerBound: s.lower * g, Work: s.spent})
	}
}

// spend counts steps.
func (s *solver) spend(steps int64) {
	s.spent += steps
	s.left -= steps
}

// halted looks at the clock and the context.
func (s *solver) halted() bool {
	if !s.cut {
		s.cut = s.ctx.Err() != nil || !s.deadline.IsZero() && time.Now().After(s.deadline)
	}
	return s.cut
}

// over reports whether there is nothing left to do or to do it with.
func (s *solver) over() bool {
	return s.height <= s.lower || s.limit < never && s.height <= s.limit || s.cannot || s.left <= 0 || s.halted()
}

// improve runs first fit and the complete search in turn. Both get as many steps
// until one of them lowers the height; from then on the last that did gets most.
// Under a capacity only one success counts; the search is the likelier to have it.
func (s *solver) improve() {
	climb := newClimb(s)
	climb.start()
	ladder := newLadder(s)
	var packed, searched int64                   // steps
	packShare, searchShare := int64(1), int64(1) // of the steps to come
	if s.limit < never {
		searchShare = favourite
	}
	for !s.over() {
		before, height := s.spent, s.height
		useful := climb.useful()
		switch {
		case ladder != nil && (!useful || (searched+ladder.ahead())*packShare <= packed*searchShare):
			if !ladder.step() {
				ladder = nil
			}
			searched += s.spent - before
			if s.height < height {
				packShare, searchShare = 1, favourite
			}
		case useful:
			climb.step()
			packed += s.spent - before
			if s.height < height && s.limit == never {
				packShare, searchShare = favourite, 1
			}
		default:
			return
		}
	}
}

// favourite is how much more work the part gets that was of use last.
const favourite = 4

// solution puts the best placement into the form of the interface.
func (s *solver) solution() *Solution {
	out := &Solution{
		Offsets:      make([]int64, len(s.p.Buffers)),
		Height:       s.height * s.in.grain,
		LowerBound:   s.lower * s.in.grain,
		Work:         s.spent,
		Reproducible: !s.cut,
	}
	for i := range s.p.Buffers {
		out.Offsets[i] = s.p.Buffers[i].Offset
	}
	for k, i := range s.in.index {
		out.Offsets[i] = s.off[k] * s.in.grain
	}
	switch {
	case s.height <= s.lower && s.height <= s.limit:
		out.Status = Optimal
	case s.cannot:
		out.Status = Infeasible
	case s.height <= s.limit:
		out.Status = Feasible
	}
	return out
}

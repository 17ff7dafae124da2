package place

// strategies are tried in turn: no rule wins everywhere, and the quickest proof
// or placement mostly comes from many short searches, not one long one.
var strategies = []strategy{
	{pick: pickFewest, score: scoreLife},
	{pick: pickTrouble, score: scoreLife},
	{pick: pickLowest, score: scoreSize},
	{pick: pickFewest, score: scoreSmall},
	{pick: pickLowest, score: scoreLife},
	{pick: pickTrouble, score: scoreArea},
	{pick: pickFewest, score: scoreArea},
	{pick: pickTrouble, score: scoreSmall},
}

// noises by round of all strategies; after the first, rounds alternate between
// the last two.
var noises = []float64{0, 0.2, 0.6}

// ladder drives the complete search: which ceiling to ask for, by which rules and
// for how long.
type ladder struct {
	s     *solver
	x     *exact
	turn  int   // searches run so far
	grant int64 // steps of one search; doubles with every second round
	rung  int64 // of rungs
	tries int   // searches in vain at this rung
}

// rungs divide the way from the bound to the best height. The search asks for the
// bound first, and for a rung more when all strategies have failed: to ask for
// much is often quicker than to ask for little again and again. After the last
// rung, which is one less than the best, it starts over.
const rungs = 8

const (
	// A first search may look at each buffer and section this often per buffer:
	// enough to place all and to turn back a few times.
	eagerness = 16
	// coverLimit bounds the memory of the search: the sum over sections of the
	// buffers live there.
	coverLimit = 1 << 25
)

// newLadder returns nil when the problem is too large to try each strategy with
// the work that is left.
func newLadder(s *solver) *ladder {
	in := s.in
	n, m := int64(in.n), int64(len(in.load))
	grant := eagerness * n * (n + m)
	if !s.tech.Exact || int64(len(strategies))*grant > s.left || in.cover() > coverLimit {
		return nil
	}
	x := newExact(in, &s.tech)
	x.halt = s.halted
	s.spend(in.cover())
	return &ladder{s: s, x: x, grant: grant}
}

// cover is the sum over sections of the items live there.
func (in *instance) cover() int64 {
	var sum int64
	for _, l := range in.life {
		sum += int64(l.hi - l.lo)
	}
	return sum
}

// step runs one search, and reports false when no further one is of use.
func (l *ladder) step() bool {
	s := l.s
	ceiling := l.ceiling()
	plan, steps := l.plan()
	v := l.x.decide(ceiling, plan, steps)
	s.spend(steps - l.x.work)
	l.turn++
	switch v {
	case fits:
		s.offer(l.x.off, l.x.top())
		l.tries = 0
		return true
	case fails:
		s.lower = ceiling + 1
		s.cannot = s.limit < never
		s.report()
	}
	if l.tries++; l.tries == len(strategies) {
		l.rung, l.tries = (l.rung+1)%(rungs+1), 0
		if l.rung == 1 && !s.tech.Ladder {
			l.rung = rungs
		}
	}
	return s.tech.Restarts || v != stops
}

// quick is how many steps a search may take before it must wait its turn.
const quick = 1 << 25

// ahead is what the next search costs beyond a quick one: on a large problem that
// can be longer than first fit needs to the goal.
func (l *ladder) ahead() int64 {
	_, steps := l.plan()
	return max(steps-quick, 0)
}

// plan is the strategy of this turn and how long to follow it.
func (l *ladder) plan() (strategy, int64) {
	if !l.s.tech.Restarts {
		return strategies[0], l.s.left
	}
	round := l.turn / len(strategies)
	plan := strategies[l.turn%len(strategies)]
	if round < len(noises) {
		plan.noise = noises[round]
	} else {
		plan.noise = noises[len(noises)-1-round%2]
	}
	plan.seed = uint64(l.turn)
	return plan, min(l.grant<<min(round/2, 40), l.s.left)
}

// ceiling is the height to ask for next.
func (l *ladder) ceiling() int64 {
	s := l.s
	if s.limit < never {
		return s.limit
	}
	gap := s.height - 1 - s.lower
	return s.lower + gap/rungs*l.rung + gap%rungs*l.rung/rungs
}

package plan

import (
	"testing"
)

// best is the fastest rung that fits, nil if none does.
func best(l *Ladder, budget int64) *Rung {
	for i := range l.Rungs {
		if l.Rungs[i].Peak <= budget {
			return &l.Rungs[i]
		}
	}
	return nil
}

func ladder(t *testing.T, p *Problem, policy Policy) *Ladder {
	t.Helper()
	l, err := p.Search(Options{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// At every budget at which a policy has a plan, auto has one as fast; a policy
// uses no means that it leaves out.
func TestAutoIsNeverWorse(t *testing.T) {
	for seed := range uint64(15) {
		p := random(seed)
		auto := ladder(t, p, Auto)
		for _, policy := range []Policy{KeepAll, SwapOnly, RecomputeOnly} {
			for _, r := range ladder(t, p, policy).Rungs {
				if b := best(auto, r.Peak); b == nil || b.Time > r.Time {
					t.Errorf("seed %d: at %d bytes %v takes %d ns, auto %+v", seed, r.Peak, policy, r.Time, b)
				}
				if policy != SwapOnly && r.Moved > 0 || policy != RecomputeOnly && r.Extra > 0 {
					t.Errorf("seed %d: %v moves %d bytes and makes for %d ns again", seed, policy, r.Moved, r.Extra)
				}
			}
		}
	}
}

// The trade-off curve: less memory, more time, and every point is what its
// choices give.
func TestParetoIsMonotone(t *testing.T) {
	for seed := range uint64(15) {
		p := random(seed)
		curve := ladder(t, p, Auto).Pareto()
		for i, r := range curve {
			if i > 0 && (r.Peak >= curve[i-1].Peak || r.Time < curve[i-1].Time) {
				t.Errorf("seed %d: %d bytes and %d ns follow %d and %d", seed, r.Peak, r.Time, curve[i-1].Peak, curve[i-1].Time)
			}
			s, err := p.BuildWithin(r.Choice, r.Limit)
			if err != nil || s.Peak != r.Peak || s.Time != r.Time || s.Moved != r.Moved {
				t.Errorf("seed %d: a rung of %+v is carried out as %+v, %v", seed, r, s, err)
			}
		}
	}
}

// Hardly ever could a tensor that moves be kept, gain time and leave a hundredth
// of the budget to spare. (Room is judged by what is alive, not by trying every
// tensor; what that misses is counted here.)
func TestNothingThatFitsIsLeftOut(t *testing.T) {
	left, looked := 0, 0
	for seed := range uint64(20) {
		p := random(seed)
		l := ladder(t, p, Auto)
		curve := l.Pareto()
		least, most := curve[len(curve)-1].Peak, curve[0].Peak
		for k := range int64(20) {
			budget := least + (most-least)*k/20
			r := best(l, budget)
			c := append([]Choice{}, r.Choice...)
			for x, had := range c {
				if had == Keep || p.Tensors[x].Bytes == 0 {
					continue
				}
				c[x] = Keep
				s, err := p.BuildWithin(c, budget)
				c[x] = had
				if err != nil || s.Time >= r.Time {
					continue
				}
				looked++
				if s.Peak <= budget-budget/100 {
					left++
				}
			}
		}
	}
	t.Logf("%d of %d", left, looked)
	if left*20 > looked || looked == 0 {
		t.Errorf("%d of %d tensors that would help could have been kept", left, looked)
	}
}

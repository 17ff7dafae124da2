package plan

import (
	"reflect"
	"slices"
	"testing"
)

// within is the least time that a ladder has within bytes.
func within(l *Ladder, bytes int64) int64 {
	if r := best(l, bytes); r != nil {
		return r.Time
	}
	return -1
}

// auto splits: where the host is full, and where the copies do not hide, it is
// far better than the paper's one share, and close to what cannot be avoided.
func TestSplitsAgainstOneShare(t *testing.T) {
	for _, c := range []struct {
		tokens, host int64
		rate         float64
	}{{1 << 18, 50 * gib, 12}, {1 << 15, 256 * gib, 12}} {
		s := gpt7b(c.tokens)
		s.n = 20
		p := s.problem(c.rate, c.host*20/32)
		l, memo := ladder(t, p, Auto), ladder(t, p, Memo)
		m := memo.Pareto()
		last := m[len(m)-1]
		once := int64(0)
		for _, op := range p.Ops {
			once += op.Time
		}
		got := within(l, last.Peak)
		if lost, paper := got-once, last.Time-once; float64(lost) > 0.7*float64(paper) {
			t.Errorf("%d tokens: %d ns are lost where the paper's plan loses %d", c.tokens, lost, paper)
		}
		// What does not fit the host or the time of the copies is made again. Six
		// of the sixteen units cost next to nothing, all others a product of matrices
		// with two operations for each unit.
		unit := float64(2*s.tokens*s.h) / float64(s.tp)
		copies := c.rate * float64(s.tokens*s.h) * float64(24*s.h+2*s.tokens) / s.rate / float64(s.tp) / unit
		copies = min(copies, float64(p.HostBytes)/unit/float64(s.n))
		kept := (float64(last.Peak)/unit - 12) / float64(s.n) // twelve units are the widest point of a layer itself
		bound := (10 - copies - kept) * float64(s.n) * 2 * float64(s.tokens*s.h*s.h) / s.rate / float64(s.tp)
		if r := float64(got-once) / bound; r < 1 || r > 1.3 {
			t.Errorf("%d tokens: %d ns are lost, %.0f cannot be avoided", c.tokens, got-once, bound)
		} else {
			t.Logf("%d tokens: %.2f times what cannot be avoided, the paper's plan %.2f", c.tokens, r, float64(last.Time-once)/bound)
		}
	}
}

// Splits never make a plan worse: the ladder without them is part of that with
// them. All that is found is sound, and found again.
func TestSearchWithSplits(t *testing.T) {
	splits := 0
	for seed := range uint64(60) {
		p := ranged(seed)
		p.HostBytes = int64(200 + 40*seed)
		if seed%3 == 0 {
			p, _ = layerOf(seed, true)
			p.HostBytes = 256 * int64(seed)
		}
		l := ladder(t, p, Auto)
		whole := *p
		whole.Tokens = 0
		for _, r := range ladder(t, &whole, Auto).Pareto() {
			if got := within(l, r.Peak); got < 0 || got > r.Time {
				t.Fatalf("seed %d: %d ns in %d bytes with splits, %d without", seed, got, r.Peak, r.Time)
			}
		}
		for _, r := range l.Rungs {
			if !slices.ContainsFunc(r.Choice, func(c Choice) bool { return c.Kind() == Split }) {
				continue
			}
			splits++
			s, err := p.BuildWithin(r.Choice, r.Limit)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := check(p, s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if s.Peak != r.Peak || s.Time != r.Time || s.HostPeak > p.HostBytes {
				t.Fatalf("seed %d: a rung of %d ns and %d bytes is carried out in %d and %d, with %d on a host of %d",
					seed, r.Time, r.Peak, s.Time, s.Peak, s.HostPeak, p.HostBytes)
			}
		}
		if again := ladder(t, p, Auto); !reflect.DeepEqual(l, again) {
			t.Fatalf("seed %d: another ladder the second time", seed)
		}
	}
	if t.Logf("%d rungs with splits", splits); splits < 100 {
		t.Error("too few of them to tell anything")
	}
}

// auto's ladder holds the paper's plan.
func TestAutoHoldsMemo(t *testing.T) {
	s := gpt7b(1 << 17)
	s.n = 6
	p := s.problem(12, 8*gib)
	l := ladder(t, p, Auto)
	for _, r := range ladder(t, p, Memo).Rungs {
		if got := within(l, r.Peak); got < 0 || got > r.Time {
			t.Errorf("auto takes %d ns where the paper's plan takes %d", got, r.Time)
		}
	}
}

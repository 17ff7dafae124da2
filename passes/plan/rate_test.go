package plan

import (
	"os"
	"testing"
)

// rates is what faster copies do to a problem's plans: at how many budgets, of
// all at which a plan became the fastest, the next rate has a slower one or
// none, and the worst ratio of the times.
type rates struct {
	all, slower, none int
	worst             float64
}

func (r *rates) measure(t *testing.T, make func(faster float64) *Problem) {
	var before []Rung
	for _, faster := range []float64{1, 1.5, 2, 3} {
		l := ladder(t, make(faster), Auto)
		for _, x := range before {
			r.all++
			switch b := best(l, x.Peak); {
			case b == nil:
				r.none++
			case b.Time > x.Time:
				r.slower++
				r.worst = max(r.worst, float64(b.Time)/float64(x.Time)-1)
			}
		}
		before = l.Pareto()
	}
}

// Faster copies hardly ever make the plan of a large step slower. Nothing in the search forces
// that, so that the limits are what docs/planner.md states.
func TestFasterCopies(t *testing.T) {
	if os.Getenv("MEMOC_PROBLEMS") == "" {
		t.Skip("takes minutes: part of the outside oracles")
	}
	for _, tokens := range []int64{1 << 15, 1 << 17} {
		var r rates
		r.measure(t, func(faster float64) *Problem { return gpt7b(tokens).problem(12*faster, 256*gib) })
		t.Logf("GPT 7B, %d tokens: %+v", tokens, r)
		if r.none > 0 || r.slower > r.all/50 || r.worst > 0.01 {
			t.Errorf("%d tokens: no plan, or slower at more than 2 %% of the budgets or by more than 1 %%", tokens)
		}
	}
}

package passes_test

import (
	"strings"
	"testing"

	"memoc/passes"
	"memoc/passes/plan"
)

// At every budget auto is as fast as any other policy that has a plan there.
func TestAutoIsNeverWorseOnModels(t *testing.T) {
	for _, s := range subjects(t) {
		if s.long && !long() || strings.HasPrefix(s.name, "zoo") {
			continue
		}
		c, _, err := compileUntil(t, load(t, s.path), setup{train: s.train, dims: s.dims}, passes.Plan)
		if err != nil {
			t.Fatal(err)
		}
		curve := map[plan.Policy][]plan.Rung{}
		for _, policy := range []plan.Policy{plan.Auto, plan.KeepAll, plan.SwapOnly, plan.RecomputeOnly} {
			l, err := c.Problem.Search(plan.Options{Policy: policy})
			if err != nil {
				t.Fatal(err)
			}
			curve[policy] = l.Pareto()
		}
		for policy, rungs := range curve {
			for _, r := range rungs {
				best := int64(-1)
				for _, a := range curve[plan.Auto] {
					if a.Peak <= r.Peak && (best < 0 || a.Time < best) {
						best = a.Time
					}
				}
				if best < 0 || best > r.Time {
					t.Errorf("%s: at %d bytes %v takes %d ns, auto %d", s.name, r.Peak, policy, r.Time, best)
				}
			}
		}
	}
}

package passes_test

import (
	"errors"
	"fmt"
	"testing"

	"memoc/passes"
)

// The smallest budget that an infeasible one is answered with has a plan, and
// one byte less has none and the same answer.
func TestSmallestBudgetIsExact(t *testing.T) {
	for _, s := range subjects(t) {
		if s.long && !long() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			smallest := func(budget int64) (int64, bool) {
				_, _, err := compile(t, load(t, s.path), setup{train: s.train, dims: s.dims, budget: fmt.Sprint(budget)})
				var inf *passes.Infeasible
				if errors.As(err, &inf) {
					return inf.Smallest, false
				}
				if err != nil {
					t.Fatal(err)
				}
				return 0, true
			}
			least, _ := smallest(1)
			if _, fits := smallest(least); !fits {
				t.Errorf("%d is said to be the smallest budget and has no plan", least)
			}
			if again, fits := smallest(least - 1); fits || again != least {
				t.Errorf("%d is said to be the smallest budget; one byte less fits: %v, and is answered with %d", least, fits, again)
			}
		})
	}
}

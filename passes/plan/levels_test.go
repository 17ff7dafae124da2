package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLevelsAgainstASlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	var l levels
	for range 200 {
		live := make([]int64, 1+rng.IntN(70))
		for i := range live {
			live[i] = rng.Int64N(1000) - 500
		}
		l.set(live)
		for range 100 {
			from := rng.IntN(len(live))
			to := from + 1 + rng.IntN(len(live)-from)
			if got, want := l.max(from, to), slices.Max(live[from:to]); got != want {
				t.Fatalf("the largest of [%d,%d) is %d, found %d", from, to, want, got)
			}
			v := rng.Int64N(200) - 100
			l.raise(from, to, v)
			for i := from; i < to; i++ {
				live[i] += v
			}
		}
	}
}

package ops

import (
	"math/rand/v2"
	"testing"
)

// The closed form against counting, over random sizes, windows and offsets.
func TestFlashPairsAreCounted(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for range 20000 {
		f := flashShape{s: rng.Int64N(9), t: rng.Int64N(9), offset: rng.Int64N(21) - 10, left: rng.Int64N(8) - 1, right: rng.Int64N(8) - 1}
		want := int64(0)
		for i := range f.s {
			for j := range f.t {
				if (f.left < 0 || i+f.offset-f.left <= j) && (f.right < 0 || j <= i+f.offset+f.right) {
					want++
				}
			}
		}
		if got := f.pairs(); got != want {
			t.Fatalf("%+v: %d pairs, counted %d", f, got, want)
		}
	}
}

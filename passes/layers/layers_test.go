package layers

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A network: head, n layers of one kind, m of another, tail.
func TestFindsLayers(t *testing.T) {
	a := []uint64{1, 2, 3, 4, 5, 2, 6}
	b := []uint64{7, 8, 2, 9, 9}
	seq := slices.Concat([]uint64{100, 101, 102}, slices.Repeat(a, 32), []uint64{103}, slices.Repeat(b, 12), []uint64{104})
	want := []Run{{3, 7, 32}, {3 + 7*32 + 1, 5, 12}}
	if got := Find(seq); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestNothingRepeats(t *testing.T) {
	seq := make([]uint64, 500)
	for i := range seq {
		seq[i] = uint64(i)
	}
	if got := Find(seq); got != nil {
		t.Errorf("found %v in a sequence without repetition", got)
	}
	if got := Find(nil); got != nil {
		t.Errorf("found %v in nothing", got)
	}
}

// Whatever is found is repetition, inside the sequence, and disjoint.
func TestRunsAreRuns(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		seq := make([]uint64, rng.IntN(300))
		for i := range seq {
			seq[i] = uint64(rng.IntN(3))
			if i >= 10 && rng.IntN(4) > 0 {
				seq[i] = seq[i-10]
			}
		}
		end := 0
		for _, r := range Find(seq) {
			if r.Start < end || r.Count < 2 || r.Period < minBlock || r.End() > len(seq) {
				t.Fatalf("seed %d: run %+v after %d of %d", seed, r, end, len(seq))
			}
			for i := r.Start; i+r.Period < r.End(); i++ {
				if seq[i] != seq[i+r.Period] {
					t.Fatalf("seed %d: run %+v differs at %d", seed, r, i)
				}
			}
			end = r.End()
		}
	}
}

package place

import (
	"context"
	"testing"
)

// The four buffers on which first fit in time order wastes 4 MiB of 13.
func TestFragmentation(t *testing.T) {
	const mib = 1 << 20
	p := &Problem{Buffers: []Buffer{
		{ID: "T1", Size: 4 * mib, Start: 0, End: 3, Align: 256},
		{ID: "T2", Size: 1 * mib, Start: 0, End: 7, Align: 256},
		{ID: "T3", Size: 4 * mib, Start: 1, End: 4, Align: 256},
		{ID: "T4", Size: 8 * mib, Start: 4, End: 7, Align: 256},
	}}
	s, err := Solve(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(p, s.Offsets); err != nil {
		t.Fatal(err)
	}
	if s.Height != 9*mib || s.LowerBound != 9*mib || s.Status != Optimal {
		t.Fatalf("height %d, bound %d, %v", s.Height, s.LowerBound, s.Status)
	}
}

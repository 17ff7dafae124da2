package place

import (
	"cmp"
	"fmt"
	"slices"
)

// firstFit places buffers from large to small, each at the lowest address that
// is free over its whole life.
func firstFit(p *Problem) ([]int64, error) {
	offsets := make([]int64, len(p.Buffers))
	var fixed, order []int
	for i := range p.Buffers {
		switch b := &p.Buffers[i]; {
		case b.Fixed:
			offsets[i] = b.Offset
			if b.owns() {
				fixed = append(fixed, i)
			}
		case b.owns():
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &p.Buffers[i], &p.Buffers[j]
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start))
	})
	for k, i := range fixed {
		for _, j := range fixed[:k] {
			a, b := &p.Buffers[i], &p.Buffers[j]
			if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && overlap(a, b) {
				return nil, fmt.Errorf("place: fixed buffers %d (%q) and %d (%q) overlap", j, b.ID, i, a.ID)
			}
		}
	}
	placed := fixed // sorted by offset
	byOffset := func(i, j int) int { return cmp.Compare(offsets[i], offsets[j]) }
	slices.SortStableFunc(placed, byOffset)
	for _, i := range order {
		b := &p.Buffers[i]
		var at int64
		for _, j := range placed {
			o := &p.Buffers[j]
			if offsets[j] >= at+b.Size {
				break
			}
			if offsets[j]+o.Size > at && overlap(b, o) {
				at = roundUp(offsets[j]+o.Size, max(b.Align, 1))
			}
		}
		offsets[i] = at
		k, _ := slices.BinarySearchFunc(placed, i, byOffset)
		placed = slices.Insert(placed, k, i)
	}
	return offsets, nil
}

// overlap reports whether two buffers own their bytes at a common step.
func overlap(a, b *Buffer) bool {
	if a.Start >= b.End || b.Start >= a.End {
		return false
	}
	if len(a.Gaps) == 0 && len(b.Gaps) == 0 {
		return true
	}
	found := false
	a.active(func(s, e int) {
		b.active(func(t, f int) { found = found || s < f && t < e })
	})
	return found
}

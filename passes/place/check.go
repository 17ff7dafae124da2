package place

import (
	"fmt"
	"sort"
)

// Check verifies a placement against its problem: one offset for each buffer,
// none negative, each aligned, fixed ones where they must be, all below the
// capacity if there is one, and no byte owned by two buffers at one step. It is
// plain on purpose: it compares all pairs that share an address, one by one, and
// calls nothing that the solver is made of.
func Check(p *Problem, offsets []int64) error {
	if len(offsets) != len(p.Buffers) {
		return fmt.Errorf("place: %d offsets for %d buffers", len(offsets), len(p.Buffers))
	}
	var order []int // buffers that own something
	for i, b := range p.Buffers {
		at := offsets[i]
		_, owns := bothLive(&b, &b)
		switch {
		case b.Fixed && at != b.Offset:
			return fmt.Errorf("place: buffer %d (%q) is at %d, fixed at %d", i, b.ID, at, b.Offset)
		case b.Size == 0 || !owns:
			continue
		case at < 0:
			return fmt.Errorf("place: buffer %d (%q) has negative offset %d", i, b.ID, at)
		case b.Align > 1 && at%b.Align != 0:
			return fmt.Errorf("place: buffer %d (%q) is at %d, no multiple of %d", i, b.ID, at, b.Align)
		case at+b.Size < at:
			return fmt.Errorf("place: buffer %d (%q) at %d ends past 2^63", i, b.ID, at)
		case p.Capacity > 0 && at+b.Size > p.Capacity:
			return fmt.Errorf("place: buffer %d (%q) ends at %d, past the capacity %d", i, b.ID, at+b.Size, p.Capacity)
		}
		order = append(order, i)
	}
	sort.SliceStable(order, func(x, y int) bool { return offsets[order[x]] < offsets[order[y]] })
	for n, i := range order {
		a := &p.Buffers[i]
		for _, j := range order[n+1:] {
			b := &p.Buffers[j]
			if offsets[j] >= offsets[i]+a.Size {
				break // this one and the rest begin above a
			}
			if a.Start >= b.End || b.Start >= a.End {
				continue
			}
			if step, ok := bothLive(a, b); ok {
				return fmt.Errorf("place: buffers %d (%q) and %d (%q) share bytes at step %d: [%d,%d) and [%d,%d)",
					i, a.ID, j, b.ID, step, offsets[i], offsets[i]+a.Size, offsets[j], offsets[j]+b.Size)
			}
		}
	}
	return nil
}

// bothLive finds the first step at which both buffers own their bytes. A first
// such step begins an active stretch of one of them, so only starts are tried.
func bothLive(a, b *Buffer) (step int, ok bool) {
	try := func(at int) {
		if liveAt(a, at) && liveAt(b, at) && (!ok || at < step) {
			step, ok = at, true
		}
	}
	for _, x := range []*Buffer{a, b} {
		try(x.Start)
		for _, g := range x.Gaps {
			try(g.End)
		}
	}
	return step, ok
}

func liveAt(b *Buffer, step int) bool {
	for _, g := range b.Gaps {
		if g.Start <= step && step < g.End {
			return false
		}
	}
	return b.Start <= step && step < b.End
}

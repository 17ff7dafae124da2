package place

import (
	"slices"
)

// owns reports whether the buffer holds any byte at any step.
func (b *Buffer) owns() bool {
	if b.Size == 0 || b.End == b.Start {
		return false
	}
	idle := 0
	for _, g := range b.Gaps {
		idle += g.End - g.Start
	}
	return idle < b.End-b.Start
}

// active calls f for each maximal interval in which b owns its bytes.
func (b *Buffer) active(f func(start, end int)) {
	at := b.Start
	for _, g := range b.Gaps {
		if g.Start > at {
			f(at, g.Start)
		}
		at = g.End
	}
	if b.End > at {
		f(at, b.End)
	}
}

// grain is the unit of all offsets; see Problem.
func (p *Problem) grain() int64 {
	var g int64
	for i := range p.Buffers {
		b := &p.Buffers[i]
		switch {
		case !b.owns():
		case b.Fixed:
			g = gcd(g, b.Offset)
		default:
			g = gcd(g, max(b.Align, 1))
		}
	}
	return max(g, 1)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// LowerBound is the largest sum of the bytes of buffers live at one step, each
// rounded up to the grain, or the end of the highest fixed buffer if that is
// more. No placement is lower.
func LowerBound(p *Problem) int64 {
	type event struct {
		step  int
		bytes int64 // positive at a birth, negative at a death
	}
	var events []event
	var bound int64
	grain := p.grain()
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if !b.owns() {
			continue
		}
		size := roundUp(b.Size, grain)
		if b.Fixed {
			bound = max(bound, b.Offset+size)
		}
		b.active(func(start, end int) {
			events = append(events, event{start, size}, event{end, -size})
		})
	}
	slices.SortFunc(events, func(a, b event) int {
		if a.step != b.step {
			return a.step - b.step
		}
		// Deaths first: lifetimes are half-open.
		if a.bytes < b.bytes {
			return -1
		}
		if a.bytes > b.bytes {
			return 1
		}
		return 0
	})
	var live int64
	for _, e := range events {
		live += e.bytes
		bound = max(bound, live)
	}
	return bound
}

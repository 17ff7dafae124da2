package passes

import (
	"slices"

	"memoc/ir"
)

// span is an access in addresses of an arena.
type span struct {
	arena      int
	start, end ir.Bytes // half-open, over all pieces
	write      bool
	place      ir.Place
}

// spanOf is the span of a place in a buffer that begins at offset.
func spanOf(arena int, offset ir.Bytes, at ir.Place, write bool) span {
	at = at.Shifted(offset)
	return span{arena, at.Offset, at.End(), write, at}
}

// meets reports whether two spans have a byte in common.
func (a *span) meets(b *span) bool {
	return a.arena == b.arena && a.start < b.end && b.start < a.end && a.place.Overlaps(b.place)
}

// stepSpans lists what a step touches. Nothing writes a persistent buffer, so
// that reading one needs no order.
func stepSpans(p *ir.Program, s *ir.Step) []span {
	var out []span
	add := func(as []ir.Access, write bool) {
		for _, a := range as {
			b := &p.Buffers[a.Buffer]
			if b.Class == ir.Persistent && !write || a.Size == 0 {
				continue
			}
			out = append(out, spanOf(b.Arena, b.Offset, a, write))
		}
	}
	add(s.Reads, false)
	add(s.Writes, true)
	return out
}

// spans lists what each entry of a placed schedule touches: what stepSpans
// will say of its step.
func (p *placement) spans(c *Context) [][]span {
	s := p.schedule
	slot := map[int]int{}
	for i, h := range s.Host {
		slot[h.Tensor] = i
	}
	work := len(s.Buffers) // the next workspace among the placed buffers
	out := make([][]span, len(s.Entries))
	for i := range s.Entries {
		e := &s.Entries[i]
		add := func(at ir.Place, write bool) {
			if at.Size > 0 {
				out[i] = append(out[i], spanOf(ir.DeviceArena, p.device.Offsets[at.Buffer], at, write))
			}
		}
		for k, x := range e.In {
			from, to := c.Problem.Reads(e, k)
			add(instancePlace(c.Problem, s, x, from, to), false)
		}
		for _, x := range e.Out {
			add(instancePlace(c.Problem, s, x, e.From, e.To), true)
		}
		if lane := e.Lane(); lane != ir.ComputeLane {
			h := slot[s.Instances[slices.Concat(e.In, e.Out)[0]].Tensor]
			if size := s.Host[h].Bytes; size > 0 {
				out[i] = append(out[i], spanOf(ir.HostArena, p.host.Offsets[h], ir.Place{Size: size}, lane == ir.OutLane))
			}
		}
		if w := workspace(c, e); w > 0 {
			out[i] = append(out[i], spanOf(ir.DeviceArena, p.device.Offsets[work], ir.Place{Size: w}, true))
			work++
		}
	}
	return out
}

package passes

import (
	"slices"

	"memoc/ir"
	"memoc/passes/plan"
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
			add(c.taken(e, k, instancePlace(c.Problem, s, x, from, to)), false)
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

// taken is the part of what an entry's op may read of input k that it does
// read: a Slice takes only its range.
func (c *Context) taken(e *plan.Entry, k int, at ir.Place) ir.Place {
	if e.Op < 0 || k > 0 || c.Origin.node[e.Op].Op != "Slice" {
		return at
	}
	v := c.Origin.in[e.Op][0]
	axis, from, to, ok := ir.SliceRange(c.Origin.node[e.Op])
	if !ok || c.Origin.of(c, v) < 0 {
		return at
	}
	t := v.Type
	if e.To > 0 {
		t = cutType(c.Tokens, v, tokensOf(c.Problem, e.From, e.To).extent(), false)
	}
	if part, ok := at.Part(t, axis, from, to); ok {
		return part
	}
	return at
}

package place

import (
	"slices"
)

// span is a range of sections [lo, hi).
type span struct{ lo, hi int32 }

// instance is a problem in the form the search works on. Buffers that own
// nothing are gone, sizes and offsets are in units of the grain, and time is cut
// into sections: the maximal sets of buffers that are live together, in order of
// time. Two buffers conflict exactly when they share a section.
type instance struct {
	n       int
	index   []int    // buffer number in the problem
	size    []int64  // in grains, rounded up
	align   []int64  // in grains, at least 1
	fixed   []int64  // in grains, -1 when movable
	life    []span   // hull of the sections; all of them when spans is nil for it
	spans   [][]span // active sections of buffers with gaps; nil for the others
	pinned  []int32  // the fixed items
	gapped  bool     // some item has gaps
	crooked bool     // some item is fixed or has an alignment above 1
	load    []int64  // sum of sizes live in each section
	bound   int64    // largest load, or the end of the highest fixed buffer
	grain   int64
}

// unit returns x over g, rounded up.
func unit(x, g int64) int64 { return (x + g - 1) / g }

// compile translates a valid problem.
func compile(p *Problem) *instance {
	all := make([]int, len(p.Buffers))
	for i := range all {
		all[i] = i
	}
	return compileSome(p, all, p.grain())
}

// compileSome translates a part of a problem, the buffers with the given numbers.
// The grain is that of the whole, so that padding counts the same.
func compileSome(p *Problem, numbers []int, grain int64) *instance {
	in := &instance{grain: grain}
	for _, i := range numbers {
		b := &p.Buffers[i]
		if !b.owns() {
			continue
		}
		in.index = append(in.index, i)
		in.size = append(in.size, unit(b.Size, in.grain))
		fixed, align := int64(-1), max(b.Align, 1)/in.grain
		if b.Fixed {
			fixed, align = b.Offset/in.grain, 1
		}
		in.fixed = append(in.fixed, fixed)
		in.align = append(in.align, max(align, 1))
	}
	in.n = len(in.index)
	in.cut(p)
	in.measure()
	return in
}

// An edge is a birth or a death on the time axis; deaths sort first, because
// lifetimes are half-open.
type edge struct {
	step  int
	birth bool
	item  int32
	part  int32 // which active interval of the buffer
}

// cut divides time into sections. A new one begins at each birth that follows a
// death: between two such points the live set only grows and then only shrinks,
// so its largest state holds all conflicts of the stretch.
func (in *instance) cut(p *Problem) {
	edges := make([]edge, 0, 2*in.n)
	parts := make([][]span, in.n)
	for k, i := range in.index {
		part := int32(0)
		p.Buffers[i].active(func(start, end int) {
			edges = append(edges, edge{start, true, int32(k), part}, edge{end, false, int32(k), part})
			part++
		})
		parts[k] = make([]span, part)
	}
	slices.SortFunc(edges, func(a, b edge) int {
		switch {
		case a.step != b.step:
			return a.step - b.step
		case a.birth != b.birth:
			if b.birth {
				return -1
			}
			return 1
		}
		return int(a.item - b.item)
	})
	section, grew := int32(0), false
	for _, e := range edges {
		if e.birth {
			parts[e.item][e.part].lo = section
			grew = true
			continue
		}
		if grew {
			section++
			grew = false
		}
		parts[e.item][e.part].hi = section
	}
	in.load = make([]int64, section)
	in.life = make([]span, in.n)
	in.spans = make([][]span, in.n)
	for k, sp := range parts {
		sp = joined(sp)
		in.life[k] = span{sp[0].lo, sp[len(sp)-1].hi}
		if len(sp) > 1 {
			in.spans[k] = sp
		}
	}
}

// joined merges spans that touch: a gap may fall inside one section.
func joined(sp []span) []span {
	out := sp[:0]
	for _, s := range sp {
		switch {
		case s.lo >= s.hi:
		case len(out) > 0 && out[len(out)-1].hi >= s.lo:
			out[len(out)-1].hi = s.hi
		default:
			out = append(out, s)
		}
	}
	return out
}

// active returns the sections in which item k owns its bytes.
func (in *instance) active(k int, buf *[1]span) []span {
	if sp := in.spans[k]; sp != nil {
		return sp
	}
	buf[0] = in.life[k]
	return buf[:]
}

// measure fills in the loads and the bound.
func (in *instance) measure() {
	diff := make([]int64, len(in.load)+1)
	var buf [1]span
	for k := range in.n {
		for _, s := range in.active(k, &buf) {
			diff[s.lo] += in.size[k]
			diff[s.hi] -= in.size[k]
		}
		in.gapped = in.gapped || in.spans[k] != nil
		in.crooked = in.crooked || in.fixed[k] >= 0 || in.align[k] > 1
		if in.fixed[k] >= 0 {
			in.pinned = append(in.pinned, int32(k))
			in.bound = max(in.bound, in.fixed[k]+in.size[k])
		}
	}
	var live int64
	for t := range in.load {
		live += diff[t]
		in.load[t] = live
		in.bound = max(in.bound, live)
	}
}

// conflict reports whether items a and b share a section.
func (in *instance) conflict(a, b int32) bool {
	x, y := in.life[a], in.life[b]
	if x.lo >= y.hi || y.lo >= x.hi {
		return false
	}
	if in.spans[a] == nil && in.spans[b] == nil {
		return true
	}
	var bufA, bufB [1]span
	for _, s := range in.active(int(a), &bufA) {
		if meets(in.active(int(b), &bufB), s.lo, s.hi) {
			return true
		}
	}
	return false
}

// meets reports whether one of the spans shares a section with [lo,hi).
func meets(sp []span, lo, hi int32) bool {
	for _, s := range sp {
		if s.lo < hi && lo < s.hi {
			return true
		}
	}
	return false
}

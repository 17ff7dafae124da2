package place

import (
	"context"
	"fmt"
	"slices"
)

// Block is one instance of a group of buffers that occurs again and again, such
// as the short-lived buffers of the forward pass of one layer.
type Block struct {
	// Class is the number of the group, counted from 0 without holes. The blocks
	// of a class hold buffers alike, in the same order.
	Class   int
	Buffers []int // numbers in the problem
}

// SolveBlocks places in two levels: each class once, by itself, and then each
// block as one buffer beside the buffers that are in none. So the offsets within
// a block are the same in every instance of its class, and code that uses them
// can be shared. The price is height, which is why it is worth comparing with
// Solve. Infeasible is never said: a flat placement may still fit.
func SolveBlocks(ctx context.Context, p *Problem, blocks []Block, opt Options) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	classes, err := p.classes(blocks)
	if err != nil {
		return nil, err
	}
	out := &Solution{Offsets: make([]int64, len(p.Buffers)), LowerBound: LowerBound(p), Reproducible: true}
	inner := make([]*Solution, len(classes))
	for c, b := range classes {
		q := &Problem{}
		for _, i := range b.Buffers {
			q.Buffers = append(q.Buffers, p.Buffers[i])
		}
		if inner[c], err = Solve(ctx, q, opt); err != nil {
			return nil, err
		}
		out.add(inner[c])
	}
	outer := &Problem{Capacity: p.Capacity}
	inBlock := make([]bool, len(p.Buffers))
	for n, b := range blocks {
		whole := p.hull(b)
		whole.ID, whole.Size = fmt.Sprintf("block %d", n), inner[b.Class].Height
		outer.Buffers = append(outer.Buffers, whole)
		for _, i := range b.Buffers {
			inBlock[i] = true
		}
	}
	var single []int
	for i := range p.Buffers {
		if !inBlock[i] {
			single = append(single, i)
			outer.Buffers = append(outer.Buffers, p.Buffers[i])
		}
	}
	s, err := Solve(ctx, outer, opt)
	if err != nil {
		return nil, err
	}
	out.add(s)
	for n, b := range blocks {
		for j, i := range b.Buffers {
			out.Offsets[i] = s.Offsets[n] + inner[b.Class].Offsets[j]
		}
	}
	for j, i := range single {
		out.Offsets[i] = s.Offsets[len(blocks)+j]
	}
	out.Height = s.Height
	out.Status = s.Status
	switch {
	case s.Status == Infeasible:
		out.Status = Undecided
	case s.Status == Optimal && out.Height > out.LowerBound:
		out.Status = Feasible
	}
	return out, nil
}

// add counts the work of a part.
func (s *Solution) add(part *Solution) {
	s.Work += part.Work
	s.Reproducible = s.Reproducible && part.Reproducible
}

// hull is a buffer that lives while any of the block does, and is aligned for
// all of them.
func (p *Problem) hull(b Block) Buffer {
	h := Buffer{Align: 1}
	for n, i := range b.Buffers {
		o := &p.Buffers[i]
		a := max(o.Align, 1)
		h.Align = h.Align / gcd(h.Align, a) * a
		if n == 0 {
			h.Start, h.End = o.Start, o.End
		}
		h.Start, h.End = min(h.Start, o.Start), max(h.End, o.End)
	}
	return h
}

// classes returns a block for each class, and an error if blocks of one class
// differ, share a buffer or hold a fixed one.
func (p *Problem) classes(blocks []Block) ([]Block, error) {
	var first []Block
	seen := make([]bool, len(p.Buffers))
	for n, b := range blocks {
		for _, i := range b.Buffers {
			switch {
			case i < 0 || i >= len(seen):
				return nil, fmt.Errorf("place: block %d: there is no buffer %d", n, i)
			case seen[i]:
				return nil, fmt.Errorf("place: block %d: buffer %d is there twice, or in another block", n, i)
			case p.Buffers[i].Fixed:
				return nil, fmt.Errorf("place: block %d: buffer %d has a fixed offset", n, i)
			}
			seen[i] = true
		}
		switch {
		case b.Class == len(first):
			first = append(first, b)
		case b.Class < 0 || b.Class > len(first):
			return nil, fmt.Errorf("place: block %d: class %d comes before class %d", n, b.Class, len(first))
		case !p.alike(first[b.Class], b):
			return nil, fmt.Errorf("place: block %d: its buffers differ from those of the first block of class %d", n, b.Class)
		}
	}
	return first, nil
}

// alike reports whether two blocks differ only by a shift in time.
func (p *Problem) alike(a, b Block) bool {
	if len(a.Buffers) != len(b.Buffers) {
		return false
	}
	shift := p.hull(b).Start - p.hull(a).Start
	for n, i := range a.Buffers {
		x, y := &p.Buffers[i], &p.Buffers[b.Buffers[n]]
		gaps := slices.EqualFunc(x.Gaps, y.Gaps, func(g, h Interval) bool {
			return g.Start+shift == h.Start && g.End+shift == h.End
		})
		if x.Size != y.Size || x.Align != y.Align || x.Start+shift != y.Start || x.End+shift != y.End || !gaps {
			return false
		}
	}
	return true
}

package place

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// bruteHeight is the least height of a problem of few buffers: first fit in every
// order, one of which is the order of addresses of a lowest placement. Buffers
// outside keep are left out.
func bruteHeight(p *Problem, keep func(i int) bool) int64 {
	grain := p.grain()
	offsets := make([]int64, len(p.Buffers))
	var placed, free []int
	var base int64
	for i := range p.Buffers {
		b := &p.Buffers[i]
		switch {
		case !b.owns() || !keep(i):
		case b.Fixed:
			offsets[i] = b.Offset
			placed = append(placed, i)
			base = max(base, b.Offset+roundUp(b.Size, grain))
		default:
			free = append(free, i)
		}
	}
	best := never
	var rec func(placed, free []int, top int64)
	rec = func(placed, free []int, top int64) {
		if top >= best {
			return
		}
		if len(free) == 0 {
			best = top
			return
		}
		for n, i := range free {
			b := &p.Buffers[i]
			align := max(b.Align, 1)
			var at int64
			for again := true; again; {
				again = false
				for _, j := range placed {
					o := &p.Buffers[j]
					if at < offsets[j]+o.Size && offsets[j] < at+b.Size && bruteOverlap(b, o) {
						at, again = roundUp(offsets[j]+o.Size, align), true
					}
				}
			}
			offsets[i] = at
			rest := slices.Concat(free[:n], free[n+1:])
			rec(append(slices.Clone(placed), i), rest, max(top, at+roundUp(b.Size, grain)))
		}
	}
	rec(placed, free, base)
	return best
}

func bruteOverlap(a, b *Buffer) bool {
	for step := max(a.Start, b.Start); step < min(a.End, b.End); step++ {
		if liveAt(a, step) && liveAt(b, step) {
			return true
		}
	}
	return false
}

// randomSmall makes a problem that brute force can solve; kind selects features.
func randomSmall(r *rand.Rand, kind int) *Problem {
	p := &Problem{}
	n := 3 + r.Intn(4)
	aligns := []int64{1, 1, 2, 3, 4}
	for i := range n {
		b := Buffer{ID: fmt.Sprint(i), Size: int64(r.Intn(9)), Start: r.Intn(8)}
		b.End = b.Start + r.Intn(6)
		if kind&1 != 0 {
			b.Align = aligns[r.Intn(len(aligns))]
		}
		if kind&2 != 0 && b.End-b.Start >= 3 && r.Intn(2) == 0 {
			b.Gaps = []Interval{{b.Start + 1, b.Start + 2}}
			if b.End-b.Start >= 5 {
				b.Gaps = append(b.Gaps, Interval{b.Start + 3, b.Start + 4})
			}
		}
		if kind&4 != 0 && r.Intn(3) == 0 {
			b.Fixed, b.Offset = true, int64(r.Intn(8))*max(b.Align, 1)
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p
}

// allTechniques calls f for every combination of techniques.
func allTechniques(f func(Techniques)) {
	for m := range 1 << 9 {
		on := func(i int) bool { return m>>i&1 != 0 }
		f(Techniques{on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7), on(8)})
	}
}

func fixedOverlap(p *Problem) bool {
	for i := range p.Buffers {
		for j := range p.Buffers[:i] {
			a, b := &p.Buffers[i], &p.Buffers[j]
			if a.Fixed && b.Fixed && a.owns() && b.owns() && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size && bruteOverlap(a, b) {
				return true
			}
		}
	}
	return false
}

// Every combination of techniques finds valid placements and true proofs, with
// alignment, gaps and fixed offsets, minimising and under a capacity.
func TestTechniquesAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for round := range 40 {
		p := randomSmall(r, round%8)
		if fixedOverlap(p) {
			if _, err := Solve(context.Background(), p, Options{}); err == nil {
				t.Fatalf("overlapping fixed buffers accepted: %+v", p)
			}
			continue
		}
		want := bruteHeight(p, func(int) bool { return true })
		allTechniques(func(tech Techniques) {
			checkSmall(t, p, want, tech)
		})
	}
}

// Many more problems with the default techniques.
func TestRandomAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for round := range 3000 {
		p := randomSmall(r, round%8)
		if !fixedOverlap(p) {
			checkSmall(t, p, bruteHeight(p, func(int) bool { return true }), DefaultTechniques())
		}
	}
}

func checkSmall(t *testing.T, p *Problem, want int64, tech Techniques) {
	t.Helper()
	opt := Options{Work: 1 << 22, Techniques: &tech}
	s, err := Solve(context.Background(), p, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(p, s.Offsets); err != nil {
		t.Fatalf("%v\n%+v\n%+v", err, p, tech)
	}
	if s.Height < want || s.LowerBound > want || s.Status == Optimal && s.Height != want {
		t.Fatalf("height %d, bound %d, %v; brute force %d\n%+v\n%+v", s.Height, s.LowerBound, s.Status, want, p, tech)
	}
	if tech.Exact && s.Status != Optimal {
		t.Fatalf("not proved: height %d, bound %d, brute force %d\n%+v\n%+v", s.Height, s.LowerBound, want, p, tech)
	}
	for _, less := range []int64{0, p.grain()} {
		q := *p
		if q.Capacity = want - less; q.Capacity <= 0 {
			continue
		}
		checkCapacity(t, &q, want, opt)
	}
}

func checkCapacity(t *testing.T, q *Problem, want int64, opt Options) {
	t.Helper()
	s, err := Solve(context.Background(), q, opt)
	if err != nil {
		t.Fatal(err)
	}
	switch s.Status {
	case Feasible, Optimal:
		err = Check(q, s.Offsets)
		if q.Capacity < want {
			err = fmt.Errorf("fits below the least height %d", want)
		}
	case Infeasible:
		err = checkConflict(q, s, want)
	default:
		if opt.Techniques.Exact {
			err = fmt.Errorf("undecided")
		}
	}
	if err != nil {
		t.Fatalf("capacity %d, least %d, %v: %v\n%+v\n%+v", q.Capacity, want, s.Status, err, q, *opt.Techniques)
	}
}

func checkConflict(q *Problem, s *Solution, want int64) error {
	if q.Capacity >= want {
		return fmt.Errorf("called infeasible")
	}
	in := func(without int) func(int) bool {
		return func(i int) bool { return i != without && slices.Contains(s.Conflict, i) }
	}
	// Fixed buffers outside the conflict are left out as well.
	limit := q.Capacity / q.grain() * q.grain()
	if h := bruteHeight(q, in(-1)); h <= limit {
		return fmt.Errorf("conflict %v fits: %d", s.Conflict, h)
	}
	if s.ConflictReducible {
		return nil
	}
	for _, i := range s.Conflict {
		if h := bruteHeight(q, in(i)); h > limit {
			return fmt.Errorf("conflict %v stays one without %d: %d", s.Conflict, i, h)
		}
	}
	return nil
}

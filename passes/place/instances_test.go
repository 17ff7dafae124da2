//go:build unix

package place

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// The public instances and our own are solved as docs/placement.md says, with
// limits on work and not on time.
func TestInstances(t *testing.T) {
	for _, c := range benchCases() {
		optimal := c.capacity > 0
		switch c.name {
		case "C/minimise", "iopddl_G_1", "resnet50", "step/4", "planned/4", "step/32", "planned/32":
			optimal = true
		case "pangu_2.6B":
			optimal = !testing.Short()
		}
		if !optimal {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			p := c.problem(t)
			s, err := Solve(context.Background(), p, Options{Work: 1 << 28})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(p, s.Offsets); err != nil {
				t.Fatal(err)
			}
			if c.capacity == 0 && s.Height != s.LowerBound {
				t.Errorf("height %d, bound %d", s.Height, s.LowerBound)
			}
			if !s.Reproducible {
				t.Error("not reproducible")
			}
		})
	}
}

// The first answer comes at once, whatever the size.
func TestFirstAnswer(t *testing.T) {
	for _, p := range []*Problem{randomProblem(30000, 5), wideProblem(30000, 5)} {
		s, err := Solve(context.Background(), p, Options{Work: -1})
		if err != nil {
			t.Fatal(err)
		}
		if g := s.Gap(); g > 0.2 || s.Status != Feasible {
			t.Errorf("gap %.3f, %v", g, s.Status)
		}
	}
}

func TestSameAnswerEveryTime(t *testing.T) {
	p := randomProblem(400, 3)
	var first *Solution
	for range 3 {
		s, err := Solve(context.Background(), p, Options{Work: 1 << 23})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = s
		}
		if !reflect.DeepEqual(first, s) {
			t.Fatal("two runs differ")
		}
	}
	done := make(chan *Solution)
	for range 4 {
		go func() {
			s, _ := Solve(context.Background(), p, Options{Work: 1 << 23})
			done <- s
		}()
	}
	for range 4 {
		if s := <-done; !reflect.DeepEqual(first, s) {
			t.Fatal("runs at once differ")
		}
	}
}

// A cancelled context and a passed time limit still give a valid placement.
func TestCutShort(t *testing.T) {
	p := randomProblem(2000, 4)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, run := range []func() (*Solution, error){
		func() (*Solution, error) { return Solve(ctx, p, Options{}) },
		func() (*Solution, error) {
			return Solve(context.Background(), p, Options{Work: 1 << 40, TimeLimit: 20 * time.Millisecond})
		},
	} {
		start := time.Now()
		s, err := run()
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(p, s.Offsets); err != nil {
			t.Fatal(err)
		}
		if s.Reproducible {
			t.Error("called reproducible")
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	}
}

// Heights only fall, and the last one reported is that of the answer.
func TestProgress(t *testing.T) {
	p := randomProblem(300, 6)
	last := int64(0)
	s, err := Solve(context.Background(), p, Options{Work: 1 << 24, Progress: func(g Progress) {
		if last != 0 && g.Height > last || g.Height < g.LowerBound {
			t.Errorf("%+v after %d", g, last)
		}
		last = g.Height
	}})
	if err != nil || s.Height != last {
		t.Errorf("height %d, last %d, %v", s.Height, last, err)
	}
}

// Hints that are a placement give it back at least, even as the first answer.
func TestHints(t *testing.T) {
	p := randomProblem(300, 7)
	s, err := Solve(context.Background(), p, Options{Work: 1 << 25})
	if err != nil {
		t.Fatal(err)
	}
	q := &Problem{Buffers: slices.Clone(p.Buffers)}
	for i := range q.Buffers {
		q.Buffers[i].HasHint, q.Buffers[i].Hint = true, s.Offsets[i]
	}
	again, err := Solve(context.Background(), q, Options{Work: 1 << 16})
	if err != nil || again.Height > s.Height {
		t.Errorf("with hints %d, before %d, %v", again.Height, s.Height, err)
	}
}

func TestBadProblems(t *testing.T) {
	for want, b := range map[string]Buffer{
		"size -1 is negative":                                            {Size: -1},
		"alignment -1 is negative":                                       {Align: -1},
		"lifetime ends at 1, before its start 2":                         {Start: 2, End: 1},
		"fixed offset -4 is negative":                                    {Fixed: true, Offset: -4},
		"fixed offset 6 is no multiple of the alignment 4":               {Fixed: true, Offset: 6, Align: 4},
		"offset 6 is given, but not fixed":                               {Offset: 6},
		"sizes and alignments add up to more than 2^62":                  {Size: 1 << 62},
		"gap [1,3) is empty, out of order or outside the lifetime [2,9)": {Start: 2, End: 9, Gaps: []Interval{{1, 3}}},
	} {
		b.ID = "b"
		_, err := Solve(context.Background(), &Problem{Buffers: []Buffer{{}, b}}, Options{})
		if wanted := fmt.Sprintf("place: buffer 1 (%q): %s", "b", want); err == nil || err.Error() != wanted {
			t.Errorf("got  %v\nwant %s", err, wanted)
		}
	}
	if _, err := Solve(context.Background(), &Problem{Capacity: -1}, Options{}); err == nil {
		t.Error("a negative capacity passes")
	}
}

// Check finds each kind of fault that a placement can have.
func TestCheckFinds(t *testing.T) {
	p := &Problem{Capacity: 100, Buffers: []Buffer{
		{ID: "a", Size: 10, Align: 4, Start: 0, End: 4},
		{ID: "b", Size: 10, Start: 2, End: 6, Fixed: true, Offset: 20},
		{ID: "c", Size: 10, Start: 3, End: 9, Gaps: []Interval{{5, 8}}},
		{ID: "d", Size: 10, Start: 5, End: 8},
		{ID: "e", Size: 0, Start: 0, End: 9},
	}}
	good := []int64{0, 20, 10, 10, 0}
	if err := Check(p, good); err != nil {
		t.Fatal(err)
	}
	for i, bad := range [][]int64{{0, 20, 10, 10}, {2, 20, 10, 10, 0}, {0, 30, 10, 10, 0}, {0, 20, 9, 10, 0},
		{0, 20, 10, 11, 0}, {0, 20, 10, 91, 0}, {0, 20, -1, 10, 0}, {4, 20, 10, 10, 0}} {
		if err := Check(p, bad); err == nil {
			t.Errorf("case %d passes", i)
		}
	}
}

// Buffers that own nothing conflict with none, and need no room.
func TestNothingToPlace(t *testing.T) {
	for _, p := range []*Problem{
		{},
		{Capacity: 1, Buffers: []Buffer{{Size: 0, End: 5}, {Size: 9, Start: 3, End: 3}, {Size: 9, End: 4, Gaps: []Interval{{0, 4}}}}},
	} {
		s, err := Solve(context.Background(), p, Options{})
		if err != nil || s.Status != Optimal || s.Height != 0 || s.LowerBound != 0 || len(s.Offsets) != len(p.Buffers) {
			t.Errorf("%+v, %v", s, err)
		}
		if err := Check(p, s.Offsets); err != nil {
			t.Error(err)
		}
	}
}

// Sizes of 1, 6, 4, 8 and 2 bytes at an alignment of 256 take 256 bytes each, and
// a large buffer beside them begins at a multiple of it.
func TestPaddingCounts(t *testing.T) {
	p := &Problem{}
	for _, size := range []int64{1, 6, 4, 8, 2, 1 << 20} {
		p.Buffers = append(p.Buffers, Buffer{Size: size, Align: 256, End: 1})
	}
	s, err := Solve(context.Background(), p, Options{})
	if want := int64(5*256 + 1<<20); err != nil || s.Height != want || s.LowerBound != want {
		t.Errorf("height %d, bound %d, want %d, %v", s.Height, s.LowerBound, want, err)
	}
}

// A thousand fixed buffers, as weights in a caller's order, cost little.
func TestManyFixed(t *testing.T) {
	p := randomProblem(400, 9)
	var base int64
	for i := range 1000 {
		size := int64(1+i%7) << 12
		p.Buffers = append(p.Buffers, Buffer{ID: fmt.Sprint("w", i), Size: size, Align: 256, End: 401, Fixed: true, Offset: base})
		base += size
	}
	s, err := Solve(context.Background(), p, Options{Work: 1 << 26})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(p, s.Offsets); err != nil {
		t.Fatal(err)
	}
	if s.Gap() > 0.08 {
		t.Errorf("gap %.3f", s.Gap())
	}
}

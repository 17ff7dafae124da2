// Package place chooses addresses: given buffers with known sizes and lifetimes
// it finds an offset for each in one arena, so that no two buffers that are live
// at the same step share a byte, and the arena is as low as possible.
//
// The package is pure. It knows nothing of graphs, tensors or devices, imports
// only the standard library, and gives the same answer for the same input
// wherever it runs, because its search is limited by counted work and not by the
// clock. Check is the independent judge of an answer.
package place

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Interval is a half-open range of steps [Start, End).
type Interval struct {
	Start, End int
}

// Buffer is one piece of memory to place. Sizes and offsets are int64 bytes,
// steps are int, so the two cannot be mixed by accident.
type Buffer struct {
	ID   string // only for messages and files; need not be unique for Solve
	Size int64  // bytes; a buffer of size 0 owns nothing and conflicts with none

	// Align is the number the offset must be a multiple of; 0 means 1. It need
	// not be a power of two.
	Align int64

	// Start and End are the lifetime, half-open: live at Start, not at End. An
	// empty lifetime owns nothing.
	Start, End int

	// Gaps are sub-intervals of the lifetime in which the buffer does not own
	// its bytes, sorted and disjoint.
	Gaps []Interval

	// Fixed says that the offset is not ours to choose: it is Offset.
	Fixed  bool
	Offset int64

	// Hint, when HasHint, is the offset of an earlier placement. Hints give the
	// order of a first try, so that a good placement is not lost.
	HasHint bool
	Hint    int64
}

// Problem is a set of buffers that share one arena.
//
// The grain of a problem is the greatest common divisor of the alignments of its
// movable buffers and the offsets of its fixed ones. A buffer owns its size
// rounded up to the grain: padding counts in Height, LowerBound and Capacity.
type Problem struct {
	Buffers []Buffer

	// Capacity is the size of the arena in bytes. 0 means that there is none,
	// and that the height is to be minimised.
	Capacity int64
}

// Status says how far an answer is proved.
type Status int

const (
	// Undecided: there is a capacity, and neither a placement below it nor a
	// proof that there is none was found. Offsets hold the best found.
	Undecided Status = iota
	// Feasible: the placement is valid, below the capacity if there is one; a
	// lower one may exist.
	Feasible
	// Optimal: valid, and no lower one exists.
	Optimal
	// Infeasible: proved that no placement fits; Conflict says why.
	Infeasible
)

var statusNames = [...]string{"undecided", "feasible", "optimal", "infeasible"}

func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int(s))
	}
	return statusNames[s]
}

// MarshalText makes a status read as a word in JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Options limit and steer the search. The zero value is the default.
type Options struct {
	// Work limits the search, in steps; one looks at one buffer or one section
	// and takes about two nanoseconds. 0 means DefaultWork, or no limit when there
	// is a TimeLimit; negative means the first answer only. Equal limits give equal
	// answers, on every machine.
	Work int64

	// TimeLimit, if positive, stops the search by the clock as well. An answer
	// cut short by it is marked as not reproducible.
	TimeLimit time.Duration

	// Progress, if set, is called from the solving goroutine on each improvement.
	Progress func(Progress)

	// Techniques, if not nil, replaces DefaultTechniques.
	Techniques *Techniques
}

// DefaultWork is the work limit of the zero Options: less than a second.
const DefaultWork = 1 << 28

// Progress is a report of an improvement while a search runs.
type Progress struct {
	Height     int64 // best so far
	LowerBound int64 // best proved so far
	Work       int64 // units spent
}

// Solution is the answer to a Problem.
type Solution struct {
	// Offsets by buffer index; always present, and valid but for the capacity
	// when the status is Undecided or Infeasible. A buffer that owns nothing has
	// offset 0, or its fixed one.
	Offsets []int64

	Height     int64 // bytes of arena used, padding included
	LowerBound int64 // no placement is lower than this
	Status     Status

	// Conflict, when Infeasible, holds the indices of buffers that cannot be
	// placed together below the capacity, ascending. Without any one of them
	// the rest can be, unless ConflictReducible says that this was not proved.
	Conflict          []int
	ConflictReducible bool

	Work int64 // units of search spent

	// Reproducible is false when a clock or a cancelled context cut the search.
	Reproducible bool
}

// Gap is the height over the bound, as a fraction above 1: 0.01 is one percent.
func (s *Solution) Gap() float64 {
	if s.LowerBound == 0 {
		return 0
	}
	return float64(s.Height)/float64(s.LowerBound) - 1
}

// Validate reports the first reason why a problem makes no sense.
func (p *Problem) Validate() error {
	if p.Capacity < 0 {
		return fmt.Errorf("place: capacity %d is negative", p.Capacity)
	}
	sum := int64(0)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if err := b.validate(); err != nil {
			return fmt.Errorf("place: buffer %d (%q): %w", i, b.ID, err)
		}
		// Each buffer may be padded by its alignment twice: in front and behind.
		// While this sum stays below never, no height can overflow.
		for _, more := range []int64{b.Size, b.Align, b.Align, b.Offset} {
			if more >= never-sum {
				return fmt.Errorf("place: buffer %d (%q): sizes and alignments add up to more than 2^62", i, b.ID)
			}
			sum += more
		}
	}
	return nil
}

// maxStep bounds steps, so that the length of a life is an int.
const maxStep = math.MaxInt / 2

func (b *Buffer) validate() error {
	switch {
	case b.Size < 0:
		return fmt.Errorf("size %d is negative", b.Size)
	case b.Align < 0:
		return fmt.Errorf("alignment %d is negative", b.Align)
	case b.Start < -maxStep || b.End > maxStep:
		return fmt.Errorf("lifetime [%d,%d) is out of range", b.Start, b.End)
	case b.End < b.Start:
		return fmt.Errorf("lifetime ends at %d, before its start %d", b.End, b.Start)
	case b.Fixed && b.Offset < 0:
		return fmt.Errorf("fixed offset %d is negative", b.Offset)
	case !b.Fixed && b.Offset != 0:
		return fmt.Errorf("offset %d is given, but not fixed", b.Offset)
	case b.Fixed && b.Align > 1 && b.Offset%b.Align != 0:
		return fmt.Errorf("fixed offset %d is no multiple of the alignment %d", b.Offset, b.Align)
	}
	last := b.Start
	for _, g := range b.Gaps {
		if g.Start < last || g.End <= g.Start || g.End > b.End {
			return fmt.Errorf("gap [%d,%d) is empty, out of order or outside the lifetime [%d,%d)", g.Start, g.End, b.Start, b.End)
		}
		last = g.End
	}
	return nil
}

// Solve places the buffers of p. With a capacity it decides whether they fit and
// stops there; without one it lowers the height until the bound, the work limit
// or the end of ctx. An error means that the problem is malformed, or that two
// fixed buffers overlap; a cancelled context is no error.
func Solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return solve(ctx, p, opt)
}

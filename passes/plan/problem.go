// Package plan searches for what to do with every tensor between its uses:
// keep it on the device, swap it to the host and back, or recompute it. It is
// pure: a Problem of numbers in, a ladder of Schedules out. It knows nothing of
// graphs, offsets or files.
package plan

import "fmt"

// Problem is a step: operations in execution order over tensors. Tensors that
// live always (weights, inputs) are not part of it.
type Problem struct {
	Ops     []Op
	Tensors []Tensor
	// Copy rates in bytes per nanosecond and the fixed time of one copy.
	OutRate, InRate float64
	CopyLatency     int64 // nanoseconds
	HostBytes       int64 // budget of the host arena; 0: no swapping
	// Tokens is the extent of the token axis, Tile how many tokens apart the
	// positions are at which a tensor may be cut; the last tile may be shorter.
	// Tokens 0: nothing is cut.
	Tokens, Tile int64
	// PackRate and PackLatency give the time of moving one part of a tensor
	// between its rows and a buffer of its own, on the device: bytes of the part
	// per nanosecond, and nanoseconds.
	PackRate    float64
	PackLatency int64
}

// Op is one operation.
type Op struct {
	Time      int64 // nanoseconds
	In, Out   []int // tensors; an op that needs a persistent value lists nothing for it
	InPlace   []Alias
	Clone     bool  // running it again on the same inputs gives the same outputs
	Workspace int64 // bytes alive during the op alone
	// Range is parallel to In where the op may run on a range of tokens: whether
	// the input is read at the same tokens as are made, or whole. nil: the op
	// only runs whole.
	Range []bool
	// TileTime is the time of running on one tile; between one tile and all of
	// them time is linear.
	TileTime int64
}

// Alias lets output tensor Out take over the bytes of input tensor In where
// In dies at the op; both have the same size.
type Alias struct{ In, Out int }

// Tensor is one storage.
type Tensor struct {
	Bytes   int64
	Output  bool // must be intact at the end of the step
	Derived bool // computed from persistent values alone: never worth a copy
	Spread  bool // repeats the elements of something smaller (Expand): that is copied, if anything
	// Rows is the number of pieces that a range of tokens lies in: 1 where the
	// token axis is outermost, 0 where there is none.
	Rows int64
	// TokenBytes is the bytes of one token over all rows; Tokens*TokenBytes is
	// the tensor without padding.
	TokenBytes int64
	// Role is the same, above zero, for the tensor that each of several repeated
	// layers has in one place, and Layer the number of the layer, from 1 in the
	// order of the forward pass. Zero: the tensor belongs to no repeated layer.
	Role, Layer int
	// Input: what the layer reads from the layer before it; it counts to the layer
	// that reads it. Attention: the output of its attention, which mixes tokens.
	Input, Attention bool
	// Layout: only arranges anew the elements of another tensor that waits.
	Layout bool
}

// Validate checks indices, order and signs.
func (p *Problem) Validate() error {
	if err := p.validateTokens(); err != nil {
		return err
	}
	made := make([]bool, len(p.Tensors))
	for i, t := range p.Tensors {
		if t.Bytes < 0 {
			return fmt.Errorf("plan: tensor %d has %d bytes", i, t.Bytes)
		}
		if err := p.validateRows(i); err != nil {
			return err
		}
	}
	for i, op := range p.Ops {
		if op.Time < 0 || op.Workspace < 0 {
			return fmt.Errorf("plan: op %d has a negative time or workspace", i)
		}
		for _, t := range op.In {
			if t < 0 || t >= len(made) || !made[t] {
				return fmt.Errorf("plan: op %d reads tensor %d, which no earlier op makes", i, t)
			}
		}
		for _, t := range op.Out {
			if t < 0 || t >= len(made) || made[t] {
				return fmt.Errorf("plan: op %d makes tensor %d, which does not exist or is made already", i, t)
			}
			made[t] = true
		}
		if err := p.validateRange(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *Problem) outTime(bytes int64) int64 {
	return p.CopyLatency + int64(float64(bytes)/p.OutRate)
}

func (p *Problem) inTime(bytes int64) int64 {
	return p.CopyLatency + int64(float64(bytes)/p.InRate)
}

// facts is what the search derives from a Problem once.
type facts struct {
	producer []int // op that makes each tensor
	uses     [][]int
	gap      []int // largest distance in ops between successive uses (definition included)
	// near is the distance in ops below which a tensor stays where it is
	// between two uses whatever is decided for it.
	near int
}

func (p *Problem) facts() *facts {
	f := &facts{producer: make([]int, len(p.Tensors)), uses: make([][]int, len(p.Tensors)), gap: make([]int, len(p.Tensors))}
	f.near = min(max(len(p.Ops)/64, 1), 64)
	for i, op := range p.Ops {
		for _, t := range op.Out {
			f.producer[t] = i
		}
		for _, t := range op.In {
			if n := len(f.uses[t]); n == 0 || f.uses[t][n-1] != i {
				f.uses[t] = append(f.uses[t], i)
			}
		}
	}
	for t := range p.Tensors {
		prev := f.producer[t]
		for _, u := range f.uses[t] {
			f.gap[t] = max(f.gap[t], u-prev)
			prev = u
		}
	}
	return f
}

// window is the distance in ops up to which an instance of t is kept for its
// next use. Gaps of half the largest or more are worth leaving the device for:
// one for an activation between forward and backward, many for a mask that
// every layer reads.
func (f *facts) window(t int) int { return max(f.near, (f.gap[t]+1)/2) }

// skeletal reports whether t waits long enough between uses to be decided on.
func (f *facts) skeletal(t int) bool { return f.gap[t] > f.near }

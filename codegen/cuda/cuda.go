// Package cuda writes a Program as a C++ project that runs the step: with CUDA
// on a GPU, or with g++ alone on the host runtime, from the same source.
//
// What does not depend on the Program is C++ text under lib, copied as it is:
// kernel.h (what operator kernels are written against), the two runtimes, the
// loop over the steps, the C interface and the driver. What does depend on it
// is data: step.cu holds one launch function for each distinct launch and one
// table row for each step, so that repeated layers share code, and kernels.h
// holds each kernel text once.
//
// The package knows Programs and the operator contract; it never asks a pass.
package cuda

import (
	"fmt"
	"io"

	"memoc/ir"
)

// File is one file of the project, by its slash-separated path in it.
type File struct {
	Path  string
	Write func(io.Writer) error
}

// Emit renders p. It fails before anything is written if a step has no kernel:
// the error names the operator, its domain and version, and the node.
func Emit(p *ir.Program) ([]File, error) {
	e := newEmitter(p)
	if err := e.collect(); err != nil {
		return nil, err
	}
	files := libFiles()
	files = append(files,
		textFile("step.cu", e.stepSource()),
		textFile("kernels.h", e.kernels.source()),
		File{Path: "weights.bin", Write: e.writeWeights})
	return files, nil
}

// emitter gathers the tables of step.cu.
type emitter struct {
	p       *ir.Program
	kernels *kernelSet
	tensors []tensor
	rows    []row
	events  map[int]int // step to the event recorded after it
	consts  []constant
}

// row is one entry of the step table with its share of the other tables.
type row struct {
	step    *ir.Step
	name    string
	launch  int // index into kernels.launches, -1 for none
	buffers []int64
	copies  []copyRow
	ranges  []rangeRow
	waits   []int // events
	freed   []*ir.Buffer
	random  uint64
	remark  string
	refs    [5]string // into the tables buffers, copies, ranges, waits, freed
}

type rangeRow struct {
	arena  int
	buffer int // only pieces of one buffer are written as one range
	write  bool
	off, n int64
	count  int64
	stride int64
}

type copyRow struct {
	dst, src rangeRow // n: bytes of a row; stride: pitch
	rows     int64
}

func newEmitter(p *ir.Program) *emitter {
	return &emitter{p: p, kernels: newKernelSet(), events: map[int]int{}}
}

func (e *emitter) collect() error {
	if len(e.p.Arenas) < 1 || len(e.p.Lanes) < 1 {
		return fmt.Errorf("BUG: program %q has no arena or no lane", e.p.Name)
	}
	for _, s := range e.p.Steps {
		for _, w := range s.Waits {
			if _, ok := e.events[w]; !ok {
				e.events[w] = len(e.events)
			}
		}
	}
	if err := e.collectTensors(); err != nil {
		return err
	}
	ending := e.endings()
	for i := range e.p.Steps {
		r, err := e.row(i)
		if err != nil {
			return err
		}
		r.freed = ending[i]
		e.rows = append(e.rows, r)
	}
	return nil
}

// endings lists, for every step, the buffers whose life ends with it.
func (e *emitter) endings() [][]*ir.Buffer {
	out := make([][]*ir.Buffer, len(e.p.Steps))
	for i := range e.p.Buffers {
		b := &e.p.Buffers[i]
		lasts := b.Class == ir.Persistent || b.Class == ir.Output
		if !lasts && b.Size > 0 && b.End > 0 && b.End <= len(out) {
			out[b.End-1] = append(out[b.End-1], b)
		}
	}
	return out
}

func (e *emitter) row(i int) (row, error) {
	s := &e.p.Steps[i]
	r := row{step: s, launch: -1, name: fmt.Sprintf("step %d", i)}
	if s.Node != nil {
		r.name = s.Node.Name
	}
	for _, a := range s.Reads {
		e.addAccess(&r, a, false)
	}
	for _, a := range s.Writes {
		e.addAccess(&r, a, true)
	}
	for _, w := range s.Waits {
		r.waits = append(r.waits, e.events[w])
	}
	if s.Kind != ir.RunStep {
		return r, e.addCopies(&r)
	}
	if s.Workspace >= 0 && !touches(s.Writes, s.Workspace) {
		b := e.p.Buffers[s.Workspace]
		r.addRange(rangeRow{arena: b.Arena, buffer: s.Workspace, write: true, off: b.Offset, n: b.Size, count: 1})
	}
	return r, e.addLaunch(&r)
}

func touches(as []ir.Access, buffer int) bool {
	for _, a := range as {
		if a.Buffer == buffer {
			return true
		}
	}
	return false
}

// addAccess appends the pieces of an access.
func (e *emitter) addAccess(r *row, a ir.Access, write bool) {
	a.Each(func(from, to int64) {
		piece := a
		piece.Offset, piece.Size = from, to-from
		r.addRange(e.rangeOf(piece, write))
	})
}

func (e *emitter) rangeOf(a ir.Access, write bool) rangeRow {
	b := e.p.Buffers[a.Buffer]
	return rangeRow{arena: b.Arena, buffer: a.Buffer, write: write, off: b.Offset + a.Offset, n: a.Size, count: 1}
}

// addRange appends x, or lengthens the last range where x is its next piece.
func (r *row) addRange(x rangeRow) {
	if x.n == 0 {
		return
	}
	if len(r.ranges) > 0 {
		last := &r.ranges[len(r.ranges)-1]
		if last.buffer == x.buffer && last.write == x.write && last.n == x.n {
			gap := x.off - last.off - last.stride*(last.count-1)
			if gap >= last.n && (last.count == 1 || gap == last.stride) {
				last.stride = gap
				last.count++
				return
			}
		}
	}
	r.ranges = append(r.ranges, x)
}

// addCopies pairs the reads and writes of a copy step, piece by piece.
func (e *emitter) addCopies(r *row) error {
	s := r.step
	if len(s.Reads) != len(s.Writes) {
		return fmt.Errorf("BUG: copy step %q reads %d pieces and writes %d", r.name, len(s.Reads), len(s.Writes))
	}
	for i := range s.Reads {
		src, dst := e.rangeOf(s.Reads[i], false), e.rangeOf(s.Writes[i], true)
		if src.n != dst.n {
			return fmt.Errorf("BUG: copy step %q reads %d bytes and writes %d", r.name, src.n, dst.n)
		}
		if src.n > 0 {
			r.addCopy(src, dst)
		}
	}
	return nil
}

// addCopy appends a copy, or makes it one more row of the last one.
func (r *row) addCopy(src, dst rangeRow) {
	if len(r.copies) > 0 {
		c := &r.copies[len(r.copies)-1]
		sgap, dgap := src.off-c.src.off-c.src.stride*(c.rows-1), dst.off-c.dst.off-c.dst.stride*(c.rows-1)
		regular := c.rows == 1 || (sgap == c.src.stride && dgap == c.dst.stride)
		if c.src.arena == src.arena && c.dst.arena == dst.arena && c.src.n == src.n && sgap >= src.n && dgap >= src.n && regular {
			c.src.stride, c.dst.stride = sgap, dgap
			c.rows++
			return
		}
	}
	r.copies = append(r.copies, copyRow{src: src, dst: dst, rows: 1})
}

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

// rangeRow is pieces of an arena: count of n bytes, stride apart.
type rangeRow struct {
	arena  int
	write  bool
	off, n int64
	count  int64
	stride int64
}

type copyRow struct {
	dst, src rangeRow // as many pieces of one size
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
		r.addRange(e.rangeOf(a, false))
	}
	for _, a := range s.Writes {
		r.addRange(e.rangeOf(a, true))
	}
	for _, w := range s.Waits {
		r.waits = append(r.waits, e.events[w])
	}
	if s.Kind != ir.RunStep {
		return r, e.addCopies(&r)
	}
	if s.Workspace >= 0 && !touches(s.Writes, s.Workspace) {
		r.addRange(e.rangeOf(ir.Access{Buffer: s.Workspace, Size: e.p.Buffers[s.Workspace].Size}, true))
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

func (e *emitter) rangeOf(a ir.Access, write bool) rangeRow {
	b := e.p.Buffers[a.Buffer]
	x := rangeRow{arena: b.Arena, write: write, off: b.Offset + a.Offset}
	if x.count, x.n = a.Pieces(); x.count > 1 {
		x.stride = a.Pitch
	}
	return x
}

func (r *row) addRange(x rangeRow) {
	if x.n > 0 {
		r.ranges = append(r.ranges, x)
	}
}

// addCopies pairs the reads and writes of a copy step.
func (e *emitter) addCopies(r *row) error {
	s := r.step
	if len(s.Reads) != len(s.Writes) {
		return fmt.Errorf("BUG: copy step %q reads %d ranges and writes %d", r.name, len(s.Reads), len(s.Writes))
	}
	for i := range s.Reads {
		if err := e.addCopy(r, s.Reads[i], s.Writes[i]); err != nil {
			return err
		}
	}
	return nil
}

// addCopy appends a copy; of the two sides one may be in one piece where the
// other lies in rows.
func (e *emitter) addCopy(r *row, from, to ir.Place) error {
	src, dst := e.rangeOf(from, false), e.rangeOf(to, true)
	if from.Size != to.Size || src.count > 1 && dst.count > 1 && src.count != dst.count {
		return fmt.Errorf("BUG: step %q copies %d pieces of %d bytes into %d of %d", r.name, src.count, src.n, dst.count, dst.n)
	}
	if from.Size == 0 {
		return nil
	}
	rows := max(src.count, dst.count)
	for _, x := range []*rangeRow{&src, &dst} {
		if x.count < rows {
			x.count, x.n, x.stride = rows, x.n/rows, x.n/rows
		}
	}
	r.copies = append(r.copies, copyRow{dst, src})
	return nil
}

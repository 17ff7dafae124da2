package eval

import (
	"slices"

	"memoc/ir"
)

// lives knows when bytes die: when the last step that accesses them through
// their buffer has ended. Lanes run in any legal order, so that this is
// counted, part by part of each buffer, and not read off the issue order.
type lives struct {
	parts  []part
	ofStep [][]int // parts that each step accesses
	left   []int   // accesses to come, by part
}

type part struct {
	arena    int
	from, to int64
	accesses int
	output   bool // read once more after all steps
}

func newLives(p *ir.Program) lives {
	l := lives{ofStep: make([][]int, len(p.Steps))}
	cuts := make([][]int64, len(p.Buffers))
	each(p, func(_ int, x piece) {
		cuts[x.buffer] = append(cuts[x.buffer], x.from, x.to)
	})
	first := make([]int, len(p.Buffers)) // of each buffer's parts
	for b := range cuts {
		slices.Sort(cuts[b])
		cuts[b] = slices.Compact(cuts[b])
		first[b] = len(l.parts)
		buf := &p.Buffers[b]
		for i := 1; i < len(cuts[b]); i++ {
			l.parts = append(l.parts, part{arena: buf.Arena, from: buf.Offset + cuts[b][i-1], to: buf.Offset + cuts[b][i]})
		}
	}
	each(p, func(step int, x piece) {
		if p.Buffers[x.buffer].Class == ir.Persistent {
			return
		}
		lo, _ := slices.BinarySearch(cuts[x.buffer], x.from)
		hi, _ := slices.BinarySearch(cuts[x.buffer], x.to)
		for k := first[x.buffer] + lo; k < first[x.buffer]+hi; k++ {
			if step < 0 {
				l.parts[k].output = true
				continue
			}
			l.parts[k].accesses++
			l.ofStep[step] = append(l.ofStep[step], k)
		}
	})
	l.left = make([]int, len(l.parts))
	return l
}

// each calls f on every piece of every access of every step, and with step -1
// on those of the caller that takes the outputs.
func each(p *ir.Program, f func(step int, x piece)) {
	pieces := func(step int, x ir.Access) {
		x.Each(func(from, to int64) { f(step, piece{x.Buffer, from, to}) })
	}
	for i := range p.Steps {
		for _, xs := range [][]ir.Access{p.Steps[i].Reads, p.Steps[i].Writes} {
			for _, x := range xs {
				pieces(i, x)
			}
		}
	}
	for _, v := range p.Graph.Outputs {
		if int(v.ID) < len(p.Places) && p.Places[v.ID].Buffer >= 0 {
			pieces(-1, p.Places[v.ID])
		}
	}
}

// piece is bytes [from, to) of a buffer.
type piece struct {
	buffer   int
	from, to int64
}

func (l *lives) restart() {
	for k := range l.parts {
		l.left[k] = l.parts[k].accesses
	}
}

// ended frees what step i was the last to access.
func (l *lives) ended(r *Runner, i int) {
	for _, k := range l.ofStep[i] {
		if l.left[k]--; l.left[k] == 0 && !l.parts[k].output {
			l.free(r, k)
		}
	}
}

// end frees the outputs, which the caller has taken.
func (l *lives) end(r *Runner) {
	for k := range l.parts {
		if l.parts[k].output {
			l.free(r, k)
		}
	}
}

func (l *lives) free(r *Runner, k int) {
	p := &l.parts[k]
	a := &r.arenas[p.arena]
	poison(a.bytes[p.from:p.to])
	a.owners.set(p.from, p.to, nil)
}

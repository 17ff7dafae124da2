package plan

import (
	"cmp"
	"slices"
)

// layer is one of the repeated layers.
type layer struct {
	number  int
	tensors []int // those that wait for the backward pass, by role
	start   int   // the first op of its forward pass
	time    int64 // of its forward pass
}

// layers lists the repeated layers in the order of the forward pass. A layer
// starts behind the op that makes its input, or with the first op that makes
// one of its tensors.
func (p *Problem) layers(f *facts) []layer {
	at := map[int]int{}
	var out []layer
	last := map[int]int{} // by layer: behind the first time each of its tensors is made
	for t := range p.Tensors {
		x := &p.Tensors[t]
		if x.Layer == 0 {
			continue
		}
		i, seen := at[x.Layer]
		if !seen {
			i = len(out)
			at[x.Layer] = i
			out = append(out, layer{number: x.Layer, start: len(p.Ops)})
		}
		l := &out[i]
		start := f.producer[t]
		if x.Input {
			start++
		} else {
			last[x.Layer] = max(last[x.Layer], start+1)
		}
		l.start = min(l.start, start)
		if f.skeletal(t) && !x.Output && x.Bytes > 0 && !x.Derived && !x.Spread {
			l.tensors = append(l.tensors, t)
		}
	}
	slices.SortFunc(out, func(a, b layer) int { return cmp.Compare(a.number, b.number) })
	for i := range out {
		l := &out[i]
		slices.SortStableFunc(l.tensors, func(a, b int) int { return cmp.Compare(p.Tensors[a].Role, p.Tensors[b].Role) })
		end := last[l.number]
		if i+1 < len(out) {
			end = out[i+1].start
		}
		for k := l.start; k < end; k++ {
			l.time += p.Ops[k].Time
		}
	}
	return out
}

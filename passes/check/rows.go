package check

import (
	"slices"

	"memoc/ir"
	"memoc/ir/planfile"
)

// run is bytes [from, to) of a buffer.
type run struct{ from, to int64 }

// maxRows bounds what is counted out; a plan with more pieces is refused.
const maxRows = 1 << 14

// runsOf lists the pieces of a range one by one.
func runsOf(x planfile.Range) (out []run) {
	rows := max(x.Rows, 1)
	for i := range rows {
		at := x.Offset + i*x.Pitch
		out = append(out, run{at, at + x.Size/rows})
	}
	return merged(out)
}

// merged leaves out empty runs and joins those that follow each other.
func merged(rs []run) (out []run) {
	for _, r := range rs {
		if r.from >= r.to {
			continue
		}
		if n := len(out); n > 0 && out[n-1].to == r.from {
			out[n-1].to = r.to
		} else {
			out = append(out, r)
		}
	}
	return out
}

// wellFormed reports whether a range lies in a buffer of that many bytes, in
// pieces that do not overlap.
func wellFormed(x planfile.Range, buffer int64) bool {
	if x.Offset < 0 || x.Size < 0 || x.Size > buffer || x.Offset > buffer-x.Size || x.Rows < 0 || x.Rows > maxRows || x.Pitch < 0 || x.Pitch > buffer {
		return false
	}
	if x.Rows <= 1 {
		return true
	}
	piece := x.Size / x.Rows
	return piece*x.Rows == x.Size && x.Pitch >= piece && x.Offset+(x.Rows-1)*x.Pitch+piece <= buffer
}

// both is the bytes that two lists of runs in ascending order have in common.
func both(a, b []run) (out []run) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		if lo, hi := max(a[i].from, b[k].from), min(a[i].to, b[k].to); lo < hi {
			out = append(out, run{lo, hi})
		}
		if a[i].to < b[k].to {
			i++
		} else {
			k++
		}
	}
	return out
}

// without is the bytes of a that are not in b, both in ascending order.
func without(a, b []run) (out []run) {
	k := 0
	for _, x := range a {
		for k < len(b) && b[k].to <= x.from {
			k++
		}
		for i := k; i < len(b) && b[i].from < x.to; i++ {
			out = append(out, run{x.from, b[i].from})
			x.from = b[i].to
		}
		out = append(out, x)
	}
	return merged(out)
}

// meet reports whether two lists of runs in ascending order, moved by an offset
// each, have a byte in common, and names the first.
func meet(a []run, offsetA int64, b []run, offsetB int64) (at int64, yes bool) {
	for i, k := 0, 0; i < len(a) && k < len(b); {
		lo, hi := max(a[i].from+offsetA, b[k].from+offsetB), min(a[i].to+offsetA, b[k].to+offsetB)
		if lo < hi {
			return lo, true
		}
		if a[i].to+offsetA < b[k].to+offsetB {
			i++
		} else {
			k++
		}
	}
	return 0, false
}

func rangeOf(v *planfile.Value) planfile.Range {
	return planfile.Range{Offset: v.Offset, Size: v.Size, Rows: v.Rows, Pitch: v.Pitch}
}

// runs is where the bytes of a value lie in its buffer.
func (j *judge) runs(v *planfile.Value) []run {
	rs, ok := j.pieces[v.Name]
	if !ok {
		rs = runsOf(rangeOf(v))
		j.pieces[v.Name] = rs
	}
	return rs
}

// reads is where step s reads the k-th of its operands.
func (j *judge) reads(s *planfile.Step, k int) []run {
	if s.Part != nil && k == 0 {
		return runsOf(*s.Part)
	}
	return j.runs(j.value[s.Reads[k]])
}

// writes is where a step that makes v writes: not where parts of it lie.
func (j *judge) writes(v *planfile.Value) []run {
	rs := j.runs(v)
	for _, name := range v.Parts {
		rs = without(rs, j.runs(j.value[name]))
	}
	return rs
}

// held is bytes of a buffer and the value that was written to them.
type held struct {
	runs []run
	name string
}

// made is which values must have been written to the bytes of v: its base, and
// what that is made of where it has parts.
func (j *judge) made(v *planfile.Value) (out []held) {
	if hs, ok := j.makers[v.Name]; ok {
		return hs
	}
	if v.Base != v.Name {
		for _, h := range j.made(j.value[v.Base]) {
			out = append(out, held{both(h.runs, j.runs(v)), h.name})
		}
	} else {
		out = append(out, held{j.writes(v), v.Name})
		for _, name := range v.Parts {
			out = append(out, j.made(j.value[name])...)
		}
	}
	j.makers[v.Name] = out
	return out
}

// sliced is where in the bytes of its input a Slice takes its range, counted
// out from the node's bounds; ok is false where they are not known or leave
// elements out between others.
func (j *judge) sliced(n *ir.Node, in *planfile.Value) (out []run, ok bool) {
	dims, known := (&ir.NodeCtx{Node: n}).InShape(0), true
	ints := func(port int, name string, def []int64) []int64 {
		if port < len(n.In) && n.In[port] != nil {
			vals, k := (&ir.NodeCtx{Node: n}).StaticInts(port)
			known = known && k
			return vals
		}
		if vals, given := n.IntList(name); given {
			return vals
		}
		return def
	}
	starts, ends := ints(1, "starts", nil), ints(2, "ends", nil)
	axes, steps := ints(3, "axes", []int64{0}), ints(4, "steps", []int64{1})
	if !known || len(starts) != 1 || len(ends) != 1 || len(axes) != 1 || len(steps) != 1 || steps[0] != 1 {
		return nil, false
	}
	axis := axes[0]
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis < 0 || axis >= int64(len(dims)) {
		return nil, false
	}
	bound := [2]int64{starts[0], ends[0]}
	for i := range bound {
		if bound[i] < 0 {
			bound[i] += dims[axis]
		}
		bound[i] = max(0, min(bound[i], dims[axis]))
	}
	return j.taken(in, n.In[0].Type, int(axis), bound[0], bound[1])
}

// taken is where positions [from, to) of an axis lie, of a tensor of type t in
// the bytes of v.
func (j *judge) taken(v *planfile.Value, t ir.Type, axis int, from, to int64) (out []run, ok bool) {
	dims, static := t.Shape.Static()
	size, err := t.Bytes()
	if !static || err != nil || size == 0 || size > v.Size {
		return nil, false
	}
	outer, positions := int64(1), dims[axis]
	for _, d := range dims[:axis] {
		outer *= d
	}
	one := size / (outer * positions)
	if one*outer*positions != size || outer > maxRows {
		return nil, false
	}
	for o := range outer {
		out = append(out, through(j.runs(v), (o*positions+from)*one, (o*positions+to)*one)...)
	}
	return merged(out), true
}

// through is where bytes [from, to) lie of a value whose bytes lie in runs.
func through(runs []run, from, to int64) (out []run) {
	at := int64(0)
	for _, r := range runs {
		lo, hi := max(from-at, 0), min(to-at, r.to-r.from)
		if lo < hi {
			out = append(out, run{r.from + lo, r.from + hi})
		}
		at += r.to - r.from
	}
	return out
}

// joined: the parts of a value are inputs of the Concat that makes it, each
// where it belongs. What is no part is copied by a step.
func (j *judge) joined(n *ir.Node, isStep bool) error {
	for _, out := range n.Out {
		if out == nil || j.value[out.Name] == nil {
			continue
		}
		v := j.value[out.Name]
		if n.Op != "Concat" || n.Domain != "" {
			if len(v.Parts) > 0 {
				return fault("ranges", "value %q has parts, and %s does not join", v.Name, n.FullOp())
			}
			continue
		}
		from, left, axis := int64(0), len(v.Parts), int(n.Int("axis", 1))
		if axis < 0 {
			axis += out.Type.Shape.Rank()
		}
		for port, in := range n.In {
			dims := (&ir.NodeCtx{Node: n}).InShape(port)
			if axis < 0 || axis >= len(dims) {
				return fault("ranges", "node %q (%s) joins along axis %d", n.Name, n.FullOp(), axis)
			}
			to := from + dims[axis]
			where, ok := j.taken(v, out.Type, axis, from, to)
			from = to
			switch {
			case len(v.Parts) > 0 && slices.Contains(v.Parts, in.Name):
				left--
				if !ok || !slices.Equal(where, j.runs(j.value[in.Name])) {
					return fault("ranges", "%q is a part of %q, but does not lie where %s puts it", in.Name, v.Name, n.FullOp())
				}
			case !isStep && (!ok || len(where) > 0):
				return fault("ranges", "%q is no part of %q, and no step copies it", in.Name, v.Name)
			}
		}
		if left != 0 {
			return fault("ranges", "value %q has parts that node %q does not join", v.Name, n.Name)
		}
	}
	return nil
}

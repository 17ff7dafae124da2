package eval

import (
	"fmt"
	"slices"

	"memoc/ir"
)

// span is the bytes of a value in an arena.
type span struct {
	Arena        int
	Buffer       int
	Offset, Size int64 // Offset counts from the arena's start
}

func (s span) end() int64 { return s.Offset + s.Size }

// place is where v's bytes are; ok is false if the plan gives it none.
func (r *Runner) place(v *ir.Value) (s span, ok bool) {
	if v.Graph != r.p.Graph || int(v.ID) >= len(r.p.Places) || r.p.Places[v.ID].Buffer < 0 {
		return span{}, false
	}
	pl := r.p.Places[v.ID]
	b := &r.p.Buffers[pl.Buffer]
	size, err := v.Type.Bytes()
	if err != nil {
		return span{}, false
	}
	return span{b.Arena, pl.Buffer, b.Offset + pl.Offset, size}, true
}

// root is the value whose bytes v shows: v itself, or what it is a view of
// (unless a step copies the bytes to another place).
func (r *Runner) root(v *ir.Value) *ir.Value {
	for v.Def != nil {
		n := v.Def
		if n.Decl == nil || n.Decl.View == nil {
			return v
		}
		in := n.Decl.View(n, v.Port)
		if in < 0 || in >= len(n.In) || n.In[in] == nil {
			return v
		}
		if _, isStep := r.source[n]; isStep {
			here, _ := r.place(v)
			if there, ok := r.place(n.In[in]); !ok || here != there {
				return v
			}
		}
		v = n.In[in]
	}
	return v
}

// load reads v in step i (-1: after all steps, as an output).
func (r *Runner) load(i int, v *ir.Value) (ir.Datum, error) {
	s, ok := r.place(v)
	if !ok || s.Size == 0 {
		return r.unplaced(i, v)
	}
	if i >= 0 {
		x := r.p.Places[v.ID]
		if err := r.holds(i, v, []ir.Access{{Buffer: x.Buffer, Offset: x.Offset, Size: s.Size}}); err != nil {
			return nil, err
		}
	} else if err := r.owned(v, s); err != nil {
		return nil, err
	}
	dims, _ := v.Type.Shape.Static()
	t := ir.NewTensor(v.Type.DType, dims...)
	copy(t.Data, r.arenas[s.Arena].bytes[s.Offset:s.end()])
	return t, nil
}

// unplaced is a value that has no bytes in an arena.
func (r *Runner) unplaced(i int, v *ir.Value) (ir.Datum, error) {
	if d, ok := r.loose[v]; ok {
		return d, nil
	}
	if v.Init != nil {
		return r.constant(v)
	}
	dims, static := v.Type.Shape.Static()
	if size, err := v.Type.Bytes(); err == nil && size == 0 {
		return ir.NewTensor(v.Type.DType, dims...), nil
	}
	if static && v.Ints != nil && v.Type.DType.IsInt() {
		if ns, ok := ir.Dims(v.Ints...).Static(); ok && int64(len(ns)) == ir.Elems(dims) {
			return ir.FromInts(v.Type.DType, ns, dims...), nil
		}
	}
	if r.root(v) != v { // a view of something that has no bytes either
		n := v.Def
		in := make([]ir.Datum, len(n.In))
		for k, x := range n.In {
			if x == nil {
				continue
			}
			d, err := r.load(i, x)
			if err != nil {
				return nil, err
			}
			in[k] = d
		}
		out, err := evalNode(n, in, r.opt, nil)
		if err != nil {
			return nil, err
		}
		return out[v.Port], nil
	}
	return nil, fmt.Errorf("BUG: tensor %q is read, but the plan gives it no bytes and nothing has made it", v.Name)
}

// holds checks that step i states that it reads the ranges, and that they hold
// v.
func (r *Runner) holds(i int, v *ir.Value, ranges []ir.Access) error {
	for _, x := range ranges {
		if x.Size == 0 {
			continue
		}
		if !states(r.p.Steps[i].Reads, x) {
			return fmt.Errorf("BUG: step %d reads tensor %q, but does not state that it reads bytes [%d,%d) of buffer %q",
				i, v.Name, x.Offset, x.Offset+x.Size, r.p.Buffers[x.Buffer].Name)
		}
		b := &r.p.Buffers[x.Buffer]
		if err := r.owned(v, span{b.Arena, x.Buffer, b.Offset + x.Offset, x.Size}); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func states(as []ir.Access, x ir.Access) bool {
	return slices.ContainsFunc(as, func(a ir.Access) bool {
		return a.Buffer == x.Buffer && a.Offset <= x.Offset && x.Offset+x.Size <= a.Offset+a.Size
	})
}

// owned checks that v was the last value written to the span.
func (r *Runner) owned(v *ir.Value, s span) error {
	if r.opt.Blind {
		return nil
	}
	root := r.root(v)
	if bad, ok := r.arenas[s.Arena].owners.find(s.Offset, s.end(), root); ok {
		return fmt.Errorf("BUG: tensor %q is read from bytes [%d,%d) of arena %q, but bytes [%d,%d) hold %s",
			v.Name, s.Offset, s.end(), r.p.Arenas[s.Arena].Name, bad.from, bad.to, bad.name())
	}
	return nil
}

// write stores an output of step i.
func (r *Runner) write(i int, v *ir.Value, d ir.Datum) error {
	s, ok := r.place(v)
	if ok && s.Size > 0 {
		pl := r.p.Places[v.ID]
		if !states(r.p.Steps[i].Writes, ir.Access{Buffer: pl.Buffer, Offset: pl.Offset, Size: s.Size}) {
			return fmt.Errorf("BUG: step %d writes tensor %q, but does not state that it writes bytes [%d,%d) of buffer %q",
				i, v.Name, pl.Offset, pl.Offset+s.Size, r.p.Buffers[pl.Buffer].Name)
		}
	}
	return r.put(v, d)
}

// put stores a value in its place, or aside if no arena can hold it.
func (r *Runner) put(v *ir.Value, d ir.Datum) error {
	if r.opt.Keep != nil && r.opt.Keep(v) {
		r.kept[v.Name] = d
	}
	s, placed := r.place(v)
	t, isTensor := d.(*ir.Tensor)
	switch {
	case placed && s.Size > 0 && isTensor:
		return r.store(v, t)
	case !placed && r.mayBeAside(v):
		r.loose[v] = d
	}
	return nil
}

// mayBeAside reports whether v needs no bytes in an arena: it has none, or no
// fixed size. Graph inputs that the plan leaves out are not read by a step.
func (r *Runner) mayBeAside(v *ir.Value) bool {
	size, err := v.Type.Bytes()
	return err != nil || size == 0 || v.Def == nil
}

func (r *Runner) store(v *ir.Value, t *ir.Tensor) error {
	s, _ := r.place(v)
	if int64(len(t.Data)) != s.Size {
		return fmt.Errorf("BUG: tensor %q takes %d bytes and its place %d", v.Name, len(t.Data), s.Size)
	}
	a := &r.arenas[s.Arena]
	copy(a.bytes[s.Offset:s.end()], t.Data)
	a.owners.set(s.Offset, s.end(), r.root(v))
	return nil
}

// owners says which value was last written to each byte: sorted, disjoint
// ranges; nothing was written in the gaps.
type owners []owned

type owned struct {
	from, to int64
	v        *ir.Value
}

func (o owned) name() string {
	if o.v == nil {
		return "nothing: they were never written, or are free again"
	}
	return fmt.Sprintf("tensor %q", o.v.Name)
}

// set records that v (nil: nothing) was written to [from, to).
func (o *owners) set(from, to int64, v *ir.Value) {
	if from >= to {
		return
	}
	lo, _ := slices.BinarySearchFunc(*o, from, func(r owned, at int64) int { return cmpRange(r, at) })
	hi := lo
	var keep []owned
	for ; hi < len(*o) && (*o)[hi].from < to; hi++ {
		r := (*o)[hi]
		if r.from < from {
			keep = append(keep, owned{r.from, from, r.v})
		}
		if r.to > to {
			keep = append(keep, owned{to, r.to, r.v})
		}
	}
	if v != nil {
		keep = append(keep, owned{from, to, v})
	}
	slices.SortFunc(keep, func(a, b owned) int { return int(min(max(a.from-b.from, -1), 1)) })
	*o = slices.Replace(*o, lo, hi, keep...)
}

// cmpRange orders a range before a position that lies at or after its end.
func cmpRange(r owned, at int64) int {
	if r.to <= at {
		return -1
	}
	return 1
}

// find returns the first part of [from, to) that holds something else than v.
func (o owners) find(from, to int64, v *ir.Value) (bad owned, found bool) {
	i, _ := slices.BinarySearchFunc(o, from, cmpRange)
	for at := from; at < to; i++ {
		if i == len(o) || o[i].from > at {
			end := to
			if i < len(o) {
				end = min(end, o[i].from)
			}
			return owned{at, end, nil}, true
		}
		if o[i].v != v {
			return owned{at, min(to, o[i].to), o[i].v}, true
		}
		at = o[i].to
	}
	return owned{}, false
}

package eval

import (
	"fmt"
	"slices"

	"memoc/ir"
)

// span is the bytes of a value in an arena.
type span struct {
	Arena    int
	ir.Place // the offset counts from the arena's start
}

// place is where v's bytes are; ok is false if the plan gives it none.
func (r *Runner) place(v *ir.Value) (s span, ok bool) {
	if v.Graph != r.p.Graph || int(v.ID) >= len(r.p.Places) || r.p.Places[v.ID].Buffer < 0 {
		return span{}, false
	}
	pl := r.p.Places[v.ID]
	size, err := v.Type.Bytes()
	if err != nil {
		return span{}, false
	}
	if pl.Contiguous() {
		pl.Size, pl.Rows = size, 0
	}
	return r.absolute(pl), true
}

func (r *Runner) absolute(x ir.Access) span {
	b := &r.p.Buffers[x.Buffer]
	return span{b.Arena, x.Shifted(b.Offset)}
}

// viewed is the input whose bytes v shows, nil if v has its own (also where a
// step copies a view's bytes to another place).
func (r *Runner) viewed(v *ir.Value) *ir.Value {
	n := v.Def
	if n == nil {
		return nil
	}
	_, isStep := r.source[n]
	if !isStep && sharesBuffer(r.p, n) && n.Op == "Slice" {
		return n.In[0]
	}
	if n.Decl == nil || n.Decl.View == nil {
		return nil
	}
	in := n.Decl.View(n, v.Port)
	if in < 0 || in >= len(n.In) || n.In[in] == nil {
		return nil
	}
	if isStep {
		here, _ := r.place(v)
		if there, ok := r.place(n.In[in]); !ok || here != there {
			return nil
		}
	}
	return n.In[in]
}

// owned is which values must have been written last to v's bytes for v to be
// there: v itself, what it is a view or a range of, and for a Concat what lies
// in its bytes as a part.
func (r *Runner) owned(v *ir.Value) owners {
	if o, ok := r.makers[v]; ok {
		return o
	}
	var o owners
	s, _ := r.place(v)
	if in := r.viewed(v); in != nil {
		if _, ok := r.place(in); ok {
			o = r.owned(in).within(s.Place)
		}
	} else {
		if n := v.Def; n == nil || r.assembled(n) == 0 {
			o.place(s.Place, v)
		} else {
			r.addParts(&o, n)
		}
	}
	r.makers[v] = o
	return o
}

// assembled is the number of n's inputs that lie in its output as parts.
func (r *Runner) assembled(n *ir.Node) (parts int) {
	for port := range n.In {
		if r.p.InOutput(n, port) {
			parts++
		}
	}
	return parts
}

func (r *Runner) addParts(o *owners, n *ir.Node) {
	for port, v := range n.In {
		part, ok := r.p.ConcatPart(n, port)
		if !ok {
			continue
		}
		if !r.p.InOutput(n, port) {
			o.place(r.absolute(part).Place, n.Out[0])
			continue
		}
		for _, x := range r.owned(v) {
			o.set(x.from, x.to, x.v)
		}
	}
}

// load reads v in step i (-1: after all steps, as an output).
func (r *Runner) load(i int, v *ir.Value) (ir.Datum, error) {
	s, ok := r.place(v)
	if !ok || s.Size == 0 {
		return r.unplaced(i, v)
	}
	if err := r.holds(i, v, s); err != nil {
		return nil, err
	}
	return r.fetch(v, s), nil
}

// operand reads what step i's node takes at a port. Of a Slice the bytes of its
// range must be there, of a Concat none that lie in the output already.
func (r *Runner) operand(i int, n *ir.Node, port int) (ir.Datum, error) {
	v := n.In[port]
	s, ok := r.place(v)
	part, isRange := r.p.SliceOf(n)
	switch {
	case !ok || s.Size == 0:
		return r.unplaced(i, v)
	case port == 0 && isRange:
		if err := r.holds(i, v, r.absolute(part)); err != nil {
			return nil, err
		}
		return r.fetch(v, s), nil
	case r.p.InOutput(n, port):
		return r.fetch(v, s), nil
	}
	return r.load(i, v)
}

func (r *Runner) fetch(v *ir.Value, s span) *ir.Tensor {
	dims, _ := v.Type.Shape.Static()
	t := ir.NewTensor(v.Type.DType, dims...)
	copy(t.Data, r.gather(s))
	return t
}

// gather is the bytes of a span, piece after piece.
func (r *Runner) gather(s span) (data []byte) {
	s.Each(func(from, to int64) { data = append(data, r.arenas[s.Arena].bytes[from:to]...) })
	return data
}

// scatter puts data into a span, piece after piece, as v.
func (r *Runner) scatter(s span, data []byte, v *ir.Value) {
	a := &r.arenas[s.Arena]
	s.Each(func(from, to int64) {
		copy(a.bytes[from:to], data)
		data = data[to-from:]
	})
	a.owners.place(s.Place, v)
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
	if r.viewed(v) != nil { // a view of something that has no bytes either
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

// holds checks that step i states that it reads the span (-1: after all steps,
// when nothing is stated), and that it holds v.
func (r *Runner) holds(i int, v *ir.Value, s span) error {
	b := &r.p.Buffers[s.Buffer]
	if i >= 0 && !states(r.p.Steps[i].Reads, s.Shifted(-b.Offset)) {
		return fmt.Errorf("BUG: step %d reads tensor %q, but does not state that it reads bytes [%d,%d) of buffer %q",
			i, v.Name, s.Offset-b.Offset, s.End()-b.Offset, b.Name)
	}
	if r.opt.Blind {
		return nil
	}
	wanted, held := r.owned(v), r.arenas[s.Arena].owners
	var err error
	s.Each(func(from, to int64) {
		for err == nil && from < to {
			want, end := wanted.at(from, to)
			if bad, ok := held.find(from, end, want); ok || want == nil {
				if want == nil {
					bad = owned{from, end, nil}
				}
				err = fmt.Errorf("BUG: tensor %q is read from bytes [%d,%d) of arena %q, but bytes [%d,%d) hold %s",
					v.Name, s.Offset, s.End(), r.p.Arenas[s.Arena].Name, bad.from, bad.to, bad.name())
			}
			from = end
		}
	})
	if err != nil && i >= 0 {
		return fmt.Errorf("step %d: %w", i, err)
	}
	return err
}

func states(as []ir.Access, x ir.Access) bool {
	return slices.ContainsFunc(as, func(a ir.Access) bool { return a.Buffer == x.Buffer && a.Covers(x) })
}

// write stores an output of step i.
func (r *Runner) write(i int, v *ir.Value, d ir.Datum) error {
	if s, ok := r.place(v); ok && s.Size > 0 && r.assembled(v.Def) > 0 {
		return r.writeRest(i, v, d)
	} else if ok && s.Size > 0 {
		if err := r.statesWrite(i, v, s); err != nil {
			return err
		}
	}
	return r.put(v, d)
}

func (r *Runner) statesWrite(i int, v *ir.Value, s span) error {
	b := &r.p.Buffers[s.Buffer]
	if states(r.p.Steps[i].Writes, s.Shifted(-b.Offset)) {
		return nil
	}
	return fmt.Errorf("BUG: step %d writes tensor %q, but does not state that it writes bytes [%d,%d) of buffer %q",
		i, v.Name, s.Offset-b.Offset, s.End()-b.Offset, b.Name)
}

// writeRest stores those parts of a Concat's output that are not in it yet.
func (r *Runner) writeRest(i int, v *ir.Value, d ir.Datum) error {
	t, ok := d.(*ir.Tensor)
	whole, _ := r.place(v)
	if !ok || int64(len(t.Data)) != whole.Size {
		return fmt.Errorf("BUG: tensor %q does not fill its place of %d bytes", v.Name, whole.Size)
	}
	for port := range v.Def.In {
		part, ok := r.p.ConcatPart(v.Def, port)
		if !ok || r.p.InOutput(v.Def, port) {
			continue
		}
		s := r.absolute(part)
		if err := r.statesWrite(i, v, s); err != nil {
			return err
		}
		var data []byte
		s.Each(func(from, to int64) {
			at := whole.index(from)
			data = append(data, t.Data[at:at+to-from]...)
		})
		r.scatter(s, data, v)
	}
	return nil
}

// index is how many of the span's bytes come before the one at an address.
func (s span) index(at int64) int64 {
	n, piece := s.Pieces()
	if n == 1 {
		return at - s.Offset
	}
	return (at-s.Offset)/s.Pitch*piece + (at-s.Offset)%s.Pitch
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
	r.scatter(s, t.Data, nil)
	for _, x := range r.owned(v) { // of a view that is a step in its base's bytes: the base
		r.arenas[s.Arena].owners.set(x.from, x.to, x.v)
	}
	return nil
}

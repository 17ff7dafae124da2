package plan

import (
	"fmt"
	"slices"
)

// Splittable reports whether t may be split along the tokens: its operation
// runs again, and on a range.
func (p *Problem) Splittable(t int) bool { return p.splittable(p.facts(), t) }

func (p *Problem) splittable(f *facts, t int) bool {
	return p.Tensors[t].Rows > 0 && p.ranges(f.producer[t])
}

// normal is choice with the splits that swap everything or nothing as the
// choices that they are.
func (p *Problem) normal(f *facts, choice []Choice) ([]Choice, error) {
	if len(choice) != len(p.Tensors) {
		return nil, fmt.Errorf("plan: %d choices for %d tensors", len(choice), len(p.Tensors))
	}
	out := choice
	for t, c := range choice {
		if c.Kind() != Split {
			continue
		}
		k := Split
		switch head := c.Head(); {
		case head == 0:
			k = Recompute
		case head == p.Tiles():
			k = Swap
		case head > p.Tiles():
			return nil, fmt.Errorf("plan: tensor %d is split at tile %d of %d", t, head, p.Tiles())
		case !p.splittable(f, t):
			return nil, fmt.Errorf("plan: tensor %d cannot be split", t)
		}
		if k == Split {
			continue
		}
		if &out[0] == &choice[0] {
			out = slices.Clone(choice)
		}
		out[t] = k | c&(Tight|Rolling)
	}
	return out, nil
}

// head is the number of tiles that go to the host where t is split, 0 where it
// is not.
func (b *builder) head(t int) int {
	if c := b.choice[t]; c.Kind() == Split {
		return c.Head()
	}
	return 0
}

// part is an instance of a range of a tensor.
type part struct{ instance, from, to, touched int }

// join restores t, which is split: its operation makes the tail once more, and
// the head comes from the host. Other outputs that are split at the same place
// and not there are restored with it.
func (b *builder) join(t, at int) error {
	op, head := b.f.producer[t], b.head(t)
	e, err := b.rangeClone(op, at, head, b.p.Tiles())
	if err != nil {
		return err
	}
	var whole, tail []int
	for _, u := range b.p.Ops[op].Out {
		joined := b.copied[u] && b.head(u) == head && !b.available(u, at)
		if joined {
			whole, tail = append(whole, b.open(u, at)), append(tail, len(e.Out))
		}
		if joined && b.p.Tensors[u].Rows == 1 {
			e.Out = append(e.Out, b.current[u])
		} else {
			e.Out = append(e.Out, b.openPart(u, at, head, b.p.Tiles()))
		}
	}
	b.s.Entries = append(b.s.Entries, e)
	for k, x := range whole {
		b.copyIn(b.s.Instances[x].Tensor)
		if y := e.Out[tail[k]]; y != x {
			b.s.Entries = append(b.s.Entries, Entry{Kind: Unpack, Op: -1, In: append(b.list(1), y), Out: append(b.list(1), x),
				From: head, To: b.p.Tiles(), Wait: -1})
		}
	}
	return nil
}

// rangeClone is op once more on tiles [from, to), with its inputs there and
// its outputs to be filled in.
func (b *builder) rangeClone(op, at, from, to int) (Entry, error) {
	o := &b.p.Ops[op]
	e := Entry{Kind: Clone, Op: op, In: b.list(len(o.In)), Out: b.list(len(o.Out)), From: from, To: to, Wait: -1}
	if err := b.again(); err != nil {
		return e, err
	}
	for k, t := range o.In {
		if !o.Range[k] {
			if err := b.restore(t, at); err != nil {
				return e, err
			}
			b.touched[t] = at
		}
	}
	for k, t := range o.In {
		x := b.current[t]
		if o.Range[k] {
			var err error
			if x, err = b.part(t, at, from, to); err != nil {
				return e, err
			}
		}
		e.In = append(e.In, x)
	}
	return e, nil
}

// part is an instance in which tiles [from, to) of t can be read: a whole one
// where they lie together in it, or one of their own. What does not wait for
// its own sake is made for the range alone.
func (b *builder) part(t, at, from, to int) (int, error) {
	there, together := b.available(t, at), b.p.Tensors[t].Rows == 1
	if !there || !together {
		if x := b.partOf(t, at, from, to); x >= 0 {
			return x, nil
		}
	}
	op := b.f.producer[t]
	if !there && !b.f.skeletal(t) && b.p.ranges(op) {
		return b.makePart(op, t, at, from, to)
	}
	if err := b.restore(t, at); err != nil {
		return 0, err
	}
	b.touched[t] = at
	if together {
		return b.current[t], nil
	}
	if x := b.partOf(t, at, from, to); x >= 0 {
		return x, nil // the tail of its own split
	}
	x := b.openPart(t, at, from, to)
	b.s.Entries = append(b.s.Entries, Entry{Kind: Pack, Op: -1, In: append(b.list(1), b.current[t]), Out: append(b.list(1), x),
		From: from, To: to, Wait: -1})
	return x, nil
}

// partOf is the instance of just that range that was touched a short while
// ago, -1 if there is none.
func (b *builder) partOf(t, at, from, to int) int {
	x, ok := b.parts[t]
	if !ok || x.from != from || x.to != to || at-x.touched > b.f.near {
		return -1
	}
	x.touched = at
	b.parts[t] = x
	return x.instance
}

// makePart runs op once more for a range of its output t alone.
func (b *builder) makePart(op, t, at, from, to int) (int, error) {
	e, err := b.rangeClone(op, at, from, to)
	if err != nil {
		return 0, err
	}
	for _, u := range b.p.Ops[op].Out {
		e.Out = append(e.Out, b.openPart(u, at, from, to))
	}
	b.s.Entries = append(b.s.Entries, e)
	return b.parts[t].instance, nil
}

// openPart makes an instance of a range of t.
func (b *builder) openPart(t, at, from, to int) int {
	x := b.instance(t)
	b.s.Instances[x].From, b.s.Instances[x].To = from, to
	if b.parts == nil {
		b.parts = map[int]part{}
	}
	b.parts[t] = part{x, from, to, at}
	return x
}

package eval

import (
	"fmt"
	"slices"

	"memoc/ir"
)

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

// place records that v was written to every piece of a place.
func (o *owners) place(p ir.Place, v *ir.Value) {
	p.Each(func(from, to int64) { o.set(from, to, v) })
}

// within is what lies in the pieces of a place.
func (o owners) within(p ir.Place) (out owners) {
	p.Each(func(from, to int64) {
		for _, x := range o {
			if x.from < to && from < x.to {
				out.set(max(x.from, from), min(x.to, to), x.v)
			}
		}
	})
	return out
}

// at is the value at an address and how far it reaches, to at most; nil in a
// gap.
func (o owners) at(from, to int64) (v *ir.Value, end int64) {
	i, _ := slices.BinarySearchFunc(o, from, cmpRange)
	if i == len(o) {
		return nil, to
	}
	if o[i].from > from {
		return nil, min(to, o[i].from)
	}
	return o[i].v, min(to, o[i].to)
}

package place

import (
	"cmp"
	"slices"
)

// packer places items one by one, each at the lowest address that is free over
// its whole life. The order is all that matters; see orders.
//
// To find what stands in the way of an item it keeps the placed ones by address,
// once for each tile of time and once for all time. A short life looks at the
// few tiles that it touches, so that an item costs about as much as there are
// items alive near it.
type packer struct {
	in    *instance
	off   []int64
	tile  [][]int32 // by tile: items placed that touch it, by offset
	all   []int32   // all items placed, by offset
	width int32     // sections in a tile
	work  int64     // items looked at
	halt  func() bool
	next  []int // scratch: a cursor for each list of one query
	lists [][]int32
}

// wide is the number of tiles from which an item reads the list of all.
const wide = 6

func newPacker(in *instance, halt func() bool) *packer {
	sections := int32(len(in.load))
	tiles := int32(min(max(in.n/64, 1), 512))
	f := &packer{in: in, halt: halt, off: make([]int64, in.n), width: max((sections+tiles-1)/tiles, 1)}
	f.tile = make([][]int32, sections/f.width+1)
	return f
}

// pack places all items, the fixed ones first, and returns the height, or never
// when it is halted.
func (f *packer) pack(order []int32) int64 {
	in := f.in
	f.all = f.all[:0]
	for i := range f.tile {
		f.tile[i] = f.tile[i][:0]
	}
	var top int64
	for _, k := range in.pinned {
		f.off[k] = in.fixed[k]
		f.insert(k)
		top = max(top, in.fixed[k]+in.size[k])
	}
	for i, k := range order {
		if in.fixed[k] >= 0 {
			continue
		}
		if i&1023 == 1023 && f.halt() {
			return never
		}
		f.off[k] = f.lowest(k)
		f.insert(k)
		top = max(top, f.off[k]+in.size[k])
	}
	return top
}

// lowest returns the lowest offset at which k meets no placed item.
func (f *packer) lowest(k int32) int64 {
	in := f.in
	l := in.life[k]
	size, align := in.size[k], in.align[k]
	f.lists = f.lists[:0]
	if a, b := l.lo/f.width, (l.hi-1)/f.width; b-a < wide {
		f.lists = append(f.lists, f.tile[a:b+1]...)
	} else {
		f.lists = append(f.lists, f.all)
	}
	f.next = append(f.next[:0], make([]int, len(f.lists))...)
	var at int64
	for again := true; again; {
		again = false
		for i, list := range f.lists {
			j := f.next[i]
			for ; j < len(list); j++ {
				o := list[j]
				if f.off[o] >= at+size {
					break
				}
				if m := in.life[o]; m.lo >= l.hi || m.hi <= l.lo {
					continue
				}
				if end := f.off[o] + in.size[o]; end > at && (!in.gapped || in.conflict(k, o)) {
					at = roundUp(end, align)
					again = len(f.lists) > 1
				}
			}
			f.work += int64(j - f.next[i] + 1)
			f.next[i] = j
		}
	}
	return at
}

// cost estimates the work of packing everything once: on average an item finds
// half of those that touch its tiles placed.
func (f *packer) cost() int64 {
	in := f.in
	count := make([]int64, len(f.tile))
	tiles := func(k int) (a, b int32) { return in.life[k].lo / f.width, (in.life[k].hi - 1) / f.width }
	for k := range in.n {
		a, b := tiles(k)
		for t := a; t <= b; t++ {
			count[t]++
		}
	}
	var sum int64
	for k := range in.n {
		a, b := tiles(k)
		if b-a >= wide {
			sum += int64(in.n) / 2
			continue
		}
		for t := a; t <= b; t++ {
			sum += count[t] / 2
		}
	}
	return sum
}

// insert records that k stands at off[k].
func (f *packer) insert(k int32) {
	l := f.in.life[k]
	for t := l.lo / f.width; t <= (l.hi-1)/f.width; t++ {
		f.tile[t] = f.into(f.tile[t], k)
	}
	f.all = f.into(f.all, k)
}

func (f *packer) into(list []int32, k int32) []int32 {
	at := f.off[k]
	i, _ := slices.BinarySearchFunc(list, at, func(j int32, at int64) int { return cmp.Compare(f.off[j], at) })
	f.work += 4 + int64(len(list)-i)>>4
	return slices.Insert(list, i, k)
}

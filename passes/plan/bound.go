package plan

import (
	"cmp"
	"math"
	"slices"
)

// LeastTime is a lower bound of the time of every plan within device bytes and
// host bytes: all operations, each once, and what must be made again. While one
// operation runs, every tensor that is made before and read after it is on the
// device, on the host, or made again later: of what neither has room for, the
// cheapest bytes at least. It is math.MaxInt64 where that shows that there is
// no plan.
func (p *Problem) LeastTime(device, host int64) int64 {
	f := p.facts()
	if p.OutRate <= 0 || p.InRate <= 0 {
		host = 0
	}
	over := -device - max(host, 0) // bytes that must be made again
	waiting := map[int][]int{}     // by the op that makes them
	for _, t := range p.waiting(f, p.fullest(f)) {
		over += p.Tensors[t].Bytes
		waiting[f.producer[t]] = append(waiting[f.producer[t]], t)
	}
	type item struct {
		bytes   int64
		perByte float64
	}
	var items []item
	for op, ts := range waiting {
		if p.Ops[op].Clone {
			items = append(items, item{p.sum(ts), p.leastPerByte(op, ts)})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Or(cmp.Compare(a.perByte, b.perByte), cmp.Compare(a.bytes, b.bytes)) })
	extra := 0.0
	for _, x := range items {
		take := max(min(x.bytes, over), 0)
		over -= take
		extra += float64(take) * x.perByte
	}
	if over > 0 {
		return math.MaxInt64
	}
	return p.OnceTime() + int64(extra*(1-1e-9)) // float sums are not exact
}

// OnceTime is the time of all operations, each once.
func (p *Problem) OnceTime() int64 {
	sum := int64(0)
	for i := range p.Ops {
		sum += p.Ops[i].Time
	}
	return sum
}

// waits reports whether t is made before op i and read after it.
func (p *Problem) waits(f *facts, t, i int) bool {
	n := len(f.uses[t])
	return f.producer[t] < i && (p.Tensors[t].Output || n > 0 && f.uses[t][n-1] > i)
}

func (p *Problem) waiting(f *facts, i int) []int {
	var out []int
	for t := range p.Tensors {
		if p.waits(f, t, i) {
			out = append(out, t)
		}
	}
	return out
}

// fullest is the first op that most bytes wait across.
func (p *Problem) fullest(f *facts) int {
	change := make([]int64, len(p.Ops)+1)
	for t := range p.Tensors {
		end := len(p.Ops)
		if n := len(f.uses[t]); !p.Tensors[t].Output && n > 0 {
			end = f.uses[t][n-1]
		}
		if from := f.producer[t] + 1; from < end {
			change[from] += p.Tensors[t].Bytes
			change[end] -= p.Tensors[t].Bytes
		}
	}
	best, most, live := 0, int64(0), int64(0)
	for i := range p.Ops {
		if live += change[i]; live > most {
			best, most = i, live
		}
	}
	return best
}

// leastPerByte is a lower bound of the time for each byte of ts that op, which
// makes them, makes again: of all of them, or of a range. Both are linear in the
// tiles, but for rounding, so that one tile or all of them is cheapest.
func (p *Problem) leastPerByte(op int, ts []int) float64 {
	o := &p.Ops[op]
	least := float64(o.Time) / float64(max(p.sum(ts), 1))
	if !p.ranges(op) {
		return least
	}
	padding, tile, tiles := int64(0), int64(0), int64(p.Tiles())
	for _, t := range ts {
		padding += p.Tensors[t].Bytes - p.Tokens*p.Tensors[t].TokenBytes
		tile += p.Tile * p.Tensors[t].TokenBytes
	}
	one := float64(max(o.TileTime-1, 0)) / float64(max(padding+tile, 1))
	all := float64(max(o.Time-1, 0)) / float64(max(padding+tiles*tile, 1))
	return min(least, one, all)
}

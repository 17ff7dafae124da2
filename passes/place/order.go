package place

import (
	"cmp"
	"slices"
)

// sortKey is something to sort buffers by, the largest first.
type sortKey int8

const (
	keySize sortKey = iota
	keyLife         // number of sections alive
	keyArea         // size times life
	keyPeak         // largest load met over the life
)

// sortings are the orders that first fit tries. Ties decide, so each is a list
// of keys; what is still equal stays in the order of the problem.
var sortings = [][]sortKey{
	{keyPeak, keySize},
	{keySize, keyPeak, keyLife},
	{keyArea, keySize},
	{keyLife, keySize},
	{keySize, keyLife},
	{keyPeak, keyLife},
	{keyPeak, keyArea},
}

// keys computes a sort key for all items.
func (in *instance) keys(key sortKey) []float64 {
	v := make([]float64, in.n)
	var high maxTable
	if key == keyPeak {
		high = newMaxTable(in.load)
	}
	for k := range v {
		l := in.life[k]
		size, life := float64(in.size[k]), float64(l.hi-l.lo)
		switch key {
		case keySize:
			v[k] = size
		case keyLife:
			v[k] = life
		case keyArea:
			v[k] = size * life
		case keyPeak:
			v[k] = float64(high.over(l))
		}
	}
	return v
}

// sorted returns the items in the order of the given keys.
func (in *instance) sorted(by []sortKey) []int32 {
	order := make([]int32, in.n)
	for k := range order {
		order[k] = int32(k)
	}
	values := make([][]float64, len(by))
	for i, key := range by {
		values[i] = in.keys(key)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		for _, v := range values {
			if c := cmp.Compare(v[b], v[a]); c != 0 {
				return c
			}
		}
		return 0
	})
	return order
}

// maxTable answers "the largest value in a range" in constant time: row i holds
// the maxima of all ranges of length 1<<i.
type maxTable [][]int64

func newMaxTable(v []int64) maxTable {
	t := maxTable{v}
	for w := 1; 2*w <= len(v); w *= 2 {
		last := t[len(t)-1]
		row := make([]int64, len(v)-2*w+1)
		for i := range row {
			row[i] = max(last[i], last[i+w])
		}
		t = append(t, row)
	}
	return t
}

func (t maxTable) over(s span) int64 {
	if s.hi <= s.lo {
		return 0
	}
	i := 0
	for w := s.hi - s.lo; w > 1; w /= 2 {
		i++
	}
	return max(t[i][s.lo], t[i][s.hi-1<<i])
}

package ir

import (
	"fmt"
	"slices"
	"testing"
)

// byteSet lists the bytes of a place in its order, by the definition alone:
// Rows pieces of Size/Rows bytes, each Pitch bytes after the one before.
func byteSet(p Place) []Bytes {
	var out []Bytes
	rows := max(p.Rows, 1)
	for r := range rows {
		for b := range p.Size / rows {
			out = append(out, p.Offset+r*p.Pitch+b)
		}
	}
	return out
}

// smallPlaces is every well-formed place of a small buffer, some in two
// spellings.
func smallPlaces(buffer Bytes) []Place {
	var out []Place
	for offset := range buffer {
		for rows := int64(0); rows <= 4; rows++ {
			for piece := range buffer {
				for pitch := range int64(6) {
					p := Place{Offset: offset, Size: piece * max(rows, 1), Rows: rows, Pitch: pitch}
					if p.Fits(buffer) && (rows > 1 || pitch == 0) {
						out = append(out, p)
					}
				}
			}
		}
	}
	return out
}

func TestPlacesAgainstByteSets(t *testing.T) {
	const buffer = 11
	places := smallPlaces(buffer)
	if len(places) < 200 {
		t.Fatalf("%d places", len(places))
	}
	for _, p := range places {
		set := byteSet(p)
		var pieces []Bytes
		p.Each(func(from, to Bytes) {
			for b := from; b < to; b++ {
				pieces = append(pieces, b)
			}
		})
		if !slices.Equal(pieces, set) {
			t.Fatalf("%+v: pieces %v, bytes %v", p, pieces, set)
		}
		if len(set) > 0 && p.End() != set[len(set)-1]+1 {
			t.Fatalf("%+v ends at %d", p, p.End())
		}
		gap := len(set) > 0 && set[len(set)-1]-set[0]+1 != p.Size
		if len(set) > 0 && p.Contiguous() == gap {
			t.Fatalf("%+v: contiguous %v, bytes %v", p, p.Contiguous(), set)
		}
		for _, q := range places {
			other := byteSet(q)
			common, covered := false, true
			for _, b := range other {
				in := slices.Contains(set, b)
				common, covered = common || in, covered && in
			}
			if p.Overlaps(q) != common {
				t.Fatalf("%+v and %+v overlap: %v, want %v", p, q, p.Overlaps(q), common)
			}
			if p.Size > 0 && q.Size > 0 {
				if p.Covers(q) && !covered || !p.Covers(q) && covered && q.Contiguous() == p.Contiguous() && q.Contiguous() {
					t.Fatalf("%+v covers %+v: %v, want %v", p, q, p.Covers(q), covered)
				}
				if p.Same(q) != slices.Equal(set, other) {
					t.Fatalf("%+v and %+v are the same: %v", p, q, p.Same(q))
				}
			}
		}
	}
}

func TestPlacesThatDoNotFit(t *testing.T) {
	for _, p := range []Place{
		{Offset: -1, Size: 4}, {Size: -4}, {Offset: 8, Size: 4}, {Size: 12}, {Size: 6, Rows: 4, Pitch: 2}, {Size: 8, Rows: 2, Pitch: 3},
		{Size: 8, Rows: 2, Pitch: 7}, {Size: 4, Rows: 2, Pitch: 1<<63 - 1}, {Size: 4, Rows: -2}, {Size: 4, Rows: 2, Pitch: -2},
		{Offset: 1<<63 - 1, Size: 4},
	} {
		if p.Fits(10) {
			t.Errorf("%+v fits in 10 bytes", p)
		}
	}
	if p := (Place{Offset: 2, Size: 4, Rows: 2, Pitch: 6}); !p.Fits(10) {
		t.Errorf("%+v does not fit in 10 bytes", p)
	}
}

// TestParts takes every range of every axis of small tensors, and of it every
// range again, and holds it against positions counted one by one.
func TestParts(t *testing.T) {
	made, refused := 0, 0
	var try func(p Place, bytes []Bytes, dims []int64, depth int)
	try = func(p Place, bytes []Bytes, dims []int64, depth int) {
		for axis := range dims {
			for from := range dims[axis] {
				for to := from + 1; to <= dims[axis]; to++ {
					want, small := takeRange(bytes, dims, axis, from, to)
					part, ok := p.Part(TensorOf(Int16, Ints64(dims...)), axis, from, to)
					if !ok {
						refused++
						if evenly(want) {
							t.Fatalf("%v of %+v, [%d,%d) of axis %d: refused, bytes %v", dims, p, from, to, axis, want)
						}
						continue
					}
					made++
					if !slices.Equal(byteSet(part), want) || part.Buffer != p.Buffer {
						t.Fatalf("%v of %+v, [%d,%d) of axis %d: %+v, want %v", dims, p, from, to, axis, part, want)
					}
					if depth > 0 {
						try(part, want, small, depth-1)
					}
				}
			}
		}
	}
	for _, dims := range [][]int64{{5}, {2, 4}, {3, 2}, {2, 3, 2}, {2, 1, 3}, {1, 4, 2}, {2, 2, 2, 2}} {
		p := Place{Buffer: 7, Offset: 6, Size: 2 * Elems(dims)}
		try(p, byteSet(p), dims, 2)
	}
	if made < 1000 || refused == 0 {
		t.Errorf("%d parts, %d refused", made, refused)
	}
}

// takeRange is the bytes (two an element) of a range of an axis.
func takeRange(bytes []Bytes, dims []int64, axis int, from, to int64) (out []Bytes, small []int64) {
	small = slices.Clone(dims)
	small[axis] = to - from
	for i := range Elems(dims) {
		at := i / Elems(dims[axis+1:]) % dims[axis]
		if at >= from && at < to {
			out = append(out, bytes[2*i], bytes[2*i+1])
		}
	}
	return out, small
}

// evenly reports whether bytes are pieces of one size at one distance.
func evenly(bytes []Bytes) bool {
	var starts, sizes []Bytes
	for i, b := range bytes {
		if i == 0 || b != bytes[i-1]+1 {
			starts, sizes = append(starts, b), append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	for i := 1; i < len(starts); i++ {
		if sizes[i] != sizes[0] || starts[i]-starts[i-1] != starts[1]-starts[0] {
			return false
		}
	}
	return true
}

func TestPartsOfHalfBytes(t *testing.T) {
	odd, even := TensorOf(Int4, Ints64(4, 3)), TensorOf(Int4, Ints64(3, 4))
	if _, ok := (Place{Size: 6}).Part(odd, 0, 0, 1); ok {
		t.Error("three halves of a byte are a part")
	}
	if p, ok := (Place{Size: 6}).Part(even, 0, 1, 3); !ok || p.Offset != 2 || p.Size != 4 {
		t.Errorf("%+v, %v", p, ok)
	}
}

// TestAccesses: a Slice reads its range alone; a Concat moves what is not in
// its place yet.
func TestAccesses(t *testing.T) {
	g, err := ParseGraph("t", `g (float[2,6] x, float[2,2] a, float[2,4] b) => (float[2,3] s, float[2,6] y, float[2,6] z, float[2,3] u) {
  [ints] i = Constant <value_ints = [1]> ()
  [ints2] j = Constant <value_ints = [4]> ()
  [back] k = Constant <value_ints = [-2]> ()
  [two] two = Constant <value_ints = [2]> ()
  [s] s = Slice (x, i, j, i)
  [u] u = Slice (x, i, j, i, two)
  [y] y = Concat <axis = 1> (a, b)
  [z] z = Concat <axis = -1> (a, b)
}`, map[string]int{"": 17})
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Graph: g, Places: make([]Place, g.NumValues())}
	for i := range p.Places {
		p.Places[i].Buffer = -1
	}
	nodes := map[string]*Node{}
	for _, n := range g.Nodes {
		nodes[n.Name] = n
	}
	put := func(v *Value, pl Place) { p.Places[v.ID] = pl }
	x, a, b := g.Inputs[0], g.Inputs[1], g.Inputs[2]
	put(x, Place{Buffer: 0, Size: 48})
	put(nodes["s"].Out[0], Place{Buffer: 1, Size: 24})
	put(nodes["u"].Out[0], Place{Buffer: 1, Size: 24})
	put(a, Place{Buffer: 3, Offset: 0, Size: 16, Rows: 2, Pitch: 24})
	put(b, Place{Buffer: 4, Size: 32})
	put(nodes["y"].Out[0], Place{Buffer: 3, Size: 48})
	put(nodes["z"].Out[0], Place{Buffer: 5, Size: 48})
	for _, c := range []struct{ node, want string }{
		{"s", "[{0 4 24 2 24}] [{1 0 24 0 0}]"},
		{"u", "[{0 0 48 0 0}] [{1 0 24 0 0}]"},
		{"y", "[{4 0 32 0 0}] [{3 8 32 2 24}]"},
		{"z", "[{3 0 16 2 24} {4 0 32 0 0}] [{5 0 48 0 0}]"},
	} {
		reads, writes := p.Accesses(nodes[c.node])
		if got := fmt.Sprint(reads, writes); got != c.want {
			t.Errorf("%s: %s, want %s", c.node, got, c.want)
		}
	}
}

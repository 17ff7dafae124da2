package ir

import "math"

// Pieces is the number of pieces that the place lies in and the bytes of each;
// pieces that touch count as one.
func (p Place) Pieces() (count int64, size Bytes) {
	if p.Rows <= 1 || p.Pitch == p.Size/p.Rows {
		return 1, p.Size
	}
	return p.Rows, p.Size / p.Rows
}

// Contiguous reports whether the bytes follow each other without a gap.
func (p Place) Contiguous() bool {
	n, _ := p.Pieces()
	return n == 1
}

// End is the offset behind the last byte.
func (p Place) End() Bytes {
	n, size := p.Pieces()
	return p.Offset + (n-1)*p.Pitch + size
}

// Each calls f on every piece in order, with its bounds within the buffer,
// half-open.
func (p Place) Each(f func(from, to Bytes)) {
	n, size := p.Pieces()
	for i := range n {
		f(p.Offset+i*p.Pitch, p.Offset+i*p.Pitch+size)
	}
}

// Shifted is the place by bytes further on: with the offset of its buffer, in
// addresses of the arena.
func (p Place) Shifted(by Bytes) Place {
	p.Offset += by
	return p
}

// MaxRows bounds the pieces of a place: what has more is not told apart from
// the bytes between them.
const MaxRows = 1 << 14

// Fits reports whether the place is well formed (pieces of equal size that do
// not overlap, in ascending order) and lies in a buffer of that many bytes.
func (p Place) Fits(buffer Bytes) bool {
	if p.Offset < 0 || p.Size < 0 || p.Rows < 0 || p.Rows > MaxRows || p.Pitch < 0 || p.Size > buffer {
		return false
	}
	if p.Rows > 1 {
		if p.Size%p.Rows != 0 || p.Pitch < p.Size/p.Rows || p.Pitch > math.MaxInt64/p.Rows {
			return false
		}
	}
	return p.End()-p.Offset <= buffer && p.Offset <= buffer-(p.End()-p.Offset)
}

// Same reports whether both are the same bytes of one buffer in the same
// order.
func (p Place) Same(q Place) bool {
	n, size := p.Pieces()
	m, other := q.Pieces()
	return p.Buffer == q.Buffer && p.Offset == q.Offset && n == m && size == other && (n == 1 || p.Pitch == q.Pitch)
}

// Overlaps reports whether two places whose offsets count from one point have
// a byte in common. Their buffers are not looked at.
func (p Place) Overlaps(q Place) bool {
	if p.Size <= 0 || q.Size <= 0 || p.Offset >= q.End() || q.Offset >= p.End() {
		return false
	}
	n, size := p.Pieces()
	if m, _ := q.Pieces(); m < n {
		return q.Overlaps(p)
	}
	for i := range n {
		from := p.Offset + i*p.Pitch
		if q.meets(from, from+size) {
			return true
		}
	}
	return false
}

// meets reports whether a piece has a byte in [from, to).
func (p Place) meets(from, to Bytes) bool {
	n, size := p.Pieces()
	i := int64(0) // the first piece that ends after from
	if behind := from - p.Offset - size; n > 1 && behind >= 0 {
		i = behind/p.Pitch + 1
	} else if behind >= 0 {
		i = 1
	}
	return i < n && p.Offset+i*p.Pitch < to
}

// Covers reports whether every byte of q is one of p's; offsets count from one
// point.
func (p Place) Covers(q Place) bool {
	n, size := p.Pieces()
	covers := true
	q.Each(func(from, to Bytes) {
		i := int64(0)
		if n > 1 {
			i = min(max((from-p.Offset)/p.Pitch, 0), n-1)
		}
		at := p.Offset + i*p.Pitch
		covers = covers && (from >= at && to <= at+size || from == to)
	})
	return covers
}

// runs is a number of runs of size bytes, the first of which starts at the
// first byte and each of the others pitch bytes after the one before, counted
// in p's own bytes as they follow each other; ok is false where these are no
// pieces at one distance.
func (p Place) runs(count int64, first, size, pitch Bytes) (q Place, ok bool) {
	if count > 1 && pitch == size {
		count, size = 1, count*size
	}
	n, piece := p.Pieces()
	last := first + (count-1)*pitch + size - 1
	q = Place{Buffer: p.Buffer, Offset: p.Offset + first, Size: count * size}
	if count > 1 && size > 0 {
		q.Rows, q.Pitch = count, pitch
	}
	if n == 1 || q.Size == 0 {
		return q, true
	}
	q.Offset = p.Offset + first/piece*p.Pitch + first%piece
	switch {
	case first/piece == last/piece: // all in one piece
		return q, true
	case count == 1 && first%piece == 0 && size%piece == 0: // whole pieces
		q.Rows, q.Pitch = size/piece, p.Pitch
		return q, true
	case count > 1 && pitch%piece == 0 && first%piece+size <= piece: // each in a piece of its own
		q.Pitch = pitch / piece * p.Pitch
		return q, true
	}
	return Place{Buffer: -1}, false
}

// Part is where positions [from, to) of an axis lie, of a tensor of type t that
// lies at p; ok is false where these are no whole bytes, no pieces at one
// distance, or more than MaxRows.
func (p Place) Part(t Type, axis int, from, to int64) (part Place, ok bool) {
	dims, static := t.Shape.Static()
	if !static || axis < 0 || axis >= len(dims) || from < 0 || from > to || to > dims[axis] {
		return Place{Buffer: -1}, false
	}
	if size, err := t.Bytes(); err != nil || size > p.Size {
		return Place{Buffer: -1}, false
	}
	bits := Elems(dims[axis+1:]) * int64(t.DType.Bits()) // of one position
	if bits%8 != 0 {
		return Place{Buffer: -1}, false
	}
	one := bits / 8
	part, ok = p.runs(Elems(dims[:axis]), from*one, (to-from)*one, dims[axis]*one)
	return part, ok && part.Rows <= MaxRows
}

// SliceRange is the one range of consecutive positions that a Slice node
// takes, from its constant bounds; ok is false for any other node.
func SliceRange(n *Node) (axis int, from, to int64, ok bool) {
	if n.Op != "Slice" || n.Domain != OnnxDomain || len(n.In) == 0 || n.In[0] == nil {
		return 0, 0, 0, false
	}
	dims, static := n.In[0].Type.Shape.Static()
	starts, given := n.sliceInts("starts", 1)
	ends, alike := n.sliceInts("ends", 2)
	axes, hasAxes := n.sliceInts("axes", 3)
	steps, hasSteps := n.sliceInts("steps", 4)
	if !static || !given || !alike || len(starts) != 1 || len(ends) != 1 || hasAxes && len(axes) != 1 || hasSteps && (len(steps) != 1 || steps[0] != 1) {
		return 0, 0, 0, false
	}
	if hasAxes {
		if axis, ok = NormAxis(axes[0], len(dims)); !ok {
			return 0, 0, 0, false
		}
	}
	if axis >= len(dims) {
		return 0, 0, 0, false
	}
	bound := func(x int64) int64 {
		if x < 0 {
			x += dims[axis]
		}
		return min(max(x, 0), dims[axis])
	}
	from, to = bound(starts[0]), bound(ends[0])
	return axis, from, max(from, to), true
}

// sliceInts is one of a Slice's lists: an input, before version 10 an
// attribute. An input that is not constant is given and empty.
func (n *Node) sliceInts(name string, port int) (vals []int64, given bool) {
	if port < len(n.In) && n.In[port] != nil {
		vals, _ = (&NodeCtx{Node: n}).StaticInts(port)
		return vals, true
	}
	return n.IntList(name)
}

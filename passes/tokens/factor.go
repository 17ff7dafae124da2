package tokens

import "slices"

// factor is a part of a dimension: an axis told apart from all others by where
// it comes from. Two that turn out to be the same are one from then on; one
// that is found to consist of two is replaced by them everywhere.
type factor struct {
	extent int64     // at least 2
	same   *factor   // what it was found to be the same as; nil for none
	parts  []*factor // what it consists of, outermost first; nil for itself
}

func (f *factor) root() *factor {
	for f.same != nil {
		if f.same.same != nil {
			f.same = f.same.same
		}
		f = f.same
	}
	return f
}

// fresh is the factors of a dimension that is like no other so far.
func fresh(extent int64) []*factor {
	if extent < 2 {
		return nil
	}
	return []*factor{{extent: extent}}
}

// leaves is fs as today's factors.
func leaves(fs []*factor) []*factor {
	plain := true
	for _, f := range fs {
		plain = plain && f.same == nil && f.parts == nil
	}
	if plain {
		return fs
	}
	var out []*factor
	for _, f := range fs {
		if r := f.root(); r.parts != nil {
			out = append(out, leaves(r.parts)...)
		} else {
			out = append(out, r)
		}
	}
	return out
}

func extentOf(fs []*factor) int64 {
	n := int64(1)
	for _, f := range fs {
		n *= f.extent
	}
	return n
}

func contains(fs []*factor, f *factor) bool { return slices.Contains(fs, f) }

func hasPrefix(fs, prefix []*factor) bool {
	return len(fs) >= len(prefix) && slices.Equal(fs[:len(prefix)], prefix)
}

// split parts a leaf into an outer factor of that extent and the rest.
func (f *factor) split(outer int64) {
	f.parts = []*factor{{extent: outer}, {extent: f.extent / outer}}
}

// unify makes two lists of factors of one dimension the same. Where the
// extents allow it in no way (6*4 and 4*6 of two origins) they stay apart.
func unify(a, b []*factor) {
	a, b = leaves(a), leaves(b)
	if !divisible(extents(a), extents(b)) {
		return
	}
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x == y:
			a, b = a[1:], b[1:]
		case x.extent == y.extent:
			x.same = y
			a, b = a[1:], b[1:]
		case x.extent%y.extent == 0:
			x.split(y.extent)
		case y.extent%x.extent == 0:
			y.split(x.extent)
		default:
			return // a list holds a factor of the other's at another place
		}
		a, b = leaves(a), leaves(b) // which may hold what was split or joined
	}
}

func extents(fs []*factor) []int64 {
	out := make([]int64, len(fs))
	for i, f := range fs {
		out[i] = f.extent
	}
	return out
}

// divisible reports whether two products have a common refinement.
func divisible(a, b []int64) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x == y:
			a, b = a[1:], b[1:]
		case x%y == 0:
			a[0], b = x/y, b[1:]
		case y%x == 0:
			b[0], a = y/x, a[1:]
		default:
			return false
		}
	}
	return len(a) == 0 && len(b) == 0
}

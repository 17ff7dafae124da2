package ir

// AxisMap says, for every output (by port) and every one of its axes, how
// that axis relates to the inputs. It is the declaration from which memoc
// learns what may be split or run in chunks along an axis, and it is tested
// by executing the operator on slices.
//
// An empty AxisMap claims nothing: no axis of the operator may be split.
type AxisMap struct {
	Out [][]OutAxis // [output][axis]; nil for an output of which nothing is claimed
	// Sum lists the input axes the operator sums over: slices of the inputs
	// along such an axis give partial results that add up to the output.
	Sum []AxisRef
}

// AxisRef is axis Axis of input In.
type AxisRef struct{ In, Axis int }

// OutAxis relates one output axis to the inputs: to make the output for
// positions [a,b) of this axis, each link says which part of its input is
// needed. An input without link is needed whole, and does not vary along the
// axis. A nil OutAxis claims nothing; Free claims that all inputs are needed
// whole but that every position can be made by itself.
type OutAxis []AxisLink

// AxisLink relates an output axis to axis Axis of input In.
type AxisLink struct {
	In, Axis int
	Rel      AxisRel
	// Rel-dependent numbers:
	//   Follow:  positions [a+Lo, b+Lo)      (Lo is 0 but for Concat, Slice, Pad)
	//   Window:  positions [a*Stride+Lo, (b-1)*Stride+Hi], clipped
	//   Prefix:  positions [0, b+Hi)
	//   Merge:   the output axis is a run of input axes starting at Axis,
	//            Inner positions of the following axes for each position
	//   Split:   the output axis is the outer (Inner = extent of what lies
	//            inside) part of input axis Axis
	Stride, Lo, Hi int64
	Inner          int64
}

// AxisRel is the form of an AxisLink.
type AxisRel uint8

// The forms of an AxisLink.
const (
	Follow AxisRel = iota
	Window
	Prefix
	Merge
	Split
	Whole // the whole input axis, and the output varies with the position; beside a Follow, positions are the same
)

// FollowAll is the AxisMap of pointwise operators with ONNX broadcasting:
// every output axis follows the input axes it is aligned with, except those
// of extent 1 that are broadcast. Nothing is claimed of an axis where a symbol
// leaves open whether an input is broadcast, or an input's rank is not known.
func FollowAll(n *Node) AxisMap {
	m := AxisMap{Out: make([][]OutAxis, len(n.Out))}
	for o, v := range n.Out {
		if v == nil || !v.Type.Shape.Ranked {
			continue
		}
		m.Out[o] = make([]OutAxis, v.Type.Shape.Rank())
		for a, d := range v.Type.Shape.Dims {
			m.Out[o][a] = followAligned(n, d, v.Type.Shape.Rank()-a)
		}
	}
	return m
}

// followAligned links an output axis of extent d, the k-th from the end.
func followAligned(n *Node, d Dim, k int) OutAxis {
	links := OutAxis{}
	for i, in := range n.In {
		if in == nil {
			continue
		}
		s := in.Type.Shape
		if !s.Ranked {
			return nil
		}
		axis := s.Rank() - k
		if axis < 0 {
			continue
		}
		one := s.Dims[axis].Equal(N(1))
		switch {
		case s.Dims[axis].Equal(d):
			links = append(links, AxisLink{In: i, Axis: axis})
		case !one:
			return nil
		}
	}
	return links
}

// NoAxes claims nothing.
func NoAxes(*Node) AxisMap { return AxisMap{} }

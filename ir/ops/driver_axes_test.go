package ops

import (
	"fmt"
	"slices"
	"testing"

	"memoc/ir"
)

// span is positions [lo,hi) of an axis.
type span struct{ lo, hi int64 }

// TestAxes holds every claim of Axes against execution, in two ways. Elements
// that a claim calls irrelevant are overwritten: the positions in question
// must not change. And where positions [a,b) need a run of positions of each
// linked input that the node can be given alone (they follow, are a prefix
// from the start, or whole groups of a merge or split), the node is run on
// these slices alone: it must give that slice of the output, bit for bit.
func TestAxes(t *testing.T) { checkEach(t, axesSample) }

func axesSample(t testing.TB, op *ir.Op, s ir.Sample) { checkClaims(t, op, s, &claims{}) }

// claims counts what of an operator's Axes has been checked.
type claims struct {
	linked map[ir.AxisRel]int // links, over output axes and spans
	run    map[ir.AxisRel]int // of them those of runs on slices
	free   int                // axes of which every position can be made by itself
	sums   int                // axes that are said to add up, and do
}

func checkClaims(t testing.TB, op *ir.Op, s ir.Sample, c *claims) {
	b := mustBuild(t, op, s, asConstants)
	whole := mustEval(t, b)
	m := op.Axes(b.node)
	for o, axes := range m.Out {
		if axes == nil {
			continue
		}
		y, ok := whole[o].(*ir.Tensor)
		if !ok || len(axes) != len(y.Dims) {
			t.Errorf("output %d: %d axes claimed of %s", o, len(axes), b.node.Out[o].Type)
			continue
		}
		for a, links := range axes {
			if links == nil {
				continue
			}
			if len(links) == 0 {
				c.free++
			}
			for _, r := range spansOf(y.Dims[a]) {
				checkIndependent(t, op, s, o, a, links, r, y)
				c.count(links, checkSliceRun(t, op, s, o, a, links, r, y))
			}
		}
	}
	c.sums += checkPartialSums(t, op, s, m, whole)
}

func (c *claims) count(links ir.OutAxis, ran bool) {
	if c.linked == nil {
		c.linked, c.run = map[ir.AxisRel]int{}, map[ir.AxisRel]int{}
	}
	for _, l := range links {
		c.linked[l.Rel]++
		if ran {
			c.run[l.Rel]++
		}
	}
}

func spansOf(n int64) []span {
	if n < 2 {
		return []span{{0, n}}
	}
	out := []span{{0, 0}} // an empty batch is a batch
	for i := range min(n, 4) {
		out = append(out, span{i, i + 1})
	}
	if n > 2 {
		out = append(out, span{1, n}, span{0, n - 1})
	}
	return out
}

// needed is which positions of the linked input axis the output span r needs.
func needed(l ir.AxisLink, r span, extent int64) span {
	if r.lo == r.hi {
		return span{}
	}
	n := span{0, extent}
	switch l.Rel {
	case ir.Follow:
		n = span{r.lo + l.Lo, r.hi + l.Lo}
	case ir.Window:
		n = span{r.lo*l.Stride + l.Lo, (r.hi-1)*l.Stride + l.Hi + 1}
	case ir.Prefix:
		n = span{0, r.hi + l.Hi}
	case ir.Merge:
		n = span{r.lo / l.Inner, (r.hi + l.Inner - 1) / l.Inner}
	case ir.Split:
		n = span{r.lo * l.Inner, r.hi * l.Inner}
	}
	n.lo = min(max(n.lo, 0), extent)
	n.hi = max(min(n.hi, extent), n.lo)
	return n
}

// checkIndependent overwrites what the claim for output span r leaves out.
func checkIndependent(t testing.TB, op *ir.Op, s ir.Sample, o, a int, links ir.OutAxis, r span, y *ir.Tensor) {
	t.Helper()
	m := s
	m.In = slices.Clone(s.In)
	for i, x := range s.In {
		keep := map[int][]span{} // axis: spans, of which an element needs one for each axis
		for _, l := range links {
			if l.In != i {
				continue
			}
			if absent(s, i) || l.Axis < 0 || l.Axis >= len(x.Dims) {
				t.Errorf("output %d axis %d: link to axis %d of input %d, which has none such", o, a, l.Axis, i)
				return
			}
			keep[l.Axis] = append(keep[l.Axis], needed(l, r, x.Dims[l.Axis]))
		}
		if len(keep) > 0 {
			m.In[i] = garbageOutside(x, keep)
		}
	}
	b, err := build(op, m, asConstants)
	if err != nil {
		return // a garbled shape is no node of this form
	}
	out, err := b.eval()
	if err != nil {
		t.Errorf("output %d axis %d span %v: with other values elsewhere: %v", o, a, r, err)
		return
	}
	got, ok := out[o].(*ir.Tensor)
	if !ok || !slices.Equal(got.Dims, y.Dims) {
		t.Errorf("output %d axis %d: the shape depends on values outside %v", o, a, r)
		return
	}
	if !sameBits(slice(got, a, r), slice(y, a, r)) {
		t.Errorf("output %d axis %d: positions %v depend on more than %+v says", o, a, r, links)
	}
}

// garbageOutside replaces the elements outside of the spans. Floats get other
// values; integers, which may be indices, change places.
func garbageOutside(x *ir.Tensor, keep map[int][]span) *ir.Tensor {
	y := ir.NewTensor(x.DType, x.Dims...)
	copy(y.Data, x.Data)
	copy(y.Strings, x.Strings)
	var outside []int
	for i := range int(x.Len()) {
		rest, in := int64(i), true
		for a := len(x.Dims) - 1; a >= 0; a-- {
			p := rest % x.Dims[a]
			rest /= x.Dims[a]
			if spans, ok := keep[a]; ok && !slices.ContainsFunc(spans, func(r span) bool { return r.lo <= p && p < r.hi }) {
				in = false
			}
		}
		if !in {
			outside = append(outside, i)
		}
	}
	switch {
	case x.DType == ir.String || x.DType.Bits() < 8:
	case x.DType.IsFloat():
		vals := slices.Clone(x.Floats())
		for k, i := range outside {
			vals[i] = 3.25 - 1.5*vals[i] + float64(k%3)
		}
		ir.SetFloats(y, vals)
	default:
		size := x.DType.Bits() / 8
		for k, i := range outside {
			j := outside[(k+1)%len(outside)]
			copy(y.Data[i*size:(i+1)*size], x.Data[j*size:(j+1)*size])
		}
	}
	return y
}

// checkSliceRun runs the node on the slices that output span r needs, where
// these are nodes of the same form, and reports whether it did.
func checkSliceRun(t testing.TB, op *ir.Op, s ir.Sample, o, a int, links ir.OutAxis, r span, y *ir.Tensor) bool {
	t.Helper()
	m := s
	m.In = slices.Clone(s.In)
	cut := map[ir.AxisRef]bool{}
	for _, l := range links {
		if l.In >= len(s.In) || l.Axis >= len(s.In[l.In].Dims) || !runsAlone(l, r) {
			return false
		}
		if ref := (ir.AxisRef{In: l.In, Axis: l.Axis}); !cut[ref] {
			cut[ref] = true
			m.In[l.In] = slice(m.In[l.In], l.Axis, needed(l, r, m.In[l.In].Dims[l.Axis]))
		}
	}
	if len(links) == 0 {
		return false
	}
	want := slice(y, a, r)
	b := buildOfShape(op, m, o, want.Dims)
	if b == nil {
		if m, ok := restated(op, m, want.Dims); ok {
			b = buildOfShape(op, m, o, want.Dims)
		}
	}
	if b == nil {
		return false
	}
	out, err := b.eval()
	switch {
	case err != nil:
		t.Errorf("output %d axis %d: on the slice %v: %v", o, a, r, err)
	case !sameBits(out[o], want):
		t.Errorf("output %d axis %d: the slice %v of the output is not the output of the slices that %+v says", o, a, r, links)
	}
	return true
}

// runsAlone reports whether what output span r needs by the link is what a
// node that makes r alone would be given.
func runsAlone(l ir.AxisLink, r span) bool {
	switch l.Rel {
	case ir.Follow, ir.Split:
		return true
	case ir.Prefix:
		return r.lo == 0
	case ir.Merge:
		return r.lo%l.Inner == 0 && r.hi%l.Inner == 0
	}
	return false
}

// buildOfShape is the node if it is valid and its output o has that shape.
func buildOfShape(op *ir.Op, s ir.Sample, o int, dims []int64) *built {
	b, err := build(op, s, asConstants)
	if err != nil {
		return nil
	}
	if n, ok := b.node.Out[o].Type.Shape.Static(); !ok || !slices.Equal(n, dims) {
		return nil
	}
	return b
}

// restated is the sample with another shape where it is told the shape of its
// only output.
func restated(op *ir.Op, s ir.Sample, dims []int64) (ir.Sample, bool) {
	port, told := map[string]int{"Reshape": 1, "Expand": 1, "com.microsoft::SliceGrad": 1, "ai.memoc::GatherGrad": 0,
		"com.microsoft::GatherGrad": 0}[ir.FullOp(op.Domain, op.Name)]
	switch k := slices.IndexFunc(s.Attrs, func(a ir.Attr) bool { return a.Name == "shape" }); {
	case told && port < len(s.In):
		s.In = slices.Clone(s.In)
		s.In[port] = ir.FromInts(ir.Int64, dims, int64(len(dims)))
	case told && k >= 0:
		s.Attrs = slices.Clone(s.Attrs)
		s.Attrs[k] = ir.IntsAttr("shape", dims...)
	default:
		return s, false
	}
	return s, true
}

// slice copies positions r of one axis.
func slice(x *ir.Tensor, axis int, r span) *ir.Tensor {
	dims := slices.Clone(x.Dims)
	n := dims[axis]
	dims[axis] = r.hi - r.lo
	y := ir.NewTensor(x.DType, dims...)
	outer, inner := int(ir.Elems(dims[:axis])), int(ir.Elems(dims[axis+1:]))
	count := int(dims[axis]) * inner
	if x.DType == ir.String {
		for i := range outer {
			copy(y.Strings[i*count:(i+1)*count], x.Strings[i*int(n)*inner+int(r.lo)*inner:])
		}
		return y
	}
	if x.DType.Bits() < 8 {
		vals := make([]int64, 0, outer*count)
		for i := range outer {
			from := (i*int(n) + int(r.lo)) * inner
			vals = append(vals, x.Ints()[from:from+count]...)
		}
		ir.SetInts(y, vals)
		return y
	}
	size := x.DType.Bits() / 8
	for i := range outer {
		from := (i*int(n) + int(r.lo)) * inner * size
		copy(y.Data[i*count*size:(i+1)*count*size], x.Data[from:])
	}
	return y
}

// checkPartialSums runs the node on the two halves of every axis it is said
// to sum over. References to different inputs in a row are one axis (MatMul:
// the last of A and the last but one of B).
func checkPartialSums(t testing.TB, op *ir.Op, s ir.Sample, m ir.AxisMap, whole []ir.Datum) (checked int) {
	t.Helper()
	for _, refs := range sumGroups(s, m.Sum) {
		n := s.In[refs[0].In].Dims[refs[0].Axis]
		if n < 2 {
			continue
		}
		var parts [2][]ir.Datum
		for h, r := range []span{{0, n / 2}, {n / 2, n}} {
			half := s
			half.In = slices.Clone(s.In)
			for _, ref := range refs {
				half.In[ref.In] = slice(half.In[ref.In], ref.Axis, r)
			}
			b, err := build(op, half, asConstants)
			if err != nil {
				return checked // the operator carries a shape
			}
			if parts[h], err = b.eval(); err != nil {
				t.Errorf("sum over %v: on the half %v: %v", refs, r, err)
				return checked
			}
		}
		checked++
		if diff := compareSum(parts, whole[0].(*ir.Tensor)); diff != "" {
			t.Errorf("sum over %v: %s", refs, diff)
		}
	}
	return checked
}

func sumGroups(s ir.Sample, refs []ir.AxisRef) (groups [][]ir.AxisRef) {
	for _, ref := range refs {
		extent := func(r ir.AxisRef) int64 { return s.In[r.In].Dims[r.Axis] }
		if n := len(groups); n > 0 {
			last := groups[n-1]
			fits := extent(last[0]) == extent(ref) &&
				!slices.ContainsFunc(last, func(r ir.AxisRef) bool { return r.In == ref.In })
			if fits {
				groups[n-1] = append(last, ref)
				continue
			}
		}
		groups = append(groups, []ir.AxisRef{ref})
	}
	return groups
}

func compareSum(parts [2][]ir.Datum, want *ir.Tensor) string {
	a, b := parts[0][0].(*ir.Tensor), parts[1][0].(*ir.Tensor)
	if !slices.Equal(a.Dims, want.Dims) || !slices.Equal(b.Dims, want.Dims) {
		return fmt.Sprintf("partial results are %s and %s, the whole %s", a.Type(), b.Type(), want.Type())
	}
	sum := slices.Clone(a.Floats())
	for i, x := range b.Floats() {
		sum[i] += x
	}
	return compareFloats(sum, want.Floats(), max(tolerance(want.DType), 1e-12))
}

package ops

import (
	"math"
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Concat",
	Doc:   "Joins tensors along an axis.",
	Since: []int{1, 4, 11, 13},
	In:    ir.Ports("inputs:T*"), Out: ir.Ports("concat_result:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     concatInfer,
	Axes:      concatAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(concatGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		y, msg := concatTensors(inputTensors(c), c.Node.Int("axis", 1))
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		c.Set(0, y)
		return nil
	},
	Kernel:  ir.KernelOf(concatKernel),
	Samples: func() []ir.Sample { return concatSamples(0) },
})

// concatSamples are Concat's and ConcatTraining's, with that many outputs.
func concatSamples(numOut int) []ir.Sample {
	a := floats([]int64{2, 3}, iota64(6)...)
	b := floats([]int64{2, 1}, 7, -8)
	axis := func(n int64) []ir.Attr { return []ir.Attr{ir.IntAttr("axis", n)} }
	return []ir.Sample{
		{Name: "last", NumOut: numOut, In: []*ir.Tensor{a, b}, Attrs: axis(1)},
		{Name: "negative", NumOut: numOut, In: []*ir.Tensor{a, b, a}, Attrs: axis(-1)},
		{Name: "first", NumOut: numOut, In: []*ir.Tensor{a, a}, Attrs: axis(0)},
		{Name: "one", NumOut: numOut, In: []*ir.Tensor{a}, Attrs: axis(0)},
		{Name: "empty part", NumOut: numOut, In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 3), a}, Attrs: axis(0)},
		{Name: "ints", NumOut: numOut, In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1, 2}, 2), ir.FromInts(ir.Int64, []int64{3}, 1)}, Attrs: axis(0)},
	}
}

// inputTensors lists the inputs.
func inputTensors(c *ir.EvalCtx) []*ir.Tensor {
	xs := make([]*ir.Tensor, c.NumIn())
	for i := range xs {
		xs[i] = c.In(i)
	}
	return xs
}

func concatInfer(c *ir.InferCtx) error {
	shapes := make([]ir.Shape, len(c.Node.In))
	for i := range shapes {
		shapes[i] = c.Shape(i)
	}
	if len(shapes) == 0 {
		return c.Errorf("there is nothing to join")
	}
	if c.Version >= 4 && c.Node.Attr("axis") == nil {
		return c.Errorf("the attribute axis is missing")
	}
	out, err := concatShapes(c, shapes, c.Node.Int("axis", 1))
	if err != nil {
		return err
	}
	c.SetTensor(0, c.DType(0), out)
	concatInts(c)
	return nil
}

// concatInts propagates known elements of 1-D inputs.
func concatInts(c *ir.InferCtx) {
	var all []ir.Dim
	for i := range c.Node.In {
		ds, ok := c.Ints(i)
		if r := c.Shape(i).Rank(); !ok || r < 0 || r > 1 {
			return
		}
		all = append(all, ds...)
	}
	c.SetInts(0, all)
}

// concatShapes joins shapes along axis. On the other axes a known extent wins
// over a symbol; two symbols are equal by the operator's contract, and the
// first one stands.
func concatShapes(c *ir.InferCtx, shapes []ir.Shape, axis int64) (ir.Shape, error) {
	rank, complete := -1, true
	shapes = scalarsAsVectors(shapes)
	for _, s := range shapes {
		if !s.Ranked {
			complete = false
			continue
		}
		if rank >= 0 && s.Rank() != rank {
			return ir.Shape{}, c.Errorf("the inputs have %d and %d axes", rank, s.Rank())
		}
		rank = s.Rank()
	}
	if rank < 0 {
		return ir.Shape{}, nil
	}
	at, err := c.Axis(axis, rank)
	if err != nil {
		return ir.Shape{}, err
	}
	dims := make([]ir.Dim, rank)
	first := true
	for _, s := range shapes {
		for a, d := range s.Dims {
			switch {
			case a == at:
				sum, ok := addExtents(dims[a], d)
				if !ok {
					return ir.Shape{}, c.Errorf("axis %d overflows 64 bits", a)
				}
				dims[a] = sum
			case first:
				dims[a] = d
			default:
				if dims[a], err = sameDim(c, dims[a], d, a); err != nil {
					return ir.Shape{}, err
				}
			}
		}
		first = first && !s.Ranked
	}
	if !complete {
		dims[at] = c.FreshDim()
	}
	return ir.Dims(dims...), nil
}

// scalarsAsVectors takes scalars among vectors for vectors of one element:
// exporters have written shapes that way, though ONNX does not allow it.
func scalarsAsVectors(shapes []ir.Shape) []ir.Shape {
	vectors := slices.ContainsFunc(shapes, func(s ir.Shape) bool { return s.Rank() == 1 })
	out := slices.Clone(shapes)
	for i, s := range out {
		if vectors && s.Rank() == 0 {
			out[i] = ir.Ints64(1)
		}
	}
	return out
}

// addExtents adds extents (or an amount that may be negative to one); ok is
// false on overflow.
func addExtents(a, b ir.Dim) (sum ir.Dim, ok bool) {
	m, okM := a.Int()
	n, okN := b.Int()
	if okM && okN && (n > 0 && m > math.MaxInt64-n || n < 0 && m < math.MinInt64-n) {
		return sum, false
	}
	return a.Add(b), true
}

// sameDim joins two extents that must be equal.
func sameDim(c *ir.InferCtx, a, b ir.Dim, axis int) (ir.Dim, error) {
	_, aInt := a.Int()
	_, bInt := b.Int()
	switch {
	case bInt && !aInt:
		return b, nil
	case aInt && bInt && !a.Equal(b):
		return a, c.Errorf("axis %d has extents %s and %s, which must be equal", axis, a, b)
	}
	return a, nil
}

// concatAxes: other axes follow; along the joined one, part i is shifted by
// the extents before it.
func concatAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	shape := n.Out[0].Type.Shape
	at, ok := ir.NormAxis(n.Int("axis", 1), shape.Rank())
	if !shape.Ranked || !ok {
		return m
	}
	axes := make([]ir.OutAxis, shape.Rank())
	for a := range axes {
		if a == at {
			axes[a] = concatOffsets(n, at)
			continue
		}
		for i := range n.In {
			axes[a] = append(axes[a], ir.AxisLink{In: i, Axis: a})
		}
	}
	m.Out[0] = axes
	return m
}

func concatOffsets(n *ir.Node, at int) ir.OutAxis {
	var links ir.OutAxis
	offset := int64(0)
	for i, v := range n.In {
		if v.Type.Shape.Rank() <= at {
			return nil
		}
		links = append(links, ir.AxisLink{In: i, Axis: at, Lo: -offset})
		d, ok := v.Type.Shape.Dims[at].Int()
		if !ok && i < len(n.In)-1 {
			return nil
		}
		offset += d
	}
	return links
}

// concatTensors is the join of tensors of one type; msg says what is wrong.
func concatTensors(xs []*ir.Tensor, axis int64) (y *ir.Tensor, msg string) {
	if len(xs) == 0 {
		return nil, "there is nothing to join"
	}
	if slices.ContainsFunc(xs, func(x *ir.Tensor) bool { return len(x.Dims) == 1 }) {
		xs = slices.Clone(xs)
		for i, x := range xs { // see scalarsAsVectors
			if len(x.Dims) == 0 {
				xs[i] = x.Reshaped(1)
			}
		}
	}
	at, ok := ir.NormAxis(axis, len(xs[0].Dims))
	if !ok {
		return nil, "the axis is out of range"
	}
	dims := append([]int64{}, xs[0].Dims...)
	dims[at] = 0
	for _, x := range xs {
		if len(x.Dims) != len(dims) || x.DType != xs[0].DType {
			return nil, "the inputs differ in rank or type"
		}
		for a, n := range x.Dims {
			if a == at {
				dims[a] += n
			} else if n != dims[a] {
				return nil, "the inputs differ on another axis"
			}
		}
	}
	outer := int(ir.Elems(dims[:at]))
	idx := make([]int, 0, ir.Elems(dims))
	for o := range outer {
		base := 0
		for _, x := range xs {
			n := int(ir.Elems(x.Dims[at:]))
			for k := range n {
				idx = append(idx, base+o*n+k)
			}
			base += int(x.Len())
		}
	}
	return pick(xs[0].DType, dims, idx, xs...), ""
}

// concatGrad cuts the gradient into the inputs' parts.
func concatGrad(c *ir.GradCtx) error {
	dy := c.OutGrad(0)
	if dy == nil {
		return nil
	}
	at, ok := ir.NormAxis(c.Node.Int("axis", 1), c.Node.Out[0].Type.Shape.Rank())
	if !ok {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.Node.Out[0].Name)
	}
	for _, v := range c.Node.In {
		if v.Type.Shape.Rank() <= at {
			return c.Node.Errorf("grad", "the gradient needs the extent of %q along axis %d", v.Name, at)
		}
	}
	start, startDim := c.Int64s(0), ir.N(0)
	for i, v := range c.Node.In {
		endDim := startDim.Add(v.Type.Shape.Dims[at])
		var end *ir.Value
		switch n, ok := endDim.Int(); {
		case i == len(c.Node.In)-1:
			end = c.Int64s(math.MaxInt64)
		case ok:
			end = c.Int64s(n)
		default:
			end = c.Add(start, c.DimOf(v, at))
		}
		if c.Needs(i) {
			c.Set(i, c.Like(c.SliceValues(dy, at, start, end), v))
		}
		start, startDim = end, endDim
	}
	return nil
}

func concatKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.OutDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	dims := c.OutShape(0)
	at, _ := ir.NormAxis(c.Node.Int("axis", 1), len(dims))
	inner := ir.Elems(dims[at+1:])
	args := []ir.KernelArg{ir.OutArg(0), ir.IntArg(ir.Elems(dims[:at])), ir.IntArg(dims[at] * inner), ir.IntArg(0)}
	for i := range c.Node.In {
		n := int64(1) // see scalarsAsVectors
		if in := c.InShape(i); len(in) > 0 {
			n = in[at] * inner
		}
		args = append(args, ir.InArg(i), ir.IntArg(n))
	}
	return ir.Kernel{Func: "concat", Source: concatCUDA, Types: []ir.DType{c.OutDType(0)}, Args: args}, nil
}

const concatCUDA = `
// One launch for each part: rows of n elements go to offset at in rows of total elements.
template <class T>
void concat_part(Stream& s, T* y, int64_t outer, int64_t total, int64_t at, const T* x, int64_t n) {
  parallel_for(s, outer * n, [=] MEMOC_DEVICE(int64_t i) { y[i / n * total + at + i % n] = x[i]; });
}

template <class T>
void concat(Stream&, T*, int64_t, int64_t, int64_t) {}

template <class T, class... Rest>
void concat(Stream& s, T* y, int64_t outer, int64_t total, int64_t at, const T* x, int64_t n, Rest... rest) {
  concat_part(s, y, outer, total, at, x, n);
  concat<T>(s, y, outer, total, at + n, rest...);
}`

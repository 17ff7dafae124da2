package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Unique",
	Doc:   "The distinct elements (or slices along an axis), where they first stand, where each element went, and how often.",
	Since: []int{11},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T, indices:tensor(int64)?, inverse_indices:tensor(int64)?, counts:tensor(int64)?"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in, n := c.Shape(0), c.FreshDim()
		all := c.FreshDim()
		shape := ir.Dims(n)
		if c.Node.Attr("axis") != nil {
			shape = ir.Shape{}
			if in.Ranked {
				axis, err := c.Axis(c.Node.Int("axis", 0), in.Rank())
				if err != nil {
					return err
				}
				all = in.Dims[axis]
				shape = ir.Dims(in.Dims...)
				shape.Dims = slices.Clone(shape.Dims)
				shape.Dims[axis] = n
			}
		} else if d, ok := in.NumElements(); ok {
			all = d
		}
		c.SetTensor(0, c.DType(0), shape)
		c.SetTensor(1, ir.Int64, ir.Dims(n))
		c.SetTensor(2, ir.Int64, ir.Dims(all))
		c.SetTensor(3, ir.Int64, ir.Dims(n))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("not derived yet: it decides by comparison"),
	Recompute: ir.Never("it decides by comparison, and its size depends on the data"),
	Eval:      uniqueEval,
	Kernel:    ir.NoKernel("the size of its result depends on the data"),
	Samples: func() []ir.Sample {
		ints := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		x := ir.FromFloats(ir.Float, []float64{2, 1, 1, 3, 4, 3}, 6)
		return []ir.Sample{
			{Name: "sorted", NumOut: 4, In: []*ir.Tensor{x}, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1, 2, 3, 4}, 4), ints(1, 0, 3, 4), ints(1, 0, 0, 2, 3, 2), ints(2, 1, 2, 1)}},
			{Name: "in order", NumOut: 4, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("sorted", 0)},
				Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{2, 1, 3, 4}, 4), ints(0, 1, 3, 4), ints(0, 1, 1, 2, 3, 2), ints(1, 2, 2, 1)}},
			{Name: "rows", NumOut: 1, In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 0, 0, 1, 1, 0}, 3, 2)}, Attrs: []ir.Attr{ir.IntAttr("axis", 0)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{0, 1, 1, 0}, 2, 2)}},
		}
	},
})

// uniqueLines lists the element indices of every slice.
func uniqueLines(dims []int64, axis int) [][]int {
	outer, n, inner := int(ir.Elems(dims[:axis])), int(dims[axis]), int(ir.Elems(dims[axis+1:]))
	lines := make([][]int, n)
	for j := range lines {
		for o := range outer {
			for i := range inner {
				lines[j] = append(lines[j], (o*n+j)*inner+i)
			}
		}
	}
	return lines
}

// elementOrder compares two elements of x.
func elementOrder(x *ir.Tensor) func(i, j int) int {
	switch {
	case x.DType == ir.String:
		return func(i, j int) int {
			switch a, b := x.Strings[i], x.Strings[j]; {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return 0
		}
	case x.DType.IsFloat():
		vals := x.Floats()
		return func(i, j int) int { return compareNumbers(vals[i], vals[j]) }
	}
	vals := x.Ints()
	return func(i, j int) int { return compareNumbers(vals[i], vals[j]) }
}

func uniqueEval(c *ir.EvalCtx) error {
	x, axis := c.In(0), 0
	if c.Node.Attr("axis") == nil {
		x = x.Reshaped(x.Len())
	} else {
		var ok bool
		if axis, ok = ir.NormAxis(c.Node.Int("axis", 0), len(x.Dims)); !ok {
			return c.Errorf("the axis is out of range")
		}
	}
	lines, order := uniqueLines(x.Dims, axis), elementOrder(x)
	compareLines := func(a, b int) int {
		for k := range lines[a] {
			if o := order(lines[a][k], lines[b][k]); o != 0 {
				return o
			}
		}
		return 0
	}
	sorted := make([]int, len(lines))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, compareLines)
	var first []int64 // of each distinct slice, its first place
	group := make([]int64, len(lines))
	counts := []int64{}
	for k, j := range sorted {
		if k == 0 || compareLines(sorted[k-1], j) != 0 {
			first = append(first, int64(j))
			counts = append(counts, 0)
		}
		group[j] = int64(len(first) - 1)
		counts[len(counts)-1]++
	}
	if c.Node.Int("sorted", 1) == 0 {
		first, group, counts = inOrder(first, group, counts)
	}
	idx, _, _ := gatherIndex(x.Dims, axis, first)
	n := int64(len(first))
	c.Set(0, pick(x.DType, gatherDims(x.Dims, []int64{n}, axis), idx, x))
	c.Set(1, ir.FromInts(ir.Int64, first, n))
	c.Set(2, ir.FromInts(ir.Int64, group, int64(len(group))))
	c.Set(3, ir.FromInts(ir.Int64, counts, n))
	return nil
}

// inOrder renumbers the groups by first appearance.
func inOrder(first, group, counts []int64) (f, g, n []int64) {
	rank := make([]int, len(first))
	for i := range rank {
		rank[i] = i
	}
	slices.SortFunc(rank, func(a, b int) int { return compareNumbers(first[a], first[b]) })
	to := make([]int64, len(rank))
	for k, old := range rank {
		to[old] = int64(k)
		f, n = append(f, first[old]), append(n, counts[old])
	}
	for _, old := range group {
		g = append(g, to[old])
	}
	return f, g, n
}

package ops

import (
	"slices"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Transpose",
	Doc:   "Permutes the axes; by default it reverses them.",
	Since: []int{1, 13, 21, 23, 24, 25},
	In:    ir.Ports("data:T"), Out: ir.Ports("transposed:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		perm, given := c.Node.IntList("perm")
		if !in.Ranked {
			shape := ir.Shape{}
			if given {
				shape = c.FreshShape(len(perm))
			}
			c.SetTensor(0, c.DType(0), shape)
			return nil
		}
		perm, ok := transposePerm(c.Node, in.Rank())
		if !ok {
			return c.Errorf("perm %v is no permutation of %d axes", perm, in.Rank())
		}
		out := ir.Dims(permuted(in.Dims, perm)...)
		c.SetTensor(0, c.DType(0), out)
		moveInts(c, out, func(in, dims []int64) []int { return stridedIndex(dims, permuted(rowMajor(in), perm), 0) })
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		return followAxes(n, func(a int) int {
			perm, ok := transposePerm(n, n.In[0].Type.Shape.Rank())
			if !ok {
				return -1
			}
			return int(perm[a])
		})
	},
	Cost: ir.MoveCost,
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		perm, ok := transposePerm(c.Node, c.In(0).Type.Shape.Rank())
		if !ok {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.In(0).Name)
		}
		inverse := make([]int64, len(perm))
		for i, p := range perm {
			inverse[p] = int64(i)
		}
		c.Set(0, c.Transpose(c.OutGrad(0), inverse...))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		perm, ok := transposePerm(c.Node, len(x.Dims))
		if !ok {
			return c.Errorf("perm %v is no permutation of %d axes", perm, len(x.Dims))
		}
		dims := permuted(x.Dims, perm)
		c.Set(0, pick(x.DType, dims, stridedIndex(dims, permuted(rowMajor(x.Dims), perm), 0), x))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		in := c.InShape(0)
		perm, _ := transposePerm(c.Node, len(in))
		return stridedKernel(c, permuted(rowMajor(in), perm), 0)
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3, 4}, iota64(24)...)
		perm := func(ns ...int64) []ir.Attr { return []ir.Attr{ir.IntsAttr("perm", ns...)} }
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{x}},
			{Name: "cycle", In: []*ir.Tensor{x}, Attrs: perm(1, 2, 0)},
			{Name: "last", Version: 1, In: []*ir.Tensor{x}, Attrs: perm(0, 2, 1)},
			{Name: "empty", In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 2)}},
			{Name: "int", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 2, 3, 4, 5, 6}, 2, 3)}},
			{Name: "scalar", In: []*ir.Tensor{floats(nil, 3)}},
		}
	},
})

// transposePerm is the permutation for that rank; ok is false if the attribute
// is none (negative entries count from the end, as some files have them).
func transposePerm(n *ir.Node, rank int) (perm []int64, ok bool) {
	attr, given := n.IntList("perm")
	if !given {
		for i := range rank {
			perm = append(perm, int64(rank-1-i))
		}
		return perm, true
	}
	for _, p := range attr {
		a, inRange := ir.NormAxis(p, rank)
		if !inRange || slices.Contains(perm, int64(a)) {
			return attr, false
		}
		perm = append(perm, int64(a))
	}
	return perm, len(perm) == rank
}

// permuted is the list whose i-th entry is entry perm[i].
func permuted[E any](list []E, perm []int64) []E {
	out := make([]E, len(perm))
	for i, p := range perm {
		out[i] = list[p]
	}
	return out
}

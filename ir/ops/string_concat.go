package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "StringConcat",
	Doc:   "Joins strings element by element, with broadcasting.",
	Since: []int{20},
	In:    ir.Ports("X:T, Y:T"), Out: ir.Ports("Z:T"),
	Types:     map[string]ir.DTypeSet{"T": stringSet},
	Infer:     binaryInfer,
	Axes:      ir.FollowAll,
	Cost:      stringCost,
	Grad:      ir.NoGrad(noStringGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, y := c.In(0), c.In(1)
		dims, ok := broadcastDims(x.Dims, y.Dims)
		if !ok {
			return c.Errorf("shapes %v and %v do not broadcast", x.Dims, y.Dims)
		}
		z := ir.NewTensor(ir.String, dims...)
		broadcastIndex(dims, x.Dims, func(i, j int) { z.Strings[i] = x.Strings[j] })
		broadcastIndex(dims, y.Dims, func(i, j int) { z.Strings[i] += y.Strings[j] })
		c.Set(0, z)
		return nil
	},
	Kernel: ir.NoKernel(noStringKernel),
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "broadcast", In: []*ir.Tensor{texts([]int64{2}, "a", "b"), texts([]int64{2, 1}, "x", "")},
			Want: []*ir.Tensor{texts([]int64{2, 2}, "ax", "bx", "a", "b")}}}
	},
})

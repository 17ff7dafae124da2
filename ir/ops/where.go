package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Where",
	Doc:   "Picks X where the condition holds and Y elsewhere, with broadcasting.",
	Since: []int{9, 16},
	In:    ir.Ports("condition:B, X:T, Y:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"B": ir.Bools, "T": ir.AnyDType},
	Infer: whereInfer,
	Axes:  ir.FollowAll,
	Cost:  ir.PointwiseCost(1),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		g := c.OutGrad(0)
		if g == nil {
			return nil
		}
		if c.Needs(1) {
			c.Set(1, c.SumTo(c.Where(c.In(0), g, c.Zero(g)), c.In(1)))
		}
		if c.Needs(2) {
			c.Set(2, c.SumTo(c.Where(c.In(0), c.Zero(g), g), c.In(2)))
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval:      whereEval,
	Kernel:    ir.PointwiseKernel("x0 ? x1 : x2"),
	InPlace:   []ir.Alias{{In: 1, Out: 0}, {In: 2, Out: 0}},
	Samples: func() []ir.Sample {
		cond := ir.FromInts(ir.Bool, []int64{0, 1, 1, 1, 0, 0}, 2, 3)
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
		return []ir.Sample{
			{Name: "same", In: []*ir.Tensor{cond, x, floats([]int64{2, 3}, 1, 2, 3, 4, 5, 6)},
				Want: []*ir.Tensor{floats([]int64{2, 3}, 1, -1.25, 2, 3.5, 5, 6)}},
			{Name: "broadcast", In: []*ir.Tensor{cond.Reshaped(2, 1, 3), floats([]int64{2, 1}, 7, 8), floats(nil, -1)}},
			{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0}, 2), ir.FromInts(ir.Int64, []int64{7, -3}, 2), ir.FromInts(ir.Int64, []int64{2}, 1)}},
			{Name: "bools", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0}, 2), ir.FromInts(ir.Bool, []int64{1, 1}, 2), ir.FromInts(ir.Bool, []int64{0}, 1)}},
		}
	},
})

func whereInfer(c *ir.InferCtx) error {
	shape, err := broadcastShapes(c, c.Shape(0), c.Shape(1), c.Shape(2))
	if err != nil {
		return err
	}
	a, b := c.DType(1), c.DType(2)
	if a != b && a != ir.Undefined && b != ir.Undefined {
		return c.Errorf("X is of type %s and Y of type %s", a, b)
	}
	if a == ir.Undefined {
		a = b
	}
	c.SetTensor(0, a, shape)
	propagateInts(c, a, shape)
	return nil
}

// whereEval copies elements as they are, of any type.
func whereEval(c *ir.EvalCtx) error {
	cond, x, y := c.In(0), c.In(1), c.In(2)
	dims, ok := broadcastDims(cond.Dims, x.Dims, y.Dims)
	if !ok {
		return c.Errorf("shapes %v, %v and %v do not broadcast", cond.Dims, x.Dims, y.Dims)
	}
	if x.DType != ir.String && x.DType.Bits() < 8 {
		return c.Errorf("elements of type %s are not supported", x.DType)
	}
	out := ir.NewTensor(x.DType, dims...)
	pick := make([]bool, out.Len())
	broadcastIndex(dims, cond.Dims, func(i, j int) { pick[i] = cond.Data[j] != 0 })
	size := x.DType.Bits() / 8
	for _, src := range []struct {
		t    *ir.Tensor
		when bool
	}{{x, true}, {y, false}} {
		broadcastIndex(dims, src.t.Dims, func(i, j int) {
			switch {
			case pick[i] != src.when:
			case x.DType == ir.String:
				out.Strings[i] = src.t.Strings[j]
			default:
				copy(out.Data[i*size:(i+1)*size], src.t.Data[j*size:])
			}
		})
	}
	c.Set(0, out)
	return nil
}

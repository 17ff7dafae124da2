package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Clip",
	Doc:   "min(max(x, low), high); the bounds are attributes before opset 11, optional inputs from it on.",
	Since: []int{1, 6, 11, 12, 13},
	In:    ir.Ports("input:T, min:T?, max:T?"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer:     clipInfer,
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(2),
	Grad:      ir.GradOf(clipGrad),
	Recompute: ir.Pure,
	Eval:      clipEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		expr, next := "x0", 1
		for k, f := range []string{"max_of", "min_of"} {
			bound := ""
			if c.Has(k + 1) {
				bound = operandName(next)
				next++
			} else if a := c.Node.Attr([]string{"min", "max"}[k]); a != nil {
				bound = accLiteral(float64(a.F))
			}
			if bound != "" {
				expr = f + "(" + expr + ", " + bound + ")"
			}
		}
		return ir.Kernel{Pointwise: expr}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
		low, high := floats(nil, -1), floats(nil, 1.5)
		ints := ir.FromInts(ir.Int32, []int64{-5, 0, 5}, 3)
		return []ir.Sample{
			{Name: "both", In: []*ir.Tensor{x, low, high}},
			{Name: "low", In: []*ir.Tensor{x, low}},
			{Name: "high", In: []*ir.Tensor{x, nil, high}, Absent: []int{1}},
			{Name: "none", In: []*ir.Tensor{x}},
			{Name: "crossed", In: []*ir.Tensor{x, high, low}},
			{Name: "ints", In: []*ir.Tensor{ints, ir.FromInts(ir.Int32, []int64{-2}), ir.FromInts(ir.Int32, []int64{3})}},
			{Name: "uint64", In: []*ir.Tensor{ir.FromInts(ir.Uint64, []int64{-1, 1}, 2), ir.FromInts(ir.Uint64, []int64{2})}},
			{Name: "attributes", Version: 6, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.FloatAttr("min", -1), ir.FloatAttr("max", 1.5)}},
			{Name: "attribute late", Version: 13, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.FloatAttr("max", 1.5)}},
			{Name: "empty", In: []*ir.Tensor{floats([]int64{0}), low}},
		}
	},
})

func clipInfer(c *ir.InferCtx) error {
	for i := 1; i <= 2; i++ {
		if !c.Has(i) {
			continue
		}
		if d := c.DType(i); d != c.DType(0) && d != ir.Undefined && c.DType(0) != ir.Undefined {
			return c.Errorf("bound %d is of type %s, the input of type %s", i, d, c.DType(0))
		}
		if n, ok := c.Shape(i).NumElements(); ok && n.Differ(ir.N(1)) {
			return c.Errorf("bound %d must have one element but has shape %s", i, c.Shape(i))
		}
	}
	c.SetTensor(0, c.DType(0), c.Shape(0))
	return nil
}

func clipEval(c *ir.EvalCtx) error {
	x := c.In(0)
	if x.DType.IsInt() {
		bound := func(i int, def int64) int64 {
			if c.Has(i) {
				return c.In(i).Ints()[0]
			}
			return def
		}
		low, high := bound(1, lowestInt(x.DType)), bound(2, highestInt(x.DType))
		return evalElementsInt(c, x.DType, func(v int64) int64 {
			return minIntOfLine(x.DType, []int64{maxIntOfLine(x.DType, []int64{v, low}), high})
		})
	}
	bound := func(i int, attr string) (float64, bool) {
		if c.Has(i) {
			return c.In(i).Floats()[0], true
		}
		if a := c.Node.Attr(attr); a != nil {
			return float64(a.F), true
		}
		return 0, false
	}
	low, hasLow := bound(1, "min")
	high, hasHigh := bound(2, "max")
	return evalElements(c, x.DType, func(v float64) float64 {
		if hasLow {
			v = maxOf(v, low)
		}
		if hasHigh {
			v = minOf(v, high)
		}
		return v
	})
}

// clipGrad: the gradient goes to the input within the bounds (both included,
// as training frameworks do), below to the low bound, above to the high one.
// Where the bounds cross, every result is the high one.
func clipGrad(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	if dy == nil {
		return nil
	}
	bound := func(i int, attr string) *ir.Value {
		if v := c.In(i); v != nil {
			return v
		}
		if a := c.Node.Attr(attr); a != nil {
			return c.Scalar(x.Type.DType, float64(a.F))
		}
		return nil
	}
	low, high := bound(1, "min"), bound(2, "max")
	zero := c.Zero(dy)
	raised, dx := x, dy // max(x, low) and the gradient that reaches x
	if high != nil {
		if low != nil {
			raised = c.Op("Max", []*ir.Value{x, low})
		}
		cut := c.Greater(raised, high)
		if c.Needs(2) {
			c.Set(2, sumToBound(c, c.Where(cut, dy, zero), c.In(2)))
		}
		dx = c.Where(cut, zero, dx)
	}
	if low != nil {
		lifted := c.Less(x, low)
		if c.Needs(1) {
			c.Set(1, sumToBound(c, c.Where(lifted, dx, zero), c.In(1)))
		}
		dx = c.Where(lifted, zero, dx)
	}
	if c.Needs(0) {
		c.Set(0, dx)
	}
	return nil
}

// sumToBound sums g over everything, into the bound's shape.
func sumToBound(c *ir.GradCtx, g, bound *ir.Value) *ir.Value {
	axes := make([]int64, g.Type.Shape.Rank())
	for i := range axes {
		axes[i] = int64(i)
	}
	return c.ReshapeLike(c.ReduceSum(g, false, axes...), bound)
}

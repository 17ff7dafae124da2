package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Pow",
	Doc:   "x to the power of y, with broadcasting, in x's type.",
	Since: []int{1, 7, 12, 13, 15},
	In:    ir.Ports("X:T, Y:T1"), Out: ir.Ports("Z:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric, "T1": ir.Numeric},
	Infer: func(c *ir.InferCtx) error {
		b, ok := legacyShape(c.Node, c.Version, c.Shape(0), c.Shape(1))
		if !ok {
			return c.Errorf("shape %s does not fit into %s at axis %d", c.Shape(1), c.Shape(0), c.Node.Int("axis", 0))
		}
		shape, err := broadcastShapes(c, c.Shape(0), b)
		if err != nil {
			return err
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes:      binaryAxes,
	Cost:      ir.PointwiseCost(16),
	Grad:      binaryGrad(powGradBase, powGradExponent),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		d := c.In(0).DType
		if d.IsInt() && c.In(1).DType.IsInt() {
			return broadcastEvalInt(c, d, func(x []int64) int64 { return powInt(d, x[0], x[1]) })
		}
		return broadcastEval(c, d, func(x []float64) float64 { return math.Pow(x[0], x[1]) })
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if legacyMoved(c.Node, c.Version) {
			return ir.Kernel{}, c.Errorf("no device code for the axis attribute of opsets before 7; convert the model to opset 7 or later")
		}
		return ir.Kernel{Pointwise: powExpr(c)}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, 1.25, 2, 3.5, 0.75, 1)
		signed := floats([]int64{2, 3}, 0.5, -1.25, 2, -3.5, -0.75, 0)
		negative := map[int]string{1: "a negative base has powers at integer exponents alone", 0: "not differentiable at 0"}
		return []ir.Sample{
			{Name: "same", In: []*ir.Tensor{x, floats([]int64{2, 3}, 1.5, 2, -0.5, 4, 0, -3)}},
			{Name: "broadcast", In: []*ir.Tensor{x, floats([]int64{3}, 2, -1.5, 0.5)}},
			{Name: "outer", In: []*ir.Tensor{floats([]int64{2, 1}, 1.5, 2), floats([]int64{3}, 2, -1.5, 0.5)}},
			{Name: "square", In: []*ir.Tensor{signed, floats(nil, 2)}, NoGradCheck: map[int]string{1: negative[1]}},
			{Name: "cube", In: []*ir.Tensor{signed, floats(nil, 3)}, NoGradCheck: map[int]string{1: negative[1]}},
			{Name: "root", In: []*ir.Tensor{x, floats([]int64{1}, 0.5)}},
			{Name: "first power", In: []*ir.Tensor{signed, floats(nil, 1)}, NoGradCheck: map[int]string{1: negative[1]}},
			{Name: "zeroth power", In: []*ir.Tensor{signed, floats([]int64{3}, 0, 2, 0)}, NoGradCheck: map[int]string{1: negative[1]}},
			{Name: "int exponent", In: []*ir.Tensor{signed, ir.FromInts(ir.Int64, []int64{3}, 1)}},
			{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{-2, 3, 1, -1, 5}, 5), ir.FromInts(ir.Int32, []int64{3, 4, -2, -3, -1}, 5)}},
			{Name: "int base", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{2, 3}, 2), floats(nil, 1.5)}},
		}
	},
})

// powExpr multiplies for integers. An integer base with a float exponent is
// computed in double and truncated; a float base takes its exponent in its
// own compute type (double exponents of a float base are rare and exact where
// they matter).
func powExpr(c *ir.NodeCtx) string {
	if p, ok := scalarConst(c.Node.In[1]); ok && p == 2 {
		return "x0 * x0"
	}
	switch base, exp := c.InDType(0), c.InDType(1); {
	case base.IsInt() && exp.IsInt():
		return "pow_of(x0, memoc::to<acc_t>(x1))"
	case base.IsInt():
		return "memoc::to<acc_t>(pow_of(double(x0), double(x1)))"
	}
	return "pow_of(x0, acc_t(x1))"
}

// scalarConst is the value of a constant of one element.
func scalarConst(v *ir.Value) (x float64, ok bool) {
	t := v.Const()
	if t == nil || t.Len() != 1 || !t.DType.IsFloat() && !t.DType.IsInt() {
		return 0, false
	}
	return t.Floats()[0], true
}

// powGradBase: y * x^(y-1). Constant exponents of 1, 2 and 1/2, which are
// what models have, spare the power. The exponent 0 has the derivative 0 for
// x = 0 too, where x^(-1) is infinite.
func powGradBase(c *ir.GradCtx, g *ir.Value) *ir.Value {
	x, d := c.In(0), c.In(0).Type.DType
	p, known := scalarConst(c.In(1))
	switch {
	case known && p == 1:
		return g
	case known && p == 2:
		return c.Mul(g, c.MulScalar(x, 2))
	case known && p == 0.5:
		return c.Div(c.MulScalar(g, 0.5), c.Out(0))
	case known && p != 0:
		power := c.Op("Pow", []*ir.Value{x, c.Scalar(d, p-1)})
		return c.Mul(g, c.MulScalar(power, p))
	}
	y := c.Cast(c.In(1), d)
	power := c.Op("Pow", []*ir.Value{x, c.AddScalar(y, -1)})
	isZero := c.Same(y, c.Scalar(d, 0))
	return c.Mul(g, c.Where(isZero, c.Scalar(d, 0), c.Mul(y, power)))
}

// powGradExponent: z * log(x), and 0 for x = 0.
func powGradExponent(c *ir.GradCtx, g *ir.Value) *ir.Value {
	x := c.In(0)
	one := c.Scalar(x.Type.DType, 1)
	log := c.Log(c.Where(c.Same(x, c.Zero(x)), one, x))
	return c.Cast(c.Mul(g, c.Mul(c.Out(0), log)), c.In(1).Type.DType)
}

// powInt is the kernels' power of integers: a negative exponent gives 0 but
// for bases 1 and -1; products wrap.
func powInt(d ir.DType, x, n int64) int64 {
	switch {
	case n >= 0:
	case x == 1:
		return 1
	case x == -1 && !d.IsUnsigned():
		return 1 - 2*(n&1)
	default:
		return 0
	}
	r := int64(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r *= x
		}
		x *= x
	}
	return r
}

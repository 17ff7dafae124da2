package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "IsNaN",
	Doc:   "Whether an element is NaN.",
	Since: []int{9, 13, 20},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:tensor(bool)"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats | smallFloats},
	Infer:     truthInfer,
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("truth values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return evalElements(c, ir.Bool, func(x float64) float64 { return oneIf(x != x) })
	},
	Kernel:  truthKernel(func(*ir.Node) string { return "x0 != x0" }),
	Samples: oddSamples,
})

var _ = ir.Register(ir.Op{
	Name:  "IsInf",
	Doc:   "Whether an element is infinite, of the signs that the attributes choose.",
	Since: []int{10, 20},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:tensor(bool)"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats | smallFloats},
	Infer:     truthInfer,
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(2),
	Grad:      ir.NoGrad("truth values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		up, down := c.Node.Int("detect_positive", 1) != 0, c.Node.Int("detect_negative", 1) != 0
		return evalElements(c, ir.Bool, func(x float64) float64 {
			return oneIf(up && math.IsInf(x, 1) || down && math.IsInf(x, -1))
		})
	},
	Kernel: truthKernel(func(n *ir.Node) string {
		expr := "false"
		if n.Int("detect_positive", 1) != 0 {
			expr += " || x0 == memoc::infinity<acc_t>()"
		}
		if n.Int("detect_negative", 1) != 0 {
			expr += " || x0 == -memoc::infinity<acc_t>()"
		}
		return expr
	}),
	Samples: func() []ir.Sample {
		out := oddSamples()
		for _, name := range []string{"detect_positive", "detect_negative"} {
			out = append(out, ir.Sample{Name: name, In: out[0].In, Attrs: []ir.Attr{ir.IntAttr(name, 0)}})
		}
		return out
	},
})

var _ = ir.Register(ir.Op{
	Name:  "Not",
	Doc:   "Logical negation.",
	Since: []int{1},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, ir.Bool, c.Shape(0))
		ds, ok := c.Ints(0)
		if !ok {
			return nil
		}
		out := []ir.Dim{}
		for _, d := range ds {
			n, known := d.Int()
			if !known {
				return nil
			}
			out = append(out, dimOfBool(n == 0))
		}
		c.SetInts(0, out)
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("truth values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return evalElementsInt(c, ir.Bool, func(x int64) int64 { return 1 - x })
	},
	Kernel:  ir.PointwiseKernel("!x0"),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{{Name: "matrix", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{0, 1, 1, 0}, 2, 2)},
			Want: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0, 0, 1}, 2, 2)}}}
	},
})

var _ = ir.Register(ir.Op{
	Name:  "BitwiseNot",
	Doc:   "Flips every bit.",
	Since: []int{18},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Ints},
	Infer:     sameTypeInfer,
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return evalElementsInt(c, c.In(0).DType, func(x int64) int64 { return ^x })
	},
	Kernel:  ir.PointwiseKernel("~x0"),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "int32", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{0, 1, -1, 77}, 2, 2)}},
			{Name: "uint8", In: []*ir.Tensor{ir.FromInts(ir.Uint8, []int64{0, 1, 255, 77}, 2, 2)}},
		}
	},
})

// smallFloats are the 8-bit types that newer opsets of IsNaN and IsInf take.
var smallFloats = ir.SetOf(ir.Float8E4M3FN, ir.Float8E4M3FNUZ, ir.Float8E5M2, ir.Float8E5M2FNUZ)

func truthInfer(c *ir.InferCtx) error {
	c.SetTensor(0, ir.Bool, c.Shape(0))
	return nil
}

func truthKernel(expr func(n *ir.Node) string) ir.KernelRule {
	return ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if d := c.InDType(0); !d.IsFloat() {
			return ir.Kernel{}, c.Errorf("no device code for elements of type %s", d)
		}
		return ir.Kernel{Pointwise: expr(c.Node)}, nil
	})
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func oddSamples() []ir.Sample {
	return []ir.Sample{
		{Name: "odd", In: []*ir.Tensor{floats([]int64{2, 2}, nan, math.Inf(1), math.Inf(-1), 2)}},
		{Name: "float8", In: []*ir.Tensor{ir.FromFloats(ir.Float8E5M2, []float64{nan, 1, -2}, 3)}},
	}
}

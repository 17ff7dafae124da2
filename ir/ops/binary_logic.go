package ops

import "memoc/ir"

var _ = registerBinary(
	binaryOp{name: "And", doc: "Logical and.", since: []int{1, 7}, types: ir.Bools, samples: boolSamples,
		g: func(_ ir.DType, x, y int64) int64 { return x & y }, expr: "x0 && x1", grad: ir.NoGrad("truth values")},
	binaryOp{name: "Or", doc: "Logical or.", since: []int{1, 7}, types: ir.Bools, samples: boolSamples,
		g: func(_ ir.DType, x, y int64) int64 { return x | y }, expr: "x0 || x1", grad: ir.NoGrad("truth values")},
	binaryOp{name: "Xor", doc: "Logical exclusive or.", since: []int{1, 7}, types: ir.Bools, samples: boolSamples,
		g: func(_ ir.DType, x, y int64) int64 { return x ^ y }, expr: "x0 != x1", grad: ir.NoGrad("truth values")},
	binaryOp{name: "BitwiseAnd", doc: "Bitwise and.", since: []int{18}, types: ir.Ints, samples: intBinarySamples,
		g: func(_ ir.DType, x, y int64) int64 { return x & y }, expr: "x0 & x1", grad: ir.NoGrad("integer result")},
	binaryOp{name: "BitwiseOr", doc: "Bitwise or.", since: []int{18}, types: ir.Ints, samples: intBinarySamples,
		g: func(_ ir.DType, x, y int64) int64 { return x | y }, expr: "x0 | x1", grad: ir.NoGrad("integer result")},
	binaryOp{name: "BitwiseXor", doc: "Bitwise exclusive or.", since: []int{18}, types: ir.Ints, samples: intBinarySamples,
		g: func(_ ir.DType, x, y int64) int64 { return x ^ y }, expr: "x0 ^ x1", grad: ir.NoGrad("integer result")},
)

func boolSamples() []ir.Sample {
	x := ir.FromInts(ir.Bool, []int64{0, 0, 1, 1}, 2, 2)
	return []ir.Sample{
		{Name: "same", In: []*ir.Tensor{x, ir.FromInts(ir.Bool, []int64{0, 1, 0, 1}, 2, 2)}},
		{Name: "broadcast", In: []*ir.Tensor{x, ir.FromInts(ir.Bool, []int64{0, 1}, 2)}},
	}
}

var _ = ir.Register(ir.Op{
	Name:  "BitShift",
	Doc:   "Bitwise shift of integers to the left or right.",
	Since: []int{11, 28},
	In:    ir.Ports("X:T, Y:T"), Out: ir.Ports("Z:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.Ints},
	Infer:     binaryInfer,
	Axes:      binaryAxes,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		left, err := shiftsLeft(c.Node)
		if err != nil {
			return err
		}
		d := c.In(0).DType
		return broadcastEvalInt(c, d, func(x []int64) int64 { return shiftInt(d, left, x[0], x[1]) })
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		left, err := shiftsLeft(c.Node)
		// A shift by the width or more is undefined in C++ and gives 0 here
		// (-1 for a negative x moved right).
		over := "uint64_t(x1) >= sizeof(x0) * 8"
		if left {
			return ir.Kernel{Pointwise: over + " ? acc_t(0) : acc_t(std::make_unsigned_t<acc_t>(x0) << x1)"}, err
		}
		gone := "acc_t(0)"
		if !c.InDType(0).IsUnsigned() {
			gone = "acc_t(x0 < 0 ? -1 : 0)"
		}
		return ir.Kernel{Pointwise: over + " ? " + gone + " : acc_t(x0 >> x1)"}, err
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		in := []*ir.Tensor{ir.FromInts(ir.Uint8, []int64{200, 3, 1}, 3), ir.FromInts(ir.Uint8, []int64{1, 2, 8}, 3)}
		wide := []*ir.Tensor{ir.FromInts(ir.Uint64, []int64{-1, 3}, 2), ir.FromInts(ir.Uint64, []int64{60}, 1)}
		return []ir.Sample{
			{Name: "left", In: in, Attrs: []ir.Attr{ir.StringAttr("direction", "LEFT")}},
			{Name: "right", In: in, Attrs: []ir.Attr{ir.StringAttr("direction", "RIGHT")}},
			{Name: "wide", In: wide, Attrs: []ir.Attr{ir.StringAttr("direction", "RIGHT")}},
		}
	},
})

func shiftsLeft(n *ir.Node) (bool, error) {
	switch d := n.Str("direction", ""); d {
	case "LEFT":
		return true, nil
	case "RIGHT":
		return false, nil
	default:
		return false, n.Errorf("attribute", "direction is %q, must be LEFT or RIGHT", d)
	}
}

func shiftInt(d ir.DType, left bool, x, by int64) int64 {
	over := by < 0 || by >= int64(d.Bits())
	switch {
	case left && over:
		return 0
	case left:
		return x << by
	case over && x < 0 && !d.IsUnsigned():
		return -1
	case over:
		return 0
	case d == ir.Uint64:
		return int64(uint64(x) >> by)
	}
	return x >> by
}

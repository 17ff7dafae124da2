package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "QLinearMatMul",
	Doc:   "Matrix product of quantized operands, quantized again.",
	Since: []int{10, 21},
	In:    ir.Ports("a:T, a_scale:S, a_zero_point:T, b:W, b_scale:S, b_zero_point:W, y_scale:S, y_zero_point:Y"),
	Out:   ir.Ports("y:Y"),
	Types: map[string]ir.DTypeSet{"T": byteTypes, "W": byteTypes, "Y": byteTypes, "S": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := matmulShape(c, c.Shape(0), c.Shape(3))
		c.SetTensor(0, c.DType(7), shape)
		return err
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		a := c.InShape(0)
		return matmulCost(c, a[len(a)-1])
	},
	Grad:      ir.NoGrad("integer operands"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		sums, dims, err := integerMatMul(c, c.In(0), c.In(3), c.In(2), c.In(5))
		if err != nil {
			return err
		}
		as, ok1 := scalarOf(c.In(1))
		bs, ok2 := scalarOf(c.In(4))
		ys, ok3 := scalarOf(c.In(6))
		zero, ok4 := scalarOf(c.In(7))
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return c.Errorf("a scale for each row or column is not evaluated")
		}
		d := c.In(7).DType
		for i, v := range sums {
			sums[i] = saturateTo(d, math.RoundToEven(float64(v)*(as*bs/ys))+zero)
		}
		c.Set(0, ir.FromInts(d, sums, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		for _, i := range []int{1, 4, 6, 7} {
			if ir.Elems(c.InShape(i)) != 1 {
				return ir.Kernel{}, c.Errorf("a scale for each row or column has no device code")
			}
		}
		m, err := integerMatMulArgs(c, 0, 3, 2, 5)
		args := []ir.KernelArg{}
		for i := range 8 {
			args = append(args, ir.InArg(i))
		}
		return ir.Kernel{Func: "qlinear_matmul", Source: matmulIntegerCUDA, Types: []ir.DType{c.InDType(0), c.InDType(3), c.OutDType(0), c.InDType(1)},
			Args: append(append(args, ir.OutArg(0)), m...)}, err
	}),
	Samples: func() []ir.Sample {
		f := func(v float64) *ir.Tensor { return ir.FromFloats(ir.Float, []float64{v}, 1) }
		u := func(v ...int64) *ir.Tensor { return ir.FromInts(ir.Uint8, v, int64(len(v))) }
		a := u(208, 236, 0, 238, 3, 214, 255, 29).Reshaped(2, 4)
		b := u(152, 51, 244, 60, 26, 255, 0, 127, 246, 127, 254, 247).Reshaped(4, 3)
		return []ir.Sample{{Name: "plain", In: []*ir.Tensor{a, f(0.0066), u(113), b, f(0.00705), u(114), f(0.0107), u(118)}}}
	},
})

package ops

import (
	"math"

	"memoc/ir"
)

var (
	quantTypes = ir.SetOf(ir.Int8, ir.Uint8, ir.Int16, ir.Uint16, ir.Int32, ir.Int4, ir.Uint4, ir.Int2, ir.Uint2,
		ir.Float8E4M3FN, ir.Float8E4M3FNUZ, ir.Float8E5M2, ir.Float8E5M2FNUZ, ir.Float4E2M1)
	quantScales = ir.Floats | ir.SetOf(ir.Float8E8M0)
)

var _ = ir.Register(ir.Op{
	Name:  "QuantizeLinear",
	Doc:   "x / scale rounded to even plus the zero point, clipped to the quantized type; one scale, one for each channel or block.",
	Since: []int{10, 13, 19, 21, 23, 24, 25},
	In:    ir.Ports("x:T, y_scale:S, y_zero_point:Q?"), Out: ir.Ports("y:Q"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32), "S": quantScales | ir.SetOf(ir.Int32), "Q": quantTypes},
	Infer: func(c *ir.InferCtx) error {
		d, err := quantizedType(c.Node)
		c.SetTensor(0, d, c.Shape(0))
		return err
	},
	Axes:      quantAxes,
	Cost:      ir.PointwiseCost(3),
	Grad:      ir.NoGrad("the result is rounded: its derivative is zero almost everywhere"),
	Recompute: ir.Pure,
	Eval:      quantizeEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := quantGridOf(c.Node, c.InShape(0), c.InShape(1))
		if err != nil {
			return ir.Kernel{}, err
		}
		if !c.InDType(1).IsFloat() || !c.OutDType(0).IsInt() || c.Node.Int("precision", 0) != 0 {
			return ir.Kernel{}, c.Errorf("quantization to %s with scales of %s has no device code", c.OutDType(0), c.InDType(1))
		}
		return ir.Kernel{Func: "quantize_linear", Source: quantIndexCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1), c.OutDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.IntArg(ir.Elems(c.InShape(0)))}, g.args()...)}, nil
	}),
	Samples: func() []ir.Sample {
		x := ir.FromFloats(ir.Float, []float64{0, 2, 3, 1000, -254, -1000, 7, -5}, 2, 2, 2)
		f := func(vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, vals, int64(len(vals))) }
		return []ir.Sample{
			{Name: "one scale", In: []*ir.Tensor{x, ir.FromFloats(ir.Float, []float64{2}), ir.FromInts(ir.Uint8, []int64{128})},
				Want: []*ir.Tensor{ir.FromInts(ir.Uint8, []int64{128, 129, 130, 255, 1, 0, 132, 126}, 2, 2, 2)}},
			{Name: "no zero point", Version: 13, In: []*ir.Tensor{x, f(4)}},
			{Name: "axis", In: []*ir.Tensor{x, f(2, 4), ir.FromInts(ir.Int8, []int64{1, -2}, 2)}, Attrs: []ir.Attr{ir.IntAttr("axis", -1)}},
			{Name: "blocks", In: []*ir.Tensor{x, ir.FromFloats(ir.Float, []float64{1, 2, 4, 8}, 2, 1, 2), ir.FromInts(ir.Int16, []int64{0, 1, 2, 3}, 2, 1, 2)},
				Attrs: []ir.Attr{ir.IntAttr("axis", 1), ir.IntAttr("block_size", 2)}},
		}
	},
})

// quantizedType is the type of the result: the zero point's, the attribute's,
// or uint8.
func quantizedType(n *ir.Node) (ir.DType, error) {
	d := ir.DType(0)
	if a := n.Int("output_dtype", 0); a != 0 {
		d = ir.DType(a)
		if a < 0 || a > 255 || !quantTypes.Has(d) {
			return ir.Undefined, n.Errorf("shape", "output_dtype %d is no quantized type", a)
		}
	}
	if len(n.In) > 2 && n.In[2] != nil && n.In[2].Type.DType != ir.Undefined {
		zero := n.In[2].Type.DType
		if d != 0 && d != zero {
			return ir.Undefined, n.Errorf("shape", "output_dtype %s contradicts the zero point's type %s", d, zero)
		}
		return zero, nil
	}
	if d == 0 {
		d = ir.Uint8
	}
	return d, nil
}

// quantAxes: elements follow; a scale for each channel follows its axis.
func quantAxes(n *ir.Node) ir.AxisMap {
	if len(n.Out) == 0 || n.Out[0] == nil || !n.In[1].Type.Shape.Ranked || n.Int("block_size", 0) != 0 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, max(n.Out[0].Type.Shape.Rank(), 0))
	one := n.In[1].Type.Shape.Rank() == 0
	if k, ok := n.In[1].Type.Shape.NumElements(); ok && k.Equal(ir.N(1)) {
		one = true
	}
	axis, ok := ir.NormAxis(n.Int("axis", 1), len(axes))
	if !ok && !one {
		return ir.AxisMap{}
	}
	for a := range axes {
		axes[a] = ir.OutAxis{{In: 0, Axis: a}}
		if a == axis && !one {
			axes[a] = append(axes[a], ir.AxisLink{In: 1, Axis: 0})
			if len(n.In) > 2 && n.In[2] != nil {
				axes[a] = append(axes[a], ir.AxisLink{In: 2, Axis: 0})
			}
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

func quantizeEval(c *ir.EvalCtx) error {
	x, scale := c.In(0), c.In(1)
	g, err := quantGridOf(c.Node, x.Dims, scale.Dims)
	if err != nil {
		return err
	}
	d, err := quantizedType(c.Node)
	if err != nil {
		return err
	}
	if c.Has(2) {
		d = c.In(2).DType
	}
	// The quotient is rounded as the runtime's arithmetic rounds it: to the
	// type of the operands, or the one precision names.
	in, s := x.Floats(), scale.Floats()
	quotient := ir.DType(c.Node.Int("precision", int64(scale.DType)))
	if !quotient.IsFloat() {
		quotient = ir.Double
	}
	vals := make([]float64, len(in))
	for i := range vals {
		vals[i] = roundTo(quotient, in[i]/s[g.at(i)])
	}
	y := ir.NewTensor(d, x.Dims...)
	switch {
	case d.IsSmallFloat():
		if d == ir.Float4E2M1 && c.Has(2) {
			for i := range vals {
				vals[i] += 0 // a zero point is added here: negative zero becomes zero
			}
		}
		ir.SetSmallFloats(y, vals, c.Node.Int("saturate", 1) != 0)
	default:
		zero := make([]float64, len(s))
		if c.Has(2) {
			zero = c.In(2).Floats()
		}
		if len(zero) != len(s) && len(zero) != 1 {
			return c.Errorf("%d zero points for %d scales", len(zero), len(s))
		}
		ints := make([]int64, len(vals))
		for i, v := range vals {
			ints[i] = saturateTo(d, math.RoundToEven(v)+zero[min(g.at(i), len(zero)-1)])
		}
		ir.SetInts(y, ints)
	}
	c.Set(0, y)
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Constant",
	Doc:   "A value written in the node: a tensor, a sparse tensor, numbers or strings.",
	Since: []int{1, 9, 11, 12, 13, 19, 21, 23, 24, 25},
	In:    nil, Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		t, err := constantValue(c.Node)
		if err != "" {
			return c.Errorf("%s", err)
		}
		c.Set(0, t.Type())
		if t.DType.IsInt() || t.DType == ir.Bool {
			setKnown(c, 0, t)
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.ViewCost,
	Grad:      ir.NoGrad("it has no inputs"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		t, err := constantValue(c.Node)
		if err != "" {
			return c.Errorf("%s", err)
		}
		c.Set(0, t)
		return nil
	},
	Kernel: ir.NoKernel("constants are loaded with the weights"),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "tensor", Attrs: []ir.Attr{ir.TensorAttr("value", floats([]int64{2}, 1, 2))}, Want: []*ir.Tensor{floats([]int64{2}, 1, 2)}},
			{Name: "int", Attrs: []ir.Attr{ir.IntAttr("value_int", 7)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{7})}},
			{Name: "ints", Attrs: []ir.Attr{ir.IntsAttr("value_ints", 7, 8)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{7, 8}, 2)}},
			{Name: "float", Attrs: []ir.Attr{ir.FloatAttr("value_float", 0.5)}, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{0.5})}},
			{Name: "floats", Attrs: []ir.Attr{ir.FloatsAttr("value_floats", []float32{0.5, 1})}, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{0.5, 1}, 2)}},
			{Name: "string", Attrs: []ir.Attr{ir.StringAttr("value_string", "a")}},
		}
	},
})

// setKnown records the elements of a small integer tensor.
func setKnown(c *ir.InferCtx, out int, t *ir.Tensor) {
	if t.Len() > 1024 {
		return
	}
	c.SetInts(out, ir.Ints64(t.Ints()...).Dims)
}

// constantValue is the tensor of whichever attribute form the node has; msg
// says what is wrong.
func constantValue(n *ir.Node) (t *ir.Tensor, msg string) {
	for _, a := range n.Attrs {
		switch {
		case a.Name == "value" && a.T != nil:
			return a.T, ""
		case a.Name == "value_int" && a.Kind == ir.AttrInt:
			return ir.FromInts(ir.Int64, []int64{a.I}), ""
		case a.Name == "value_ints" && a.Kind == ir.AttrInts:
			return ir.FromInts(ir.Int64, a.Ints, int64(len(a.Ints))), ""
		case a.Name == "value_float" && a.Kind == ir.AttrFloat:
			return ir.FromFloats(ir.Float, []float64{float64(a.F)}), ""
		case a.Name == "value_float" && a.Kind == ir.AttrInt: // exporters write value_float: 0 as an integer
			return ir.FromFloats(ir.Float, []float64{float64(a.I)}), ""
		case a.Name == "value_floats" && a.Kind == ir.AttrFloats:
			vals := make([]float64, len(a.Floats))
			for i, f := range a.Floats {
				vals[i] = float64(f)
			}
			return ir.FromFloats(ir.Float, vals, int64(len(vals))), ""
		case a.Name == "value_string" && a.Kind == ir.AttrString:
			return &ir.Tensor{DType: ir.String, Dims: []int64{}, Strings: []string{a.S}}, ""
		case a.Name == "value_strings" && a.Kind == ir.AttrStrings:
			return &ir.Tensor{DType: ir.String, Dims: []int64{int64(len(a.Strings))}, Strings: a.Strings}, ""
		case a.Name == "sparse_value" && a.T != nil:
			return a.T, "" // the loader makes sparse values dense
		}
	}
	return nil, "the value is missing"
}

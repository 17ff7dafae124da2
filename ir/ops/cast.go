package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Cast",
	Doc:   "Converts elements to another type: floats to integers truncate and saturate, anything to bool is \"not zero\".",
	Since: []int{1, 6, 9, 13, 19, 21, 23, 24, 25, 28},
	In:    ir.Ports("input:T1"), Out: ir.Ports("output:T2"),
	Types: map[string]ir.DTypeSet{"T1": ir.AnyDType, "T2": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		to, err := castTo(c.Node)
		if err != nil {
			return err
		}
		castInfer(c, to)
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      castCost,
	Grad:      gradOfInput0(castGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		to, err := castTo(c.Node)
		if err != nil {
			return err
		}
		return castEval(c, to)
	},
	Kernel:  ir.KernelOf(castKernel),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	View:    castView,
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 300.75, -0.75, 0)
		odd := floats([]int64{6}, nan, math.Inf(1), math.Inf(-1), 1e300, -1e300, 65520)
		ints := ir.FromInts(ir.Int64, []int64{-3, 0, 1 << 40, 7}, 4)
		var out []ir.Sample
		for _, to := range []ir.DType{ir.Double, ir.Float, ir.Float16, ir.BFloat16, ir.Int64, ir.Int32, ir.Int8, ir.Uint8, ir.Bool, ir.Float8E4M3FN, ir.Int4} {
			attr := []ir.Attr{ir.IntAttr("to", int64(to))}
			// A difference quotient of rounded results is noise.
			skip := map[int]string{0: "the output is rounded to " + to.String()}
			if to == ir.Double {
				skip = nil
			}
			out = append(out,
				ir.Sample{Name: "double to " + to.String(), In: []*ir.Tensor{x}, Attrs: attr, NoGradCheck: skip},
				ir.Sample{Name: "extremes to " + to.String(), In: []*ir.Tensor{odd}, Attrs: attr,
					NoGradCheck: map[int]string{0: "no finite differences at infinity"}},
				ir.Sample{Name: "int64 to " + to.String(), In: []*ir.Tensor{ints}, Attrs: attr})
		}
		return append(out,
			ir.Sample{Name: "bool", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0}, 2)}, Attrs: []ir.Attr{ir.IntAttr("to", int64(ir.Double))}},
			ir.Sample{Name: "int4", In: []*ir.Tensor{ir.FromInts(ir.Int4, []int64{-8, 7, 1}, 3)}, Attrs: []ir.Attr{ir.IntAttr("to", int64(ir.Double))}},
			ir.Sample{Name: "no saturation", In: []*ir.Tensor{odd}, Attrs: []ir.Attr{ir.IntAttr("to", int64(ir.Float8E5M2)), ir.IntAttr("saturate", 0)}})
	},
})

var _ = ir.Register(ir.Op{
	Name:  "CastLike",
	Doc:   "Converts elements to the type of the second input.",
	Since: []int{15, 19, 21, 23, 24, 25},
	In:    ir.Ports("input:T1, target_type:T2"), Out: ir.Ports("output:T2"),
	Types: map[string]ir.DTypeSet{"T1": ir.AnyDType, "T2": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		castInfer(c, c.DType(1))
		return nil
	},
	Axes:      followFirst, // of the second input the type alone matters
	Cost:      castCost,
	Grad:      gradOfInput0(castGrad),
	Recompute: ir.Pure,
	Eval:      func(c *ir.EvalCtx) error { return castEval(c, c.In(1).DType) },
	Kernel:    ir.KernelOf(castKernel),
	InPlace:   []ir.Alias{{In: 0, Out: 0}},
	View:      castView,
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 300.75, -0.75, 0)
		return []ir.Sample{
			{Name: "float", In: []*ir.Tensor{x, ir.FromFloats(ir.Float, []float64{1, 2}, 2)}, NoGradCheck: map[int]string{0: "the output is rounded"}},
			{Name: "same type", In: []*ir.Tensor{x, floats([]int64{1}, 3)}},
			{Name: "bool", In: []*ir.Tensor{x, ir.FromInts(ir.Bool, []int64{1}, 1)}},
		}
	},
})

// castTo reads the attribute `to`, which opset 1 spelled as a name.
func castTo(n *ir.Node) (ir.DType, error) {
	if to := n.Int("to", 0); to > 0 && to < 256 && ir.DType(to).Valid() {
		return ir.DType(to), nil
	}
	if name := n.Str("to", ""); name != "" {
		for d := ir.DType(1); d.Valid(); d++ {
			if upperEqual(name, d.String()) {
				return d, nil
			}
		}
	}
	return ir.Undefined, n.Errorf("attribute", "attribute to is %d %q, must be an element type of ONNX", n.Int("to", 0), n.Str("to", ""))
}

func upperEqual(upper, lower string) bool {
	if len(upper) != len(lower) {
		return false
	}
	for i := range upper {
		if upper[i]|0x20 != lower[i] && upper[i] != lower[i] {
			return false
		}
	}
	return true
}

func castInfer(c *ir.InferCtx, to ir.DType) {
	c.SetTensor(0, to, c.Shape(0))
	if to != ir.Int64 && to != ir.Int32 && to != ir.Bool || c.DType(0) == ir.Uint64 {
		return
	}
	if ds, ok := castInts(c, to); ok {
		for i, d := range ds {
			n, known := d.Int()
			switch {
			case known && to == ir.Int32 && n != int64(int32(n)), !known && to == ir.Bool:
				return // wraps; or may be zero
			case known && to == ir.Bool:
				ds[i] = dimOfBool(n != 0)
			}
		}
		c.SetInts(0, ds)
	}
}

// castInts is the known elements of the input, of a float constant too.
func castInts(c *ir.InferCtx, to ir.DType) ([]ir.Dim, bool) {
	if ds, ok := c.Ints(0); ok {
		return append([]ir.Dim{}, ds...), true
	}
	t := c.Const(0)
	if t == nil || !t.DType.IsFloat() {
		return nil, false
	}
	ds := []ir.Dim{}
	for _, x := range t.Floats() {
		if x != x || math.Abs(x) >= 1<<53 || to == ir.Bool {
			return nil, false
		}
		ds = append(ds, ir.N(int64(x)))
	}
	return ds, true
}

func castView(n *ir.Node, out int) int {
	if out == 0 && n.In[0].Type.DType == n.Out[0].Type.DType {
		return 0
	}
	return -1
}

func castCost(c *ir.CostCtx) ir.Cost {
	if castView(c.Node, 0) == 0 {
		return ir.ViewCost(c)
	}
	cost := ir.PointwiseCost(1)(c)
	if c.Node.Op == "CastLike" { // the second input is not read
		cost.Read, _ = c.Node.In[0].Type.Bytes()
	}
	return cost
}

// castGrad converts back; a gradient does not pass through integers, whose
// output has none.
func castGrad(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.Cast(dy, c.In(0).Type.DType) }

// castKernel is one expression where a single rounding does: two would differ
// from the reference where a wide type goes to a half type.
func castKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	from, to := c.InDType(0), c.OutDType(0)
	for _, d := range []ir.DType{from, to} {
		if !d.IsFloat() && !d.IsInt() && d != ir.Bool {
			return ir.Kernel{}, c.Errorf("no device code for elements of type %s", d)
		}
	}
	half := to == ir.Float16 || to == ir.BFloat16
	if (!half || from.Bits() <= 16 || from == ir.Float) && c.Node.Op == "Cast" {
		return ir.Kernel{Pointwise: "memoc::to<acc_t>(x0)" + truthOf(to)}, nil
	}
	return ir.Kernel{Func: "cast", Source: castCUDA, Types: []ir.DType{from, to},
		Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0)))}}, nil
}

// truthOf makes a truth value of the input itself: acc_t is its type then.
func truthOf(to ir.DType) string {
	if to == ir.Bool {
		return " != acc_t(0)"
	}
	return ""
}

const castCUDA = `
template <class S, class D>
void cast(Stream& s, const S* x, D* y, int64_t n) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<D>(x[i]); });
}`

package ops

import "memoc/ir"

// Scale of com.microsoft is what training exports divide by a count with.
var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "Scale",
	Doc:    "input times a scalar, or (scale_down) divided by it, in the input's type.",
	Since:  []int{1},
	In:     ir.Ports("input:T, scale:S"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "S": ir.Floats | ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		if n, ok := c.Shape(1).NumElements(); ok && n.Differ(ir.N(1)) {
			return c.Errorf("scale must have one element but has shape %s", c.Shape(1))
		}
		return sameTypeInfer(c)
	},
	Axes: func(n *ir.Node) ir.AxisMap { return followFirst(n) },
	Cost: ir.PointwiseCost(1),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		dy := c.OutGrad(0)
		if dy == nil {
			return nil
		}
		if c.Needs(1) {
			return c.Node.Errorf("grad", "not derived for the scale")
		}
		if c.Needs(0) {
			c.Set(0, c.OpN(ir.MsDomain, "Scale", 1, []*ir.Value{dy, c.In(1)}, ir.IntAttr("scale_down", c.Node.Int("scale_down", 0)))[0])
		}
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		if c.In(1).Len() != 1 {
			return c.Errorf("scale has %d elements, must have one", c.In(1).Len())
		}
		s, down := c.In(1).Floats()[0], c.Node.Int("scale_down", 0) != 0
		return evalElements(c, c.In(0).DType, func(x float64) float64 {
			if down {
				return x / s
			}
			return x * s
		})
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if c.Node.Int("scale_down", 0) != 0 {
			return ir.Kernel{Pointwise: "x0 / acc_t(x1)"}, nil
		}
		return ir.Kernel{Pointwise: "x0 * acc_t(x1)"}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 3}, 0.5, -1.25, 2, 3.5, -0.75, 1)
		return []ir.Sample{
			{Name: "up", In: []*ir.Tensor{x, ir.FromFloats(ir.Float, []float64{2.5}, 1)}, NoGradCheck: nil},
			{Name: "down", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{3})}, Attrs: []ir.Attr{ir.IntAttr("scale_down", 1)}},
		}
	},
})

// Scale of the default domain is an experimental operator of ONNX's first
// years.
var _ = registerActivations(activationOp{name: "Scale", doc: "x times the attribute scale.", since: []int{1}, flops: 1,
	f: func(n *ir.Node) func(float64) float64 {
		s := attrF(n, "scale", 1)
		return func(x float64) float64 { return x * s }
	},
	expr:   func(n *ir.Node) string { return "x0 * " + attrLiteral(n, "scale", 1) },
	grad:   func(c *ir.GradCtx, dy *ir.Value) *ir.Value { return c.MulScalar(dy, attrF(c.Node, "scale", 1)) },
	points: signedPoints, attrs: [][]ir.Attr{{ir.FloatAttr("scale", 2.5)}}})

// followFirst: every axis of the output follows that of the first input; the
// others are scalars.
func followFirst(n *ir.Node) ir.AxisMap {
	rank := n.In[0].Type.Shape.Rank()
	if rank < 0 {
		return ir.AxisMap{}
	}
	out := make([]ir.OutAxis, rank)
	for a := range out {
		out[a] = ir.OutAxis{{In: 0, Axis: a}}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{out}}
}

package ops

import (
	"slices"

	"memoc/ir"
)

// YieldOp stands where ORTModule hands the outputs of the forward pass to its
// caller and gets their gradients back. memoc's caller differentiates the sum
// of the outputs, which for a loss is the loss: the gradients are ones.
var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "YieldOp",
	Doc:    "The border between forward and backward pass: outputs go in, their gradients come out.",
	Since:  []int{1},
	In:     ir.Ports("module_outputs:T*"), Out: ir.Ports("module_outputs_grad:T*"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		full, _ := c.Node.IntList("full_shape_outputs")
		from := yieldSources(c.Node)
		if len(from) < len(c.Node.Out) {
			return c.Errorf("%d gradients of %d differentiable outputs", len(c.Node.Out), len(from))
		}
		for o := range c.Node.Out {
			i := from[o]
			shape := ir.Shape{} // it may be smaller, to be broadcast
			if slices.Contains(full, int64(i)) {
				shape = c.Shape(i)
			}
			c.SetTensor(o, c.DType(i), shape)
		}
		return nil
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		_, write := c.Traffic()
		return ir.Cost{Write: write, DType: c.OutDType(0)}
	},
	Grad: ir.NoGrad("it is the border of the backward pass"),

	Recompute: ir.Never("it is the border between forward and backward pass"),
	Eval: func(c *ir.EvalCtx) error {
		from := yieldSources(c.Node)
		for o := range c.Node.Out {
			x := c.In(from[o])
			if !x.DType.IsFloat() {
				return c.Errorf("output %d is of type %s, which has no gradient", from[o], x.DType)
			}
			c.Set(o, filled(ir.FromFloats(x.DType, []float64{1}), x.Dims))
		}
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if len(c.Node.Out) != 1 || !c.HasOut(0) || !c.OutDType(0).IsFloat() {
			return ir.Kernel{}, c.Errorf("only one gradient of a floating-point output has device code")
		}
		return fillKernel(c, ir.FromFloats(c.OutDType(0), []float64{1}))
	}),
	Samples: func() []ir.Sample {
		full := ir.IntsAttr("full_shape_outputs", 0)
		return []ir.Sample{
			{Name: "loss", NumOut: 1, In: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{3})}, Attrs: []ir.Attr{full}, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1})}},
			{Name: "not all", NumOut: 1, In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3}), ir.FromFloats(ir.Float, []float64{3, 4}, 2)},
				Attrs: []ir.Attr{ir.IntsAttr("full_shape_outputs", 1), ir.IntsAttr("non_differentiable_outputs", 0)}},
		}
	},
})

// yieldSources lists, for every output, the input it is the gradient of.
func yieldSources(n *ir.Node) []int {
	none, _ := n.IntList("non_differentiable_outputs")
	var from []int
	for i := range n.In {
		if !slices.Contains(none, int64(i)) {
			from = append(from, i)
		}
	}
	return from
}

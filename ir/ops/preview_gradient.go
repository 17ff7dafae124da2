package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.TrainingDomain,
	Name:   "Gradient",
	Doc:    "The derivatives of y with respect to xs, by reference to names of the surrounding graph; memoc refuses to run it.",
	Since:  []int{1},
	In:     ir.Ports("Inputs:T*"), Out: ir.Ports("Outputs:T*"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	// Each output is the derivative with respect to one name of xs, which are
	// the first inputs.
	Infer: func(c *ir.InferCtx) error {
		xs := c.Node.Attr("xs")
		if xs == nil || len(xs.Strings) > len(c.Node.In) {
			return c.Errorf("attribute xs must name the first inputs")
		}
		for o := range c.Node.Out {
			if o < len(xs.Strings) {
				sameTypeAs(c, o, o)
			}
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      sequenceOptimizerCost,
	Grad:      ir.NoGrad("not derived: it is a derivative itself"),
	Recompute: ir.Never("what it computes is defined by names of the surrounding graph"),
	Eval: func(c *ir.EvalCtx) error {
		return c.Errorf("the operator differentiates its surrounding graph by name; let memoc build the gradient (--train) instead")
	},
	Kernel:  ir.NoKernel("it differentiates its surrounding graph by name"),
	Samples: func() []ir.Sample { return nil }, // it cannot run by itself
})

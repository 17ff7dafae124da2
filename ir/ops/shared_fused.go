package ops

import "memoc/ir"

// fusedOp is an elementwise operator of several inputs of one type with the
// shape of the first: activations with a bias, and gradients of activations.
type fusedOp struct {
	domains []string
	name    ir.OpName
	doc     string
	ports   string // inputs
	flops   int64

	// f and expr read the attributes once; args are the present inputs.
	f    func(n *ir.Node) func(args []float64) float64
	expr func(n *ir.Node) string
	grad ir.Grad

	samples func() []ir.Sample
}

func registerFused(fs ...fusedOp) bool {
	for _, f := range fs {
		for _, domain := range f.domains {
			ir.Register(f.op(domain))
		}
	}
	return true
}

func (f fusedOp) op(domain string) ir.Op {
	return ir.Op{
		Domain: domain, Name: f.name, Doc: f.doc, Since: []int{1},
		In: ir.Ports(f.ports), Out: ir.Ports("Y:T"),
		Types:     map[string]ir.DTypeSet{"T": ir.Floats},
		Infer:     fusedInfer,
		Axes:      ir.FollowAll,
		Cost:      ir.PointwiseCost(f.flops),
		Grad:      f.grad,
		Recompute: ir.Pure,
		Eval: func(c *ir.EvalCtx) error {
			return broadcastEval(c, c.In(0).DType, f.f(c.Node))
		},
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			return ir.Kernel{Pointwise: f.expr(c.Node)}, nil
		}),
		InPlace: []ir.Alias{{In: 0, Out: 0}},
		Samples: f.samples,
	}
}

// fusedInfer: all inputs have the first one's type, and broadcast to its
// shape without growing it.
func fusedInfer(c *ir.InferCtx) error {
	first := c.Shape(0)
	for i := range c.Node.In {
		if !c.Has(i) {
			continue
		}
		if a, b := c.DType(0), c.DType(i); a != b && a != ir.Undefined && b != ir.Undefined {
			return c.Errorf("input %d is of type %s, the first of type %s", i, b, a)
		}
		if s := c.Shape(i); first.Ranked && s.Ranked {
			if s.Rank() > first.Rank() {
				return c.Errorf("input %d of shape %s does not broadcast to %s", i, s, first)
			}
			out, err := broadcastShapes(c, first, s)
			if err != nil {
				return err
			}
			for a, d := range out.Dims {
				if d.Differ(first.Dims[a]) {
					return c.Errorf("input %d of shape %s does not broadcast to %s", i, s, first)
				}
			}
		}
	}
	c.SetTensor(0, c.DType(0), first)
	return nil
}

var noSecondGrad = ir.NoGrad("not derived yet: a gradient operator is not differentiated again")

package ops

import "memoc/ir"

// activationOp is y = f(x) with attributes, element by element.
type activationOp struct {
	domain string
	name   ir.OpName
	doc    string
	since  []int
	types  ir.DTypeSet // Floats if unset
	flops  int64

	// f and expr read the attributes of a node once and give the reference and
	// the C++ expression over x0.
	f    func(n *ir.Node) func(x float64) float64
	expr func(n *ir.Node) string
	grad func(c *ir.GradCtx, dy *ir.Value) *ir.Value

	points []float64
	attrs  [][]ir.Attr // of further samples; one without attributes is always there
}

func registerActivations(as ...activationOp) bool {
	for _, a := range as {
		ir.Register(a.op())
	}
	return true
}

func (a activationOp) op() ir.Op {
	if a.types == 0 {
		a.types = ir.Floats
	}
	return ir.Op{
		Domain: a.domain, Name: a.name, Doc: a.doc, Since: a.since,
		In: ir.Ports("X:T"), Out: ir.Ports("Y:T"),
		Types:     map[string]ir.DTypeSet{"T": a.types},
		Infer:     sameTypeInfer,
		Axes:      ir.FollowAll,
		Cost:      ir.PointwiseCost(a.flops),
		Grad:      gradOfInput0(a.grad),
		Recompute: ir.Pure,
		Eval:      func(c *ir.EvalCtx) error { return evalElements(c, c.In(0).DType, a.f(c.Node)) },
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			return ir.Kernel{Pointwise: a.expr(c.Node)}, nil
		}),
		InPlace: []ir.Alias{{In: 0, Out: 0}},
		Samples: func() []ir.Sample {
			out := unarySamples(false, a.points...)
			for i, attrs := range a.attrs {
				out = append(out, ir.Sample{Name: "attributes " + string(rune('a'+i)), In: out[0].In, Attrs: attrs})
			}
			return out
		},
	}
}

// attrF is a float attribute in float64.
func attrF(n *ir.Node, name string, def float32) float64 { return float64(n.Float(name, def)) }

// attrLiteral is a float attribute as a C++ literal.
func attrLiteral(n *ir.Node, name string, def float32) string {
	return accLiteral(attrF(n, name, def))
}

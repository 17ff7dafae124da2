package ops

import "memoc/ir"

// The RMS normalizations: RMSNormalization is ONNX's own (opset 23).
// SimplifiedLayerNormalization is ONNX Runtime's, written into the default
// domain by its exporters; its second output is the reciprocal root mean
// square. RMSNorm is Deeploy's, without attributes: epsilon is the usual 1e-5.
var _ = []*ir.Op{
	rmsNormOp(ir.OnnxDomain, "RMSNormalization", []int{1, 23}, "X:T, scale:V", "Y:V"),
	rmsNormOp(ir.OnnxDomain, "SimplifiedLayerNormalization", []int{1}, "X:T, scale:V", "Y:V, inv_std_var:U?"),
	rmsNormOp(ir.MsDomain, "SimplifiedLayerNormalization", []int{1}, "X:T, scale:V", "Y:V, inv_std_var:U?"),
	rmsNormOp(ir.OnnxDomain, "RMSNorm", []int{1}, "X:T, weight:V", "Y:V"),
}

func rmsNormOp(domain string, name ir.OpName, since []int, in, out string) *ir.Op {
	ports := ir.Ports(out)
	rstdOut := -1
	if len(ports) > 1 {
		rstdOut = 1
	}
	return ir.Register(ir.Op{
		Domain: domain, Name: name, Since: since,
		Doc: "X / sqrt(mean(X*X) + epsilon) * scale over the axes from axis on.",
		In:  ir.Ports(in), Out: ports,
		Types: map[string]ir.DTypeSet{"T": ir.Floats, "V": ir.Floats, "U": ir.Floats},
		Infer: func(c *ir.InferCtx) error { return normInfer(c, rstdOut, stashType(c.Node)) },
		Axes:  rowAxes, Cost: normCost,
		Grad: ir.GradOf(func(c *ir.GradCtx) error {
			if c.OutGrad(0) == nil || c.OutGrad(1) != nil {
				return c.Node.Errorf("grad", "not derived yet: the gradient through the reciprocal root mean square")
			}
			// The statistic is derived again from X, which the gradient reads anyway.
			g := normGrad(c, "RMSNormalizationGrad", c.OutGrad(0), c.In(0), c.In(1), nil,
				c.Node.Int("axis", -1), normEpsilon(c.Node))
			c.Set(0, g[0])
			c.Set(1, g[1])
			return nil
		}),
		Recompute: ir.Pure,
		Eval: func(c *ir.EvalCtx) error {
			return normEval(c, normEpsilon(c.Node), false, stashType(c.Node), -1, rstdOut)
		},
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			return normKernel(c, normEpsilon(c.Node), false, stashType(c.Node), -1, rstdOut)
		}),
		InPlace: []ir.Alias{{In: 0, Out: 0}},
		Samples: func() []ir.Sample {
			x := wave(3, 2, 3, 4)
			return []ir.Sample{
				{Name: "last", In: []*ir.Tensor{x, wave(1, 4)}, NumOut: len(ports)},
				{Name: "two axes", In: []*ir.Tensor{x, wave(1, 3, 4)}, Attrs: []ir.Attr{ir.IntAttr("axis", 1), ir.FloatAttr("epsilon", 0.25)}},
				{Name: "broadcast scale", In: []*ir.Tensor{x, wave(1, 3, 1)}, Attrs: []ir.Attr{ir.IntAttr("axis", -2)}},
				{Name: "no rows", In: []*ir.Tensor{wave(1, 0, 4), wave(1, 4)}},
			}
		},
	})
}

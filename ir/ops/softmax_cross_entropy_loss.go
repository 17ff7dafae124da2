package ops

import "memoc/ir"

// SoftmaxCrossEntropyLoss of Deeploy's training graphs has one output that is
// the log-probabilities: it is told by the shape the file declares for it.
var _ = ir.Register(ir.Op{
	Name:  "SoftmaxCrossEntropyLoss",
	Doc:   "-log(softmax(scores)) at the labels, weighted, ignored and reduced; log_prob on request.",
	Since: []int{1, 12, 13},
	In:    ir.Ports("scores:T, labels:I, weights:T?"), Out: ir.Ports("output:T, log_prob:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		shape, err := lossInfer(c, scelPorts)
		if err != nil {
			return err
		}
		if onlyLogProb(c.Node) {
			shape = c.Shape(0)
		}
		c.SetTensor(0, c.DType(0), shape)
		c.SetTensor(1, c.DType(0), c.Shape(0))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if onlyLogProb(n) {
			return lossAxes(n, scelPorts, 0)
		}
		return lossAxes(n, scelPorts, 1)
	},
	Cost: lossCost(scelPorts),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if onlyLogProb(c.Node) {
			c.Set(0, c.OpN(ir.MemocDomain, "LogSoftmaxGrad", 1, []*ir.Value{c.OutGrad(0), c.Out(0)}, ir.IntAttr("axis", 1))[0])
			return nil
		}
		return crossEntropyGrad(c, nil)
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		v := lossViewOf(x.Dims)
		logProb := logSoftmaxClasses(x.Floats(), v)
		if onlyLogProb(c.Node) {
			c.Set(0, ir.FromFloats(x.DType, logProb, x.Dims...))
			return nil
		}
		c.Set(1, ir.FromFloats(x.DType, logProb, x.Dims...))
		return lossEval(c, scelPorts, v, logProb, x.DType)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if onlyLogProb(c.Node) {
			return lossKernel(c, scelPorts, -1, 0, false)
		}
		return lossKernel(c, scelPorts, 0, 1, false)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 1}},
	Samples: func() []ir.Sample {
		out := lossSamples()
		x := wave(2, 2, 3, 2)
		return append(out,
			ir.Sample{Name: "log_prob", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{0, 2, 1, 1}, 2, 2)}, NumOut: 2},
			ir.Sample{Name: "log_prob, ignored", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{0, -1, 1, -1}, 2, 2)}, NumOut: 2,
				Attrs: []ir.Attr{ir.IntAttr("ignore_index", -1), ir.StringAttr("reduction", "sum")}},
		)
	},
})

var scelPorts = lossPorts{scores: 0, labels: 1, weights: 2, ignore: -1}

// onlyLogProb reports Deeploy's form: one output, declared with the shape of
// the scores though the loss is reduced.
func onlyLogProb(n *ir.Node) bool {
	if len(n.Out) != 1 || len(n.In) != 2 || n.In[0] == nil || n.Out[0] == nil || lossReduction(n) == 0 {
		return false
	}
	x, y := n.In[0].Type.Shape, n.Out[0].Type.Shape
	return x.Ranked && y.Ranked && y.Rank() >= 2 && x.Equal(y)
}

// crossEntropyGrad gives the gradient of the scores from the scores, so that
// no log-probabilities are kept; ignore is the ignored label as a value, nil
// where it is an attribute.
func crossEntropyGrad(c *ir.GradCtx, ignore *ir.Value) error {
	if c.Needs(2) && c.OutGrad(0) != nil {
		c.Set(2, classWeightGrad(c, c.Out(1), ignore))
	}
	if !c.Needs(0) {
		return nil
	}
	var g *ir.Value
	if dy := c.OutGrad(0); dy != nil {
		attrs := []ir.Attr{ir.StringAttr("reduction", c.Node.Str("reduction", "mean"))}
		if a := c.Node.Attr("ignore_index"); a != nil {
			attrs = append(attrs, ir.IntAttr("ignore_index", a.I))
		}
		g = c.OpN(ir.MemocDomain, "SoftmaxCrossEntropyLossGrad", 1, []*ir.Value{dy, c.In(0), c.In(1), c.In(2), ignore}, attrs...)[0]
	}
	if dl := c.OutGrad(1); dl != nil {
		d := c.In(0).Type.DType
		h := c.OpN(ir.MemocDomain, "LogSoftmaxGrad", 1, []*ir.Value{c.Cast(dl, d), c.Cast(c.Out(1), d)}, ir.IntAttr("axis", 1))[0]
		if g != nil {
			h = c.Add(g, h)
		}
		g = h
	}
	c.Set(0, g)
	return nil
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "SoftmaxCrossEntropyLossInternal",
	Doc:   "SoftmaxCrossEntropyLoss with the ignored label as an input and an output type of its own.",
	Since: []int{1},
	In:    ir.Ports("scores:T, labels:I, weights:T?, ignore_index:L?"), Out: ir.Ports("output:P, log_prob:P?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "P": ir.Floats, "I": ir.Indices, "L": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		shape, err := lossInfer(c, scelInternalPorts)
		if err != nil {
			return err
		}
		d := outputType(c.Node, c.DType(0))
		c.SetTensor(0, d, shape)
		c.SetTensor(1, d, c.Shape(0))
		return nil
	},
	Axes:      func(n *ir.Node) ir.AxisMap { return lossAxes(n, scelInternalPorts, 1) },
	Cost:      lossCost(scelInternalPorts),
	Grad:      ir.GradOf(func(c *ir.GradCtx) error { return crossEntropyGrad(c, c.In(3)) }),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		v := lossViewOf(x.Dims)
		d := outputType(c.Node, x.DType)
		logProb := logSoftmaxClasses(x.Floats(), v)
		c.Set(1, ir.FromFloats(d, logProb, x.Dims...))
		return lossEval(c, scelInternalPorts, v, logProb, d)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return lossKernel(c, scelInternalPorts, 0, 1, false)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 1}},
	Samples: func() []ir.Sample {
		x, l := wave(1, 4, 3), ir.FromInts(ir.Int64, []int64{0, 2, 1, 2}, 4)
		two := ir.FromInts(ir.Int64, []int64{2})
		return []ir.Sample{
			{Name: "plain", In: []*ir.Tensor{x, l}, NumOut: 2},
			{Name: "ignored", In: []*ir.Tensor{x, l, nil, two}, Absent: []int{2}, NumOut: 2},
			{Name: "weights", In: []*ir.Tensor{x, l, floats([]int64{3}, 0.5, 1.25, 2), two}},
			{Name: "float out", In: []*ir.Tensor{x, l}, NumOut: 2, Attrs: []ir.Attr{ir.IntAttr("output_type", int64(ir.Float))},
				NoGradCheck: map[int]string{0: "the loss is rounded to float"}},
		}
	},
})

var scelInternalPorts = lossPorts{scores: 0, labels: 1, weights: 2, ignore: 3}

// outputType is the attribute of that name, or d.
func outputType(n *ir.Node, d ir.DType) ir.DType {
	if t := ir.DType(n.Int("output_type", 0)); t.Valid() {
		return t
	}
	return d
}

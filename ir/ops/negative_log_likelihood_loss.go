package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "NegativeLogLikelihoodLoss",
	Doc:   "-input at the labels, weighted, ignored and reduced; the input holds log-probabilities.",
	Since: []int{12, 13, 22},
	In:    ir.Ports("input:T, target:I, weight:T?"), Out: ir.Ports("loss:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		shape, err := lossInfer(c, scelPorts)
		if err != nil {
			return err
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes:      func(n *ir.Node) ir.AxisMap { return lossAxes(n, scelPorts, -1) },
	Cost:      lossCost(scelPorts),
	Grad:      ir.GradOf(nllGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return lossEval(c, scelPorts, lossViewOf(c.In(0).Dims), c.In(0).Floats(), c.In(0).DType)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return lossKernel(c, scelPorts, 0, -1, true)
	}),
	Samples: lossSamples,
})

// nllGrad scatters -weight * dloss (/ sum of weights) to the labels. It works
// in float for half types, whose range a sum of weights leaves.
func nllGrad(c *ir.GradCtx) error {
	if c.Needs(2) {
		c.Set(2, classWeightGrad(c, c.In(0), nil))
	}
	if !c.Needs(0) {
		return nil
	}
	x, labels := c.In(0), c.In(1)
	work := workType(x.Type.DType)
	safe, factor := lossFactorValues(c.Builder, c.Node, work, c.OutGrad(0), labels, c.In(2), nil)
	at := c.Unsqueeze(c.Cast(safe, ir.Int64), 1)
	zeros := c.Op("ConstantOfShape", []*ir.Value{c.ShapeOf(x)}, ir.TensorAttr("value", ir.FromFloats(x.Type.DType, []float64{0}, 1)))
	zeros.Type.Shape = x.Type.Shape
	updates := c.Unsqueeze(c.Cast(c.Neg(factor), x.Type.DType), 1)
	g := c.Op("ScatterElements", []*ir.Value{zeros, at, updates}, ir.IntAttr("axis", 1))
	g.Type.Shape = x.Type.Shape
	c.Set(0, g)
	return nil
}

// lossClassValues emits the class of each position, 0 where it is ignored, and
// whether it counts (nil: all do).
func lossClassValues(b *ir.Builder, n *ir.Node, labels, ignore *ir.Value) (safe, counted *ir.Value) {
	if a := n.Attr("ignore_index"); ignore == nil && a != nil {
		ignore = b.Const(ir.FromInts(ir.Int64, []int64{a.I}))
	}
	if ignore == nil {
		return labels, nil
	}
	counted = b.Op("Not", []*ir.Value{b.Op("Equal", []*ir.Value{labels, b.Cast(ignore, labels.Type.DType)})})
	return b.Op("Where", []*ir.Value{counted, labels, b.Const(ir.FromInts(labels.Type.DType, []int64{0}))}), counted
}

// lossFactorValues emits, for each position, its class (0 where ignored) and
// its factor in the gradient of the loss; see lossFactors.
func lossFactorValues(b *ir.Builder, n *ir.Node, work ir.DType, dy, labels, weights, ignore *ir.Value) (safe, factor *ir.Value) {
	safe, counted := lossClassValues(b, n, labels, ignore)
	if weights != nil {
		factor = b.Op("Gather", []*ir.Value{b.Cast(weights, work), safe})
	} else {
		factor = b.ExpandLike(b.Scalar(work, 1), labels)
	}
	if counted != nil {
		factor = b.Op("Where", []*ir.Value{counted, factor, b.Scalar(work, 0)})
	}
	return safe, b.Mul(factor, lossScale(b, n, b.Cast(dy, work), factor))
}

// lossScale is the loss's gradient, for the mean over the sum of the weights
// of all positions.
func lossScale(b *ir.Builder, n *ir.Node, dy, weight *ir.Value) *ir.Value {
	if lossReduction(n) != 2 {
		return dy
	}
	axes := make([]int64, weight.Type.Shape.Rank())
	for i := range axes {
		axes[i] = int64(i)
	}
	norm := b.ReduceSum(weight, false, axes...)
	none := b.Op("Equal", []*ir.Value{norm, b.Scalar(norm.Type.DType, 0)})
	return b.Div(dy, b.Op("Where", []*ir.Value{none, b.Scalar(norm.Type.DType, 1), norm}))
}

// classWeightGrad is the gradient of the weights (input 2): for each class the
// sum over its positions of -logProb, less the loss for the mean (which the
// weights also divide).
func classWeightGrad(c *ir.GradCtx, logProb, ignore *ir.Value) *ir.Value {
	labels, weights := c.In(1), c.In(2)
	work := workType(weights.Type.DType)
	safe, counted := lossClassValues(c.Builder, c.Node, labels, ignore)
	at := c.Unsqueeze(c.Cast(safe, ir.Int64), 1)
	term := c.Neg(c.Squeeze(c.Op("GatherElements", []*ir.Value{c.Cast(logProb, work), at}, ir.IntAttr("axis", 1)), 1))
	weight := c.Op("Gather", []*ir.Value{c.Cast(weights, work), safe})
	if lossReduction(c.Node) == 2 {
		term = c.Sub(term, c.Cast(c.Out(0), work))
	}
	if counted != nil {
		weight = c.Op("Where", []*ir.Value{counted, weight, c.Scalar(work, 0)})
		term = c.Op("Where", []*ir.Value{counted, term, c.Scalar(work, 0)})
	}
	term = c.Mul(term, lossScale(c.Builder, c.Node, c.Cast(c.OutGrad(0), work), weight))
	// In float: ONNX Runtime makes no one-hot doubles.
	hot := c.Op("OneHot", []*ir.Value{c.Cast(c.Reshape(safe, -1), ir.Int64), c.ShapeOf(weights), c.Const(ir.FromFloats(ir.Float, []float64{0, 1}, 2))})
	hot = c.Cast(hot, work)
	sum := c.MatMul(c.Reshape(term, 1, -1), hot)
	return c.Cast(c.ReshapeLike(sum, weights), weights.Type.DType)
}

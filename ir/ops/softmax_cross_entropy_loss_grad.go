package ops

import (
	"math"

	"memoc/ir"
)

// The gradients of the cross entropy: (softmax(scores) - onehot(label)) times
// the position's factor. The ai.memoc form takes the scores, so that neither
// log-probabilities nor a copy of the scores is kept: the gradient may
// overwrite them. The com.microsoft forms take log_prob; Deeploy leaves their
// dY out (it is 1 then).
var _ = []*ir.Op{
	crossEntropyGradOp(ir.MemocDomain, "SoftmaxCrossEntropyLossGrad", "dY:L, scores:T, labels:I, weights:T?, ignore_index:J?"),
	crossEntropyGradOp(ir.MsDomain, "SoftmaxCrossEntropyLossGrad", "dY:T, log_prob:T, label:I?, weight:T?, bias:T?"),
	crossEntropyGradOp(ir.MsDomain, "SoftmaxCrossEntropyLossInternalGrad", "dY:T, log_prob:T, label:I, weight:T?, ignore_index:J?, bias:D?"),
}

// crossEntropyGradPorts is lossPorts of a gradient with its other inputs.
type crossEntropyGradPorts struct {
	lossPorts
	dy, bias int
}

func crossEntropyPorts(n *ir.Node) crossEntropyGradPorts {
	p := crossEntropyGradPorts{lossPorts{scores: 1, labels: 2, weights: 3, ignore: -1}, 0, -1}
	switch {
	case n.Domain == ir.MemocDomain:
		p.ignore = 4
	case n.Op == "SoftmaxCrossEntropyLossInternalGrad":
		p.ignore, p.bias = 4, 5
	case len(n.In) == 2:
		p = crossEntropyGradPorts{lossPorts{scores: 0, labels: 1, weights: -1, ignore: -1}, -1, -1}
	default:
		p.bias = 4
	}
	return p
}

func crossEntropyGradOp(domain string, name ir.OpName, in string) *ir.Op {
	op := ir.Op{
		Domain: domain, Name: name, Since: []int{1},
		Doc: "Gradient of the cross entropy with respect to the scores.",
		In:  ir.Ports(in), Out: ir.Ports("d_scores:D"),
		Types: map[string]ir.DTypeSet{"T": ir.Floats, "L": ir.Floats, "D": ir.Floats, "I": ir.Indices, "J": ir.SetOf(ir.Int64)},
		Infer: func(c *ir.InferCtx) error {
			p := crossEntropyPorts(c.Node)
			if _, err := lossInfer(c, p.lossPorts); err != nil {
				return err
			}
			c.SetTensor(0, outputType(c.Node, c.DType(p.scores)), c.Shape(p.scores))
			return nil
		},
		Axes: crossEntropyGradAxes,
		Cost: func(c *ir.CostCtx) ir.Cost {
			read, write := c.Traffic()
			return ir.Cost{FLOPs: 5 * ir.Elems(c.OutShape(0)), Read: read, Write: write, Workspace: 8, DType: c.OutDType(0)}
		},
		Grad:      ir.NoGrad("not derived yet: second derivatives"),
		Recompute: ir.Pure,
		Eval:      crossEntropyGradEval,
		Kernel:    ir.KernelOf(crossEntropyGradKernel),
		// Only the scores have the result's shape; Deeploy's form has them at port 0.
		InPlace: []ir.Alias{{In: 1, Out: 0}, {In: 0, Out: 0}},
		Samples: func() []ir.Sample { return crossEntropyGradSamples(domain) },
	}
	if domain == ir.MemocDomain {
		op.Function = functionOf(crossEntropyGradFunction)
	}
	return ir.Register(op)
}

// crossEntropyGradAxes: every position by itself, but that the mean divides by
// the weights of all labels.
func crossEntropyGradAxes(n *ir.Node) ir.AxisMap {
	p := crossEntropyPorts(n)
	x := inShapeOf(n, p.scores)
	if x.Rank() < 2 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	for a := range axes {
		if a == 1 {
			continue
		}
		label := ir.AxisLink{In: p.labels, Axis: a - min(a, 1)}
		if lossReduction(n) == 2 {
			label.Rel = ir.Whole
		}
		axes[a] = ir.OutAxis{{In: p.scores, Axis: a}, label}
		if lossReduction(n) == 0 && p.dy >= 0 {
			axes[a] = append(axes[a], ir.AxisLink{In: p.dy, Axis: label.Axis})
		}
		if p.bias >= 0 && inShapeOf(n, p.bias).Rank() == x.Rank() {
			axes[a] = append(axes[a], ir.AxisLink{In: p.bias, Axis: a})
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

func crossEntropyGradEval(c *ir.EvalCtx) error {
	p := crossEntropyPorts(c.Node)
	x := c.In(p.scores)
	v := lossViewOf(x.Dims)
	class, weight, err := lossLabels(c, p.lossPorts, v)
	if err != nil {
		return err
	}
	dy := []float64{1}
	if p.dy >= 0 {
		dy = c.In(p.dy).Floats()
	}
	if lossReduction(c.Node) == 0 && len(dy) != len(class) {
		return c.Errorf("dY has %d elements for %d positions", len(dy), len(class))
	}
	logProb := x.Floats()
	if c.Node.Domain == ir.MemocDomain {
		logProb = logSoftmaxClasses(logProb, v)
	}
	out := make([]float64, len(logProb))
	for pos, f := range lossFactors(c, dy, weight) {
		for k := int64(0); f != 0 && k < v.classes; k++ {
			i := v.at(int64(pos), k)
			out[i] = f * math.Exp(logProb[i])
			if k == class[pos] {
				out[i] -= f
			}
		}
	}
	if p.bias >= 0 && c.Has(p.bias) {
		for i, b := range c.In(p.bias).Floats() {
			out[i] += b
		}
	}
	c.Set(0, ir.FromFloats(outputType(c.Node, x.DType), out, x.Dims...))
	return nil
}

func crossEntropyGradKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	p := crossEntropyPorts(c.Node)
	v := lossViewOf(c.InShape(p.scores))
	dyType := c.InDType(p.scores)
	if p.dy >= 0 {
		dyType = c.InDType(p.dy)
	}
	return ir.Kernel{Func: "cross_entropy_grad", Source: lossCUDA,
		Types: []ir.DType{c.InDType(p.scores), c.InDType(p.labels), c.InDType(p.scores), dyType, c.OutDType(0)},
		Args: []ir.KernelArg{inArgOrNull(c, p.dy), ir.InArg(p.scores), ir.InArg(p.labels), inArgOrNull(c, p.weights), inArgOrNull(c, p.ignore),
			inArgOrNull(c, p.bias), ir.OutArg(0), ir.IntArg(v.n), ir.IntArg(v.classes), ir.IntArg(v.inner), ir.IntArg(lossReduction(c.Node)),
			ir.BoolArg(c.Node.Attr("ignore_index") != nil), ir.IntArg(c.Node.Int("ignore_index", 0)),
			ir.BoolArg(c.Node.Domain != ir.MemocDomain), ir.WorkspaceArg()}}, nil
}

func crossEntropyGradFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	at := func(i int) *ir.Value {
		if i >= len(in) {
			return nil
		}
		return in[i]
	}
	work := workType(at(1).Type.DType)
	x := b.Cast(at(1), work)
	safe, factor := lossFactorValues(b, n, work, at(0), at(2), at(3), at(4))
	e := b.Op("Exp", []*ir.Value{b.Sub(x, b.ReduceMax(x, true, 1))})
	p := b.Div(e, b.ReduceSum(e, true, 1))
	classes := b.Op("Gather", []*ir.Value{b.Op("Shape", []*ir.Value{x}), b.Int64s(1)})
	// In float: ONNX Runtime makes no one-hot doubles.
	hot := b.Op("OneHot", []*ir.Value{b.Cast(safe, ir.Int64), classes, b.Const(ir.FromFloats(ir.Float, []float64{0, 1}, 2))}, ir.IntAttr("axis", 1))
	hot = b.Cast(hot, work)
	return []*ir.Value{b.Cast(b.Mul(b.Sub(p, hot), b.Unsqueeze(factor, 1)), at(1).Type.DType)}
}

func crossEntropyGradSamples(domain string) []ir.Sample {
	var out []ir.Sample
	for _, s := range lossSamples() {
		dy := floats(nil, 0.75)
		for _, a := range s.Attrs {
			if a.S == "none" {
				dy = wave(5, s.In[1].Dims...)
			}
		}
		s.In = append([]*ir.Tensor{dy}, s.In...)
		out = append(out, s)
	}
	out = append(out, ir.Sample{Name: "all ignored, mean", In: []*ir.Tensor{floats(nil, 1), wave(1, 2, 3), ir.FromInts(ir.Int64, []int64{-1, -1}, 2)},
		Attrs: []ir.Attr{ir.IntAttr("ignore_index", -1)}, Want: []*ir.Tensor{floats([]int64{2, 3}, 0, 0, 0, 0, 0, 0)}})
	if domain == ir.MemocDomain {
		out = append(out, ir.Sample{Name: "ignored input", In: []*ir.Tensor{floats(nil, 1), wave(1, 2, 3), ir.FromInts(ir.Int64, []int64{2, 1}, 2), nil, ir.FromInts(ir.Int64, []int64{1})}, Absent: []int{3}})
	}
	return out
}

package ops

import "memoc/ir"

// previewOptimizer is what the optimizers of ai.onnx.preview.training share:
// inputs (R, T, n weights, n gradients, then n of each state), outputs (n
// weights, n of each state). All tensors of one weight have one shape.
type previewOptimizer struct {
	name, doc string
	states    int   // tensors of state for each weight
	flops     int64 // for each element
	// step makes the update of one element from rate and count: it takes
	// (weight, gradient, states…) and gives (weight, states…).
	step func(n *ir.Node, rate float64, count int64) func(x, y []float64)
	// kernel is the device code for one weight; see previewKernel.
	source string
	args   func(n *ir.Node) []ir.KernelArg
	sample func() []ir.Sample
}

func (p previewOptimizer) declare() ir.Op {
	return ir.Op{
		Domain: ir.TrainingDomain,
		Name:   p.name,
		Doc:    p.doc,
		Since:  []int{1},
		In:     ir.Ports("R:R, T:I, inputs:X*"), Out: ir.Ports("outputs:X*"),
		Types:     map[string]ir.DTypeSet{"R": ir.Floats, "I": ir.SetOf(ir.Int64), "X": ir.Floats},
		Infer:     p.infer,
		Axes:      p.axes,
		Cost:      p.cost,
		Grad:      ir.NoGrad(noOptimizerGrad),
		Recompute: ir.Never(optimizerState),
		Eval:      p.eval,
		Kernel:    ir.KernelOf(p.kernel),
		Samples:   p.sample,
	}
}

// weights is the number of weights a node updates.
func (p previewOptimizer) weights(n *ir.Node) (int, bool) {
	k, per := len(n.In)-2, p.states+2
	return k / per, k > 0 && k%per == 0
}

// source of output o is input 2+… : weights, or the states after the gradients.
func (p previewOptimizer) inputOf(o, n int) int {
	if o < n {
		return 2 + o
	}
	return 2 + n + o
}

func (p previewOptimizer) infer(c *ir.InferCtx) error {
	n, ok := p.weights(c.Node)
	if !ok {
		return c.Errorf("%d inputs after R and T are no multiple of %d", len(c.Node.In)-2, p.states+2)
	}
	for o := range c.Node.Out {
		sameTypeAs(c, o, p.inputOf(o, n))
	}
	return nil
}

// axes: every output follows the tensors of its own weight.
func (p previewOptimizer) axes(node *ir.Node) ir.AxisMap {
	n, ok := p.weights(node)
	if !ok {
		return ir.AxisMap{}
	}
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(node.Out))}
	for o, v := range node.Out {
		if v == nil || !v.Type.Shape.Ranked {
			continue
		}
		axes := make([]ir.OutAxis, v.Type.Shape.Rank())
		for a := range axes {
			for k := range p.states + 2 {
				axes[a] = append(axes[a], ir.AxisLink{In: 2 + k*n + o%n, Axis: a})
			}
		}
		m.Out[o] = axes
	}
	return m
}

func (p previewOptimizer) cost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	n, _ := p.weights(c.Node)
	elems := int64(0)
	for i := range n {
		elems += ir.Elems(c.InShape(2 + i))
	}
	return ir.Cost{FLOPs: p.flops * elems, Read: read, Write: write, DType: c.InDType(2)}
}

func (p previewOptimizer) eval(c *ir.EvalCtx) error {
	n, ok := p.weights(c.Node)
	rate, okR := scalarOf(c.In(0))
	count, okT := scalarOf(c.In(1))
	if !ok || !okR || !okT {
		return c.Errorf("needs a scalar rate and count, and %d tensors for each weight", p.states+2)
	}
	step := p.step(c.Node, rate, int64(count))
	for w := range n {
		var in, like []*ir.Tensor
		for k := range p.states + 2 {
			t := c.In(2 + k*n + w)
			if in = append(in, t); k != 1 {
				like = append(like, t)
			}
		}
		if !sameSizes(in...) {
			return c.Errorf("the tensors of weight %d differ in size", w)
		}
		for k, t := range updates(like, in, step) {
			c.Set(k*n+w, t)
		}
	}
	return nil
}

func (p previewOptimizer) kernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if n, _ := p.weights(c.Node); n != 1 {
		return ir.Kernel{}, c.Errorf("has a kernel for one weight only; use one node for each weight")
	}
	args := []ir.KernelArg{ir.InArg(0), ir.InArg(1)}
	for k := range p.states + 2 {
		args = append(args, ir.InArg(2+k))
	}
	for k := range p.states + 1 {
		args = append(args, ir.OutArg(k))
	}
	args = append(args, ir.IntArg(ir.Elems(c.InShape(2))))
	return ir.Kernel{Func: "preview_" + p.name, Source: p.source, Types: []ir.DType{c.InDType(0), c.InDType(2)},
		Args: append(args, p.args(c.Node)...)}, nil
}

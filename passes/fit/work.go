package fit

import (
	"slices"

	"memoc/ir"
	"memoc/passes/cost"
	"memoc/passes/liveness"
)

// Work is what a model asks of a device whatever the plan: the floating-point
// operations that its utilization (MFU) counts, and its parameters.
type Work struct {
	Causal float64 // FLOPs of matrix products and attention, pairs of query and key that are masked left out
	Full   float64 // the same with every query seeing all keys, as Megatron-LM counts
	Params int64   // elements that have a gradient
	// ParamBytes is the bytes of the parameters in the type of their gradients.
	ParamBytes int64
	// byType is Causal and Full by the type they are computed in: a device has a
	// peak rate for each.
	byType []typedWork
}

type typedWork struct {
	dtype        ir.DType
	causal, full float64
}

// WorkOf counts a graph with static shapes. The FLOPs are those that the
// operators of its forward pass state, three times if there is a backward pass:
// each product has one gradient for either operand. What a plan computes again,
// and that the backward pass of attention makes the scores once more, is no work
// of the model.
func WorkOf(g *ir.Graph) (*Work, error) {
	w := &Work{}
	backward := backwardNodes(g)
	factor := 1.0
	if len(backward) > 0 {
		factor = 3
	}
	for _, n := range g.Nodes {
		if backward[n] {
			continue
		}
		c, err := cost.OfNode(n)
		if err != nil {
			return nil, err
		}
		if c.Unit == ir.Matrix || c.Unit == ir.AttnFwd {
			w.add(c, factor)
		}
	}
	return w, w.countParams(g, backward)
}

func (w *Work) add(c ir.Cost, factor float64) {
	causal := factor * float64(c.FLOPs)
	if c.Forward > 0 {
		causal = factor * float64(c.Forward)
	}
	full := causal
	if c.Dense > 0 {
		full = factor * float64(c.Dense)
	}
	w.Causal, w.Full = w.Causal+causal, w.Full+full
	i := slices.IndexFunc(w.byType, func(t typedWork) bool { return t.dtype == c.DType })
	if i < 0 {
		i = len(w.byType)
		w.byType = append(w.byType, typedWork{dtype: c.DType})
	}
	w.byType[i].causal += causal
	w.byType[i].full += full
}

// countParams takes what the backward pass leaves as outputs to be gradients.
func (w *Work) countParams(g *ir.Graph, backward map[*ir.Node]bool) error {
	for _, v := range g.Outputs {
		if v.Def == nil || !v.Type.DType.IsFloat() || !backward[v.Def] {
			continue
		}
		bytes, err := v.Type.Bytes()
		if err != nil {
			return err
		}
		w.ParamBytes += bytes
		w.Params += bytes * 8 / int64(v.Type.DType.Bits())
	}
	return nil
}

// backwardNodes is the nodes of the backward pass: those that are marked so, or
// in a step that was traced as a whole those after the loss.
func backwardNodes(g *ir.Graph) map[*ir.Node]bool {
	out := map[*ir.Node]bool{}
	for _, n := range g.Nodes {
		if n.Backward {
			out[n] = true
		}
	}
	if len(out) == 0 {
		for _, n := range g.Nodes[liveness.BackwardFrom(g):] {
			out[n] = true
		}
	}
	return out
}

// least is the time in which devices at their peak rates do the work, in
// nanoseconds.
func (w *Work) least(d *cost.Device) (causal, full float64) {
	for _, t := range w.byType {
		causal += t.causal / d.Peak(t.dtype)
		full += t.full / d.Peak(t.dtype)
	}
	return causal, full
}

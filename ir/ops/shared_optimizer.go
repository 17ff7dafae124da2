package ops

import (
	"fmt"
	"math"
	"strconv"

	"memoc/ir"
)

// noOptimizerGrad is the reason optimizers are not differentiated.
const noOptimizerGrad = "not derived: an optimizer step uses gradients, none are meant to flow through it"

// optimizerState is the reason optimizers are not cloned.
const optimizerState = "it advances weights or optimizer state, which must happen once in a step"

// literal writes x as a C++ floating-point literal that reads back exactly.
func literal(x float64) string {
	s := strconv.FormatFloat(x, 'e', -1, 64)
	return fmt.Sprintf("acc_t(%s)", s)
}

// adamStep is one step of Adam with decoupled weight decay for one element;
// mode is that of com.microsoft::AdamWOptimizer: 0 decays before the update
// and corrects both moments (as PyTorch), 1 decays after it and corrects the
// learning rate (as Hugging Face).
type adamStep struct {
	lr, alpha, beta, eps, decay float64
	corr1, corr2                float64 // 1 - alpha^step, 1 - beta^step; 1 without correction
	mode                        int64
}

func newAdamStep(lr, alpha, beta, eps, decay float64, step int64, correct bool, mode int64) adamStep {
	a := adamStep{lr: lr, alpha: alpha, beta: beta, eps: eps, decay: decay, corr1: 1, corr2: 1, mode: mode}
	if correct {
		a.corr1 = 1 - math.Pow(alpha, float64(step))
		a.corr2 = 1 - math.Pow(beta, float64(step))
	}
	return a
}

func (a adamStep) update(w, g, m, v float64) (w1, m1, v1 float64) {
	m1 = a.alpha*m + (1-a.alpha)*g
	v1 = a.beta*v + (1-a.beta)*g*g
	if a.mode == 0 {
		w -= a.lr * a.decay * w
		return w - a.lr*(m1/a.corr1)/(math.Sqrt(v1/a.corr2)+a.eps), m1, v1
	}
	w -= a.lr * math.Sqrt(a.corr2) / a.corr1 * m1 / (math.Sqrt(v1) + a.eps)
	return w - a.lr*a.decay*w, m1, v1
}

// updates applies f to every element of tensors of one shape and returns the
// new tensors, each with the type of like[i].
func updates(like []*ir.Tensor, in []*ir.Tensor, f func(x []float64, y []float64)) []*ir.Tensor {
	n := int(in[0].Len())
	vals := make([][]float64, len(in))
	for i, t := range in {
		vals[i] = t.Floats()
	}
	out := make([][]float64, len(like))
	for i := range out {
		out[i] = make([]float64, n)
	}
	x, y := make([]float64, len(in)), make([]float64, len(like))
	for e := range n {
		for i := range vals {
			x[i] = vals[i][e]
		}
		f(x, y)
		for i := range out {
			out[i][e] = y[i]
		}
	}
	ts := make([]*ir.Tensor, len(like))
	for i, t := range like {
		ts[i] = ir.FromFloats(t.DType, out[i], t.Dims...)
	}
	return ts
}

// sameSizes reports tensors of one element count.
func sameSizes(ts ...*ir.Tensor) bool {
	for _, t := range ts {
		if t == nil || t.Len() != ts[0].Len() {
			return false
		}
	}
	return true
}

// scalarOf is the first element of a one-element tensor; ok is false for
// anything else.
func scalarOf(t *ir.Tensor) (x float64, ok bool) {
	if t == nil || t.Len() != 1 {
		return 0, false
	}
	return t.Floats()[0], true
}

// flagOf is the boolean of an optional one-element input, def where it is absent.
func flagOf(t *ir.Tensor, def bool) bool {
	if t == nil || t.Len() < 1 {
		return def
	}
	return t.Ints()[0] != 0
}

// sameTypeAs gives output o the type of input i.
func sameTypeAs(c *ir.InferCtx, o, i int) { c.Set(o, c.In(i)) }

// tensorsOf is a sequence as tensors.
func tensorsOf(d ir.Datum) (ts []*ir.Tensor, ok bool) {
	seq, ok := d.(ir.Sequence)
	if !ok {
		return nil, false
	}
	for _, e := range seq {
		t, ok := e.(*ir.Tensor)
		if !ok {
			return nil, false
		}
		ts = append(ts, t)
	}
	return ts, true
}

func sequenceOf(ts []*ir.Tensor) ir.Sequence {
	s := make(ir.Sequence, len(ts))
	for i, t := range ts {
		s[i] = t
	}
	return s
}

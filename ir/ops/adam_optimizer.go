package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "AdamOptimizer",
	Doc:    "One Adam step of one weight: (step + 1, new moments, new weight, and the change of the weight as new gradient).",
	Since:  []int{1},
	In: ir.Ports("R:R, T:I, weights:W, gradients:G, moment_1:M, moment_2:M, mixed_precision_weights:X?, loss_scale:W?, " +
		"global_gradient_norm:N?, update_signal:B?"),
	Out: ir.Ports("new_T:I, new_moment_1:M, new_moment_2:M, new_weights:W?, new_gradients:G?, new_mixed_precision_weights:X?"),
	Types: map[string]ir.DTypeSet{"R": ir.Floats, "I": ir.SetOf(ir.Int64), "W": ir.Floats, "G": ir.Floats, "M": ir.Floats,
		"X": ir.Floats | ir.Bools, "N": ir.Floats, "B": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		for o, i := range []int{1, 4, 5, 2, 3, 6} {
			sameTypeAs(c, o, i)
		}
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.FollowAll(n)
		if len(m.Out) > 0 {
			m.Out[0] = nil // the step counter
		}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: 12 * ir.Elems(c.InShape(2)), Read: read, Write: write, DType: c.InDType(4)}
	},
	Grad:      ir.NoGrad(noOptimizerGrad),
	Recompute: ir.Never(optimizerState),
	Eval:      adamOptimizerEval,
	Kernel:    ir.KernelOf(adamOptimizerKernel),
	InPlace:   []ir.Alias{{In: 1, Out: 0}, {In: 4, Out: 1}, {In: 5, Out: 2}, {In: 2, Out: 3}, {In: 3, Out: 4}},
	Samples: func() []ir.Sample {
		v := func(x ...float64) *ir.Tensor { return floats([]int64{2}, x...) }
		in := []*ir.Tensor{floats([]int64{1}, 0.1), ir.FromInts(ir.Int64, []int64{1}, 1), v(1, -2), v(0.5, 1), v(0, 0.25), v(0, 0.5)}
		attrs := []ir.Attr{ir.FloatAttr("alpha", 0.5), ir.FloatAttr("beta", 0.75), ir.FloatAttr("lambda", 0.25)}
		return []ir.Sample{
			{Name: "mode 0", In: in, NumOut: 5, Attrs: attrs},
			{Name: "mode 1", In: in, NumOut: 4, Attrs: append([]ir.Attr{ir.IntAttr("weight_decay_mode", 1)}, attrs...)},
			{Name: "held back", In: append(append([]*ir.Tensor{}, in...), ir.FromInts(ir.Bool, []int64{0}, 1)), NumOut: 4, Attrs: attrs},
		}
	},
})

// adamOptimizerSignal is the input that says whether to update: the last one
// of the schema, or the seventh in older files, where it is the only bool.
func adamOptimizerSignal(n *ir.Node) (int, bool) {
	for i := 6; i < len(n.In); i++ {
		if n.In[i] != nil && n.In[i].Type.DType == ir.Bool {
			return i, true
		}
	}
	return 0, false
}

// adamOptimizerRefusal names an input whose meaning is not implemented.
func adamOptimizerRefusal(n *ir.Node) string {
	for i := 6; i < 9 && i < len(n.In); i++ {
		if n.In[i] != nil && n.In[i].Type.DType != ir.Bool {
			return n.Decl.In[i].Name
		}
	}
	return ""
}

func adamOptimizerStep(n *ir.Node, lr float64, step int64) adamStep {
	return newAdamStep(lr, float64(n.Float("alpha", 0.9)), float64(n.Float("beta", 0.999)), float64(n.Float("epsilon", 1e-8)),
		float64(n.Float("lambda", 0)), step, n.Int("do_bias_correction", 1) != 0, n.Int("weight_decay_mode", 0))
}

func adamOptimizerEval(c *ir.EvalCtx) error {
	if in := adamOptimizerRefusal(c.Node); in != "" {
		return c.Errorf("mixed precision (input %s) is not evaluated", in)
	}
	w, g, m, v := c.In(2), c.In(3), c.In(4), c.In(5)
	if !sameSizes(w, g, m, v) {
		return c.Errorf("weights, gradients and moments differ in size")
	}
	lr, okR := scalarOf(c.In(0))
	step, okT := scalarOf(c.In(1))
	if !okR || !okT {
		return c.Errorf("learning rate and step must have one element")
	}
	update := true
	if i, ok := adamOptimizerSignal(c.Node); ok {
		update = flagOf(c.In(i), true)
	}
	s := adamOptimizerStep(c.Node, lr, int64(step))
	out := updates([]*ir.Tensor{m, v, w, g}, []*ir.Tensor{w, g, m, v}, func(x, y []float64) {
		if !update {
			y[0], y[1], y[2], y[3] = x[2], x[3], x[0], x[1]
			return
		}
		w0 := x[0]
		var w1 float64
		w1, y[0], y[1] = s.update(w0, x[1], x[2], x[3])
		if s.mode == 0 {
			// lambda here decays relative to the same weight the update reads.
			w1 = w0 - s.lr*((y[0]/s.corr1)/(math.Sqrt(y[1]/s.corr2)+s.eps)+s.decay*w0)
		}
		y[2], y[3] = w1, w1-w0
	})
	next := int64(step)
	if update {
		next++
	}
	c.Set(0, ir.FromInts(ir.Int64, []int64{next}, c.In(1).Dims...))
	for i, t := range out {
		c.Set(i+1, t)
	}
	return nil
}

func adamOptimizerKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if in := adamOptimizerRefusal(c.Node); in != "" {
		return ir.Kernel{}, c.Errorf("mixed precision (input %s) has no kernel", in)
	}
	signal := ir.InArg(len(c.Node.In)) // no such input: a null pointer
	if i, ok := adamOptimizerSignal(c.Node); ok {
		signal = ir.InArg(i)
	}
	s := adamOptimizerStep(c.Node, 0, 1)
	return ir.Kernel{Func: "adam_optimizer", Source: adamOptimizerCUDA,
		Types: []ir.DType{c.InDType(0), c.InDType(2), c.InDType(3), c.InDType(4)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.InArg(5), signal,
			ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.OutArg(3), ir.OutArg(4), ir.IntArg(ir.Elems(c.InShape(2))),
			ir.FloatArg(s.alpha), ir.FloatArg(s.beta), ir.FloatArg(s.eps), ir.FloatArg(s.decay),
			ir.BoolArg(c.Node.Int("do_bias_correction", 1) != 0), ir.IntArg(s.mode)}}, nil
}

// The step is read by every thread, so it must not be advanced in the same
// launch (it may share its buffer with the new step).
const adamOptimizerCUDA = `
template <class R, class W, class G, class M>
void adam_optimizer(Stream& s, const R* lr, const int64_t* step, const W* w, const G* g, const M* m1, const M* m2,
                    const bool* signal, int64_t* step_out, M* m1_out, M* m2_out, W* w_out, G* g_out, int64_t n,
                    double alpha, double beta, double eps, double lambda, bool correct, int64_t mode) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<W>;
    A x = to<A>(w[i]), grad = to<A>(g[i]), a = to<A>(m1[i]), b = to<A>(m2[i]);
    A rate = to<A>(*lr), y = x;
    if (!signal || *signal) {
      a = A(alpha) * a + A(1 - alpha) * grad;
      b = A(beta) * b + A(1 - beta) * grad * grad;
      A ca = correct ? A(1) - m::pow(A(alpha), A(*step)) : A(1);
      A cb = correct ? A(1) - m::pow(A(beta), A(*step)) : A(1);
      if (mode == 0) {
        y = x - rate * ((a / ca) / (m::sqrt(b / cb) + A(eps)) + A(lambda) * x);
      } else {
        y = x - rate * m::sqrt(cb) / ca * a / (m::sqrt(b) + A(eps));
        y = y - rate * A(lambda) * y;
      }
      grad = y - x;
    }
    if (m1_out) m1_out[i] = to<M>(a);
    if (m2_out) m2_out[i] = to<M>(b);
    if (w_out) w_out[i] = to<W>(y);
    if (g_out) g_out[i] = to<G>(grad);
  });
  parallel_for(s, 1, [=] MEMOC_DEVICE(int64_t) {
    if (step_out) *step_out = *step + ((!signal || *signal) ? 1 : 0);
  });
}`

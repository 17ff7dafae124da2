package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MemocDomain, Name: "FlashAttentionGrad",
	Doc: "Gradients of FlashAttention from its output and log-sum-exp, scores made again block by block; " +
		"dmask (optional) is summed to the mask's shape.",
	Since: []int{1},
	In:    ir.Ports("dY:T, Q:T, K:T, V:T, Y:T, LSE:U, mask:M?, q_segments:tensor(int64)?, k_segments:tensor(int64)?"), Out: ir.Ports("dQ:T, dK:T, dV:T, dmask:M?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "U": ir.SetOf(ir.Float, ir.Double), "M": ir.Floats | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		if err := flashInfer(c, 1); err != nil {
			return err
		}
		for i := range 3 {
			c.SetTensor(i, c.DType(i+1), c.Shape(i+1))
		}
		if c.HasOut(3) && !c.Has(6) {
			return c.Errorf("the gradient of a mask is asked for, but there is no mask")
		}
		c.SetTensor(3, c.DType(6), c.Shape(6))
		return nil
	},
	Axes: flashGradAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		f, _ := flashView(c.Node, c.InShape(1), c.InShape(2), c.InShape(3))
		read, write := c.Traffic()
		size := int64(4)
		if c.InDType(1) == ir.Double {
			size = 8
		}
		return ir.Cost{FLOPs: 2 * f.b * f.h * f.pairs() * (3*f.d + 2*f.e), Read: read, Write: write,
			Workspace: 2 * size * f.b * f.h * f.s, Unit: ir.AttnBwd, DType: c.InDType(1)}
	},
	Grad:      ir.NoGrad("not derived yet: second derivatives"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		q, k, v := c.In(1), c.In(2), c.In(3)
		f, ok := flashView(c.Node, q.Dims, k.Dims, v.Dims)
		m, fits := flashMaskFrom(c.In, 6, f)
		if !ok || !fits || c.In(0).Len() != c.In(4).Len() || c.In(5).Len() != f.b*f.h*f.s {
			return c.Errorf("Q %v, K %v, V %v, Y %v, LSE %v and the mask do not fit", q.Dims, k.Dims, v.Dims, c.In(4).Dims, c.In(5).Dims)
		}
		g := flashBackward(f, c.In(0).Floats(), q.Floats(), k.Floats(), v.Floats(), c.In(4).Floats(), c.In(5).Floats(), m)
		c.Set(0, ir.FromFloats(q.DType, g.q, q.Dims...))
		c.Set(1, ir.FromFloats(k.DType, g.k, k.Dims...))
		c.Set(2, ir.FromFloats(v.DType, g.v, v.Dims...))
		if c.HasOut(3) && c.Has(6) {
			c.Set(3, ir.FromFloats(c.In(6).DType, g.mask, c.In(6).Dims...))
		}
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		f, ok := flashView(c.Node, c.InShape(1), c.InShape(2), c.InShape(3))
		if !ok {
			return ir.Kernel{}, c.Errorf("Q, K and V do not fit")
		}
		maskType, step := maskArgs(c, 6, f, c.InShape(6))
		mask := c.InShape(6)
		for len(mask) < 4 {
			mask = append([]int64{1}, mask...)
		}
		args := []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.InArg(5), ir.InArg(6),
			ir.DimsArg(step...), ir.DimsArg(mask...)}
		args = append(args, segmentArgs(c, 7, f)...)
		return ir.Kernel{Func: "flash_attention_grad", Source: flashCUDA,
			Types: []ir.DType{c.InDType(1), maskType, c.InDType(5)},
			Args: append(args, ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.OutArg(3), f.dims(),
				ir.FloatArg(f.scale), ir.FloatArg(f.softcap), ir.IntArg(f.empty), ir.WorkspaceArg())}, nil
	}),
	Function: functionOf(flashGradFunction),
	Samples:  flashGradSamples,
})

// flashGradAxes: batch follows everywhere, heads where every head has keys of
// its own. The gradient of Q follows the queries, those of K and V the keys.
func flashGradAxes(n *ir.Node) ir.AxisMap {
	q, k := inShapeOf(n, 1), inShapeOf(n, 2)
	if q.Rank() != 4 || k.Rank() != 4 {
		return ir.AxisMap{}
	}
	full := ir.Dims(q.Dims[0], q.Dims[1], q.Dims[2], k.Dims[2])
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	for o := range min(3, len(n.Out)) {
		axes := make([]ir.OutAxis, 4)
		for a := range 2 {
			if a == 1 && !q.Dims[1].Equal(k.Dims[1]) {
				continue
			}
			for i := range 6 {
				axes[a] = append(axes[a], ir.AxisLink{In: i, Axis: a})
			}
			axes[a] = withMask(n, 6, full, a, axes[a])
			if a == 0 {
				axes[a] = batchOfSegments(n, 7, axes[a])
			}
		}
		if o == 0 {
			rows := ir.OutAxis{{In: 0, Axis: 2}, {In: 1, Axis: 2}, {In: 4, Axis: 2}, {In: 5, Axis: 2}}
			axes[2] = append(withMask(n, 6, full, 2, rows), flashKeys(n, 1, full)...)
		} else {
			axes[2] = keyAxis(n, full)
		}
		m.Out[o] = axes
	}
	return m
}

// keyAxis: the gradient of a key follows K and V. It sums over the queries, and
// which of them see the key depends on its position; a row's mask counts
// relative to its largest element, wherever that is.
func keyAxis(n *ir.Node, scores ir.Shape) ir.OutAxis {
	axes := ir.OutAxis{{In: 2, Axis: 2}, {In: 3, Axis: 2}, {In: 1, Axis: 2, Rel: ir.Whole}}
	for _, l := range withMask(n, 6, scores, 3, nil) {
		l.Rel = ir.Whole
		axes = append(axes, l)
	}
	if inShapeOf(n, 8).Rank() == 2 {
		axes = append(axes, ir.AxisLink{In: 8, Axis: 1, Rel: ir.Whole})
	}
	return axes
}

// flashGradSamples are the samples of the forward with their own results.
func flashGradSamples() []ir.Sample {
	var out []ir.Sample
	for _, s := range flashSamples() {
		n := &ir.Node{Attrs: s.Attrs}
		q, k, v := s.In[0], s.In[1], s.In[2]
		f, _ := flashView(n, q.Dims, k.Dims, v.Dims)
		at := func(i int) *ir.Tensor {
			if i >= len(s.In) {
				return nil
			}
			return s.In[i]
		}
		mask := at(3)
		m, _ := flashMaskFrom(at, 3, f)
		y, lse := flashForward(f, q.Floats(), k.Floats(), v.Floats(), m)
		in := []*ir.Tensor{wave(9, f.b, f.h, f.s, f.e), q, k, v, ir.FromFloats(ir.Double, y, f.b, f.h, f.s, f.e), ir.FromFloats(ir.Double, lse, f.b, f.h, f.s)}
		s.NumOut, s.NoGradCheck = 3, nil
		if len(s.In) > 3 {
			in = append(in, s.In[3:]...)
		}
		if s.Absent != nil {
			s.Absent = []int{6}
		}
		if mask != nil && mask.DType != ir.Bool {
			s.NumOut = 4
		}
		s.In = in
		out = append(out, s)
	}
	return out
}

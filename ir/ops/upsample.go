package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Upsample",
	Doc:   "The older form of Resize: nearest or linear by scales.",
	Since: []int{1, 7, 9, 10},
	In:    ir.Ports("X:T, scales:tensor(float)?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		r, known := upsampleArgs(c)
		for _, s := range r.scales {
			if s < 1 {
				return c.Errorf("scale %v is below 1", s)
			}
		}
		return resizeDims(c, r, nil, known)
	},
	Axes: resizeAxes,
	Cost: ir.PointwiseCost(8),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		r, known := upsampleArgs(&ir.InferCtx{Node: c.Node, Version: c.Version})
		return resizeGrad(c, r, known)
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		r, _ := upsampleArgs(&ir.InferCtx{Node: c.Node, Version: c.Version})
		if c.Has(1) {
			r.scales = c.In(1).Floats()
		}
		return resizeEval(c, r)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		r, known := upsampleArgs(&ir.InferCtx{Node: c.Node, Version: c.Version})
		return resizeKernel(c, r, known)
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{1, 1, 2, 2}, iota64(4)...)
		scales := ir.FromFloats(ir.Float, []float64{1, 1, 2, 3}, 4)
		return []ir.Sample{
			{Name: "nearest", Version: 9, In: []*ir.Tensor{x, scales}},
			{Name: "linear", Version: 9, In: []*ir.Tensor{x, scales}, Attrs: []ir.Attr{ir.StringAttr("mode", "linear")}},
			{Name: "attribute", Version: 7, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.FloatsAttr("scales", []float32{1, 1, 2, 2})}},
			{Name: "opset 1", Version: 1, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.FloatAttr("height_scale", 2), ir.FloatAttr("width_scale", 3)}},
		}
	},
})

// upsampleArgs is the scales of whichever form the node has.
func upsampleArgs(c *ir.InferCtx) (r resizeArgs, known bool) {
	if c.Has(1) {
		if t := c.Const(1); t != nil && t.DType.IsFloat() {
			r.scales = t.Floats()
		}
		return r, r.scales != nil
	}
	if a := c.Node.Attr("scales"); a != nil {
		for _, s := range a.Floats {
			r.scales = append(r.scales, float64(s))
		}
		return r, r.scales != nil
	}
	h, w := c.Node.Attr("height_scale"), c.Node.Attr("width_scale")
	if h == nil || w == nil {
		return r, false
	}
	r.scales = []float64{1, 1, float64(h.F), float64(w.F)}
	return r, true
}

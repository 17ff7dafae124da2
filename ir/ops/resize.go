package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Resize",
	Doc:   "Resamples along axes by scales or to sizes: nearest, linear or cubic, with every coordinate mode.",
	Since: []int{10, 11, 13, 18, 19},
	In:    ir.Ports("X:T1, roi:T2?, scales:tensor(float)?, sizes:tensor(int64)?"), Out: ir.Ports("Y:T1"),
	Types: map[string]ir.DTypeSet{"T1": ir.AnyDType, "T2": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		r, sizes, known := resizeKnown(c)
		return resizeDims(c, r, sizes, known)
	},
	Axes: resizeAxes,
	Cost: ir.PointwiseCost(8),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		r, _, known := resizeKnown(&ir.InferCtx{Node: c.Node, Version: c.Version})
		return resizeGrad(c, r, known)
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		r := resizeArgs{}
		r.axes, _ = c.Node.IntList("axes")
		if c.Version < 11 {
			if !c.Has(1) {
				return c.Errorf("needs scales, as the operator had no other form before opset 11")
			}
			r.scales = c.In(1).Floats()
			return resizeEval(c, r)
		}
		if c.Has(1) {
			r.roi = c.In(1).Floats()
		}
		if c.Has(2) && c.In(2).Len() > 0 {
			r.scales = c.In(2).Floats()
		}
		if c.Has(3) && c.In(3).Len() > 0 {
			r.sizes = c.In(3).Ints()
		}
		return resizeEval(c, r)
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		r, _, known := resizeKnown(&ir.InferCtx{Node: c.Node, Version: c.Version})
		return resizeKernel(c, r, known)
	}),
	Samples: resizeSamples,
})

func resizeSamples() []ir.Sample {
	x := floats([]int64{1, 1, 3, 4}, iota64(12)...)
	scales := func(vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, vals, int64(len(vals))) }
	sizes := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
	str := ir.StringAttr
	bySizes := func(name string, sz *ir.Tensor, attrs ...ir.Attr) ir.Sample {
		return ir.Sample{Name: name, In: []*ir.Tensor{x, nil, nil, sz}, Absent: []int{1, 2}, Attrs: attrs}
	}
	byScales := func(name string, sc *ir.Tensor, attrs ...ir.Attr) ir.Sample {
		return ir.Sample{Name: name, In: []*ir.Tensor{x, nil, sc}, Absent: []int{1}, Attrs: attrs}
	}
	samples := []ir.Sample{
		byScales("nearest", scales(1, 1, 2, 0.6)),
		byScales("linear", scales(1, 1, 2, 0.6), str("mode", "linear")),
		byScales("cubic", scales(1, 1, 1.5, 0.6), str("mode", "cubic"), ir.IntAttr("exclude_outside", 1)),
		byScales("antialias", scales(1, 1, 0.6, 0.6), str("mode", "linear"), ir.IntAttr("antialias", 1)),
		bySizes("sizes", sizes(1, 1, 5, 3), str("mode", "cubic"), ir.FloatAttr("cubic_coeff_a", -0.5)),
		bySizes("aspect", sizes(7, 8), ir.IntsAttr("axes", 2, 3), str("keep_aspect_ratio_policy", "not_larger"), str("mode", "linear")),
		{Name: "crop", In: []*ir.Tensor{x, floats([]int64{4}, 0.4, 0.6, 0.6, 1.2), nil, sizes(3, 3)}, Absent: []int{2}, NoGradCheck: map[int]string{1: "the region is not trained"},
			Attrs: []ir.Attr{ir.IntsAttr("axes", 2, 3), str("coordinate_transformation_mode", "tf_crop_and_resize"), str("mode", "linear"), ir.FloatAttr("extrapolation_value", 10)}},
		{Name: "opset 10", Version: 10, In: []*ir.Tensor{asShort(x), scales(1, 1, 2, 0.6)}},
	}
	for _, m := range resizeCoords[:5] {
		samples = append(samples, byScales(m, scales(1, 1, 2, 0.6), str("mode", "linear"), str("coordinate_transformation_mode", m)))
	}
	for _, m := range resizeNearest[:4] {
		samples = append(samples, bySizes(m, sizes(1, 1, 7, 2), str("nearest_mode", m)))
	}
	return samples
}

// asShort is x in float: opset 10 names its second input otherwise.
func asShort(x *ir.Tensor) *ir.Tensor { return ir.FromFloats(ir.Float, x.Floats(), x.Dims...) }

// resizeKnown is what inference knows of scales, sizes and axes.
func resizeKnown(c *ir.InferCtx) (r resizeArgs, sizes []ir.Dim, known bool) {
	r.axes, _ = c.Node.IntList("axes")
	at := 2
	if c.Version < 11 {
		at = 1
	} else if t := c.Const(1); t != nil && t.DType.IsFloat() {
		r.roi = t.Floats()
	}
	if c.Version >= 11 && c.Has(3) {
		if ds, ok := c.Ints(3); ok && len(ds) > 0 {
			if ns, static := staticDims(ds); static {
				if _, inStatic := c.Shape(0).Static(); inStatic {
					r.sizes = ns
					return r, nil, true
				}
			}
			return r, ds, true
		}
	}
	if t := c.Const(at); t != nil && t.DType.IsFloat() && t.Len() > 0 {
		r.scales = t.Floats()
		return r, nil, true
	}
	return r, nil, false
}

// resizeAxes: axes whose scale is 1 follow.
func resizeAxes(n *ir.Node) ir.AxisMap {
	in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
	since := n.Decl.SinceVersion(n.Version)
	f, msg := resizeFormOf(n, since)
	args := resizeKnown
	if n.Op == "Upsample" {
		args = func(c *ir.InferCtx) (resizeArgs, []ir.Dim, bool) {
			r, known := upsampleArgs(c)
			return r, nil, known
		}
	}
	r, _, known := args(&ir.InferCtx{Node: n, Version: since})
	if msg != "" || !known || f.aspect != "stretch" || f.coords == "tf_crop_and_resize" || in.Rank() != out.Rank() {
		return ir.AxisMap{}
	}
	scale := make([]float64, max(in.Rank(), 0)) // 0: given by sizes
	for a := range scale {
		scale[a] = 1
	}
	for i := range max(len(r.axes), len(scale)) {
		a, ok := i, r.axes == nil
		if !ok && i < len(r.axes) {
			a, ok = ir.NormAxis(r.axes[i], len(scale))
		}
		if !ok {
			continue
		}
		scale[a] = 0
		if i < len(r.scales) {
			scale[a] = r.scales[i]
		}
	}
	return followAxes(n, func(a int) int {
		if scale[a] == 1 || scale[a] == 0 && in.Dims[a].Equal(out.Dims[a]) {
			return a
		}
		return -1
	})
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Reshape",
	Doc:   "Same elements, another shape: 0 copies an extent (unless allowzero), -1 is what is left.",
	Since: []int{1, 5, 13, 14, 19, 21, 23, 24, 25},
	In:    ir.Ports("data:T, shape:tensor(int64)?"), Out: ir.Ports("reshaped:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer:     reshapeInfer,
	Axes:      regroupAxes,
	Cost:      ir.ViewCost,
	Grad:      ir.GradOf(reshapeLikeGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		target, given := evalInts(c, "shape", 1)
		if !given {
			return c.Errorf("the target shape is missing")
		}
		dims, err := reshapeDims(c.In(0).Dims, target, c.Node.Int("allowzero", 0) != 0)
		if err != "" {
			return c.Errorf("%s", err)
		}
		c.Set(0, c.In(0).Reshaped(dims...))
		return nil
	},
	Kernel:  ir.KernelOf(copyKernel),
	View:    sharesInput0,
	Samples: reshapeSamples,
})

func reshapeSamples() []ir.Sample {
	x := floats([]int64{2, 3, 4}, iota64(24)...)
	to := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
	return []ir.Sample{
		{Name: "flat", In: []*ir.Tensor{x, to(-1)}},
		{Name: "copy", In: []*ir.Tensor{x, to(0, -1, 2)}},
		{Name: "merge", In: []*ir.Tensor{x, to(6, 4)}},
		{Name: "split", In: []*ir.Tensor{x.Reshaped(4, 6), to(2, 2, -1, 2)}},
		{Name: "attribute", Version: 1, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntsAttr("shape", 4, 6)}},
		{Name: "empty", Version: 14, In: []*ir.Tensor{ir.NewTensor(ir.Double, 0, 3), to(3, 0)},
			Attrs: []ir.Attr{ir.IntAttr("allowzero", 1)}},
		{Name: "scalar", In: []*ir.Tensor{floats([]int64{1, 1}, 2.5), to()}},
	}
}

// iota64 is 0.5, -1.5, 2.5, …: distinct values of both signs.
func iota64(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i) + 0.5
		if i%2 == 1 {
			out[i] = -out[i]
		}
	}
	return out
}

// reshapeLikeGrad is the gradient of everything that keeps the elements in
// order.
func reshapeLikeGrad(c *ir.GradCtx) error {
	if c.Needs(0) {
		c.Set(0, c.ReshapeLike(c.OutGrad(0), c.In(0)))
	}
	return nil
}

// reshapeDims is the shape that target means for data of shape in; msg says
// what is wrong, empty if nothing is.
func reshapeDims(in, target []int64, allowZero bool) (dims []int64, msg string) {
	dims = make([]int64, len(target))
	known, open := int64(1), -1
	for i, d := range target {
		switch {
		case d == -1 && open >= 0:
			return nil, "more than one extent of the target shape is -1"
		case d == -1:
			open = i
			continue
		case d < -1:
			return nil, "the target shape has a negative extent"
		case d == 0 && !allowZero:
			if i >= len(in) {
				return nil, "an extent of 0 in the target shape has no input axis to copy"
			}
			d = in[i]
		}
		dims[i] = d
		known *= d
	}
	total := ir.Elems(in)
	if open >= 0 {
		if known == 0 || total%known != 0 {
			return nil, "the elements do not fill the target shape"
		}
		dims[open] = total / known
		return dims, ""
	}
	if known != total {
		return nil, "the target shape has another number of elements"
	}
	return dims, ""
}

func reshapeInfer(c *ir.InferCtx) error {
	target, ok := reshapeTarget(c)
	if !ok {
		shape := ir.Shape{}
		if n, known := c.Length(1); known {
			shape = c.FreshShape(n)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	if in, static := c.Shape(0).Static(); static {
		if ns, static := staticDims(target); static {
			dims, msg := reshapeDims(in, ns, c.Node.Int("allowzero", 0) != 0)
			if msg != "" {
				return c.Errorf("%s (%v to %v)", msg, in, ns)
			}
			c.SetTensor(0, c.DType(0), ir.Ints64(dims...))
			keepInts(c)
			return nil
		}
	}
	dims, err := reshapeSymbolic(c, target)
	if err != nil {
		return err
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	keepInts(c)
	return nil
}

// reshapeTarget is the target shape where it is known: the input, or the
// attribute of opset 1.
func reshapeTarget(c *ir.InferCtx) ([]ir.Dim, bool) {
	if c.Has(1) {
		return c.Ints(1)
	}
	ns, ok := c.Node.IntList("shape")
	return ir.Ints64(ns...).Dims, ok
}

func staticDims(ds []ir.Dim) ([]int64, bool) { return ir.Dims(ds...).Static() }

// reshapeSymbolic is reshapeDims where an extent is a symbol or the input's
// shape is not known.
func reshapeSymbolic(c *ir.InferCtx, target []ir.Dim) ([]ir.Dim, error) {
	in := c.Shape(0)
	dims := make([]ir.Dim, len(target))
	open := -1
	for i, d := range target {
		dims[i] = d
		n, isInt := d.Int()
		switch {
		case isInt && n == -1 && open >= 0:
			return nil, c.Errorf("more than one extent of the target shape is -1")
		case isInt && n == -1:
			open = i
		case isInt && n < -1:
			return nil, c.Errorf("the target shape has a negative extent %d", n)
		case isInt && n == 0 && c.Node.Int("allowzero", 0) == 0:
			switch {
			case !in.Ranked:
				dims[i] = c.FreshDim()
			case i >= in.Rank():
				return nil, c.Errorf("an extent of 0 in the target shape has no input axis to copy")
			default:
				dims[i] = in.Dims[i]
			}
		}
	}
	if open < 0 {
		return dims, nil
	}
	rest := append(append([]ir.Dim{}, dims[:open]...), dims[open+1:]...)
	dims[open] = c.FreshDim()
	if in.Ranked {
		if q, ok := quotient(in.Dims, rest); ok {
			dims[open] = q
		}
	}
	return dims, nil
}

// quotient is the product of a over the product of b where it is exact.
// Equal factors cancel first.
func quotient(a, b []ir.Dim) (ir.Dim, bool) {
	a = append([]ir.Dim{}, a...)
	den := ir.N(1)
next:
	for _, d := range b {
		for i, e := range a {
			if d.Equal(e) && !d.Equal(ir.N(0)) {
				a = append(a[:i], a[i+1:]...)
				continue next
			}
		}
		den = den.Mul(d)
	}
	return product(a).Div(den)
}

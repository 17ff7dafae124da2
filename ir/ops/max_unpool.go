package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "MaxUnpool",
	Doc:   "Puts every element at the position that MaxPool took it from, zeros elsewhere.",
	Since: []int{9, 11, 22},
	In:    ir.Ports("X:T, I:I, output_shape:I?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int64)},
	Infer: maxUnpoolInfer,
	Axes:  ir.NoAxes,
	Cost:  ir.PointwiseCost(0),
	// dx[i] = dy at the position of x[i].
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		if !c.Needs(0) {
			return nil
		}
		dy := c.OutGrad(0)
		if c.In(2) != nil { // the indices count through the natural shape at the front of Y
			x, ok := c.In(0).Type.Shape.Static()
			if !ok {
				return c.Node.Errorf("grad", "the gradient with an explicit output_shape needs the static shape of %q", c.In(0).Name)
			}
			natural, _, err := unpoolDims(c.Node, x, nil)
			if err != nil {
				return err
			}
			for a, n := range natural {
				dy = c.SliceAxis(dy, int64(a), 0, n, 1)
			}
		}
		g := c.Op("Gather", []*ir.Value{c.Reshape(dy, -1), c.In(1)}, ir.IntAttr("axis", 0))
		c.Set(0, c.Like(g, c.In(0)))
		return nil
	}),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x, at := c.In(0), c.In(1)
		var shape []int64
		if c.Has(2) {
			shape = c.In(2).Ints()
		}
		natural, y, err := unpoolDims(c.Node, x.Dims, shape)
		if err != nil {
			return err
		}
		if at.Len() != x.Len() {
			return c.Errorf("%d indices for %d elements", at.Len(), x.Len())
		}
		out := make([]float64, ir.Elems(y))
		vals := x.Floats()
		strides := rowMajor(y)
		for k, i := range at.Ints() {
			if i < 0 || i >= ir.Elems(natural) {
				return c.Errorf("index %d lies outside of %v", i, natural)
			}
			to := int64(0)
			for a := len(natural) - 1; a >= 0; a-- {
				to += i % natural[a] * strides[a]
				i /= natural[a]
			}
			out[to] = vals[k]
		}
		c.Set(0, ir.FromFloats(x.DType, out, y...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		var shape []int64
		if c.Has(2) {
			shape = c.OutShape(0)
		}
		natural, y, err := unpoolDims(c.Node, c.InShape(0), shape)
		return ir.Kernel{Func: "max_unpool", Source: maxUnpoolCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(ir.Elems(c.InShape(0))), ir.DimsArg(natural...), ir.DimsArg(y...)}}, err
	}),
	Samples: func() []ir.Sample {
		x := ramp(1, 1, 2, 2)
		at := ir.FromInts(ir.Int64, []int64{5, 7, 13, 15}, 1, 1, 2, 2)
		attrs := []ir.Attr{ir.IntsAttr("kernel_shape", 2, 2), ir.IntsAttr("strides", 2, 2)}
		return []ir.Sample{
			{Name: "natural", In: []*ir.Tensor{x, at}, Attrs: attrs},
			{Name: "larger", In: []*ir.Tensor{x, at, ir.FromInts(ir.Int64, []int64{1, 1, 5, 5}, 4)}, Attrs: attrs},
		}
	},
})

const maxUnpoolCUDA = `
template <class T>
void max_unpool(Stream& s, const T* x, const int64_t* at, T* y, int64_t n, Dims natural, Dims yd) {
  fill_zero(s, y, yd.numel() * int64_t(sizeof(T)));
  Dims strides = strides_of(yd);
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[dot(coords(at[i], natural), strides)] = x[i]; });
}`

// unpoolDims is the shape the indices count through and the shape of Y, which
// holds it at its front.
func unpoolDims(n *ir.Node, x, shape []int64) (natural, y []int64, err error) {
	if len(x) < 2 {
		return nil, nil, n.Errorf("shape", "input %v has no batch and channel axes", x)
	}
	win, err := windowOf(n, len(x)-2, nil)
	if err != nil {
		return nil, nil, err
	}
	natural = append(natural, x[:2]...)
	for i, d := range x[2:] {
		natural = append(natural, max((d-1)*win.stride[i]+win.kernel[i]-win.padLo[i]-win.padHi[i], 0))
	}
	if shape == nil {
		return natural, natural, nil
	}
	if len(shape) != len(natural) {
		return nil, nil, n.Errorf("shape", "output_shape %v has another rank than %v", shape, natural)
	}
	for a, d := range shape {
		if d < natural[a] {
			return nil, nil, n.Errorf("shape", "output_shape %v is smaller than %v", shape, natural)
		}
	}
	return natural, shape, nil
}

func maxUnpoolInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	switch {
	case !x.Ranked:
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	case x.Rank() < 2:
		return c.Errorf("input %s has no batch and channel axes", x)
	}
	win, err := windowOf(c.Node, x.Rank()-2, nil)
	if err != nil {
		return err
	}
	if at := c.Shape(1); at.Ranked && at.Rank() != x.Rank() {
		return c.Errorf("indices %s have another shape than the input %s", at, x)
	}
	if c.Has(2) {
		shape := c.FreshShape(x.Rank())
		if ds, ok := c.Ints(2); ok && len(ds) == x.Rank() {
			shape = ir.Dims(ds...)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	dims := append([]ir.Dim{}, x.Dims[:2]...)
	for i, d := range x.Dims[2:] {
		k := win.kernel[i] - win.padLo[i] - win.padHi[i] - win.stride[i]
		dims = append(dims, d.Mul(ir.N(win.stride[i])).Add(ir.N(k)))
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

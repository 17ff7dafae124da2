package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "STFT",
	Doc:   "Fourier transforms of overlapping, windowed frames of a signal [batch, samples, 1 or 2].",
	Since: []int{17},
	In:    ir.Ports("signal:T, frame_step:I, window:T?, frame_length:I?"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		x := c.Shape(0)
		if x.Ranked && x.Rank() != 3 {
			return c.Errorf("signal %s is not [batch, samples, 1 or 2]", x)
		}
		shape := c.FreshShape(4)
		shape.Dims[3] = ir.N(2)
		if x.Ranked {
			shape.Dims[0] = x.Dims[0]
		}
		length, known := stftLength(c)
		step, stepKnown := firstInt(c.StaticInts(1))
		// ONNX's evaluation takes an absent onesided for 1, its own shape
		// inference for 0: the number of bins stays open there.
		if known && length > 0 && c.Node.Attr("onesided") != nil {
			shape.Dims[2] = ir.N(length)
			if c.Node.Int("onesided", 1) != 0 {
				shape.Dims[2] = ir.N(length/2 + 1)
			}
		}
		if known && stepKnown && x.Ranked {
			if step <= 0 || length <= 0 {
				return c.Errorf("frames of %d samples, %d apart", length, step)
			}
			shape.Dims[1] = floorDiv(c, x.Dims[1].Sub(ir.N(length)), step).Add(ir.N(1))
			if n, ok := shape.Dims[1].Int(); ok && n <= 0 {
				return c.Errorf("the signal %s is shorter than a frame of %d samples", x, length)
			}
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() != 4 {
			return ir.AxisMap{}
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{{{{In: 0, Axis: 0}}, nil, nil, nil}}}
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		y := c.OutShape(0)
		return ir.Cost{FLOPs: 8 * ir.Elems(y) * y[2], Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: a Fourier transform"),
	Recompute: ir.Pure,
	Eval:      stftEval,
	Kernel:    ir.NoKernel("short-time transforms have no device code yet"),
	Samples: func() []ir.Sample {
		step := ir.FromInts(ir.Int64, []int64{3})
		return []ir.Sample{
			{Name: "window", In: []*ir.Tensor{ramp(2, 11, 1), step, ramp(4)}},
			{Name: "length, both sides", In: []*ir.Tensor{ramp(1, 10, 2), step, nil, ir.FromInts(ir.Int64, []int64{5})}, Absent: []int{2},
				Attrs: []ir.Attr{ir.IntAttr("onesided", 0)}},
		}
	},
})

// stftLength is the length of a frame where inference knows it.
func stftLength(c *ir.InferCtx) (int64, bool) {
	if c.Has(3) {
		return firstInt(c.StaticInts(3))
	}
	if c.Has(2) {
		return firstInt(c.Shape(2).Static())
	}
	if c.Shape(0).Rank() == 3 {
		return c.Shape(0).Dims[1].Int()
	}
	return 0, false
}

func stftEval(c *ir.EvalCtx) error {
	x, step := c.In(0), c.In(1).Ints()[0]
	if len(x.Dims) != 3 || x.Dims[2] < 1 || x.Dims[2] > 2 {
		return c.Errorf("signal %v is not [batch, samples, 1 or 2]", x.Dims)
	}
	length := x.Dims[1]
	var window []float64
	if c.Has(2) {
		window = c.In(2).Floats()
		length = int64(len(window))
	}
	if c.Has(3) {
		length = c.In(3).Ints()[0]
	}
	if step <= 0 || length <= 0 || length > x.Dims[1] {
		return c.Errorf("frames of %d samples, %d apart, of %d", length, step, x.Dims[1])
	}
	frames, parts := (x.Dims[1]-length)/step+1, x.Dims[2]
	bins := length
	if c.Node.Int("onesided", 1) != 0 {
		bins = length/2 + 1
	}
	in := x.Floats()
	var out []float64
	for b := range x.Dims[0] {
		for f := range frames {
			line := make([]complex128, length)
			for k := range line {
				w := 1.0
				if window != nil {
					if w = 0; k < len(window) {
						w = window[k]
					}
				}
				at := (b*x.Dims[1] + f*step + int64(k)) * parts
				line[k] = complex(in[at]*w, 0)
				if parts == 2 {
					line[k] = complex(in[at]*w, in[at+1]*w)
				}
			}
			for _, v := range (fourier{}).transform(line, length, bins) {
				out = append(out, real(v), imag(v))
			}
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, x.Dims[0], frames, bins, 2))
	return nil
}

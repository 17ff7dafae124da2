package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "DFT",
	Doc:   "Discrete Fourier transform along one axis of [.., 1 or 2] (real, or real and imaginary part last).",
	Since: []int{17, 20},
	In:    ir.Ports("input:T, dft_length:I?, axis:tensor(int64)?"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.Indices},
	Infer: dftInfer,
	Axes:  ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		n := int64(1)
		for _, d := range c.InShape(0) {
			n = max(n, d)
		}
		return ir.Cost{FLOPs: 8 * n * ir.Elems(c.OutShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: a Fourier transform"),
	Recompute: ir.Pure,
	Eval:      dftEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		x, y := c.InShape(0), c.OutShape(0)
		axis, ok := dftAxis(c.Node, c.Version, len(x), func() (int64, bool) { return firstInt(c.StaticInts(2)) })
		if !ok {
			return ir.Kernel{}, c.Errorf("the axis is not known")
		}
		f := fourierOf(c.Node)
		n := y[axis]
		switch {
		case c.Has(1):
			v, ok := firstInt(c.StaticInts(1))
			if !ok {
				return ir.Kernel{}, c.Errorf("the length of the transform is not known")
			}
			n = v
		case f.onesided && !f.inverse:
			n = x[axis]
		}
		inner := ir.Elems(x[axis+1 : len(x)-1])
		return ir.Kernel{Func: "dft", Source: dftCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{ir.InArg(0), ir.OutArg(0),
			ir.IntArg(ir.Elems(y)), ir.IntArg(x[axis]), ir.IntArg(x[len(x)-1]), ir.IntArg(y[axis]), ir.IntArg(y[len(y)-1]), ir.IntArg(inner),
			ir.IntArg(n), ir.BoolArg(f.inverse), ir.BoolArg(f.inverse && f.onesided)}}, nil
	}),
	Samples: func() []ir.Sample {
		axis := func(a int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{a}) }
		length := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}) }
		one, inverse := ir.IntAttr("onesided", 1), ir.IntAttr("inverse", 1)
		return []ir.Sample{
			{Name: "real", In: []*ir.Tensor{ramp(2, 5, 1)}},
			{Name: "complex, axis", In: []*ir.Tensor{ramp(3, 2, 2), nil, axis(0)}, Absent: []int{1}},
			{Name: "one side", Version: 17, In: []*ir.Tensor{ramp(2, 6, 1)}, Attrs: []ir.Attr{one}},
			{Name: "padded", In: []*ir.Tensor{ramp(2, 3, 2), length(5)}},
			{Name: "cut", In: []*ir.Tensor{ramp(1, 5, 1), length(4)}, Attrs: []ir.Attr{one}},
			{Name: "inverse", In: []*ir.Tensor{ramp(2, 4, 2)}, Attrs: []ir.Attr{inverse}},
			{Name: "inverse of one side", In: []*ir.Tensor{ramp(2, 4, 2)}, Attrs: []ir.Attr{inverse, one}},
			{Name: "inverse of one side, odd", In: []*ir.Tensor{ramp(2, 4, 2), length(7)}, Attrs: []ir.Attr{inverse, one}},
		}
	},
})

func firstInt(ns []int64, ok bool) (int64, bool) {
	if !ok || len(ns) != 1 {
		return 0, false
	}
	return ns[0], true
}

// dftAxis is the transformed axis: an attribute in version 17, an input later.
func dftAxis(n *ir.Node, since, rank int, input func() (int64, bool)) (int, bool) {
	axis := int64(-2)
	if since < 20 {
		axis = n.Int("axis", 1)
	}
	if len(n.In) > 2 && n.In[2] != nil {
		v, ok := input()
		if !ok {
			return 0, false
		}
		axis = v
	}
	a, ok := ir.NormAxis(axis, rank)
	return a, ok && a < rank-1
}

func dftInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if !x.Ranked {
		c.SetTensor(0, c.DType(0), x)
		return nil
	}
	if x.Rank() < 2 {
		return c.Errorf("input %s has no axis to transform before the one of real and imaginary part", x)
	}
	f := fourierOf(c.Node)
	known := true
	axis, ok := dftAxis(c.Node, c.Version, x.Rank(), func() (v int64, ok bool) {
		v, known = firstInt(c.StaticInts(2))
		return v, known
	})
	if !ok && known {
		return c.Errorf("the axis is out of range for %s", x)
	}
	if parts := x.Dims[x.Rank()-1]; f.onesided && (parts.Equal(ir.N(1)) && f.inverse || parts.Equal(ir.N(2)) && !f.inverse) {
		return c.Errorf("a one-sided transform goes from real to complex numbers and its inverse back; the input is %s", x)
	}
	if !known {
		shape := c.FreshShape(x.Rank())
		if !f.onesided && !c.Has(1) { // whatever the axis, its extent stays
			copy(shape.Dims, x.Dims)
		}
		shape.Dims[x.Rank()-1] = ir.N(f.outParts())
		c.SetTensor(0, c.DType(0), shape)
		return nil
	}
	dims := append([]ir.Dim{}, x.Dims...)
	n := dims[axis]
	full := f.inverse && f.onesided // input is half a spectrum
	if full {
		n = n.Sub(ir.N(1)).Mul(ir.N(2))
	}
	if c.Has(1) {
		n = c.FreshDim()
		if ds, ok := c.Ints(1); ok && len(ds) == 1 {
			n = ds[0]
		}
	}
	if v, isInt := n.Int(); isInt && v <= 0 && full {
		return c.Errorf("a transform of length %d", v)
	}
	if f.onesided && !f.inverse {
		n = floorDiv(c, n, 2).Add(ir.N(1))
	}
	dims[axis], dims[len(dims)-1] = n, ir.N(f.outParts())
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

// fourier is the kind of a transform.
type fourier struct{ inverse, onesided bool }

func fourierOf(n *ir.Node) fourier {
	return fourier{inverse: n.Int("inverse", 0) != 0, onesided: n.Int("onesided", 0) != 0}
}

// outParts is 2 for complex results; half a spectrum has a real inverse.
func (f fourier) outParts() int64 {
	if f.inverse && f.onesided {
		return 1
	}
	return 2
}

func dftEval(c *ir.EvalCtx) error {
	x := c.In(0)
	rank := len(x.Dims)
	axis, ok := dftAxis(c.Node, c.Version, rank, func() (int64, bool) { return firstInt(c.In(2).Ints(), true) })
	if !ok {
		return c.Errorf("the axis is out of range for %v", x.Dims)
	}
	parts := x.Dims[rank-1]
	if parts != 1 && parts != 2 {
		return c.Errorf("the last axis of %v holds neither real numbers nor real and imaginary parts", x.Dims)
	}
	f := fourierOf(c.Node)
	if f.onesided && (parts == 1) == f.inverse {
		return c.Errorf("a one-sided transform goes from real to complex numbers and its inverse back; the input is %v", x.Dims)
	}
	n := x.Dims[axis]
	if f.inverse && f.onesided {
		n = 2 * (n - 1)
	}
	if c.Has(1) {
		n = c.In(1).Ints()[0]
	}
	if n <= 0 {
		return c.Errorf("a transform of length %d", n)
	}
	dims := append([]int64{}, x.Dims...)
	if dims[axis] = n; f.onesided && !f.inverse {
		dims[axis] = n/2 + 1
	}
	dims[rank-1] = f.outParts()
	in, out := x.Floats(), make([]float64, ir.Elems(dims))
	inner := ir.Elems(x.Dims[axis+1 : rank-1])
	for o := range ir.Elems(x.Dims[:axis]) {
		for i := range inner {
			line := make([]complex128, x.Dims[axis])
			for k := range line {
				at := ((o*x.Dims[axis]+int64(k))*inner + i) * parts
				line[k] = complex(in[at], 0)
				if parts == 2 {
					line[k] = complex(in[at], in[at+1])
				}
			}
			for k, v := range f.transform(line, n, dims[axis]) {
				at := ((o*dims[axis]+int64(k))*inner + i) * dims[rank-1]
				out[at] = real(v)
				if dims[rank-1] == 2 {
					out[at+1] = imag(v)
				}
			}
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, dims...))
	return nil
}

// transform is the first count elements of the transform of length n of a
// line that is cut or filled up with zeros.
func (f fourier) transform(line []complex128, n, count int64) []complex128 {
	if f.inverse && f.onesided { // the other half is the conjugate
		half := make([]complex128, n/2+1)
		copy(half, line)
		line = make([]complex128, n)
		copy(line, half[:min(int64(len(half)), n)])
		line[0] = complex(real(line[0]), 0)
		for k := int64(1); k <= (n-1)/2; k++ {
			line[n-k] = complex(real(half[k]), -imag(half[k]))
		}
		if n%2 == 0 {
			line[n/2] = complex(real(line[n/2]), 0)
		}
	}
	sign, scale := -1.0, 1.0
	if f.inverse {
		sign, scale = 1, 1/float64(n)
	}
	out := make([]complex128, count)
	for k := range out {
		for j := range min(int64(len(line)), n) {
			sin, cos := math.Sincos(sign * 2 * math.Pi * float64(int64(k)*j%n) / float64(n))
			out[k] += line[j] * complex(cos, sin)
		}
		out[k] *= complex(scale, 0)
	}
	return out
}

const dftCUDA = `
// dft sums directly: x is [outer, len, inner, parts], y is [outer, count, inner, out_parts]. half: x is half a spectrum
// whose other half is the conjugate.
template <class T>
void dft(Stream& s, const T* x, T* y, int64_t total, int64_t len, int64_t parts, int64_t count, int64_t out_parts, int64_t inner,
         int64_t n, bool inverse, bool half) {
  parallel_for(s, total, [=] MEMOC_DEVICE(int64_t e) {
    int64_t part = e % out_parts, i = e / out_parts % inner, k = e / (out_parts * inner) % count, o = e / (out_parts * inner * count);
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      int64_t src = half && j > n / 2 ? n - j : j;
      if (src >= len) continue;
      int64_t at = ((o * len + src) * inner + i) * parts;
      double re = to<double>(x[at]), im = parts == 2 ? to<double>(x[at + 1]) : 0.0;
      if (half && src != j) im = -im;
      if (half && (j == 0 || 2 * j == n)) im = 0;
      double angle = (inverse ? 6.283185307179586476925 : -6.283185307179586476925) * double(k * j % n) / double(n);
      double cs = m::cos(angle), sn = m::sin(angle);
      sum += part == 0 ? re * cs - im * sn : re * sn + im * cs;
    }
    y[e] = to<T>(inverse ? sum / double(n) : sum);
  });
}`

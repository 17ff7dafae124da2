package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "DeformConv",
	Doc:   "Convolution of planes whose taps are moved by learned offsets and weighted by a learned mask.",
	Since: []int{19, 22},
	In:    ir.Ports("X:T, W:T, offset:T, B:T?, mask:T?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := convShape(c, 0, 1)
		if r := c.Shape(0).Rank(); r >= 0 && r != 4 {
			return c.Errorf("input %s is not [N, C, H, W]", c.Shape(0))
		}
		c.SetTensor(0, c.DType(0), shape)
		return err
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() != 4 {
			return ir.AxisMap{}
		}
		links := ir.OutAxis{{In: 0, Axis: 0}, {In: 2, Axis: 0}}
		if len(n.In) > 4 && n.In[4] != nil {
			links = append(links, ir.AxisLink{In: 4, Axis: 0})
		}
		return ir.AxisMap{Out: [][]ir.OutAxis{{links, nil, nil, nil}}}
	},
	Cost:      convCost(0, 1),
	Grad:      ir.NoGrad("not derived yet: interpolation at computed positions"),
	Recompute: ir.Pure,
	Eval:      deformConvEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convOf(c.Node, c.InShape(0), c.InShape(1))
		args := append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.OutArg(0)}, g.args()...)
		return ir.Kernel{Func: "deform_conv", Source: deformConvCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append(args, ir.IntArg(c.Node.Int("offset_group", 1)))}, err
	}),
	Samples: func() []ir.Sample {
		x, w := ramp(2, 2, 4, 3), ramp(2, 2, 2, 2)
		return []ir.Sample{
			{Name: "plain", In: []*ir.Tensor{x, w, ramp(2, 8, 3, 2)}},
			{Name: "bias and mask, grouped", In: []*ir.Tensor{x, ramp(2, 1, 2, 2), ramp(2, 16, 2, 2), ramp(2), ramp(2, 8, 2, 2)}, Attrs: []ir.Attr{
				ir.IntAttr("group", 2), ir.IntAttr("offset_group", 2), ir.IntsAttr("strides", 2, 1), ir.IntsAttr("pads", 0, 0, 0, 0)}},
		}
	},
})

func deformConvEval(c *ir.EvalCtx) error {
	x, w, offset := c.In(0), c.In(1), c.In(2)
	g, err := convOf(c.Node, x.Dims, w.Dims)
	if err != nil {
		return err
	}
	if len(x.Dims) != 4 {
		return c.Errorf("input %v is not [N, C, H, W]", x.Dims)
	}
	og, taps := c.Node.Int("offset_group", 1), ir.Elems(g.kernel)
	n, oh, ow := g.y[0], g.y[2], g.y[3]
	if og <= 0 || g.x[1]%og != 0 || !equalInts(offset.Dims, []int64{n, og * taps * 2, oh, ow}) {
		return c.Errorf("offset %v does not fit %d groups of %d taps at %v", offset.Dims, og, taps, g.y)
	}
	if c.Has(4) && !equalInts(c.In(4).Dims, []int64{n, og * taps, oh, ow}) {
		return c.Errorf("mask %v does not fit", c.In(4).Dims)
	}
	in, weights, off := x.Floats(), w.Floats(), offset.Floats()
	var mask []float64
	if c.Has(4) {
		mask = c.In(4).Floats()
	}
	out := make([]float64, ir.Elems(g.y))
	perC, perM, plane := g.w[1], g.y[1]/g.group, g.x[2]*g.x[3]
	allIndices(g.y, func(i int, o []int64) {
		b, m, pos := o[0], o[1], o[2]*ow+o[3]
		for cc := range perC {
			ch := m/perM*perC + cc
			grp := ch / (g.x[1] / og)
			data := in[(b*g.x[1]+ch)*plane:][:plane]
			for tap := range taps {
				at := func(part int64) float64 { return off[((b*og+grp)*taps*2+tap*2+part)*oh*ow+pos] }
				h := float64(o[2]*g.stride[0]-g.padLo[0]+tap/g.kernel[1]*g.dilation[0]) + at(0)
				v := float64(o[3]*g.stride[1]-g.padLo[1]+tap%g.kernel[1]*g.dilation[1]) + at(1)
				value := bilinear(data, g.x[2], g.x[3], h, v)
				if mask != nil {
					value *= mask[((b*og+grp)*taps+tap)*oh*ow+pos]
				}
				out[i] += value * weights[(m*perC+cc)*taps+tap]
			}
		}
	})
	if c.Has(3) {
		addBias(out, c.In(3).Floats(), g.y)
	}
	c.Set(0, ir.FromFloats(x.DType, out, g.y...))
	return nil
}

// bilinear interpolates a plane at (y, x); outside lies zero.
func bilinear(data []float64, h, w int64, y, x float64) float64 {
	y0, x0 := math.Floor(y), math.Floor(x)
	sum := 0.0
	for _, dy := range []float64{0, 1} {
		for _, dx := range []float64{0, 1} {
			r, c := int64(y0+dy), int64(x0+dx)
			if r >= 0 && r < h && c >= 0 && c < w {
				sum += (1 - math.Abs(y-float64(r))) * (1 - math.Abs(x-float64(c))) * data[r*w+c]
			}
		}
	}
	return sum
}

const deformConvCUDA = `
template <class T>
void deform_conv(Stream& s, const T* x, const T* w, const T* offset, const T* bias, const T* mask, T* y, Dims xd, Dims wd, Dims yd,
                 int64_t group, Dims stride, Dims pad, Dims dil, int64_t offset_group) {
  int64_t taps = wd.d[2] * wd.d[3], plane = xd.d[2] * xd.d[3], space = yd.d[2] * yd.d[3];
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    int64_t m = o.d[1], pos = i % space;
    A sum = bias ? to<A>(bias[m]) : A(0);
    for (int64_t c = 0; c < wd.d[1]; c++) {
      int64_t ch = m / (yd.d[1] / group) * wd.d[1] + c, grp = ch / (xd.d[1] / offset_group);
      const T* data = x + (o.d[0] * xd.d[1] + ch) * plane;
      for (int64_t tap = 0; tap < taps; tap++) {
        const T* off = offset + ((o.d[0] * offset_group + grp) * taps + tap) * 2 * space + pos;
        A py = A(o.d[2] * stride.d[0] - pad.d[0] + tap / wd.d[3] * dil.d[0]) + to<A>(off[0]);
        A px = A(o.d[3] * stride.d[1] - pad.d[1] + tap % wd.d[3] * dil.d[1]) + to<A>(off[space]);
        A y0 = m::floor(py), x0 = m::floor(px), value = 0;
        for (int64_t k = 0; k < 4; k++) {
          int64_t r = int64_t(y0) + k / 2, q = int64_t(x0) + k % 2;
          if (r < 0 || r >= xd.d[2] || q < 0 || q >= xd.d[3]) continue;
          value += (A(1) - m::abs(py - A(r))) * (A(1) - m::abs(px - A(q))) * to<A>(data[r * xd.d[3] + q]);
        }
        if (mask) value *= to<A>(mask[((o.d[0] * offset_group + grp) * taps + tap) * space + pos]);
        sum += value * to<A>(w[(m * wd.d[1] + c) * taps + tap]);
      }
    }
    y[i] = to<T>(sum);
  });
}`

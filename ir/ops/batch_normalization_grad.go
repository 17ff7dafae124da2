package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "BatchNormalizationGrad",
	Doc:    "The gradients of input, scale and bias of a normalization by the statistics of the batch.",
	Since:  []int{1},
	In:     ir.Ports("dY:T, X:T, scale:S, mean:M, inv_std:M"), Out: ir.Ports("dX:T, dScale:S, dBias:S"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "S": ir.Floats, "M": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if c.Shape(1).Ranked && c.Shape(1).Rank() < 2 {
			return c.Errorf("input %s has no channels", c.Shape(1))
		}
		sameTypeAs(c, 0, 1)
		sameTypeAs(c, 1, 2)
		sameTypeAs(c, 2, 2)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
		links := ir.OutAxis{{In: 0, Axis: 1}, {In: 1, Axis: 1}, {In: 2, Axis: 0}, {In: 3, Axis: 0}, {In: 4, Axis: 0}}
		for o, v := range n.Out {
			switch {
			case v == nil:
			case o == 0 && v.Type.Shape.Rank() >= 2:
				m.Out[o] = make([]ir.OutAxis, v.Type.Shape.Rank())
				m.Out[o][1] = links
			case o > 0 && v.Type.Shape.Rank() == 1:
				m.Out[o] = []ir.OutAxis{links}
			}
		}
		return m
	},
	Cost:      batchNormCost,
	Grad:      ir.NoGrad("not derived yet: a second derivative"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(1)
		if len(x.Dims) < 2 || !sameSizes(x, c.In(0)) {
			return c.Errorf("gradient %v and input %v do not fit", c.In(0).Dims, x.Dims)
		}
		b := batchNorm{n: x.Dims[0], channels: x.Dims[1], inner: ir.Elems(x.Dims[2:])}
		for i := 2; i < 5; i++ {
			if c.In(i).Len() != b.channels {
				return c.Errorf("input %d has %d elements for %d channels", i, c.In(i).Len(), b.channels)
			}
		}
		dy, in, scale := c.In(0).Floats(), x.Floats(), c.In(2).Floats()
		mean, inv := c.In(3).Floats(), c.In(4).Floats()
		dx, ds, db := make([]float64, len(in)), make([]float64, b.channels), make([]float64, b.channels)
		for ch := range b.channels {
			xhat := func(i int64) float64 { return (in[i] - mean[ch]) * inv[ch] }
			b.each(ch, func(i int64) {
				ds[ch] += dy[i] * xhat(i)
				db[ch] += dy[i]
			})
			count := float64(b.n * b.inner)
			b.each(ch, func(i int64) {
				dx[i] = scale[ch] * inv[ch] * (dy[i] - db[ch]/count - xhat(i)*ds[ch]/count)
			})
		}
		c.Set(0, ir.FromFloats(x.DType, dx, x.Dims...))
		c.Set(1, ir.FromFloats(c.In(2).DType, ds, c.In(2).Dims...))
		c.Set(2, ir.FromFloats(c.In(2).DType, db, c.In(2).Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		x := c.InShape(1)
		return ir.Kernel{Func: "batch_norm_grad", Source: batchNormGradCUDA, Types: []ir.DType{c.InDType(0), c.InDType(2), c.InDType(3)},
			Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2),
				ir.IntArg(x[0]), ir.IntArg(x[1]), ir.IntArg(ir.Elems(x[2:]))}}, nil
	}),
	Samples: func() []ir.Sample {
		x := floats([]int64{2, 1, 2}, 1, 3, 1, 3) // mean 2, deviation 1
		one := floats([]int64{1}, 1)
		return []ir.Sample{
			// xhat = -1 1 -1 1; sum(dy) = 4, sum(dy xhat) = 8.
			{Name: "by hand", NumOut: 3, In: []*ir.Tensor{floats([]int64{2, 1, 2}, 0, 4, -2, 2), x, floats([]int64{1}, 2), floats([]int64{1}, 2), one},
				Want: []*ir.Tensor{floats([]int64{2, 1, 2}, 2, 2, -2, -2), floats([]int64{1}, 8), floats([]int64{1}, 4)}},
			{Name: "channels", NumOut: 3, In: []*ir.Tensor{ramp(2, 3, 2), ramp(2, 3, 2), floats([]int64{3}, 1, -2, 0.5), floats([]int64{3}, 0.5, 0, -0.5), floats([]int64{3}, 2, 1, 0.5)}},
		}
	},
})

const batchNormGradCUDA = `
template <class T, class S, class M>
void batch_norm_grad(Stream& s, const T* dy, const T* x, const S* scale, const M* mean, const M* inv, T* dx, S* ds, S* db, int64_t n,
                     int64_t channels, int64_t inner) {
  block_rows(s, channels, [=] MEMOC_DEVICE(RowCtx& c, int64_t ch) {
    using A = Acc<T>;
    A mu = to<A>(mean[ch]), r = to<A>(inv[ch]), by_scale = 0, by_bias = 0;
    int64_t count = n * inner;
    for (int64_t i = c.tid; i < count; i += c.size) {
      int64_t at = (i / inner * channels + ch) * inner + i % inner;
      by_scale += to<A>(dy[at]) * (to<A>(x[at]) - mu) * r;
      by_bias += to<A>(dy[at]);
    }
    by_scale = c.sum(by_scale);
    by_bias = c.sum(by_bias);
    if (dx) {
      for (int64_t i = c.tid; i < count; i += c.size) {
        int64_t at = (i / inner * channels + ch) * inner + i % inner;
        A xhat = (to<A>(x[at]) - mu) * r;
        dx[at] = to<T>(to<A>(scale[ch]) * r * (to<A>(dy[at]) - by_bias / A(count) - xhat * by_scale / A(count)));
      }
    }
    if (c.tid != 0) return;
    if (ds) ds[ch] = to<S>(by_scale);
    if (db) db[ch] = to<S>(by_bias);
  });
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "MatMulInteger",
	Doc:   "Matrix product of integers less their zero points (one, one for each row of A, or for each column of B), in int32.",
	Since: []int{10},
	In:    ir.Ports("A:T, B:W, a_zero_point:T?, b_zero_point:W?"), Out: ir.Ports("Y:Y"),
	Types: map[string]ir.DTypeSet{"T": byteTypes, "W": byteTypes, "Y": ir.SetOf(ir.Int32)},
	Infer: func(c *ir.InferCtx) error {
		shape, err := matmulShape(c, c.Shape(0), c.Shape(1))
		c.SetTensor(0, ir.Int32, shape)
		return err
	},
	Axes: ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		a := c.InShape(0)
		return matmulCost(c, a[len(a)-1])
	},
	Grad:      ir.NoGrad("integer operands"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		y, dims, err := integerMatMul(c, c.In(0), c.In(1), c.In(2), c.In(3))
		if err != nil {
			return err
		}
		c.Set(0, ir.FromInts(ir.Int32, y, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		m, err := integerMatMulArgs(c, 0, 1, 2, 3)
		return ir.Kernel{Func: "matmul_integer", Source: matmulIntegerCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.OutArg(0)}, m...)}, err
	}),
	Samples: func() []ir.Sample {
		a := ir.FromInts(ir.Uint8, []int64{11, 7, 3, 10, 6, 2, 9, 5, 1, 8, 4, 0}, 4, 3)
		b := ir.FromInts(ir.Uint8, []int64{1, 4, 2, 5, 3, 6}, 3, 2)
		return []ir.Sample{
			{Name: "zero points", In: []*ir.Tensor{a, b, ir.FromInts(ir.Uint8, []int64{12}, 1), ir.FromInts(ir.Uint8, []int64{0}, 1)},
				Want: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{-38, -83, -44, -98, -50, -113, -56, -128}, 4, 2)}},
			{Name: "rows and columns", In: []*ir.Tensor{a, b, ir.FromInts(ir.Uint8, []int64{1, 2, 3, 4}, 4), ir.FromInts(ir.Uint8, []int64{5, 6}, 2)}},
			{Name: "batch", In: []*ir.Tensor{a.Reshaped(2, 2, 3), b}},
		}
	},
})

// integerMatMul multiplies (a - az) by (b - bz).
func integerMatMul(c *ir.EvalCtx, a, b, az, bz *ir.Tensor) (y, dims []int64, err error) {
	zero := func(x, z *ir.Tensor, rows bool) (*ir.Tensor, bool) {
		if z == nil || z.Len() == 1 {
			return z, true
		}
		d := zeroPointDims(x.Dims, z.Dims, rows)
		return z, d != nil
	}
	az, okA := zero(a, az, true)
	bz, okB := zero(b, bz, false)
	if !okA || !okB {
		return nil, nil, c.Errorf("the zero points fit neither rows nor columns")
	}
	minus := func(x, z *ir.Tensor, rows bool) []int64 {
		out := append([]int64{}, x.Ints()...)
		if z == nil {
			return out
		}
		zs := z.Ints()
		if len(zs) == 1 {
			for i := range out {
				out[i] -= zs[0]
			}
			return out
		}
		broadcastIndex(x.Dims, zeroPointDims(x.Dims, z.Dims, rows), func(i, j int) { out[i] -= zs[j] })
		return out
	}
	y, dims, ok := matmul(denseView(minus(a, az, true), a.Dims), denseView(minus(b, bz, false), b.Dims))
	if !ok {
		return nil, nil, c.Errorf("shapes %v and %v do not fit", a.Dims, b.Dims)
	}
	return y, dims, nil
}

// zeroPointDims is the shape by which zero points broadcast to x: a list has
// one element for each row (or column); nil where they do not fit.
func zeroPointDims(x, z []int64, rows bool) []int64 {
	if len(z) == 1 && rows && len(x) > 1 {
		z = []int64{z[0], 1}
	}
	if out, ok := broadcastDims(x, z); ok && equalInts(out, x) {
		return z
	}
	return nil
}

// integerMatMulArgs are shapes and, for each operand, steps through its zero
// points along the broadcast batch, rows and columns.
func integerMatMulArgs(c *ir.NodeCtx, a, b, az, bz int) ([]ir.KernelArg, error) {
	ad, bd := c.InShape(a), c.InShape(b)
	steps := func(x, z int, rows bool) ([]int64, error) {
		dims := c.InShape(z)
		if !c.Has(z) || ir.Elems(dims) == 1 {
			return make([]int64, len(c.InShape(x))), nil
		}
		if dims = zeroPointDims(c.InShape(x), dims, rows); dims == nil {
			return nil, c.Errorf("zero points %v do not fit %v", c.InShape(z), c.InShape(x))
		}
		return broadcastStrides(c.InShape(x), dims), nil
	}
	as, err := steps(a, az, true)
	if err != nil {
		return nil, err
	}
	bs, err := steps(b, bz, false)
	return []ir.KernelArg{ir.DimsArg(ad...), ir.DimsArg(bd...), ir.DimsArg(c.OutShape(0)...), ir.DimsArg(as...), ir.DimsArg(bs...)}, err
}

const matmulIntegerCUDA = `
// matmul_product is the integer product of output element i; steps lead through the zero points.
template <class A, class B>
MEMOC_FN int64_t matmul_product(int64_t i, const A* a, const B* b, const A* az, const B* bz, const Dims& ad, const Dims& bd, const Dims& yd,
                                const Dims& azs, const Dims& bzs) {
  Dims o = coords(i, yd), as = strides_of(ad), bs = strides_of(bd);
  int64_t at = 0, az_at = 0, bt = 0, bz_at = 0, axis = yd.rank - 1;
  if (bd.rank > 1) {
    bt = o.d[axis] * bs.d[bd.rank - 1];
    bz_at = o.d[axis] * bzs.d[bd.rank - 1];
    axis--;
  }
  if (ad.rank > 1) {
    at = o.d[axis] * as.d[ad.rank - 2];
    az_at = o.d[axis] * azs.d[ad.rank - 2];
    axis--;
  }
  for (int64_t k = 0; axis - k >= 0; k++) {
    int64_t ia = ad.rank - 3 - k, ib = bd.rank - 3 - k, p = o.d[axis - k];
    if (ia >= 0 && ad.d[ia] > 1) {
      at += p * as.d[ia];
      az_at += p * azs.d[ia];
    }
    if (ib >= 0 && bd.d[ib] > 1) {
      bt += p * bs.d[ib];
      bz_at += p * bzs.d[ib];
    }
  }
  int64_t row = bd.rank > 1 ? bd.rank - 2 : 0, sum = 0;
  for (int64_t k = 0; k < ad.d[ad.rank - 1]; k++) {
    int64_t x = int64_t(a[at + k]) - (az ? int64_t(az[az_at + k * azs.d[ad.rank - 1]]) : 0);
    int64_t w = int64_t(b[bt + k * bs.d[row]]) - (bz ? int64_t(bz[bz_at + k * bzs.d[row]]) : 0);
    sum += x * w;
  }
  return sum;
}

template <class A, class B>
void matmul_integer(Stream& s, const A* a, const B* b, const A* az, const B* bz, int32_t* y, Dims ad, Dims bd, Dims yd, Dims azs, Dims bzs) {
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) { y[i] = int32_t(matmul_product(i, a, b, az, bz, ad, bd, yd, azs, bzs)); });
}

template <class A, class B, class Y, class S>
void qlinear_matmul(Stream& s, const A* a, const S* a_scale, const A* az, const B* b, const S* b_scale, const B* bz, const S* y_scale,
                    const Y* yz, Y* y, Dims ad, Dims bd, Dims yd, Dims azs, Dims bzs) {
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    double scale = to<double>(*a_scale) * to<double>(*b_scale) / to<double>(*y_scale);
    double q = m::round_even(double(matmul_product(i, a, b, az, bz, ad, bd, yd, azs, bzs)) * scale) + double(*yz);
    y[i] = to<Y>(m::max(m::min(q, double(Limits<Y>::hi())), double(Limits<Y>::lo())));
  });
}`

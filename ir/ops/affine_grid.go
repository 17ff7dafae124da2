package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "AffineGrid",
	Doc:   "The grid of normalized positions that an affine map theta [N, axes, axes+1] makes of an output of the given size.",
	Since: []int{20},
	In:    ir.Ports("theta:T, size:I"), Out: ir.Ports("grid:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		if s := c.Shape(0); s.Ranked && s.Rank() != 3 {
			return c.Errorf("theta %s has not the rank 3", s)
		}
		size, ok := c.Ints(1)
		if !ok {
			shape := ir.Shape{}
			if n, ok := c.Shape(1).Static(); ok && len(n) == 1 && (n[0] == 4 || n[0] == 5) {
				shape = c.FreshShape(int(n[0]))
				shape.Dims[n[0]-1] = ir.N(n[0] - 2)
			}
			c.SetTensor(0, c.DType(0), shape)
			return nil
		}
		if len(size) != 4 && len(size) != 5 {
			return c.Errorf("size %v is neither [N, C, H, W] nor [N, C, D, H, W]", size)
		}
		dims := append([]ir.Dim{size[0]}, size[2:]...)
		c.SetTensor(0, c.DType(0), ir.Dims(append(dims, ir.N(int64(len(size)-2)))...))
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(8),
	Grad:      ir.NoGrad("not derived yet: the affine map of a grid"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		theta, size := c.In(0), c.In(1).Ints()
		axes := len(size) - 2
		if axes != 2 && axes != 3 || !equalInts(theta.Dims, []int64{size[0], int64(axes), int64(axes + 1)}) {
			return c.Errorf("theta %v and size %v do not fit", theta.Dims, size)
		}
		t, space := theta.Floats(), size[2:]
		corners := c.Node.Int("align_corners", 0) != 0
		var out []float64
		for n := range int(size[0]) {
			allIndices(space, func(_ int, at []int64) {
				for row := range axes {
					r := t[(n*axes+row)*(axes+1):]
					v := r[axes]
					for a := range axes { // theta counts axes from the last
						v += r[a] * gridPosition(at[axes-1-a], space[axes-1-a], corners)
					}
					out = append(out, v)
				}
			})
		}
		dims := append(append([]int64{size[0]}, space...), int64(axes))
		c.Set(0, ir.FromFloats(theta.DType, out, dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "affine_grid", Source: affineGridCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.DimsArg(c.OutShape(0)...), ir.BoolArg(c.Node.Int("align_corners", 0) != 0)}}, nil
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "2d", In: []*ir.Tensor{ramp(2, 2, 3), ir.FromInts(ir.Int64, []int64{2, 3, 2, 4}, 4)}},
			{Name: "3d corners", In: []*ir.Tensor{ramp(1, 3, 4), ir.FromInts(ir.Int64, []int64{1, 1, 2, 3, 2}, 5)}, Attrs: []ir.Attr{ir.IntAttr("align_corners", 1)}},
		}
	},
})

// gridPosition is the normalized position of element i of n.
func gridPosition(i, n int64, corners bool) float64 {
	if corners {
		if n == 1 {
			return -1
		}
		return 2*float64(i)/float64(n-1) - 1
	}
	return (2*float64(i)+1)/float64(n) - 1
}

const affineGridCUDA = `
template <class T>
void affine_grid(Stream& s, const T* theta, T* y, Dims yd, bool corners) {
  int64_t axes = yd.rank - 2;
  parallel_for(s, yd.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims o = coords(i, yd);
    const T* r = theta + (o.d[0] * axes + o.d[yd.rank - 1]) * (axes + 1);
    A v = to<A>(r[axes]);
    for (int64_t a = 0; a < axes; a++) {
      A at = A(o.d[axes - a]), n = A(yd.d[axes - a]);
      A p = corners ? (n == A(1) ? A(-1) : A(2) * at / (n - A(1)) - A(1)) : (A(2) * at + A(1)) / n - A(1);
      v += to<A>(r[a]) * p;
    }
    y[i] = to<T>(v);
  });
}`

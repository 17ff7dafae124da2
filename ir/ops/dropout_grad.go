package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "DropoutGrad",
	Doc:   "dy * mask / (1 - ratio), or dy outside of training.",
	Since: []int{1},
	In:    ir.Ports("dy:T, mask:tensor(bool), ratio:R?, training_mode:tensor(bool)?"), Out: ir.Ports("dx:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "R": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, c.DType(0), c.Shape(0))
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(2),
	Grad:      ir.NoGrad("not derived yet: second derivatives"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dy, mask := c.In(0), c.In(1).Ints()
		ratio := 0.5
		if c.Has(2) {
			ratio = c.In(2).Floats()[0]
		}
		scale := 1 / (1 - ratio)
		if c.Has(3) && c.In(3).Ints()[0] == 0 {
			scale = 1
		}
		if len(mask) != int(dy.Len()) {
			return c.Errorf("the mask of shape %v does not fit dy of shape %v", c.In(1).Dims, dy.Dims)
		}
		dx := make([]float64, len(mask))
		for i, g := range dy.Floats() {
			if mask[i] != 0 {
				dx[i] = g * scale
			}
		}
		c.Set(0, ir.FromFloats(dy.DType, dx, dy.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		r := c.InDType(2)
		if r == ir.Undefined {
			r = ir.Float
		}
		return ir.Kernel{Func: "dropout_grad", Source: dropoutGradCUDA, Types: []ir.DType{c.InDType(0), r}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0)))}}, nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		dy, mask := wave(1, 2, 3), ir.FromInts(ir.Bool, []int64{1, 0, 1, 1, 0, 1}, 2, 3)
		return []ir.Sample{
			{Name: "default", In: []*ir.Tensor{dy, mask}},
			{Name: "training", In: []*ir.Tensor{dy, mask, floats(nil, 0.25), ir.FromInts(ir.Bool, []int64{1})}},
			{Name: "inference", In: []*ir.Tensor{dy, ir.FromInts(ir.Bool, []int64{1, 1, 1, 1, 1, 1}, 2, 3), floats(nil, 0.25), ir.FromInts(ir.Bool, []int64{0})}},
		}
	},
})

const dropoutGradCUDA = `
template <class T, class R>
void dropout_grad(Stream& s, const T* dy, const bool* mask, const R* ratio, const bool* training, T* dx, int64_t count) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    double keep = 1.0 - (ratio == nullptr ? 0.5 : to<double>(ratio[0]));
    double scale = training != nullptr && !training[0] ? 1.0 : 1.0 / keep;
    dx[i] = to<T>(mask[i] ? Acc<T>(double(to<Acc<T>>(dy[i])) * scale) : Acc<T>(0));
  });
}`

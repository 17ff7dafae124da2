package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "InPlaceAccumulator",
	Doc:    "Adds a value to an accumulator unless the update signal is false.",
	Since:  []int{1},
	In:     ir.Ports("old_sum:T, value:G, update_signal:B?"), Out: ir.Ports("new_sum:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "G": ir.Floats, "B": ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		sameTypeAs(c, 0, 0)
		return nil
	},
	Axes:      ir.FollowAll,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("not derived: it accumulates gradients, none are meant to flow through it"),
	Recompute: ir.Never("it adds to a buffer in place, which must happen once in a step"),
	Eval: func(c *ir.EvalCtx) error {
		t, err := accumulate(c, !flagOf(c.In(2), true), false)
		c.Set(0, t)
		return err
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return accumulateKernel(c, 0, -1, false), nil
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		old, value := floats([]int64{3}, 1, 2, 3), floats([]int64{3}, 0.5, -1, 4)
		no := ir.FromInts(ir.Bool, []int64{0}, 1)
		return []ir.Sample{
			{Name: "add", In: []*ir.Tensor{old, value}, Want: []*ir.Tensor{floats([]int64{3}, 1.5, 1, 7)}},
			{Name: "keep", In: []*ir.Tensor{old, value, no}, Want: []*ir.Tensor{old}},
		}
	},
})

// accumulate is buffer + value; keep leaves the buffer as it is and overwrite
// takes the value alone.
func accumulate(c *ir.EvalCtx, keep, overwrite bool) (*ir.Tensor, error) {
	buf, val := c.In(0), c.In(1)
	if !sameSizes(buf, val) {
		return nil, c.Errorf("the accumulator and its value differ in size")
	}
	return updates([]*ir.Tensor{buf}, []*ir.Tensor{buf, val}, func(x, y []float64) {
		switch {
		case keep:
			y[0] = x[0]
		case overwrite:
			y[0] = x[1]
		default:
			y[0] = x[0] + x[1]
		}
	})[0], nil
}

// accumulateKernel writes the sum to output sum and true to output done
// (-1: neither asked for); the third input overwrites if true where
// overwrite is set, and else updates if true.
func accumulateKernel(c *ir.NodeCtx, sum, done int, overwrite bool) ir.Kernel {
	arg := func(o int) ir.KernelArg {
		if o < 0 {
			o = len(c.Node.Out) // no such output: a null pointer
		}
		return ir.OutArg(o)
	}
	return ir.Kernel{Func: "accumulate", Source: accumulateCUDA,
		Types: []ir.DType{c.InDType(0), c.InDType(1)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), arg(sum), arg(done),
			ir.IntArg(ir.Elems(c.InShape(0))), ir.BoolArg(overwrite)}}
}

const accumulateCUDA = `
template <class T, class G>
void accumulate(Stream& s, const T* buf, const G* val, const bool* signal, T* sum, bool* done, int64_t n, bool overwrite) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    bool on = signal ? *signal : !overwrite;
    if (overwrite) sum[i] = on ? to<T>(val[i]) : to<T>(to<A>(buf[i]) + to<A>(val[i]));
    else sum[i] = on ? to<T>(to<A>(buf[i]) + to<A>(val[i])) : buf[i];
    if (done && i == 0) *done = true;
  });
}`

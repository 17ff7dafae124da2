package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "ConcatTraining",
	Doc:    "Concat that also gives the extents of the parts, for the backward pass.",
	Since:  []int{1},
	In:     ir.Ports("inputs:T*"), Out: ir.Ports("concat_result:T, per_input_length:tensor(int64)?"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		if c.Node.Attr("axis") == nil {
			return c.Errorf("the attribute axis is missing")
		}
		if err := concatInfer(c); err != nil {
			return err
		}
		c.SetTensor(1, ir.Int64, ir.Ints64(int64(len(c.Node.In))))
		var lengths []ir.Dim
		for i := range c.Node.In {
			axis, ok := ir.NormAxis(c.Node.Int("axis", 0), c.Shape(i).Rank())
			if !ok {
				return nil
			}
			lengths = append(lengths, c.Shape(i).Dims[axis])
		}
		c.SetInts(1, lengths)
		return nil
	},
	Axes:      concatAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.GradOf(concatGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		xs := inputTensors(c)
		y, msg := concatTensors(xs, c.Node.Int("axis", 0))
		if msg != "" {
			return c.Errorf("%s", msg)
		}
		axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(y.Dims))
		lengths := make([]int64, len(xs))
		for i, x := range xs {
			lengths[i] = x.Dims[axis]
		}
		c.Set(0, y)
		c.Set(1, ir.FromInts(ir.Int64, lengths, int64(len(xs))))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		k, err := concatKernel(c)
		if err != nil {
			return k, err
		}
		// The extents are written part by part, behind the data.
		k.Func, k.Source = "concat_training", concatTrainingCUDA
		dims := c.OutShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
		k.Args = append([]ir.KernelArg{ir.OutArg(1), ir.IntArg(ir.Elems(dims[axis+1:]))}, k.Args...)
		return k, nil
	}),
	Samples: func() []ir.Sample { return concatSamples(2) },
})

const concatTrainingCUDA = `
template <class T>
void concat_training_part(Stream& s, T* y, int64_t outer, int64_t total, int64_t at, const T* x, int64_t n) {
  parallel_for(s, outer * n, [=] MEMOC_DEVICE(int64_t i) { y[i / n * total + at + i % n] = x[i]; });
}

inline void concat_training_length(Stream& s, int64_t* length, int64_t n) {
  parallel_for(s, length ? 1 : 0, [=] MEMOC_DEVICE(int64_t) { *length = n; });
}

template <class T>
void concat_training(Stream&, int64_t*, int64_t, T*, int64_t, int64_t, int64_t) {}

// Rows of n elements go to offset at in rows of total elements; inner turns elements into positions of the axis.
template <class T, class... Rest>
void concat_training(Stream& s, int64_t* length, int64_t inner, T* y, int64_t outer, int64_t total, int64_t at, const T* x,
                     int64_t n, Rest... rest) {
  concat_training_part(s, y, outer, total, at, x, n);
  concat_training_length(s, length, inner > 0 ? n / inner : 0);
  concat_training<T>(s, length ? length + 1 : length, inner, y, outer, total, at + n, rest...);
}`

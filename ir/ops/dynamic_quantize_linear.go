package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "DynamicQuantizeLinear",
	Doc:   "Quantizes to uint8 by the range of the data, and gives scale and zero point.",
	Since: []int{11},
	In:    ir.Ports("x:T"), Out: ir.Ports("y:Q, y_scale:T, y_zero_point:Q"),
	Types: map[string]ir.DTypeSet{"T": ir.SetOf(ir.Float), "Q": ir.SetOf(ir.Uint8)},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, ir.Uint8, c.Shape(0))
		c.SetTensor(1, ir.Float, ir.Ints64())
		c.SetTensor(2, ir.Uint8, ir.Ints64())
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(4),
	Grad:      ir.NoGrad("the result is rounded: its derivative is zero almost everywhere"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0).Floats()
		lo, hi := 0.0, 0.0
		for _, v := range x {
			lo, hi = min(lo, v), max(hi, v)
		}
		// The arithmetic is that of float32, as the definition has it.
		f := func(v float64) float64 { return float64(float32(v)) }
		scale := f(f(hi-lo) / 255)
		if hi == lo {
			scale = f(1.0 / 255)
		}
		zero := math.RoundToEven(max(0, min(255, f(-lo/scale))))
		q := make([]int64, len(x))
		for i, v := range x {
			q[i] = saturateTo(ir.Uint8, math.RoundToEven(f(v/scale))+zero)
		}
		c.Set(0, ir.FromInts(ir.Uint8, q, c.In(0).Dims...))
		c.Set(1, ir.FromFloats(ir.Float, []float64{scale}))
		c.Set(2, ir.FromInts(ir.Uint8, []int64{int64(zero)}))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "dynamic_quantize", Source: dynamicQuantizeCUDA, Args: []ir.KernelArg{
			ir.InArg(0), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.IntArg(ir.Elems(c.InShape(0)))}}, nil
	}),
	Samples: func() []ir.Sample {
		f := func(vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, vals, int64(len(vals))) }
		return []ir.Sample{
			{Name: "both signs", In: []*ir.Tensor{f(0, 2, -3, -2.5, 1.34, 0.5)}},
			{Name: "positive", In: []*ir.Tensor{f(1, 2.1, 1.3, 2.5)}},
			{Name: "zero", In: []*ir.Tensor{f(0, 0)}},
		}
	},
})

const dynamicQuantizeCUDA = `
inline void dynamic_quantize(Stream& s, const float* x, uint8_t* y, float* scale, uint8_t* zero, int64_t n) {
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    float lo = 0, hi = 0;
    for (int64_t i = c.tid; i < n; i += c.size) {
      lo = m::min(lo, x[i]);
      hi = m::max(hi, x[i]);
    }
    lo = c.min(lo);
    hi = c.max(hi);
    float step = hi == lo ? 1.0f / 255.0f : (hi - lo) / 255.0f;
    float z = m::round_even(m::max(0.0f, m::min(255.0f, -lo / step)));
    for (int64_t i = c.tid; i < n; i += c.size)
      if (y) y[i] = to<uint8_t>(m::max(0.0f, m::min(255.0f, m::round_even(x[i] / step) + z)));
    if (c.tid != 0) return;
    if (scale) *scale = step;
    if (zero) *zero = to<uint8_t>(z);
  });
}`

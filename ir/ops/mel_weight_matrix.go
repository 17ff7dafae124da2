package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "MelWeightMatrix",
	Doc:   "The matrix [spectrogram bins, mel bins] that turns a spectrogram into mel bins.",
	Since: []int{17},
	In:    ir.Ports("num_mel_bins:I, dft_length:I, sample_rate:I, lower_edge_hertz:F, upper_edge_hertz:F"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"I": ir.Indices, "F": ir.Floats, "T": ir.Numeric},
	Infer: func(c *ir.InferCtx) error {
		d := ir.DType(c.Node.Int("output_datatype", int64(ir.Float)))
		if !ir.Numeric.Has(d) {
			return c.Errorf("output_datatype %s is no numeric type", d)
		}
		shape := c.FreshShape(2)
		if n, ok := c.StaticInts(1); ok && len(n) == 1 && n[0] >= 0 {
			shape.Dims[0] = ir.N(n[0]/2 + 1)
		}
		if n, ok := c.StaticInts(0); ok && len(n) == 1 && n[0] >= 0 {
			shape.Dims[1] = ir.N(n[0])
		}
		c.SetTensor(0, d, shape)
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(1),
	Grad:      ir.NoGrad("its inputs are settings, not data"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		var v [5]float64
		for i := range v {
			x, ok := scalarOf(c.In(i))
			if !ok {
				return c.Errorf("input %d has not one element", i)
			}
			v[i] = x
		}
		mels, dft := int64(v[0]), int64(v[1])
		if mels < 0 || dft < 0 || v[2] <= 0 || mels > 1<<16 || dft > 1<<24 {
			return c.Errorf("%d mel bins of a transform of %d at %g Hz make no matrix", mels, dft, v[2])
		}
		out, ok := melWeights(mels, dft, v[2], v[3], v[4])
		if !ok {
			return c.Errorf("the edges %g and %g Hz lie outside of the spectrogram", v[3], v[4])
		}
		y := ir.NewTensor(ir.DType(c.Node.Int("output_datatype", int64(ir.Float))), dft/2+1, mels)
		ir.SetFloats(y, out)
		c.Set(0, y)
		return nil
	},
	Kernel: ir.NoKernel("its inputs are settings: the matrix is a constant of the model"),
	Samples: func() []ir.Sample {
		i := func(v int64) *ir.Tensor { return ir.FromInts(ir.Int32, []int64{v}) }
		f := func(v float64) *ir.Tensor { return ir.FromFloats(ir.Float, []float64{v}) }
		return []ir.Sample{{Name: "small", In: []*ir.Tensor{i(4), i(16), i(8192), f(0), f(4096)}}}
	},
})

// melWeights makes triangles between bins that are equidistant in mel
// (2595 log10(1 + f/700)), as ONNX defines them.
func melWeights(mels, dft int64, rate, lower, upper float64) (out []float64, ok bool) {
	mel := func(f float64) float64 { return 2595 * math.Log10(1+f/700) }
	bins := make([]int64, mels+2)
	step := (mel(upper) - mel(lower)) / float64(mels+2)
	for i := range bins {
		f := 700 * (math.Pow(10, (float64(i)*step+mel(lower))/2595) - 1)
		bins[i] = int64(math.Floor(float64(dft+1) * f / rate))
		if bins[i] < 0 || bins[i] > dft/2 {
			return nil, false
		}
	}
	out = make([]float64, (dft/2+1)*mels)
	for i := range mels {
		lo, mid, hi := bins[i], bins[i+1], bins[i+2]
		if mid == lo {
			out[mid*mels+i] = 1
		}
		for j := lo; j <= mid && mid > lo; j++ {
			out[j*mels+i] = float64(j-lo) / float64(mid-lo)
		}
		for j := mid; j < hi; j++ {
			out[j*mels+i] = float64(hi-j) / float64(hi-mid)
		}
	}
	return out, true
}

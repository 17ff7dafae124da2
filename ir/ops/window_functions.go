package ops

import (
	"math"

	"memoc/ir"
)

// windowFunction declares a window of `size` samples that is
// a0 - a1 cos(2 pi i/N) + a2 cos(4 pi i/N), with N = size for periodic
// windows and size - 1 for symmetric ones.
func windowFunction(name, doc string, a0, a1, a2 float64) ir.Op {
	divisor := func(n *ir.Node, size int64) float64 {
		if n.Int("periodic", 1) == 0 {
			return float64(size - 1)
		}
		return float64(size)
	}
	return ir.Op{
		Name:  name,
		Doc:   doc,
		Since: []int{17},
		In:    ir.Ports("size:I"), Out: ir.Ports("output:T"),
		Types: map[string]ir.DTypeSet{"I": ir.Indices, "T": ir.Numeric},
		Infer: func(c *ir.InferCtx) error {
			d := ir.DType(c.Node.Int("output_datatype", int64(ir.Float)))
			if !ir.Numeric.Has(d) {
				return c.Errorf("output_datatype %s is no numeric type", d)
			}
			n := c.FreshDim
			if ds, ok := c.Ints(0); ok && len(ds) == 1 {
				if v, isInt := ds[0].Int(); isInt && v < 0 {
					return c.Errorf("the size %d is negative", v)
				}
				n = func() ir.Dim { return ds[0] }
			}
			c.SetTensor(0, d, ir.Dims(n()))
			return nil
		},
		Axes:      ir.NoAxes,
		Cost:      ir.PointwiseCost(8),
		Grad:      ir.NoGrad("an integer input"),
		Recompute: ir.Pure,
		Eval: func(c *ir.EvalCtx) error {
			size := c.In(0).Ints()[0]
			if size < 0 {
				return c.Errorf("the size %d is negative", size)
			}
			n, out := divisor(c.Node, size), make([]float64, size)
			for i := range out {
				t := 2 * math.Pi * float64(i) / n
				out[i] = a0 - a1*math.Cos(t) + a2*math.Cos(2*t)
			}
			y := ir.NewTensor(ir.DType(c.Node.Int("output_datatype", int64(ir.Float))), size)
			ir.SetFloats(y, out)
			c.Set(0, y)
			return nil
		},
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			size := c.OutShape(0)[0]
			return ir.Kernel{Func: "window_function", Source: windowFunctionCUDA, Types: []ir.DType{c.OutDType(0)}, Args: []ir.KernelArg{
				ir.OutArg(0), ir.IntArg(size), ir.FloatArg(divisor(c.Node, size)), ir.FloatArg(a0), ir.FloatArg(a1), ir.FloatArg(a2)}}, nil
		}),
		Samples: func() []ir.Sample {
			size := []*ir.Tensor{ir.FromInts(ir.Int32, []int64{5})}
			return []ir.Sample{
				{Name: "periodic", In: size},
				{Name: "symmetric", In: size, Attrs: []ir.Attr{ir.IntAttr("periodic", 0), ir.IntAttr("output_datatype", int64(ir.Double))}},
			}
		},
	}
}

var (
	_ = ir.Register(windowFunction("HannWindow", "The Hann window, sin^2.", 0.5, 0.5, 0))
	_ = ir.Register(windowFunction("HammingWindow", "The Hamming window.", 25.0/46, 21.0/46, 0))
	_ = ir.Register(windowFunction("BlackmanWindow", "The Blackman window.", 0.42, 0.5, 0.08))
)

const windowFunctionCUDA = `
template <class T>
void window_function(Stream& s, T* y, int64_t size, double n, double a0, double a1, double a2) {
  parallel_for(s, size, [=] MEMOC_DEVICE(int64_t i) {
    double t = 6.283185307179586476925 * double(i) / n;
    y[i] = to<T>(a0 - a1 * m::cos(t) + a2 * m::cos(2.0 * t));
  });
}`

package ops

import (
	"math"

	"memoc/ir"
)

// The random operators draw element i from the counter-based stream of the
// node and step. Their attribute `seed` is not used: the run's seed and the
// node's name key the stream, so that a run is repeated as a whole.
const drawsAnew = "draws random numbers: a clone would have to draw the same ones"

// generator is a random operator whose elements are independent of its input.
type generator struct {
	name ir.OpName
	doc  string
	like bool // shape (and type, unless dtype is given) of the input

	draw   func(n *ir.Node, r ir.RandomStream, i uint64) float64
	kernel string
	params func(n *ir.Node) (a, b float64)
}

var _ = registerGenerators(
	generator{"RandomUniform", "Uniform random numbers in [low, high) of a given shape.", false, drawUniform, "random_uniform", uniformParams},
	generator{"RandomUniformLike", "Uniform random numbers in [low, high) of the input's shape.", true, drawUniform, "random_uniform", uniformParams},
	generator{"RandomNormal", "Normal random numbers of a given shape.", false, drawNormal, "random_normal", normalParams},
	generator{"RandomNormalLike", "Normal random numbers of the input's shape.", true, drawNormal, "random_normal", normalParams},
)

func registerGenerators(gs ...generator) bool {
	for _, g := range gs {
		in := ""
		if g.like {
			in = "input:T1"
		}
		ir.Register(ir.Op{
			Name: g.name, Doc: g.doc, Since: []int{1, 22},
			In: ir.Ports(in), Out: ir.Ports("output:T2"),
			Types:     map[string]ir.DTypeSet{"T1": ir.AnyDType, "T2": ir.Floats},
			Infer:     g.infer,
			Axes:      ir.NoAxes, // a slice would draw the numbers of other elements
			Cost:      randomCost(20),
			Grad:      zeroGrad, // the numbers do not depend on the input's elements
			Recompute: ir.Never(drawsAnew),
			Eval:      g.eval,
			Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
				a, b := g.params(c.Node)
				return ir.Kernel{Func: g.kernel, Source: randomCUDA, Types: []ir.DType{c.OutDType(0)}, Args: []ir.KernelArg{
					ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0))), ir.FloatArg(a), ir.FloatArg(b), ir.RandomArg()}}, nil
			}),
			Samples: g.samples,
		})
	}
	return true
}

func uniformParams(n *ir.Node) (low, width float64) {
	low = attrF(n, "low", 0)
	return low, attrF(n, "high", 1) - low
}

func normalParams(n *ir.Node) (mean, scale float64) { return attrF(n, "mean", 0), attrF(n, "scale", 1) }

func drawUniform(n *ir.Node, r ir.RandomStream, i uint64) float64 {
	low, width := uniformParams(n)
	return low + width*float64(r.Uniform(i))
}

// drawNormal is Box and Muller's transformation of two uniform numbers, of
// which the first is in (0, 1].
func drawNormal(n *ir.Node, r ir.RandomStream, i uint64) float64 {
	mean, scale := normalParams(n)
	w := r.Words(i)
	u := float64(w[0]>>8+1) / (1 << 24)
	v := float64(w[1]>>8) / (1 << 24)
	return mean + scale*math.Sqrt(-2*math.Log(u))*math.Cos(2*math.Pi*v)
}

const randomCUDA = `
template <class T>
void random_uniform(Stream& s, T* y, int64_t n, double low, double width, Random r) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    y[i] = to<T>(A(low) + A(width) * A(r.uniform(i)));
  });
}

// random_normal is Box-Muller in the type's own precision.
template <class T>
void random_normal(Stream& s, T* y, int64_t n, double mean, double scale, Random r) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Philox p = r.words(i);
    A u = A((p.w[0] >> 8) + 1) * A(1.0 / 16777216.0), v = A(p.w[1] >> 8) * A(1.0 / 16777216.0);
    y[i] = to<T>(A(mean) + A(scale) * m::sqrt(A(-2) * m::log(u)) * m::cos(A(6.283185307179586) * v));
  });
}`

// randomDType is the attribute dtype; def where it is absent.
func randomDType(n *ir.Node, def ir.DType) (ir.DType, error) {
	a := n.Attr("dtype")
	if a == nil {
		return def, nil
	}
	if a.Kind != ir.AttrInt || a.I < 0 || a.I > 255 || !ir.DType(a.I).Valid() {
		return 0, n.Errorf("attribute", "attribute dtype is no element type of ONNX")
	}
	return ir.DType(a.I), nil
}

func (g generator) infer(c *ir.InferCtx) error {
	if g.like {
		d, err := randomDType(c.Node, c.DType(0))
		if err != nil {
			return err
		}
		if d != ir.Undefined && !d.IsFloat() {
			return c.Errorf("the input is of type %s; an attribute dtype must name a floating-point type", d)
		}
		c.SetTensor(0, d, c.Shape(0))
		return nil
	}
	d, err := randomDType(c.Node, ir.Float)
	if err != nil {
		return err
	}
	dims, ok := c.Node.IntList("shape")
	if !ok || !d.IsFloat() {
		return c.Errorf("needs the attribute shape, and a floating-point dtype")
	}
	for _, n := range dims {
		if n < 0 {
			return c.Errorf("attribute shape is %v", dims)
		}
	}
	c.SetTensor(0, d, ir.Ints64(dims...))
	return nil
}

func (g generator) eval(c *ir.EvalCtx) error {
	d, dims := ir.Float, []int64(nil)
	if g.like {
		d, dims = c.In(0).DType, c.In(0).Dims
	} else {
		dims, _ = c.Node.IntList("shape")
	}
	d, err := randomDType(c.Node, d)
	if err != nil {
		return err
	}
	out := make([]float64, ir.Elems(dims))
	for i := range out {
		out[i] = g.draw(c.Node, c.Random, uint64(i))
	}
	c.Set(0, ir.FromFloats(d, out, dims...))
	return nil
}

// randomCost: the output alone is written; the input is not read.
func randomCost(flops int64) func(c *ir.CostCtx) ir.Cost {
	return func(c *ir.CostCtx) ir.Cost {
		_, write := c.Traffic()
		return ir.Cost{FLOPs: flops * ir.Elems(c.OutShape(0)), Write: write, DType: c.OutDType(0)}
	}
}

func (g generator) samples() []ir.Sample {
	params := []ir.Attr{ir.FloatAttr("low", -2), ir.FloatAttr("high", 3), ir.FloatAttr("mean", 5), ir.FloatAttr("scale", 2)}
	if g.like {
		x := floats([]int64{2, 50})
		return []ir.Sample{
			{Name: "same type", In: []*ir.Tensor{x}},
			{Name: "float", In: []*ir.Tensor{x}, Attrs: append(params, ir.IntAttr("dtype", int64(ir.Float)))},
			{Name: "of integers", In: []*ir.Tensor{ir.NewTensor(ir.Int64, 3)}, Attrs: []ir.Attr{ir.IntAttr("dtype", int64(ir.Double))}},
		}
	}
	return []ir.Sample{
		{Name: "float", Attrs: []ir.Attr{ir.IntsAttr("shape", 2, 50)}},
		{Name: "double", Attrs: append(params, ir.IntsAttr("shape", 7), ir.IntAttr("dtype", int64(ir.Double)))},
		{Name: "half", Attrs: append(params, ir.IntsAttr("shape", 7), ir.IntAttr("dtype", int64(ir.Float16)))},
		{Name: "empty", Attrs: []ir.Attr{ir.IntsAttr("shape", 0, 3)}},
	}
}

package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Range",
	Doc:   "start, start+delta, … up to but not including limit.",
	Since: []int{11, 27},
	In:    ir.Ports("start:T, limit:T, delta:T"), Out: ir.Ports("output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer: rangeInfer,
	Axes:  ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		cost := shapeCost(c)
		cost.FLOPs = 2 * ir.Elems(c.OutShape(0))
		return cost
	},
	Grad:      ir.NoGrad("not derived yet: a sequence of numbers is not a differentiable function of its length"),
	Recompute: ir.Pure,
	Eval:      rangeEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return ir.Kernel{Func: "range", Source: rangeCUDA, Types: []ir.DType{c.OutDType(0)},
			Args: []ir.KernelArg{ir.InArg(0), ir.InArg(2), ir.OutArg(0), ir.IntArg(ir.Elems(c.OutShape(0)))}}, nil
	}),
	Samples: func() []ir.Sample {
		ints := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}) }
		return []ir.Sample{
			{Name: "ints", In: []*ir.Tensor{ints(3), ints(9), ints(2)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3, 5, 7}, 3)}},
			{Name: "down", In: []*ir.Tensor{ints(3), ints(-2), ints(-2)}, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3, 1, -1}, 3)}},
			{Name: "empty", In: []*ir.Tensor{ints(3), ints(3), ints(1)}},
			{Name: "floats", In: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1}), ir.FromFloats(ir.Float, []float64{2}), ir.FromFloats(ir.Float, []float64{0.3})}},
		}
	},
})

const rangeCUDA = `
template <class T>
void range(Stream& s, const T* start, const T* delta, T* y, int64_t n) {
  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) { y[i] = to<T>(to<Acc<T>>(*start) + Acc<T>(i) * to<Acc<T>>(*delta)); });
}`

func rangeInfer(c *ir.InferCtx) error {
	for i := range 3 {
		if n, ok := c.Shape(i).Static(); ok && ir.Elems(n) != 1 {
			return c.Errorf("input %d must be one number", i)
		}
	}
	d := c.DType(0)
	shape := c.FreshShape(1)
	if n, ok := rangeLength(c); ok {
		shape = ir.Dims(n)
	}
	c.SetTensor(0, d, shape)
	dims, static := shape.Static()
	if !static || dims[0] > 1024 || !d.IsInt() {
		return nil
	}
	start, ok1 := c.Ints(0)
	delta, ok2 := c.Ints(2)
	if ok1 && ok2 {
		ds := make([]ir.Dim, dims[0])
		for i := range ds {
			ds[i] = start[0].Add(delta[0].Mul(ir.N(int64(i))))
		}
		c.SetInts(0, ds)
	}
	return nil
}

// rangeLength is the number of elements where it is known: all numbers, or
// symbols at a step of 1 (a limit below the start would be refused as a
// negative extent once the symbols are bound).
func rangeLength(c *ir.InferCtx) (ir.Dim, bool) {
	if c.DType(0).IsFloat() {
		a, b, d := c.Const(0), c.Const(1), c.Const(2)
		if a == nil || b == nil || d == nil {
			return ir.Dim{}, false
		}
		n, ok := floatRange(a.Floats()[0], b.Floats()[0], d.Floats()[0])
		return ir.N(n), ok
	}
	a, ok1 := c.Ints(0)
	b, ok2 := c.Ints(1)
	d, ok3 := c.Ints(2)
	if !ok1 || !ok2 || !ok3 || len(a) != 1 || len(b) != 1 || len(d) != 1 {
		return ir.Dim{}, false
	}
	step, ok := d[0].Int()
	start, okStart := a[0].Int()
	limit, okLimit := b[0].Int()
	switch {
	case !ok || step == 0:
		return ir.Dim{}, false
	case okStart && okLimit:
		return ir.N(intRange(start, limit, step)), true
	case step == 1:
		return b[0].Sub(a[0]), true
	case step == -1:
		return a[0].Sub(b[0]), true
	}
	return ir.Dim{}, false
}

func intRange(start, limit, step int64) int64 {
	switch {
	case step > 0 && limit > start:
		return int64(uint64(limit-start-1)/uint64(step)) + 1
	case step < 0 && limit < start:
		return int64(uint64(start-limit-1)/uint64(-step)) + 1
	}
	return 0
}

func floatRange(start, limit, step float64) (int64, bool) {
	n := math.Ceil((limit - start) / step)
	if step == 0 || n != n || n > math.MaxInt32 {
		return 0, false
	}
	return int64(max(n, 0)), true
}

func rangeEval(c *ir.EvalCtx) error {
	a, b, d := c.In(0), c.In(1), c.In(2)
	if a.Len() != 1 || b.Len() != 1 || d.Len() != 1 {
		return c.Errorf("start, limit and delta must be one number each")
	}
	if a.DType.IsInt() {
		step := d.Ints()[0]
		if step == 0 {
			return c.Errorf("delta is 0")
		}
		n := intRange(a.Ints()[0], b.Ints()[0], step)
		vals := make([]int64, n)
		for i := range vals {
			vals[i] = a.Ints()[0] + int64(i)*step
		}
		c.Set(0, ir.FromInts(a.DType, vals, n))
		return nil
	}
	start, step := a.Floats()[0], d.Floats()[0]
	n, ok := floatRange(start, b.Floats()[0], step)
	if !ok {
		return c.Errorf("delta is 0 or the range is too long")
	}
	vals := make([]float64, n)
	for i := range vals {
		vals[i] = start + float64(i)*step
	}
	c.Set(0, ir.FromFloats(a.DType, vals, n))
	return nil
}

package ops

import (
	"cmp"

	"memoc/ir"
)

// comparison is a binary operator with a truth value as result; holds gets the
// order of the operands (-1, 0, 1), or unordered with a NaN among them.
type comparison struct {
	name  ir.OpName
	doc   string
	since []int
	types ir.DTypeSet
	holds func(order int) bool
	expr  string
}

const unordered = 2

var _ = registerComparisons(
	comparison{"Equal", "x == y.", []int{1, 7, 11, 13, 19}, ir.Numeric | ir.Bools | ir.SetOf(ir.String),
		func(o int) bool { return o == 0 }, "x0 == x1"},
	comparison{"Greater", "x > y.", []int{1, 7, 9, 13}, ir.Numeric, func(o int) bool { return o == 1 }, "x0 > x1"},
	comparison{"Less", "x < y.", []int{1, 7, 9, 13}, ir.Numeric, func(o int) bool { return o == -1 }, "x0 < x1"},
	comparison{"GreaterOrEqual", "x >= y.", []int{12, 16}, ir.Numeric, func(o int) bool { return o == 0 || o == 1 }, "x0 >= x1"},
	comparison{"LessOrEqual", "x <= y.", []int{12, 16}, ir.Numeric, func(o int) bool { return o == 0 || o == -1 }, "x0 <= x1"},
)

func registerComparisons(cs ...comparison) bool {
	for _, k := range cs {
		ir.Register(ir.Op{
			Name: k.name, Doc: k.doc, Since: k.since,
			In: ir.Ports("A:T, B:T"), Out: ir.Ports("C:tensor(bool)"),
			Types: map[string]ir.DTypeSet{"T": k.types},
			Infer: func(c *ir.InferCtx) error {
				shape, err := binaryShape(c)
				if err != nil {
					return err
				}
				c.SetTensor(0, ir.Bool, shape)
				propagateInts(c, ir.Bool, shape)
				return nil
			},
			Axes:      binaryAxes,
			Cost:      ir.PointwiseCost(1),
			Grad:      ir.NoGrad("truth values"),
			Recompute: ir.Pure,
			Eval:      k.eval,
			Kernel:    binaryKernel(k.expr),
			Samples:   k.samples,
		})
	}
	return true
}

func (k comparison) eval(c *ir.EvalCtx) error {
	switch d := c.In(0).DType; {
	case d == ir.String:
		return broadcastApply(c, ir.Bool, func(t *ir.Tensor) []string { return t.Strings }, storeBools,
			func(x []string) bool { return k.holds(cmp.Compare(x[0], x[1])) })
	case d == ir.Uint64:
		return broadcastApply(c, ir.Bool, ir.View[uint64], storeBools,
			func(x []uint64) bool { return k.holds(cmp.Compare(x[0], x[1])) })
	case d.IsInt() || d == ir.Bool:
		return broadcastApply(c, ir.Bool, (*ir.Tensor).Ints, storeBools,
			func(x []int64) bool { return k.holds(cmp.Compare(x[0], x[1])) })
	}
	return broadcastApply(c, ir.Bool, (*ir.Tensor).Floats, storeBools, func(x []float64) bool {
		if x[0] != x[0] || x[1] != x[1] {
			return k.holds(unordered)
		}
		return k.holds(cmp.Compare(x[0], x[1]))
	})
}

func storeBools(t *ir.Tensor, vals []bool) {
	for i, v := range vals {
		if v {
			t.Data[i] = 1
		}
	}
}

func (k comparison) samples() []ir.Sample {
	a := floats([]int64{2, 3}, 0.5, -1.25, 2, nan, 0.5, 1)
	out := []ir.Sample{
		{Name: "same", In: []*ir.Tensor{a, floats([]int64{2, 3}, 0.5, -1, 1, 1, nan, 1)}},
		{Name: "broadcast", In: []*ir.Tensor{a, floats([]int64{3}, 0.5, -1.25, 1)}},
		{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{7, 2, -3}, 3), ir.FromInts(ir.Int64, []int64{2}, 1)}},
		{Name: "uint64", In: []*ir.Tensor{ir.FromInts(ir.Uint64, []int64{-1, 2}, 2), ir.FromInts(ir.Uint64, []int64{2}, 1)}},
	}
	if k.types.Has(ir.Bool) {
		out = append(out, ir.Sample{Name: "bools", In: []*ir.Tensor{ir.FromInts(ir.Bool, []int64{1, 0}, 2), ir.FromInts(ir.Bool, []int64{1}, 1)}})
	}
	return out
}

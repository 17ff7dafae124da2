package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "BroadcastGradientArgs",
	Doc:    "The axes, last to first, along which each of two shapes was broadcast against the other.",
	Since:  []int{1},
	In:     ir.Ports("a_shape:T, b_shape:T"), Out: ir.Ports("a_axes:T?, b_axes:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.SetOf(ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		a, okA := c.Ints(0)
		b, okB := c.Ints(1)
		if okA && okB {
			axes, known, err := broadcastAxes(c.Node, a, b)
			if err != nil {
				return err
			}
			if known {
				for i, as := range axes {
					c.SetTensor(i, ir.Int64, ir.Ints64(int64(len(as))))
					c.SetInts(i, as)
				}
				return nil
			}
		}
		for i := range 2 {
			c.SetTensor(i, ir.Int64, c.FreshShape(1))
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("integer result"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		var shapes [2][]ir.Dim
		for i := range shapes {
			for _, n := range c.In(i).Ints() {
				shapes[i] = append(shapes[i], ir.N(n))
			}
		}
		axes, _, err := broadcastAxes(c.Node, shapes[0], shapes[1])
		if err != nil {
			return err
		}
		for i, as := range axes {
			out := make([]int64, len(as))
			for k, d := range as {
				out[k], _ = d.Int()
			}
			c.Set(i, ir.FromInts(ir.Int64, out, int64(len(out))))
		}
		return nil
	},
	Kernel: ir.NoKernel("its results are shapes of other nodes, which device code needs at compile time"),
	Samples: func() []ir.Sample {
		shape := func(ns ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, ns, int64(len(ns))) }
		return []ir.Sample{
			{Name: "both", NumOut: 2, In: []*ir.Tensor{shape(2, 1, 3), shape(5, 1)}, Want: []*ir.Tensor{shape(1), shape(2, 0)}},
			{Name: "same", NumOut: 2, In: []*ir.Tensor{shape(2, 3), shape(2, 3)}, Want: []*ir.Tensor{shape(), shape()}},
			{Name: "longer b", NumOut: 2, In: []*ir.Tensor{shape(3), shape(4, 2, 3)}, Want: []*ir.Tensor{shape(1, 0), shape()}},
			{Name: "scalar", NumOut: 1, In: []*ir.Tensor{shape(), shape(4, 1)}, Want: []*ir.Tensor{shape(1, 0)}},
		}
	},
})

// broadcastAxes compares two shapes from the last axis on. known is false
// where symbols leave open which broadcasts. A 1 against a symbol counts as
// broadcast: should the symbol be 1, a sum over that axis changes nothing.
func broadcastAxes(n *ir.Node, a, b []ir.Dim) (axes [2][]ir.Dim, known bool, err error) {
	axes = [2][]ir.Dim{{}, {}}
	one := ir.N(1)
	rank := max(len(a), len(b))
	for i := 1; i <= rank; i++ {
		axis := ir.N(int64(rank - i))
		switch {
		case i > len(a):
			axes[0] = append(axes[0], axis)
		case i > len(b):
			axes[1] = append(axes[1], axis)
		case a[len(a)-i].Equal(b[len(b)-i]):
		case a[len(a)-i].Equal(one):
			axes[0] = append(axes[0], axis)
		case b[len(b)-i].Equal(one):
			axes[1] = append(axes[1], axis)
		default:
			x, okX := a[len(a)-i].Int()
			y, okY := b[len(b)-i].Int()
			if okX && okY {
				return axes, false, n.Errorf("shape", "dims %d and %d do not broadcast", x, y)
			}
			return axes, false, nil
		}
	}
	return axes, true, nil
}

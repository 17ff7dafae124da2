package ops

import "memoc/ir"

// ONNX Runtime's outputs are (updated_flag: bool[1], the accumulator); in
// Deeploy's training graphs the first output is the accumulator. What the file
// declares for output 0 tells them apart.
var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "InPlaceAccumulatorV2",
	Doc:    "Adds a gradient to its accumulation buffer, or starts the buffer anew with it where overwrite_flag is true.",
	Since:  []int{1},
	In:     ir.Ports("accumulation_buffer:T, value:G, overwrite_flag:B?"), Out: ir.Ports("updated_flag:F, accumulation_buffer_out:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "G": ir.Floats, "B": ir.Bools, "F": ir.Floats | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		if accumulatorFirst(c.Node) {
			sameTypeAs(c, 0, 0)
			return nil
		}
		c.SetTensor(0, ir.Bool, ir.Ints64(1))
		sameTypeAs(c, 1, 0)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.FollowAll(n)
		if !accumulatorFirst(n) && len(m.Out) > 0 {
			m.Out[0] = nil
		}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		return ir.Cost{FLOPs: ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived: it accumulates gradients, none are meant to flow through it"),
	Recompute: ir.Never("it adds to a buffer in place, which must happen once in a step"),
	Eval: func(c *ir.EvalCtx) error {
		t, err := accumulate(c, false, flagOf(c.In(2), false))
		if err != nil {
			return err
		}
		if accumulatorFirst(c.Node) {
			c.Set(0, t)
			return nil
		}
		c.Set(0, ir.FromInts(ir.Bool, []int64{1}, 1))
		c.Set(1, t)
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		switch {
		case accumulatorFirst(c.Node):
			return accumulateKernel(c, 0, -1, true), nil
		case c.HasOut(1):
			return accumulateKernel(c, 1, 0, true), nil
		}
		return ir.Kernel{}, c.Errorf("the sum would be written into the input %q; ask for the second output instead", c.Node.In[0].Name)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 1}, {In: 1, Out: 1}, {In: 1, Out: 0}},
	Samples: func() []ir.Sample {
		buf, value := floats([]int64{3}, 1, 2, 3), floats([]int64{3}, 0.5, -1, 4)
		yes := ir.FromInts(ir.Bool, []int64{1}, 1)
		no := ir.FromInts(ir.Bool, []int64{0}, 1)
		return []ir.Sample{
			{Name: "add", In: []*ir.Tensor{buf, value, no}, NumOut: 2, Want: []*ir.Tensor{yes, floats([]int64{3}, 1.5, 1, 7)}},
			{Name: "overwrite", In: []*ir.Tensor{buf, value, yes}, NumOut: 2, Want: []*ir.Tensor{yes, value}},
			{Name: "no flag", In: []*ir.Tensor{buf, value}, NumOut: 2, Want: []*ir.Tensor{yes, floats([]int64{3}, 1.5, 1, 7)}},
		}
	},
})

// accumulatorFirst reports Deeploy's form: output 0 is declared with the
// buffer's element type, or as a bool that was given the buffer's shape.
func accumulatorFirst(n *ir.Node) bool {
	if len(n.Out) == 0 || n.Out[0] == nil || !n.Out[0].Type.IsTensor() {
		return false
	}
	t := n.Out[0].Type
	if t.DType.IsFloat() {
		return true
	}
	flag := ir.Ints64(1)
	return t.Shape.Ranked && len(n.In) > 0 && n.In[0] != nil && t.Shape.Equal(n.In[0].Type.Shape) && !t.Shape.Equal(flag)
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "ConvGrad",
	Doc:    "The gradients of Conv's input, kernel and bias; any of them may be absent.",
	Since:  []int{1},
	In:     ir.Ports("dY:T, X:T, W:T"), Out: ir.Ports("dX:T?, dW:T?, dB:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if _, err := convShape(c, 1, 2); err != nil {
			return err
		}
		sameTypeAs(c, 0, 1)
		sameTypeAs(c, 1, 2)
		bias := ir.Shape{}
		if w := c.Shape(2); w.Rank() > 0 {
			bias = ir.Dims(w.Dims[0])
		}
		c.SetTensor(2, c.DType(0), bias)
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
		if len(n.Out) > 0 && n.Out[0] != nil && n.Out[0].Type.Shape.Rank() > 0 {
			m.Out[0] = make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
			m.Out[0][0] = ir.OutAxis{{In: 0, Axis: 0}}
		}
		return m
	},
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		w := c.InShape(2)
		per := int64(0)
		if len(w) > 1 {
			per = ir.Elems(w[1:])
		}
		products := int64(0)
		for o := range 2 {
			if c.HasOut(o) {
				products++
			}
		}
		return ir.Cost{FLOPs: products * 2 * ir.Elems(c.InShape(0)) * per, Read: read, Write: write, Unit: ir.Matrix, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: a second derivative"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		dy, x, w := c.In(0), c.In(1), c.In(2)
		g, err := convOf(c.Node, x.Dims, w.Dims)
		if err != nil {
			return err
		}
		if !equalInts(g.y, dy.Dims) {
			return c.Errorf("the gradient has shape %v, the convolution's output %v", dy.Dims, g.y)
		}
		if c.HasOut(0) {
			c.Set(0, ir.FromFloats(x.DType, g.dataGrad(dy.Floats(), w.Floats()), x.Dims...))
		}
		if c.HasOut(1) {
			c.Set(1, ir.FromFloats(w.DType, g.weightGrad(x.Floats(), dy.Floats()), w.Dims...))
		}
		if c.HasOut(2) {
			c.Set(2, ir.FromFloats(w.DType, biasGrad(dy.Floats(), g.y), w.Dims[0]))
		}
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		g, err := convOf(c.Node, c.InShape(1), c.InShape(2))
		return ir.Kernel{Func: "conv_grad", Source: convCUDA, Types: []ir.DType{c.InDType(0)},
			Args: append([]ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2)}, g.args()...)}, err
	}),
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "all", NumOut: 3, In: []*ir.Tensor{ramp(2, 3, 3, 2), ramp(2, 2, 5, 4), ramp(3, 2, 2, 3)},
				Attrs: []ir.Attr{ir.IntsAttr("pads", 1, 0, 0, 2), ir.IntsAttr("strides", 2, 3)}},
			{Name: "depthwise", NumOut: 2, In: []*ir.Tensor{ramp(1, 2, 3), ramp(1, 2, 4), ramp(2, 1, 2)}, Attrs: []ir.Attr{ir.IntAttr("group", 2)}},
		}
	},
})

package ops

import "memoc/ir"

var biasDropoutPorts = dropoutInputs{ratio: 3, training: 4}

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "BiasDropout",
	Doc:   "Dropout of data + bias, plus residual; the bias runs along the last axis.",
	Since: []int{1},
	In:    ir.Ports("data:T, bias:T, residual:T?, ratio:R?, training_mode:tensor(bool)?"), Out: ir.Ports("output:T, mask:tensor(bool)?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "R": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		if err := unidirectional(c, c.Shape(1), c.Shape(0)); err != nil {
			return err
		}
		c.SetTensor(0, c.DType(0), c.Shape(0))
		c.SetTensor(1, ir.Bool, c.Shape(0))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		one := *n
		one.In = n.In[:min(3, len(n.In))]
		m := ir.FollowAll(&one)
		drawnByIndex(m)
		return m
	},
	Cost: ir.PointwiseCost(10),
	Grad: ir.GradOf(func(c *ir.GradCtx) error {
		dx := dropoutGrad(c, biasDropoutPorts)
		c.Set(0, dx)
		if c.Needs(1) {
			c.Set(1, c.SumTo(dx, c.In(1)))
		}
		if c.Needs(2) {
			c.Set(2, c.OutGrad(0))
		}
		return nil
	}),
	Recompute: ir.Never("random: its mask is stashed"),
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		sum := append([]float64{}, x.Floats()...)
		if all, ok := broadcastDims(x.Dims, c.In(1).Dims); !ok || ir.Elems(all) != x.Len() {
			return c.Errorf("the bias of shape %v does not fit %v", c.In(1).Dims, x.Dims)
		}
		bias := c.In(1).Floats()
		broadcastIndex(x.Dims, c.In(1).Dims, func(i, j int) { sum[i] += bias[j] })
		y, mask := dropoutEval(c, biasDropoutPorts, sum)
		if c.Has(2) {
			for i, r := range c.In(2).Floats() {
				y[i] += r
			}
		}
		c.Set(0, ir.FromFloats(x.DType, y, x.Dims...))
		c.Set(1, ir.FromInts(ir.Bool, mask, x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if r := len(c.InShape(0)); len(c.InShape(1)) != 1 || r == 0 || c.InShape(0)[r-1] != c.InShape(1)[0] {
			return ir.Kernel{}, c.Errorf("there is no kernel for a bias of shape %v", c.InShape(1))
		}
		return dropoutKernel(c, biasDropoutPorts, 1, 2)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}, {In: 2, Out: 0}},
	Samples: func() []ir.Sample {
		x, b, r := wave(1, 3, 4), wave(2, 4), wave(3, 3, 4)
		on := ir.FromInts(ir.Bool, []int64{1})
		fixed := map[int]string{3: ratioIsFixed[1]}
		return []ir.Sample{
			{Name: "inference", In: []*ir.Tensor{x, b, r}},
			{Name: "training", In: []*ir.Tensor{x, b, r, floats(nil, 0.3), on}, NumOut: 2, NoGradCheck: fixed},
			{Name: "no residual", In: []*ir.Tensor{x, b, nil, floats(nil, 0.3), on}, Absent: []int{2}, NoGradCheck: fixed},
		}
	},
})

package ops

import "memoc/ir"

// ATen calls a PyTorch operator by name. memoc knows those that ORTModule
// exports of language models hold: embedding and its gradient. Another name
// keeps the types the file declares and cannot be executed.
var _ = ir.Register(ir.Op{
	Domain: ir.AtenDomain,
	Name:   "ATen",
	Doc:    "A PyTorch operator by name: embedding and embedding_backward are known.",
	Since:  []int{1},
	In:     ir.Ports("inputs:T*"), Out: ir.Ports("outputs:T*"),
	Types: map[string]ir.DTypeSet{"T": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		switch c.Node.Str("operator", "") {
		case "embedding":
			if len(c.Node.In) < 2 {
				return c.Errorf("embedding needs a weight and indices")
			}
			w, ids := c.Shape(0), c.Shape(1)
			shape := ir.Shape{}
			if w.Rank() == 2 && ids.Ranked {
				shape = ir.Dims(append(append([]ir.Dim{}, ids.Dims...), w.Dims[1])...)
			}
			c.SetTensor(0, c.DType(0), shape)
		case "embedding_backward":
			if len(c.Node.In) < 3 {
				return c.Errorf("embedding_backward needs a gradient, indices and the number of rows")
			}
			shape := c.FreshShape(2)
			if n, ok := c.Ints(2); ok && len(n) == 1 {
				shape.Dims[0] = n[0]
			}
			if r := c.Shape(0).Rank(); r > 0 {
				shape.Dims[1] = c.Shape(0).Dims[r-1]
			}
			c.SetTensor(0, c.DType(0), shape)
		}
		return nil
	},
	Axes:      atenAxes,
	Cost:      atenCost,
	Grad:      ir.GradOf(atenGrad),
	Recompute: ir.Pure,
	Eval:      atenEval,
	Kernel:    ir.KernelOf(atenKernel),
	Samples: func() []ir.Sample {
		w := floats([]int64{3, 2}, iota64(6)...)
		ids := ir.FromInts(ir.Int64, []int64{0, 2, 2, 1}, 2, 2)
		pad := func(n int64) *ir.Tensor { return ir.FromInts(ir.Int64, []int64{n}) }
		no := ir.FromInts(ir.Bool, []int64{0})
		op := func(name string) []ir.Attr { return []ir.Attr{ir.StringAttr("operator", name)} }
		dy := floats([]int64{2, 2, 2}, iota64(8)...)
		return []ir.Sample{
			{Name: "embedding", NumOut: 1, In: []*ir.Tensor{w, ids, pad(-1), no, no}, Attrs: op("embedding")},
			{Name: "padding", NumOut: 1, In: []*ir.Tensor{dy, ids, pad(3), pad(2), no, no}, Attrs: op("embedding_backward"),
				Want: []*ir.Tensor{floats([]int64{3, 2}, 0.5, -1.5, 6.5, -7.5, 0, 0)}, NoGradCheck: map[int]string{0: "second derivatives are refused"}},
		}
	},
})

// atenScalar is a known integer input, def where it is absent.
func atenScalar(n *ir.Node, i int, def int64) (v int64, known bool) {
	c := &ir.InferCtx{Node: n}
	if !c.Has(i) {
		return def, true
	}
	ns, ok := c.StaticInts(i)
	if !ok || len(ns) != 1 {
		return 0, false
	}
	return ns[0], true
}

func atenAxes(n *ir.Node) ir.AxisMap {
	if n.Str("operator", "") != "embedding" || n.Out[0] == nil {
		return ir.AxisMap{}
	}
	m := followAxes(n, func(a int) int { return -1 })
	last := len(m.Out[0]) - 1
	for a := range m.Out[0] {
		m.Out[0][a] = ir.OutAxis{{In: 1, Axis: a}}
		if a == last {
			m.Out[0][a] = ir.OutAxis{{In: 0, Axis: 1}}
		}
	}
	return m
}

func atenCost(c *ir.CostCtx) ir.Cost {
	if c.Node.Str("operator", "") == "embedding_backward" {
		return rowSumCost(c, c.OutShape(0)[0], ir.Elems(c.InShape(1)))
	}
	return ir.MoveCost(c)
}

// atenGrad: the gradient of an embedding is that of Gather, without the rows
// looked up by padding_idx.
func atenGrad(c *ir.GradCtx) error {
	if name := c.Node.Str("operator", ""); name != "embedding" {
		return c.Node.Errorf("grad", "the gradient of ATen operator %q is not derived yet", name)
	}
	padding, known := atenScalar(c.Node, 2, -1)
	byFreq, knownFreq := atenScalar(c.Node, 3, 0)
	if !known || !knownFreq || byFreq != 0 {
		return c.Node.Errorf("grad", "the gradient needs padding_idx to be known and scale_grad_by_freq to be false")
	}
	w, ids, dy := c.In(0), c.In(1), c.OutGrad(0)
	if dy == nil || !c.Needs(0) {
		return nil
	}
	if padding >= 0 {
		at := c.Op("Equal", []*ir.Value{ids, c.Scalar(ids.Type.DType, float64(padding))})
		dy = c.Op("Where", []*ir.Value{c.Unsqueeze(at, int64(ids.Type.Shape.Rank())), c.Scalar(dy.Type.DType, 0), dy})
	}
	c.Set(0, c.Like(gatherTransposed(c.Builder, dy, ids, w, 0), w))
	return nil
}

func atenEval(c *ir.EvalCtx) error {
	scalar := func(i int, def int64) int64 {
		if c.Has(i) && c.In(i).Len() == 1 {
			return c.In(i).Ints()[0]
		}
		return def
	}
	switch name := c.Node.Str("operator", ""); name {
	case "embedding":
		w, ids := c.In(0), c.In(1)
		idx, bad, ok := gatherIndex(w.Dims, 0, ids.Ints())
		if !ok {
			return c.Errorf("index %d is out of range for %d rows", bad, w.Dims[0])
		}
		c.Set(0, pick(w.DType, gatherDims(w.Dims, ids.Dims, 0), idx, w))
	case "embedding_backward":
		if scalar(4, 0) != 0 {
			return c.Errorf("scale_grad_by_freq is not known")
		}
		dy, ids := c.In(0), c.In(1)
		width := dy.Dims[len(dy.Dims)-1]
		sum := make([]float64, scalar(2, 0)*width)
		vals := dy.Floats()
		for j, id := range ids.Ints() {
			if id == scalar(3, -1) {
				continue
			}
			if id < 0 || (id+1)*width > int64(len(sum)) {
				return c.Errorf("index %d is out of range", id)
			}
			for k := range width {
				sum[id*width+k] += vals[int64(j)*width+k]
			}
		}
		c.Set(0, ir.FromFloats(dy.DType, sum, scalar(2, 0), width))
	default:
		return c.Errorf("ATen operator %q is not known", name)
	}
	return nil
}

func atenKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	switch name := c.Node.Str("operator", ""); name {
	case "embedding":
		dims := c.InShape(0)
		return ir.Kernel{Func: "gather", Source: gatherCUDA, Types: []ir.DType{c.InDType(0), c.InDType(1)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.IntArg(1), ir.IntArg(dims[0]), ir.IntArg(dims[1]), ir.IntArg(ir.Elems(c.InShape(1)))}}, nil
	case "embedding_backward":
		padding, known := atenScalar(c.Node, 3, -1)
		if !known {
			return ir.Kernel{}, c.Errorf("padding_idx is computed at run time")
		}
		dims := c.OutShape(0)
		return rowSumKernel(c, c.InDType(1), ir.InArg(0), ir.InArg(1), 1, dims[0], dims[1], ir.Elems(c.InShape(1)), padding)
	default:
		return ir.Kernel{}, c.Errorf("ATen operator %q is not known", name)
	}
}

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "OneHot",
	Doc:   "A new axis of extent depth: the second value where the index is the position, the first elsewhere.",
	Since: []int{9, 11},
	In:    ir.Ports("indices:T1, depth:T2, values:T3"), Out: ir.Ports("output:T3"),
	Types: map[string]ir.DTypeSet{"T1": ir.Numeric, "T2": ir.Numeric, "T3": ir.AnyDType},
	Infer: func(c *ir.InferCtx) error {
		in := c.Shape(0)
		if n, ok := c.Shape(2).Static(); ok && (len(n) != 1 || n[0] != 2) {
			return c.Errorf("values must be two numbers")
		}
		if !in.Ranked {
			c.SetTensor(0, c.DType(2), ir.Shape{})
			return nil
		}
		axis, err := c.Axis(c.Node.Int("axis", -1), in.Rank()+1)
		if err != nil {
			return err
		}
		depth := c.FreshDim()
		if ds, ok := c.Ints(1); ok && len(ds) == 1 {
			depth = ds[0]
		} else if t := c.Const(1); t != nil && t.DType.IsFloat() && t.Len() == 1 {
			depth = ir.N(t.Ints()[0])
		}
		if n, ok := depth.Int(); ok && n < 0 {
			return c.Errorf("depth %d is negative", n)
		}
		c.SetTensor(0, c.DType(2), ir.Dims(dimsWith(in.Dims, []int{axis}, depth)...))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		axis, ok := ir.NormAxis(n.Int("axis", -1), n.Out[0].Type.Shape.Rank())
		return followAxes(n, func(a int) int {
			switch {
			case !ok || a == axis:
				return -1
			case a > axis:
				return a - 1
			}
			return a
		})
	},
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: the indices are integers, and nobody trains the two values"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		ids, depthT, values := c.In(0), c.In(1), c.In(2)
		axis, ok := ir.NormAxis(c.Node.Int("axis", -1), len(ids.Dims)+1)
		if !ok || depthT.Len() != 1 || values.Len() != 2 || depthT.Ints()[0] < 0 {
			return c.Errorf("the axis is out of range, depth is not one number or values are not two")
		}
		depth := depthT.Ints()[0]
		dims := dimsWith(ids.Dims, []int{axis}, depth)
		idx := make([]int, ir.Elems(dims))
		inner := int(ir.Elems(ids.Dims[axis:]))
		for k, id := range ids.Ints() {
			if id < 0 && c.Version >= 11 {
				id += depth
			}
			if id >= 0 && id < depth {
				idx[(k/inner*int(depth)+int(id))*inner+k%inner] = 1
			}
		}
		c.Set(0, pick(values.DType, dims, idx, values))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		if err := kernelDType(c, c.OutDType(0)); err != nil {
			return ir.Kernel{}, err
		}
		dims := c.OutShape(0)
		axis, _ := ir.NormAxis(c.Node.Int("axis", -1), len(dims))
		return ir.Kernel{Func: "one_hot", Source: oneHotCUDA, Types: []ir.DType{c.OutDType(0), c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(2), ir.OutArg(0), ir.IntArg(ir.Elems(dims)), ir.IntArg(dims[axis]),
			ir.IntArg(ir.Elems(dims[axis+1:])), ir.BoolArg(c.Version >= 11)}}, nil
	}),
	Samples: func() []ir.Sample {
		ids := ir.FromInts(ir.Int64, []int64{0, 2, -1, 7}, 4)
		depth := ir.FromInts(ir.Int64, []int64{3})
		values := ir.FromFloats(ir.Float, []float64{0, 1}, 2)
		axis := func(n int64) []ir.Attr { return []ir.Attr{ir.IntAttr("axis", n)} }
		return []ir.Sample{
			{Name: "last", In: []*ir.Tensor{ids, depth, values}},
			{Name: "first", In: []*ir.Tensor{ids.Reshaped(2, 2), depth, values}, Attrs: axis(0)},
			{Name: "middle", In: []*ir.Tensor{ids.Reshaped(2, 2), depth, values}, Attrs: axis(1)},
			{Name: "opset 9", Version: 9, In: []*ir.Tensor{ids, depth, values}},
			{Name: "ints", In: []*ir.Tensor{ir.FromInts(ir.Int32, []int64{1, 0}, 2), depth, ir.FromInts(ir.Int64, []int64{-1, 1}, 2)}},
		}
	},
})

const oneHotCUDA = `
template <class T, class I>
void one_hot(Stream& s, const I* ids, const T* values, T* y, int64_t count, int64_t depth, int64_t inner, bool wrap) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    int64_t id = to<int64_t>(ids[i / (depth * inner) * inner + i % inner]);
    if (id < 0 && wrap) id += depth;
    y[i] = values[id == i / inner % depth ? 1 : 0];
  });
}`

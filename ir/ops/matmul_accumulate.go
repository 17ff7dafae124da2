package ops

import "memoc/ir"

// MatMulAccumulate adds the product of a chunk of tokens to the sum of those
// before: how a weight's gradient is made where its layer runs in chunks. The
// sum may be of a wider type than the operands, so that it is rounded to the
// weight's type once, at the end, as one product over all tokens would be.
var _ = ir.Register(ir.Op{
	Domain: ir.MemocDomain,
	Name:   "MatMulAccumulate",
	Doc:    "S + A' x B' of matrices, where ' may transpose; the sum may be of a wider type (to) than the operands.",
	Since:  []int{1},
	In:     ir.Ports("A:T, B:T, S:L?"), Out: ir.Ports("Y:L"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats, "L": ir.Floats},
	Infer:     matMulAccumulateInfer,
	Axes:      matMulAccumulateAxes,
	Cost:      matMulAccumulateCost,
	Grad:      ir.NoGrad("not derived yet: it is made of products in a backward pass"),
	Recompute: ir.Pure,
	Eval:      matMulAccumulateEval,
	Kernel:    ir.KernelOf(matMulAccumulateKernel),
	InPlace:   []ir.Alias{{In: 2, Out: 0}},
	Function:  functionOf(matMulAccumulateFunction),
	Samples: func() []ir.Sample {
		as := func(d ir.DType, t *ir.Tensor) *ir.Tensor { return ir.FromFloats(d, t.Floats(), t.Dims...) }
		half := func(t *ir.Tensor) *ir.Tensor { return as(ir.Float16, t) }
		wide := ir.IntAttr("to", int64(ir.Float))
		transA, transB := ir.IntAttr("transA", 1), ir.IntAttr("transB", 1)
		return []ir.Sample{
			{Name: "first", In: []*ir.Tensor{wave(1, 2, 3), wave(2, 3, 4)}},
			{Name: "next", In: []*ir.Tensor{wave(1, 2, 3), wave(2, 3, 4), wave(3, 2, 4)}},
			{Name: "gradient", In: []*ir.Tensor{wave(1, 3, 2), wave(2, 3, 4), wave(3, 2, 4)}, Attrs: []ir.Attr{transA}},
			{Name: "both", In: []*ir.Tensor{wave(1, 3, 2), wave(2, 4, 3), wave(3, 2, 4)}, Attrs: []ir.Attr{transA, transB}},
			{Name: "one row", In: []*ir.Tensor{wave(1, 3, 1), wave(2, 3, 4), wave(3, 1, 4)}, Attrs: []ir.Attr{transA}},
			{Name: "half", In: []*ir.Tensor{half(wave(1, 3, 2)), half(wave(2, 3, 4)), as(ir.Float, wave(3, 2, 4))}, Attrs: []ir.Attr{transA, wide}},
			{Name: "half first", In: []*ir.Tensor{half(wave(1, 3, 2)), half(wave(2, 3, 4))}, Attrs: []ir.Attr{transA, wide}},
		}
	},
})

// matMulAccumulateType is the element type of the sum.
func matMulAccumulateType(n *ir.Node, operand ir.DType) ir.DType {
	return ir.DType(n.Int("to", int64(operand)))
}

func matMulAccumulateInfer(c *ir.InferCtx) error {
	a, b, s := c.Shape(0), c.Shape(1), c.Shape(2)
	for i := range 2 {
		if x := c.Shape(i); x.Ranked && x.Rank() != 2 {
			return c.Errorf("operand %d has shape %s; it must be a matrix", i, x)
		}
	}
	to := matMulAccumulateType(c.Node, c.DType(0))
	switch {
	case c.DType(0) != c.DType(1) && c.DType(0) != ir.Undefined && c.DType(1) != ir.Undefined:
		return c.Errorf("operands are of different types %s and %s", c.DType(0), c.DType(1))
	case to != c.DType(0) && (to != ir.Float || c.DType(0).Bits() != 16):
		return c.Errorf("a sum of type %s of products of type %s; it must be that type, or float for half types", to, c.DType(0))
	case c.Has(2) && c.DType(2) != to && c.DType(2) != ir.Undefined:
		return c.Errorf("S is of type %s, the sum of type %s", c.DType(2), to)
	case !a.Ranked || !b.Ranked:
		c.SetTensor(0, to, ir.Shape{})
		return nil
	}
	y, err := matmulShape(c, gemmOperand(a, c.Node, "transA"), gemmOperand(b, c.Node, "transB"))
	if err != nil {
		return err
	}
	if s.Ranked && (s.Rank() != 2 || s.Dims[0].Differ(y.Dims[0]) || s.Dims[1].Differ(y.Dims[1])) {
		return c.Errorf("S has shape %s, the product %s", s, y)
	}
	c.SetTensor(0, to, y)
	return nil
}

func matMulAccumulateAxes(n *ir.Node) ir.AxisMap {
	ta, tb := transposed(n, "transA"), transposed(n, "transB")
	m := matmulAxes(n, ta, 1-ta, tb, 1-tb)
	if len(n.In) < 3 || n.In[2] == nil || m.Out == nil {
		return m
	}
	m.Sum = nil // S would be added once for every part
	for o := range 2 {
		m.Out[0][o] = append(m.Out[0][o], ir.AxisLink{In: 2, Axis: o})
	}
	return m
}

func matMulAccumulateCost(c *ir.CostCtx) ir.Cost {
	a := c.InShape(0)
	return matmulCost(c, a[1-transposed(c.Node, "transA")])
}

func matMulAccumulateEval(c *ir.EvalCtx) error {
	y, dims, err := gemmValues(c, c.In(0).Floats(), c.In(1).Floats(), (*ir.Tensor).Floats, 1, 1)
	if err != nil {
		return err
	}
	c.Set(0, ir.FromFloats(matMulAccumulateType(c.Node, c.In(0).DType), y, dims...))
	return nil
}

const matMulAccumulateCUDA = `
// sum and y may be the same bytes.
template <class T, class L>
void matmul_accumulate(Stream& s, const T* a, const T* b, const L* sum, L* y, Dims mnk, bool trans_a, bool trans_b,
                       void* workspace, int64_t workspace_bytes) {
  int64_t m = mnk[0], n = mnk[1], k = mnk[2];
  if (m * n == 0) return;
  GemmDesc g;
  g.type = DTypeOf<T>::value, g.out = DTypeOf<L>::value;
  g.a = a, g.b = b, g.c = y;
  g.m = m, g.n = n, g.k = k;
  g.lda = trans_a ? m : k, g.ldb = trans_b ? k : n, g.ldc = n;
  g.trans_a = trans_a, g.trans_b = trans_b, g.beta = sum != nullptr ? 1 : 0;
  g.workspace = workspace, g.workspace_bytes = workspace_bytes;
  if (sum != nullptr && sum != y) parallel_for(s, m * n, [=] MEMOC_DEVICE(int64_t i) { y[i] = sum[i]; });
  gemm(s, g);
}`

func matMulAccumulateKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	ta, tb := transposed(c.Node, "transA"), transposed(c.Node, "transB")
	a, y := c.InShape(0), c.OutShape(0)
	k := a[1-ta]
	return ir.Kernel{Func: "matmul_accumulate", Source: matMulAccumulateCUDA, Types: []ir.DType{c.InDType(0), c.OutDType(0)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.DimsArg(y[0], y[1], k),
			ir.BoolArg(ta == 1), ir.BoolArg(tb == 1), ir.WorkspaceArg(), ir.IntArg(gemmWorkspace(2*k*ir.Elems(y), c.InDType(0)))}}, nil
}

// matMulAccumulateFunction multiplies in the type of the sum, for stock runtimes.
func matMulAccumulateFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	to := matMulAccumulateType(n, in[0].Type.DType)
	x, y := b.Cast(in[0], to), b.Cast(in[1], to)
	if transposed(n, "transA") == 1 {
		x = b.TransposeLast2(x)
	}
	if transposed(n, "transB") == 1 {
		y = b.TransposeLast2(y)
	}
	z := b.MatMul(x, y)
	if len(in) > 2 && in[2] != nil {
		z = b.Add(in[2], z)
	}
	return []*ir.Value{z}
}

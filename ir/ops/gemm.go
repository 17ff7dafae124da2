package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Gemm",
	Doc:   "alpha * A' * B' + beta * C, where ' may transpose and C broadcasts to the product.",
	Since: []int{1, 6, 7, 9, 11, 13},
	In:    ir.Ports("A:T, B:T, C:T?"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64)},
	Infer: gemmInfer,
	Axes:  gemmAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		a := c.InShape(0)
		return matmulCost(c, a[len(a)-1-transposed(c.Node, "transA")])
	},
	Grad:      ir.GradOf(gemmGrad),
	Recompute: ir.Pure,
	Eval:      gemmEval,
	Kernel:    ir.KernelOf(gemmKernel),
	Samples: func() []ir.Sample {
		in := func(ts ...*ir.Tensor) []*ir.Tensor { return ts }
		both := []ir.Attr{ir.IntAttr("transA", 1), ir.IntAttr("transB", 1), ir.FloatAttr("alpha", 0.5), ir.FloatAttr("beta", -1.5)}
		return []ir.Sample{
			{Name: "plain", In: in(wave(1, 2, 3), wave(2, 3, 4))},
			{Name: "bias", In: in(wave(1, 2, 3), wave(2, 3, 4), wave(3, 4))},
			{Name: "scaled bias", In: in(wave(1, 2, 3), wave(2, 3, 4), wave(3, 4)), Attrs: []ir.Attr{ir.FloatAttr("beta", 0.5), ir.FloatAttr("alpha", 2)}},
			{Name: "linear", In: in(wave(1, 2, 3), wave(2, 4, 3), wave(3, 4)), Attrs: []ir.Attr{ir.IntAttr("transB", 1)}},
			{Name: "transposed A", In: in(wave(1, 3, 2), wave(2, 3, 4)), Attrs: []ir.Attr{ir.IntAttr("transA", 1)}},
			{Name: "both", In: in(wave(1, 3, 2), wave(2, 4, 3), wave(3, 2, 4)), Attrs: both},
			{Name: "column", In: in(wave(1, 3, 2), wave(2, 4, 3), wave(3, 2, 1)), Attrs: both},
			{Name: "scalar", In: in(wave(1, 3, 2), wave(2, 4, 3), wave(3)), Attrs: both},
			{Name: "no C", In: in(wave(1, 3, 2), wave(2, 4, 3)), Attrs: both},
			{Name: "opset 6", Version: 6, In: in(wave(1, 2, 3), wave(2, 3, 4), wave(3, 4)), Attrs: []ir.Attr{ir.IntAttr("broadcast", 1)}},
			{Name: "batch of rows", In: in(wave(1, 2, 2, 3), wave(2, 4, 3), wave(3, 4)), Attrs: []ir.Attr{ir.IntAttr("transB", 1), ir.FloatAttr("alpha", 0.5)}},
			{Name: "batch of one", In: in(wave(1, 1, 2, 3), wave(2, 1, 2, 4), wave(3, 4)), Attrs: []ir.Attr{ir.IntAttr("transA", 1), ir.FloatAttr("beta", 0.5)}},
			{Name: "batches", In: in(wave(1, 2, 2, 3), wave(2, 2, 4, 3)), Attrs: []ir.Attr{ir.IntAttr("transB", 1), ir.FloatAttr("alpha", 0.5)}},
			{Name: "no rows", In: in(wave(1, 0, 3), wave(2, 3, 4), wave(3, 4))},
			{Name: "no inner", In: in(wave(1, 2, 0), wave(2, 0, 3), wave(3, 3))},
			{Name: "integers", In: in(ir.FromInts(ir.Int32, []int64{1, -2, 3, 4}, 2, 2), ir.FromInts(ir.Int32, []int64{7, 8}, 2, 1), ir.FromInts(ir.Int32, []int64{-5}, 1))},
		}
	},
})

// transposed is 1 where the attribute swaps the operand's axes.
func transposed(n *ir.Node, attr string) int {
	if n.Int(attr, 0) != 0 {
		return 1
	}
	return 0
}

// gemmOperand is the operand's shape as it is multiplied. Operands of a higher
// rank (invalid, but written by Deeploy) are batches of matrices.
func gemmOperand(s ir.Shape, n *ir.Node, attr string) ir.Shape {
	dims := append([]ir.Dim{}, s.Dims...)
	if r := len(dims); transposed(n, attr) == 1 {
		dims[r-1], dims[r-2] = dims[r-2], dims[r-1]
	}
	return ir.Dims(dims...)
}

// gemmOfMatrices reports operands of rank 2, the only valid ones.
func gemmOfMatrices(n *ir.Node) bool {
	return inShapeOf(n, 0).Rank() == 2 && inShapeOf(n, 1).Rank() == 2
}

func gemmInfer(c *ir.InferCtx) error {
	a, b := c.Shape(0), c.Shape(1)
	for i := range 2 {
		if s := c.Shape(i); s.Ranked && s.Rank() < 2 {
			return c.Errorf("operand %d has shape %s; Gemm multiplies matrices (rank 2)", i, s)
		}
	}
	for i := 1; i < 3; i++ {
		if d := c.DType(i); d != c.DType(0) && d != ir.Undefined && c.DType(0) != ir.Undefined {
			return c.Errorf("operands are of different types %s and %s", c.DType(0), d)
		}
	}
	if !a.Ranked || !b.Ranked {
		c.SetTensor(0, c.DType(0), ir.Shape{})
		return nil
	}
	y, err := matmulShape(c, gemmOperand(a, c.Node, "transA"), gemmOperand(b, c.Node, "transB"))
	if err != nil {
		return err
	}
	if s := c.Shape(2); s.Ranked {
		all, err := broadcastShapes(c, y, s)
		if err != nil {
			return err
		}
		for i := range all.Dims {
			if all.Rank() != y.Rank() || all.Dims[i].Differ(y.Dims[i]) {
				return c.Errorf("C of shape %s does not broadcast to %s", s, y)
			}
		}
	}
	c.SetTensor(0, c.DType(0), y)
	return nil
}

func gemmAxes(n *ir.Node) ir.AxisMap {
	ra, rb := inShapeOf(n, 0).Rank(), inShapeOf(n, 1).Rank()
	if ra < 2 || rb < 2 {
		return ir.AxisMap{}
	}
	ta, tb := transposed(n, "transA"), transposed(n, "transB")
	m := matmulAxes(n, ra-2+ta, ra-1-ta, rb-2+tb, rb-1-tb)
	if len(n.In) < 3 || n.In[2] == nil || m.Out == nil {
		return m
	}
	m.Sum = nil // C would be added once for every part
	c, y := inShapeOf(n, 2), outShapeOf(n, 0)
	if !c.Ranked {
		return ir.AxisMap{}
	}
	for o := range y.Dims {
		if axis := o - (y.Rank() - c.Rank()); axis >= 0 && c.Dims[axis].Equal(y.Dims[o]) {
			m.Out[0][o] = append(m.Out[0][o], ir.AxisLink{In: 2, Axis: axis})
		}
	}
	return m
}

// gemmGrad: with Y = alpha op(A) op(B) + beta C, the gradient of op(A) is
// alpha dY op(B)^T, that of op(B) alpha op(A)^T dY; a transposed operand gets
// the transposed product, as one Gemm.
func gemmGrad(c *ir.GradCtx) error {
	if !gemmOfMatrices(c.Node) {
		return gemmBatchGrad(c)
	}
	a, b, dy := c.In(0), c.In(1), c.OutGrad(0)
	ta, tb := transposed(c.Node, "transA"), transposed(c.Node, "transB")
	product := func(x, y *ir.Value, tx, ty int) *ir.Value {
		return gemmOf(c.Builder, x, y, tx, ty, c.Node.Float("alpha", 1))
	}
	if c.Needs(0) {
		if ta == 0 {
			c.Set(0, product(dy, b, 0, 1-tb))
		} else {
			c.Set(0, product(b, dy, tb, 1))
		}
	}
	if c.Needs(1) {
		if tb == 0 {
			c.Set(1, product(a, dy, 1-ta, 0))
		} else {
			c.Set(1, product(dy, a, 1, ta))
		}
	}
	if c.Needs(2) {
		g := c.SumTo(dy, c.In(2))
		if beta := c.Node.Float("beta", 1); beta != 1 {
			g = c.MulScalar(g, float64(beta))
		}
		c.Set(2, g)
	}
	return nil
}

// gemmBatchGrad is gemmGrad for operands of higher rank, by MatMul.
func gemmBatchGrad(c *ir.GradCtx) error {
	if c.In(0).Type.Shape.Rank() < 2 || c.In(1).Type.Shape.Rank() < 2 {
		return c.Node.Errorf("grad", "the gradient needs the ranks of %q and %q", c.In(0).Name, c.In(1).Name)
	}
	operand := func(i int, attr string) *ir.Value {
		if transposed(c.Node, attr) == 1 {
			return c.TransposeLast2(c.In(i))
		}
		return c.In(i)
	}
	set := func(i int, attr string, like, g *ir.Value) {
		g = c.MulScalar(c.SumTo(g, like), float64(c.Node.Float("alpha", 1)))
		if transposed(c.Node, attr) == 1 {
			g = c.TransposeLast2(g)
		}
		c.Set(i, g)
	}
	a, b, dy := operand(0, "transA"), operand(1, "transB"), c.OutGrad(0)
	if c.Needs(0) {
		set(0, "transA", a, c.MatMul(dy, c.TransposeLast2(b)))
	}
	if c.Needs(1) {
		set(1, "transB", b, c.MatMul(c.TransposeLast2(a), dy))
	}
	if c.Needs(2) {
		c.Set(2, c.MulScalar(c.SumTo(dy, c.In(2)), float64(c.Node.Float("beta", 1))))
	}
	return nil
}

func gemmEval(c *ir.EvalCtx) error {
	a, b := c.In(0), c.In(1)
	if len(a.Dims) < 2 || len(b.Dims) < 2 {
		return c.Errorf("Gemm multiplies matrices, not shapes %v and %v", a.Dims, b.Dims)
	}
	alpha, beta := float64(c.Node.Float("alpha", 1)), float64(c.Node.Float("beta", 1))
	if a.DType.IsFloat() {
		y, dims, err := gemmValues(c, a.Floats(), b.Floats(), (*ir.Tensor).Floats, alpha, beta)
		if err != nil {
			return err
		}
		c.Set(0, ir.FromFloats(a.DType, y, dims...))
		return nil
	}
	y, dims, err := gemmValues(c, a.Ints(), b.Ints(), (*ir.Tensor).Ints, int64(alpha), int64(beta))
	if err != nil {
		return err
	}
	c.Set(0, ir.FromInts(a.DType, y, dims...))
	return nil
}

func gemmValues[E number](c *ir.EvalCtx, a, b []E, load func(*ir.Tensor) []E, alpha, beta E) ([]E, []int64, error) {
	va, vb := denseView(a, c.In(0).Dims), denseView(b, c.In(1).Dims)
	if c.Node.Int("transA", 0) != 0 {
		va = va.swapLast2()
	}
	if c.Node.Int("transB", 0) != 0 {
		vb = vb.swapLast2()
	}
	y, dims, ok := matmul(va, vb)
	if !ok {
		return nil, nil, c.Errorf("shapes %v and %v do not multiply", c.In(0).Dims, c.In(1).Dims)
	}
	for i := range y {
		y[i] *= alpha
	}
	if !c.Has(2) {
		return y, dims, nil
	}
	add := load(c.In(2))
	if all, ok := broadcastDims(dims, c.In(2).Dims); !ok || !equalInts(all, dims) {
		return nil, nil, c.Errorf("C of shape %v does not broadcast to %v", c.In(2).Dims, dims)
	}
	broadcastIndex(dims, c.In(2).Dims, func(i, j int) { y[i] += beta * add[j] })
	return y, dims, nil
}

const gemmCUDA = `
// C goes into y first (broadcast), unless it is a row that the library adds itself.
template <class T>
void gemm_op(Stream& s, const T* a, const T* b, const T* c, Dims sc, T* y, Dims mnk, bool trans_a, bool trans_b,
             double alpha, double beta, bool as_bias, void* workspace, int64_t workspace_bytes) {
  int64_t m = mnk[0], n = mnk[1], k = mnk[2];
  if (m * n == 0) return;
  GemmDesc g;
  g.type = DTypeOf<T>::value;
  g.a = a, g.b = b, g.c = y;
  g.m = m, g.n = n, g.k = k;
  g.lda = trans_a ? m : k, g.ldb = trans_b ? k : n, g.ldc = n;
  g.trans_a = trans_a, g.trans_b = trans_b, g.alpha = alpha;
  g.workspace = workspace, g.workspace_bytes = workspace_bytes;
  if (as_bias) g.bias = c;
  else if (c != nullptr && beta != 0) {
    g.beta = beta;
    int64_t row = sc[0], col = sc[1];
    parallel_for(s, m * n, [=] MEMOC_DEVICE(int64_t i) { y[i] = c[i / n * row + i % n * col]; });
  }
  gemm(s, g);
}

// Integers: one thread for each element; alpha and beta are integers by then.
template <class T>
void gemm_int(Stream& s, const T* a, const T* b, const T* c, Dims sc, T* y, Dims mnk, bool trans_a, bool trans_b,
              int64_t alpha, int64_t beta) {
  int64_t m = mnk[0], n = mnk[1], k = mnk[2], row = sc[0], col = sc[1];
  parallel_for(s, m * n, [=] MEMOC_DEVICE(int64_t i) {
    int64_t r = i / n, q = i % n;
    T sum = T(0);
    for (int64_t l = 0; l < k; l++) sum = T(sum + (trans_a ? a[l * m + r] : a[r * k + l]) * (trans_b ? b[q * k + l] : b[l * n + q]));
    sum = T(sum * T(alpha));
    if (c != nullptr) sum = T(sum + T(beta) * c[r * row + q * col]);
    y[i] = sum;
  });
}`

// gemmBatchesCUDA serves files that write a batched product as Gemm.
const gemmBatchesCUDA = `
template <class T>
void gemm_batches(Stream& s, const T* a, Dims da, const T* b, Dims db, T* y, bool trans_a, bool trans_b, double alpha,
                  void* workspace, int64_t workspace_bytes) {
  matmul<T>(s, a, da, b, db, y, trans_a, trans_b, alpha, nullptr, workspace, workspace_bytes);
}`

func gemmBatches(c *ir.NodeCtx, ta, tb bool) ir.Kernel {
	y, a := c.OutShape(0), c.InShape(0)
	k := a[len(a)-1]
	if ta {
		k = a[len(a)-2]
	}
	return ir.Kernel{Func: "gemm_batches", Source: gemmBatchesCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.DimsArg(a...), ir.InArg(1), ir.DimsArg(c.InShape(1)...), ir.OutArg(0), ir.BoolArg(ta), ir.BoolArg(tb),
		ir.FloatArg(float64(c.Node.Float("alpha", 1))), ir.WorkspaceArg(), ir.IntArg(gemmWorkspace(2*k*ir.Elems(y), c.InDType(0)))}}
}

func gemmKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	ta, tb := transposed(c.Node, "transA"), transposed(c.Node, "transB")
	a, b, y := c.InShape(0), c.InShape(1), c.OutShape(0)
	m, n, k := y[len(y)-2], y[len(y)-1], a[len(a)-1-ta]
	switch outer := ir.Elems(y[:len(y)-2]); {
	case outer == 1:
	case ta == 0 && len(b) == 2 && (!c.Has(2) || len(c.InShape(2)) < 2):
		m *= outer // one product of all rows
	case !c.Has(2) && c.InDType(0).IsFloat():
		return gemmBatches(c, ta == 1, tb == 1), nil
	default:
		return ir.Kernel{}, c.Errorf("batches of products with an addend have no device code; use MatMul and Add")
	}
	alpha, beta := float64(c.Node.Float("alpha", 1)), float64(c.Node.Float("beta", 1))
	steps := []int64{0, 0}
	asBias := false
	if c.Has(2) {
		steps = broadcastStrides(y, c.InShape(2))[len(y)-2:]
		asBias = beta == 1 && steps[0] == 0 && (steps[1] == 1 || n == 1)
	}
	kernel := ir.Kernel{Func: "gemm_op", Source: gemmCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.DimsArg(steps...), ir.OutArg(0), ir.DimsArg(m, n, k),
		ir.BoolArg(ta == 1), ir.BoolArg(tb == 1)}}
	if !c.InDType(0).IsFloat() {
		kernel.Func = "gemm_int"
		kernel.Args = append(kernel.Args, ir.IntArg(int64(alpha)), ir.IntArg(int64(beta)))
		return kernel, nil
	}
	kernel.Args = append(kernel.Args, ir.FloatArg(alpha), ir.FloatArg(beta), ir.BoolArg(asBias), ir.WorkspaceArg(),
		ir.IntArg(gemmWorkspace(2*k*m*n, c.InDType(0))))
	return kernel, nil
}

// gemmOf is alpha op(x) op(y) as one Gemm. Before opset 11, where C became
// optional, it is made of products and transposes.
func gemmOf(b *ir.Builder, x, y *ir.Value, tx, ty int, alpha float32) *ir.Value {
	if b.Opset() >= 11 {
		var attrs []ir.Attr
		if tx == 1 {
			attrs = append(attrs, ir.IntAttr("transA", 1))
		}
		if ty == 1 {
			attrs = append(attrs, ir.IntAttr("transB", 1))
		}
		if alpha != 1 {
			attrs = append(attrs, ir.FloatAttr("alpha", alpha))
		}
		return b.Op("Gemm", []*ir.Value{x, y}, attrs...)
	}
	if tx == 1 {
		x = b.TransposeLast2(x)
	}
	if ty == 1 {
		y = b.TransposeLast2(y)
	}
	z := b.MatMul(x, y)
	if alpha != 1 {
		z = b.MulScalar(z, float64(alpha))
	}
	return z
}

package ops

import "memoc/ir"

// The views of com.microsoft FusedMatMul: transBatch moves the first axis to
// the rows (or, transposed as well, to the columns), trans swaps the last two.
var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "FusedMatMul",
	Doc:   "alpha * A' x B', where ' may swap the last two axes (trans) and move the first axis behind the batch axes (transBatch).",
	Since: []int{1},
	In:    ir.Ports("A:T, B:T"), Out: ir.Ports("Y:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: func(c *ir.InferCtx) error {
		shape, err := matmulShape(c, fusedShape(c.Node, "A", c.Shape(0)), fusedShape(c.Node, "B", c.Shape(1)))
		if err != nil {
			return err
		}
		if a, b := c.DType(0), c.DType(1); a != b && a != ir.Undefined && b != ir.Undefined {
			return c.Errorf("operands are of different types %s and %s", a, b)
		}
		c.SetTensor(0, c.DType(0), shape)
		return nil
	},
	Axes: fusedAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		a := fusedView(c.Node, "A", c.InShape(0)).dims
		return matmulCost(c, a[len(a)-1])
	},
	Grad:      ir.GradOf(fusedMatMulGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		return matmulEval(c, float64(c.Node.Float("alpha", 1)),
			func(dims []int64) strided[int64] { return fusedView(c.Node, "A", dims) },
			func(dims []int64) strided[int64] { return fusedView(c.Node, "B", dims) })
	},
	Kernel:  ir.KernelOf(fusedMatMulKernel),
	Samples: fusedMatMulSamples,
})

// fusedFlags reads the two attributes of an operand; on a vector they mean
// nothing.
func fusedFlags(n *ir.Node, operand string, rank int) (trans, batch bool) {
	return rank >= 2 && n.Int("trans"+operand, 0) != 0, rank >= 3 && n.Int("transBatch"+operand, 0) != 0
}

// fusedPerm is the permutation of axes that the attributes stand for.
func fusedPerm(n *ir.Node, operand string, rank int) []int64 {
	trans, batch := fusedFlags(n, operand, rank)
	perm := make([]int64, rank)
	for i := range perm {
		perm[i] = int64(i)
	}
	if batch {
		copy(perm, perm[1:rank-1])
		perm[rank-2] = 0
	}
	if trans {
		perm[rank-2], perm[rank-1] = perm[rank-1], perm[rank-2]
	}
	return perm
}

func fusedShape(n *ir.Node, operand string, s ir.Shape) ir.Shape {
	if !s.Ranked {
		return s
	}
	dims := make([]ir.Dim, s.Rank())
	for i, p := range fusedPerm(n, operand, s.Rank()) {
		dims[i] = s.Dims[p]
	}
	return ir.Dims(dims...)
}

func fusedView(n *ir.Node, operand string, dims []int64) strided[int64] {
	dense := plainView(dims)
	view := strided[int64]{dims: make([]int64, len(dims)), step: make([]int64, len(dims))}
	for i, p := range fusedPerm(n, operand, len(dims)) {
		view.dims[i], view.step[i] = dense.dims[p], dense.step[p]
	}
	return view
}

// fusedAxes is claimed where the batch axes keep their places.
func fusedAxes(n *ir.Node) ir.AxisMap {
	ra, rb := inShapeOf(n, 0).Rank(), inShapeOf(n, 1).Rank()
	ta, ba := fusedFlags(n, "A", ra)
	tb, bb := fusedFlags(n, "B", rb)
	if ra < 2 || rb < 2 || ba || bb {
		return ir.AxisMap{}
	}
	rowA, colA, rowB, colB := ra-2, ra-1, rb-2, rb-1
	if ta {
		rowA, colA = colA, rowA
	}
	if tb {
		rowB, colB = colB, rowB
	}
	return matmulAxes(n, rowA, colA, rowB, colB)
}

// fusedMatMulGrad differentiates the product of the permuted operands and
// permutes back.
func fusedMatMulGrad(c *ir.GradCtx) error {
	ra, rb := c.In(0).Type.Shape.Rank(), c.In(1).Type.Shape.Rank()
	if ra < 2 || rb < 2 {
		return c.Node.Errorf("grad", "not derived yet: FusedMatMul of vectors, or of unknown rank")
	}
	permA, permB := fusedPerm(c.Node, "A", ra), fusedPerm(c.Node, "B", rb)
	dy := c.OutGrad(0)
	if alpha := c.Node.Float("alpha", 1); alpha != 1 {
		dy = c.MulScalar(dy, float64(alpha))
	}
	a, b := permuteValue(c, c.In(0), permA), permuteValue(c, c.In(1), permB)
	if c.Needs(0) {
		c.Set(0, permuteValue(c, matmulGradA(c, a, b, dy), inversePerm(permA)))
	}
	if c.Needs(1) {
		c.Set(1, permuteValue(c, matmulGradB(c, a, b, dy), inversePerm(permB)))
	}
	return nil
}

// permuteValue transposes x unless the permutation changes nothing.
func permuteValue(c *ir.GradCtx, x *ir.Value, perm []int64) *ir.Value {
	for i, p := range perm {
		if int64(i) != p {
			return c.Transpose(x, perm...)
		}
	}
	return x
}

func inversePerm(perm []int64) []int64 {
	out := make([]int64, len(perm))
	for i, p := range perm {
		out[p] = int64(i)
	}
	return out
}

// fusedMatMulKernel calls the library; moved batch axes are one stride and a
// longer row distance if both operands have the same batch, and the plain
// kernel does what is left.
func fusedMatMulKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	a, b := c.InShape(0), c.InShape(1)
	ta, ba := fusedFlags(c.Node, "A", len(a))
	tb, bb := fusedFlags(c.Node, "B", len(b))
	alpha := float64(c.Node.Float("alpha", 1))
	if !ba && !bb {
		return denseMatMulKernel(c, ta, tb, alpha)
	}
	va, vb := fusedView(c.Node, "A", a), fusedView(c.Node, "B", b)
	y := c.OutShape(0)
	batch := ir.Elems(y[:len(y)-2])
	if len(a) < 3 || len(b) < 3 || ir.Elems(va.dims[:len(a)-2]) != batch || ir.Elems(vb.dims[:len(b)-2]) != batch {
		return stridedMatMulKernel(c, va, vb, alpha)
	}
	layout := func(dims []int64, moved bool) (ld, stride int64) {
		r := len(dims)
		if moved {
			return ir.Elems(dims[1:]), dims[r-1]
		}
		return dims[r-1], dims[r-1] * dims[r-2]
	}
	lda, strideA := layout(a, ba)
	ldb, strideB := layout(b, bb)
	m, n, k := y[len(y)-2], y[len(y)-1], va.dims[len(a)-1]
	return ir.Kernel{Func: "batched_gemm", Source: batchedGemmCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.OutArg(0), ir.DimsArg(m, n, k, batch), ir.DimsArg(lda, ldb, strideA, strideB), ir.BoolArg(ta), ir.BoolArg(tb),
		ir.FloatArg(alpha), ir.WorkspaceArg(), ir.IntArg(gemmWorkspace(2*k*ir.Elems(y), c.InDType(0)))}}, nil
}

const batchedGemmCUDA = `
template <class T>
void batched_gemm(Stream& s, const T* a, const T* b, T* y, Dims mnkb, Dims steps, bool trans_a, bool trans_b, double alpha,
                  void* workspace, int64_t workspace_bytes) {
  GemmDesc g;
  g.type = DTypeOf<T>::value;
  g.a = a, g.b = b, g.c = y;
  g.m = mnkb[0], g.n = mnkb[1], g.k = mnkb[2], g.batch = mnkb[3];
  g.lda = steps[0], g.ldb = steps[1], g.ldc = g.n;
  g.stride_a = steps[2], g.stride_b = steps[3], g.stride_c = g.m * g.n;
  g.trans_a = trans_a, g.trans_b = trans_b, g.alpha = alpha;
  g.workspace = workspace, g.workspace_bytes = workspace_bytes;
  if (g.m * g.n * g.batch > 0) gemm(s, g);
}`

func fusedMatMulSamples() []ir.Sample {
	flags := func(names ...string) []ir.Attr {
		attrs := []ir.Attr{ir.FloatAttr("alpha", 0.5)}
		for _, n := range names {
			attrs = append(attrs, ir.IntAttr(n, 1))
		}
		return attrs
	}
	in := func(a, b *ir.Tensor) []*ir.Tensor { return []*ir.Tensor{a, b} }
	return []ir.Sample{
		{Name: "plain", In: in(wave(1, 2, 3), wave(2, 3, 4))},
		{Name: "A", In: in(wave(1, 2, 3, 2), wave(2, 2, 3, 4)), Attrs: flags("transA")},
		{Name: "B", In: in(wave(1, 2, 2, 3), wave(2, 4, 3)), Attrs: flags("transB")},
		{Name: "both", In: in(wave(1, 2, 3, 2), wave(2, 2, 4, 3)), Attrs: flags("transA", "transB")},
		{Name: "batch A", In: in(wave(1, 2, 3, 4), wave(2, 3, 4, 2)), Attrs: flags("transBatchA")},
		{Name: "batch B", In: in(wave(1, 2, 3, 4), wave(2, 4, 2, 3)), Attrs: flags("transBatchB")},
		{Name: "batch A and trans A", In: in(wave(1, 4, 3, 2), wave(2, 3, 4, 2)), Attrs: flags("transBatchA", "transA")},
		{Name: "all", In: in(wave(1, 4, 2, 3, 2), wave(2, 5, 2, 3, 4)), Attrs: flags("transBatchA", "transA", "transBatchB", "transB")},
		{Name: "batch A, broadcast", In: in(wave(1, 2, 3, 4), wave(2, 4, 2)), Attrs: flags("transBatchA")},
	}
}

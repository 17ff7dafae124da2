package ops

import (
	"memoc/ir"
)

// number is what reference evaluations compute in.
type number interface{ ~float64 | ~int64 }

// strided is a dense tensor seen through permuted axes: element steps instead
// of row-major order.
type strided[E number] struct {
	data []E
	dims []int64
	step []int64
}

func denseView[E number](data []E, dims []int64) strided[E] {
	step := make([]int64, len(dims))
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		step[i] = n
		n *= dims[i]
	}
	return strided[E]{data, append([]int64{}, dims...), step}
}

func (s strided[E]) swapLast2() strided[E] {
	if r := len(s.dims); r >= 2 {
		s.dims[r-1], s.dims[r-2] = s.dims[r-2], s.dims[r-1]
		s.step[r-1], s.step[r-2] = s.step[r-2], s.step[r-1]
	}
	return s
}

// firstAxisToRows moves axis 0 to the place of the rows and the batch axes and
// the old rows before it: com.microsoft FusedMatMul's transBatch.
func (s strided[E]) firstAxisToRows() strided[E] {
	if r := len(s.dims); r >= 3 {
		d, st := s.dims[0], s.step[0]
		copy(s.dims, s.dims[1:r-1])
		copy(s.step, s.step[1:r-1])
		s.dims[r-2], s.step[r-2] = d, st
	}
	return s
}

// matmulShape is the shape rule of a product with numpy's semantics: operand
// shapes as they are multiplied (transpositions done).
func matmulShape(c *ir.InferCtx, a, b ir.Shape) (ir.Shape, error) {
	if !a.Ranked || !b.Ranked {
		return ir.Shape{}, nil
	}
	if a.Rank() == 0 || b.Rank() == 0 {
		return ir.Shape{}, c.Errorf("an operand is a scalar (shapes %s and %s); a matrix product needs at least one axis", a, b)
	}
	ad, bd := a.Dims, b.Dims
	if len(ad) == 1 {
		ad = []ir.Dim{ir.N(1), ad[0]}
	}
	if len(bd) == 1 {
		bd = []ir.Dim{bd[0], ir.N(1)}
	}
	k, kb := ad[len(ad)-1], bd[len(bd)-2]
	if k.Differ(kb) {
		return ir.Shape{}, c.Errorf("inner dims %s and %s differ (shapes %s and %s)", k, kb, a, b)
	}
	batch, err := broadcastShapes(c, ir.Dims(ad[:len(ad)-2]...), ir.Dims(bd[:len(bd)-2]...))
	if err != nil {
		return ir.Shape{}, err
	}
	out := append([]ir.Dim{}, batch.Dims...)
	if a.Rank() > 1 {
		out = append(out, ad[len(ad)-2])
	}
	if b.Rank() > 1 {
		out = append(out, bd[len(bd)-1])
	}
	return ir.Dims(out...), nil
}

// matmul multiplies with numpy's semantics; ok is false where the shapes do
// not fit.
func matmul[E number](a, b strided[E]) (out []E, dims []int64, ok bool) {
	if len(a.dims) == 0 || len(b.dims) == 0 {
		return nil, nil, false
	}
	vecA, vecB := len(a.dims) == 1, len(b.dims) == 1
	if vecA {
		a.dims, a.step = []int64{1, a.dims[0]}, []int64{0, a.step[0]}
	}
	if vecB {
		b.dims, b.step = []int64{b.dims[0], 1}, []int64{b.step[0], 0}
	}
	ra, rb := len(a.dims), len(b.dims)
	m, k, n := a.dims[ra-2], a.dims[ra-1], b.dims[rb-1]
	batch, fits := broadcastDims(a.dims[:ra-2], b.dims[:rb-2])
	if !fits || b.dims[rb-2] != k {
		return nil, nil, false
	}
	out = make([]E, ir.Elems(batch)*m*n)
	baseA := batchOffsets(batch, a.dims[:ra-2], a.step)
	baseB := batchOffsets(batch, b.dims[:rb-2], b.step)
	for i := range baseA {
		row := out[int64(i)*m*n : int64(i+1)*m*n]
		gemm(row, a.data[min(baseA[i], int64(len(a.data))):], b.data[min(baseB[i], int64(len(b.data))):], m, n, k,
			a.step[ra-2], a.step[ra-1], b.step[rb-2], b.step[rb-1])
	}
	dims = append([]int64{}, batch...)
	if !vecA {
		dims = append(dims, m)
	}
	if !vecB {
		dims = append(dims, n)
	}
	return out, dims, true
}

// gemm adds the product of an m x k and a k x n matrix, given by their row and
// column steps, to the dense y.
func gemm[E number](y, a, b []E, m, n, k, rowA, colA, rowB, colB int64) {
	for i := range m {
		yr := y[i*n : (i+1)*n]
		for l := range k {
			x := a[i*rowA+l*colA]
			if colB == 1 {
				for j, w := range b[l*rowB : l*rowB+n] {
					yr[j] += x * w
				}
				continue
			}
			for j := range n {
				yr[j] += x * b[l*rowB+j*colB]
			}
		}
	}
}

// batchOffsets is the element offset of every matrix of the broadcast batch.
func batchOffsets(batch, dims, step []int64) []int64 {
	out := make([]int64, ir.Elems(batch))
	for i := range out {
		rest := int64(i)
		for a := len(batch) - 1; a >= 0; a-- {
			pos := rest % batch[a]
			rest /= batch[a]
			if j := a - (len(batch) - len(dims)); j >= 0 && dims[j] != 1 {
				out[i] += pos * step[j]
			}
		}
	}
	return out
}

// inShapeOf is the shape of input i, unknown if it is absent.
func inShapeOf(n *ir.Node, i int) ir.Shape {
	if i >= len(n.In) || n.In[i] == nil {
		return ir.Shape{}
	}
	return n.In[i].Type.Shape
}

// outShapeOf is the shape of output i, unknown if it is absent.
func outShapeOf(n *ir.Node, i int) ir.Shape {
	if i >= len(n.Out) || n.Out[i] == nil {
		return ir.Shape{}
	}
	return n.Out[i].Type.Shape
}

// matmulAxes relates the axes of y = A x B, where rowA … are the axis numbers
// of the matrix parts in the operands as they are stored (-1: a vector has
// none) and batch axes stand in front of them in order.
func matmulAxes(n *ir.Node, rowA, colA, rowB, colB int) ir.AxisMap {
	a, b, y := inShapeOf(n, 0), inShapeOf(n, 1), outShapeOf(n, 0)
	if !a.Ranked || !b.Ranked || !y.Ranked {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, y.Rank())
	mats := 0
	if colB >= 0 {
		mats++
		axes[y.Rank()-mats] = ir.OutAxis{{In: 1, Axis: colB}}
	}
	if rowA >= 0 {
		mats++
		axes[y.Rank()-mats] = ir.OutAxis{{In: 0, Axis: rowA}}
	}
	batch := y.Rank() - mats
	for o := range batch {
		axes[o] = ir.OutAxis{}
		for i, s := range []ir.Shape{a, b} {
			axis := o - (batch - (s.Rank() - 2))
			if axis >= 0 && s.Dims[axis].Equal(y.Dims[o]) {
				axes[o] = append(axes[o], ir.AxisLink{In: i, Axis: axis})
			}
		}
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}, Sum: []ir.AxisRef{{In: 0, Axis: colA}, {In: 1, Axis: rowB}}}
}

// gemmWorkspace is the scratch worth asking for: split-k and stream-k variants
// of large products want it, small products gain nothing from it.
func gemmWorkspace(flops int64, d ir.DType) int64 {
	if flops < 1<<34 || !d.IsFloat() {
		return 0
	}
	return 32 << 20 // memoc::gemm_workspace
}

// matmulCost counts a product of y's size over k.
func matmulCost(c *ir.CostCtx, k int64) ir.Cost {
	read, write := c.Traffic()
	flops := 2 * k * ir.Elems(c.OutShape(0))
	return ir.Cost{FLOPs: flops, Read: read, Write: write, Workspace: gemmWorkspace(flops, c.InDType(0)),
		Unit: ir.Matrix, DType: c.InDType(0)}
}

// matmulCUDA holds the product of dense operands (library), and one that takes
// any steps and type: one thread for each element.
const matmulCUDA = `
template <class T>
void dense_matmul(Stream& s, const T* a, Dims da, const T* b, Dims db, T* y, bool trans_a, bool trans_b, double alpha,
                  void* workspace, int64_t workspace_bytes) {
  memoc::matmul<T>(s, a, da, b, db, y, trans_a, trans_b, alpha, nullptr, workspace, workspace_bytes);
}

// The steps of batch (broadcast: 0), row and column of each operand end sa and sb; out holds batch, m, n.
template <class T>
void strided_matmul(Stream& s, const T* a, Dims sa, const T* b, Dims sb, T* y, Dims out, int64_t k, double alpha) {
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    Dims c = coords(i, out);
    int64_t row = out.rank - 2, col = out.rank - 1, pa = c[row] * sa[row], pb = c[col] * sb[col];
    for (int64_t d = 0; d < row; d++) pa += c[d] * sa[d], pb += c[d] * sb[d];
    A sum = A(0);
    for (int64_t l = 0; l < k; l++) sum += to<A>(a[pa + l * sa[col]]) * to<A>(b[pb + l * sb[row]]);
    y[i] = to<T>(A(sum * A(alpha)));
  });
}`

// denseMatMulKernel calls the library, or for integers the plain kernel.
func denseMatMulKernel(c *ir.NodeCtx, transA, transB bool, alpha float64) (ir.Kernel, error) {
	d := c.InDType(0)
	if !d.IsFloat() {
		a, b := denseView([]int64(nil), c.InShape(0)), denseView([]int64(nil), c.InShape(1))
		if transA {
			a = a.swapLast2()
		}
		if transB {
			b = b.swapLast2()
		}
		return stridedMatMulKernel(c, a, b, alpha)
	}
	k := c.InShape(0)[len(c.InShape(0))-1]
	if transA && len(c.InShape(0)) > 1 {
		k = c.InShape(0)[len(c.InShape(0))-2]
	}
	return ir.Kernel{Func: "dense_matmul", Source: matmulCUDA, Types: []ir.DType{d}, Args: []ir.KernelArg{
		ir.InArg(0), ir.DimsArg(c.InShape(0)...), ir.InArg(1), ir.DimsArg(c.InShape(1)...), ir.OutArg(0),
		ir.BoolArg(transA), ir.BoolArg(transB), ir.FloatArg(alpha),
		ir.WorkspaceArg(), ir.IntArg(gemmWorkspace(2*k*ir.Elems(c.OutShape(0)), d)),
	}}, nil
}

// stridedMatMulKernel is the plain kernel on operands as they are multiplied.
func stridedMatMulKernel(c *ir.NodeCtx, a, b strided[int64], alpha float64) (ir.Kernel, error) {
	if len(a.dims) == 1 {
		a.dims, a.step = []int64{1, a.dims[0]}, []int64{0, a.step[0]}
	}
	if len(b.dims) == 1 {
		b.dims, b.step = []int64{b.dims[0], 1}, []int64{b.step[0], 0}
	}
	ra, rb := len(a.dims), len(b.dims)
	batch, ok := broadcastDims(a.dims[:ra-2], b.dims[:rb-2])
	if !ok {
		return ir.Kernel{}, c.Errorf("batch dims %v and %v do not broadcast", a.dims[:ra-2], b.dims[:rb-2])
	}
	steps := func(s strided[int64]) []int64 {
		out := make([]int64, len(batch)+2)
		r := len(s.dims)
		for o := range out {
			i := o - (len(out) - r)
			if i >= 0 && (i >= r-2 || s.dims[i] != 1) {
				out[o] = s.step[i]
			}
		}
		return out
	}
	dims := append(append([]int64{}, batch...), a.dims[ra-2], b.dims[rb-1])
	return ir.Kernel{Func: "strided_matmul", Source: matmulCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.DimsArg(steps(a)...), ir.InArg(1), ir.DimsArg(steps(b)...), ir.OutArg(0),
		ir.DimsArg(dims...), ir.IntArg(a.dims[ra-1]), ir.FloatArg(alpha),
	}}, nil
}

// matmulEval multiplies the inputs of a node after view has arranged them.
func matmulEval(c *ir.EvalCtx, alpha float64, viewA, viewB func(dims []int64) strided[int64]) error {
	a, b := c.In(0), c.In(1)
	d := a.DType
	if d.IsFloat() {
		va, vb := viewA(a.Dims), viewB(b.Dims)
		y, dims, ok := matmul(strided[float64]{a.Floats(), va.dims, va.step}, strided[float64]{b.Floats(), vb.dims, vb.step})
		if !ok {
			return c.Errorf("shapes %v and %v do not multiply", a.Dims, b.Dims)
		}
		for i := range y {
			y[i] *= alpha
		}
		c.Set(0, ir.FromFloats(d, y, dims...))
		return nil
	}
	va, vb := viewA(a.Dims), viewB(b.Dims)
	va.data, vb.data = a.Ints(), b.Ints()
	y, dims, ok := matmul(va, vb)
	if !ok {
		return c.Errorf("shapes %v and %v do not multiply", a.Dims, b.Dims)
	}
	c.Set(0, ir.FromInts(d, y, dims...))
	return nil
}

func plainView(dims []int64) strided[int64] { return denseView([]int64(nil), dims) }

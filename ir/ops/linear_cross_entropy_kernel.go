package ops

import "memoc/ir"

const linearCrossEntropyCUDA = `
// The gradient's products may be summed in float while the operands are half: see GemmDesc::out.
template <class T>
void head_product(Stream& s, const T* a, const T* b, void* c, DType out, int64_t m, int64_t n, int64_t k, bool trans_a,
                  bool trans_b, double beta, void* scratch, int64_t scratch_bytes) {
  GemmDesc g;
  g.type = DTypeOf<T>::value, g.out = out;
  g.a = a, g.b = b, g.c = c;
  g.m = m, g.n = n, g.k = k;
  g.lda = trans_a ? m : k, g.ldb = trans_b ? k : n, g.ldc = n;
  g.trans_a = trans_a, g.trans_b = trans_b, g.beta = beta;
  g.workspace = scratch, g.workspace_bytes = scratch_bytes;
  gemm(s, g);
}

// Scores of a chunk become the losses of its tokens and, in place, the gradient of the scores.
template <class T, class I>
void head_chunk(Stream& s, T* scores, const I* labels, Acc<T>* losses, const Acc<T>* count, int64_t rows, int64_t vocab,
                bool has_ignored, int64_t ignored, bool mean) {
  block_rows(s, rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    using A = Acc<T>;
    T* y = scores + row * vocab;
    const int64_t label = int64_t(labels[row]);
    if (has_ignored && label == ignored) {
      for (int64_t v = c.tid; v < vocab; v += c.size) y[v] = to<T>(A(0));
      if (c.tid == 0) losses[row] = A(0);
      return;
    }
    A top = lowest<A>();
    for (int64_t v = c.tid; v < vocab; v += c.size) top = m::max(top, to<A>(y[v]));
    top = c.max(top);
    A sum = A(0);
    for (int64_t v = c.tid; v < vocab; v += c.size) sum += m::exp(to<A>(y[v]) - top);
    sum = c.sum(sum);
    if (c.tid == 0) losses[row] = m::log(sum) + top - to<A>(y[label]);
    c.sync();
    const A scale = mean && *count > A(0) ? A(1) / *count : A(1);
    for (int64_t v = c.tid; v < vocab; v += c.size) {
      A g = m::exp(to<A>(y[v]) - top) / sum;
      if (v == label) g -= A(1);
      y[v] = to<T>(g * scale);
    }
  });
}

template <class T, class I, class L>
void linear_cross_entropy(Stream& s, const T* x, const T* w, const I* labels, L* loss, T* dx, T* dw, Dims sizes, bool trans_w,
                          bool has_ignored, int64_t ignored, bool mean, void* workspace, Dims parts) {
  using A = Acc<T>;
  const int64_t tokens = sizes[0], hidden = sizes[1], vocab = sizes[2], chunk = sizes[3];
  char* base = static_cast<char*>(workspace);
  T* scores = reinterpret_cast<T*>(base);
  A* losses = reinterpret_cast<A*>(base + parts[0]);
  A* count = losses + tokens;
  void* sum = parts[2] > 0 ? static_cast<void*>(base + parts[0] + parts[1]) : static_cast<void*>(dw);
  void* scratch = parts[3] > 0 ? base + parts[0] + parts[1] + parts[2] : nullptr;
  const DType sum_type = parts[2] > 0 ? DType::f32 : DTypeOf<T>::value;
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    A n = A(0);
    for (int64_t i = c.tid; i < tokens; i += c.size) n += has_ignored && int64_t(labels[i]) == ignored ? A(0) : A(1);
    n = c.sum(n);
    if (c.tid == 0) *count = n;
  });
  for (int64_t at = 0; at < tokens; at += chunk) {
    const int64_t rows = tokens - at < chunk ? tokens - at : chunk;
    const T* xc = x + at * hidden;
    head_product<T>(s, xc, w, scores, DTypeOf<T>::value, rows, vocab, hidden, false, trans_w, 0, scratch, parts[3]);
    head_chunk<T, I>(s, scores, labels + at, losses + at, count, rows, vocab, has_ignored, ignored, mean);
    if (dx != nullptr)
      head_product<T>(s, scores, w, dx + at * hidden, DTypeOf<T>::value, rows, hidden, vocab, false, !trans_w, 0, scratch, parts[3]);
    if (dw != nullptr && trans_w)
      head_product<T>(s, scores, xc, sum, sum_type, vocab, hidden, rows, true, false, at > 0, scratch, parts[3]);
    if (dw != nullptr && !trans_w)
      head_product<T>(s, xc, scores, sum, sum_type, hidden, vocab, rows, true, false, at > 0, scratch, parts[3]);
  }
  if (dw != nullptr && parts[2] > 0) {
    const float* from = static_cast<const float*>(sum);
    parallel_for(s, hidden * vocab, [=] MEMOC_DEVICE(int64_t i) { dw[i] = to<T>(from[i]); });
  }
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    A sum = A(0);
    for (int64_t i = c.tid; i < tokens; i += c.size) sum += losses[i];
    sum = c.sum(sum);
    if (c.tid == 0) *loss = to<L>(mean ? sum / *count : sum);
  });
}`

func linearCrossEntropyKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	tokens, hidden, vocab, chunk := headSizes(c.Node, c.InShape(0), c.InShape(1))
	scores, losses, sum, products := headWorkspace(c)
	ignore := c.Node.Attr("ignore_index")
	return ir.Kernel{Func: "linear_cross_entropy", Source: linearCrossEntropyCUDA,
		Types: []ir.DType{c.InDType(0), c.InDType(2), c.OutDType(0)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2),
			ir.DimsArg(tokens, hidden, vocab, chunk), ir.BoolArg(c.Node.Int("transW", 0) != 0),
			ir.BoolArg(ignore != nil), ir.IntArg(c.Node.Int("ignore_index", 0)), ir.BoolArg(lossReduction(c.Node) == 2),
			ir.WorkspaceArg(), ir.DimsArg(scores, losses, sum, products)}}, nil
}

// linearCrossEntropyFunction spells the head with whole scores, for stock
// runtimes.
func linearCrossEntropyFunction(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
	x, w, labels := in[0], in[1], in[2]
	to := ir.DType(n.Int("to", int64(x.Type.DType)))
	hv := w // [hidden, vocabulary]
	if n.Int("transW", 0) != 0 {
		hv = b.TransposeLast2(w)
	}
	scores := b.Cast(b.MatMul(x, hv), to)
	attrs := []ir.Attr{ir.StringAttr("reduction", n.Str("reduction", "mean"))}
	if a := n.Attr("ignore_index"); a != nil {
		attrs = append(attrs, ir.IntAttr("ignore_index", a.I))
	}
	out := []*ir.Value{b.Op("SoftmaxCrossEntropyLoss", []*ir.Value{scores, labels}, attrs...)}
	if len(n.Out) == 1 {
		return out
	}
	kept := b.Cast(labels, ir.Int64)
	ones := b.Cast(b.Op("Equal", []*ir.Value{kept, kept}), to)
	if a := n.Attr("ignore_index"); a != nil {
		ignored := b.Op("Equal", []*ir.Value{kept, b.Const(ir.FromInts(ir.Int64, []int64{a.I}))})
		ones = b.Cast(b.Op("Not", []*ir.Value{ignored}), to)
		kept = b.Mul(kept, b.Cast(ones, ir.Int64)) // any class: its row is zeroed below
	}
	depth := b.Op("Gather", []*ir.Value{b.Op("Shape", []*ir.Value{scores}), b.Const(ir.FromInts(ir.Int64, []int64{1}))})
	values := b.Const(ir.FromFloats(to, []float64{0, 1}, 2))
	hot := b.Op("OneHot", []*ir.Value{kept, depth, values})
	g := b.Mul(b.Sub(b.Op("Softmax", []*ir.Value{scores}, ir.IntAttr("axis", 1)), hot), b.Unsqueeze(ones, 1))
	if lossReduction(n) == 2 {
		count := b.Op("Max", []*ir.Value{b.ReduceSum(ones, true, 0), b.Scalar(to, 1)})
		g = b.Div(g, count)
	}
	g = b.Cast(g, x.Type.DType)
	out = append(out, b.MatMul(g, b.TransposeLast2(hv)))
	if len(n.Out) == 2 {
		return out
	}
	dw := b.MatMul(b.TransposeLast2(x), g)
	if n.Int("transW", 0) != 0 {
		dw = b.TransposeLast2(dw)
	}
	return append(out, dw)
}

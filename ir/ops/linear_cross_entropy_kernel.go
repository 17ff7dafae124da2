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

// What a product becomes with its bias, a factor and a cap; and the derivative where the score is s.
template <class T>
struct HeadScore {
  const T* bias;
  Acc<T> scale, cap;
  MEMOC_DEVICE Acc<T> score(T product, int64_t v) const {
    using A = Acc<T>;
    const A z = scale * (bias == nullptr ? to<A>(product) : to<A>(to<T>(to<A>(product) + to<A>(bias[v]))));
    return cap > A(0) ? cap * m::tanh(z / cap) : z;
  }
  MEMOC_DEVICE Acc<T> slope(Acc<T> s) const { return cap > Acc<T>(0) ? scale * (Acc<T>(1) - s / cap * (s / cap)) : scale; }
};

// Products of a chunk become the losses of its tokens and, in place, their own gradient.
template <class T, class I>
void head_chunk(Stream& s, T* scores, const I* labels, Acc<T>* losses, const Acc<T>* count, int64_t rows, int64_t vocab,
                bool has_ignored, int64_t ignored, bool mean, HeadScore<T> head) {
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
    for (int64_t v = c.tid; v < vocab; v += c.size) top = m::max(top, head.score(y[v], v));
    top = c.max(top);
    A sum = A(0);
    for (int64_t v = c.tid; v < vocab; v += c.size) sum += m::exp(head.score(y[v], v) - top);
    sum = c.sum(sum);
    if (c.tid == 0) losses[row] = m::log(sum) + top - head.score(y[label], label);
    c.sync();
    const A scale = mean && *count > A(0) ? A(1) / *count : A(1);
    for (int64_t v = c.tid; v < vocab; v += c.size) {
      const A z = head.score(y[v], v);
      A g = m::exp(z - top) / sum;
      if (v == label) g -= A(1);
      y[v] = to<T>(g * scale * head.slope(z));
    }
  });
}

template <class T, class I, class L>
void linear_cross_entropy(Stream& s, const T* x, const T* w, const I* labels, const T* bias, L* loss, T* dx, T* dw, T* dbias,
                          Dims sizes, bool trans_w, bool has_ignored, int64_t ignored, bool mean, double scale, double cap,
                          void* workspace, Dims parts) {
  using A = Acc<T>;
  const int64_t tokens = sizes[0], hidden = sizes[1], vocab = sizes[2], chunk = sizes[3];
  char* base = static_cast<char*>(workspace);
  T* scores = reinterpret_cast<T*>(base);
  A* losses = reinterpret_cast<A*>(base + parts[0]);
  A* count = losses + tokens;
  void* sum = parts[2] > 0 ? static_cast<void*>(base + parts[0] + parts[1]) : static_cast<void*>(dw);
  void* bias_sum = parts[3] > 0 ? static_cast<void*>(base + parts[0] + parts[1] + parts[2]) : static_cast<void*>(dbias);
  void* scratch = parts[4] > 0 ? base + parts[0] + parts[1] + parts[2] + parts[3] : nullptr;
  const DType sum_type = parts[2] > 0 ? DType::f32 : DTypeOf<T>::value;
  const HeadScore<T> head{bias, A(scale), A(cap)};
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    A n = A(0);
    for (int64_t i = c.tid; i < tokens; i += c.size) n += has_ignored && int64_t(labels[i]) == ignored ? A(0) : A(1);
    n = c.sum(n);
    if (c.tid == 0) *count = n;
  });
  for (int64_t at = 0; at < tokens; at += chunk) {
    const int64_t rows = tokens - at < chunk ? tokens - at : chunk;
    const T* xc = x + at * hidden;
    head_product<T>(s, xc, w, scores, DTypeOf<T>::value, rows, vocab, hidden, false, trans_w, 0, scratch, parts[4]);
    head_chunk<T, I>(s, scores, labels + at, losses + at, count, rows, vocab, has_ignored, ignored, mean, head);
    if (dx != nullptr)
      head_product<T>(s, scores, w, dx + at * hidden, DTypeOf<T>::value, rows, hidden, vocab, false, !trans_w, 0, scratch, parts[4]);
    if (dw != nullptr && trans_w)
      head_product<T>(s, scores, xc, sum, sum_type, vocab, hidden, rows, true, false, at > 0, scratch, parts[4]);
    if (dw != nullptr && !trans_w)
      head_product<T>(s, xc, scores, sum, sum_type, hidden, vocab, rows, true, false, at > 0, scratch, parts[4]);
    if (dbias != nullptr)
      parallel_for(s, vocab, [=] MEMOC_DEVICE(int64_t v) {
        A* to_add = static_cast<A*>(bias_sum) + v;
        A sum = at > 0 ? *to_add : A(0);
        for (int64_t i = 0; i < rows; ++i) sum += to<A>(scores[i * vocab + v]);
        *to_add = sum;
      });
  }
  if (dbias != nullptr && parts[3] > 0) {
    const float* from = static_cast<const float*>(bias_sum);
    parallel_for(s, vocab, [=] MEMOC_DEVICE(int64_t i) { dbias[i] = to<T>(from[i]); });
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
	scores, losses, sum, biasSum, products := headWorkspace(c)
	ignore := c.Node.Attr("ignore_index")
	return ir.Kernel{Func: "linear_cross_entropy", Source: linearCrossEntropyCUDA,
		Types: []ir.DType{c.InDType(0), c.InDType(2), c.OutDType(0)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.OutArg(3),
			ir.DimsArg(tokens, hidden, vocab, chunk), ir.BoolArg(c.Node.Int("transW", 0) != 0),
			ir.BoolArg(ignore != nil), ir.IntArg(c.Node.Int("ignore_index", 0)), ir.BoolArg(lossReduction(c.Node) == 2),
			ir.FloatArg(float64(c.Node.Float("scale", 1))), ir.FloatArg(float64(c.Node.Float("softcap", 0))),
			ir.WorkspaceArg(), ir.DimsArg(scores, losses, sum, biasSum, products)}}, nil
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
	product := b.MatMul(x, hv)
	if len(in) > 3 && in[3] != nil {
		product = b.Add(product, in[3])
	}
	scores, slope := headScores(b, n, b.Cast(product, to))
	attrs := []ir.Attr{ir.StringAttr("reduction", n.Str("reduction", "mean"))}
	if a := n.Attr("ignore_index"); a != nil {
		attrs = append(attrs, ir.IntAttr("ignore_index", a.I))
	}
	out := []*ir.Value{b.Op("SoftmaxCrossEntropyLoss", []*ir.Value{scores, labels}, attrs...)}
	if len(n.Out) == 1 {
		return out
	}
	g := b.Cast(b.Mul(headGradient(b, n, scores, labels), slope), x.Type.DType)
	out = append(out, b.MatMul(g, b.TransposeLast2(hv)))
	if len(n.Out) == 2 {
		return out
	}
	dw := b.MatMul(b.TransposeLast2(x), g)
	if n.Int("transW", 0) != 0 {
		dw = b.TransposeLast2(dw)
	}
	if out = append(out, dw); len(n.Out) == 3 {
		return out
	}
	return append(out, b.Cast(b.ReduceSum(b.Cast(g, to), false, 0), x.Type.DType))
}

// headScores applies factor and cap; slope is the derivative.
func headScores(b *ir.Builder, n *ir.Node, z *ir.Value) (scores, slope *ir.Value) {
	scale, softcap := float64(n.Float("scale", 1)), float64(n.Float("softcap", 0))
	slope = b.Scalar(z.Type.DType, scale)
	if scale != 1 {
		z = b.MulScalar(z, scale)
	}
	if softcap > 0 {
		t := b.Tanh(b.MulScalar(z, 1/softcap))
		z, slope = b.MulScalar(t, softcap), b.Mul(slope, b.Sub(b.Scalar(z.Type.DType, 1), b.Mul(t, t)))
	}
	return z, slope
}

// headGradient is the gradient of the loss with respect to the scores.
func headGradient(b *ir.Builder, n *ir.Node, scores, labels *ir.Value) *ir.Value {
	to := scores.Type.DType
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
	return g
}

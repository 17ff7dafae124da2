package ops

import (
	"math"

	"memoc/ir"
)

// The classification losses see scores [N, C, d1, …] as N x C x inner, with a
// label for each of the N*inner positions. A position whose label is the
// ignored one has weight 0; the others have weight 1 or that of their class.
// The mean divides by the sum of weights, so over ignored positions alone it
// is 0/0 = NaN, as ONNX defines it; its gradient is 0 there, as PyTorch and
// ONNX Runtime have it.

// lossPorts is where a loss operator has its inputs; -1 where it has none.
type lossPorts struct{ scores, labels, weights, ignore int }

type lossView struct{ n, classes, inner int64 }

func lossViewOf(dims []int64) lossView {
	if len(dims) < 2 {
		return lossView{}
	}
	return lossView{dims[0], dims[1], ir.Elems(dims[2:])}
}

func (v lossView) positions() int64 { return v.n * v.inner }

// at is the element index of class k at a position.
func (v lossView) at(pos, k int64) int64 {
	return (pos/v.inner*v.classes+k)*v.inner + pos%v.inner
}

// lossReduction is the attribute as the kernels take it: 0 none, 1 sum, 2 mean.
func lossReduction(n *ir.Node) int64 {
	switch n.Str("reduction", "mean") {
	case "none":
		return 0
	case "sum":
		return 1
	}
	return 2
}

// lossInfer checks scores against labels and weights and gives the shape of
// the loss.
func lossInfer(c *ir.InferCtx, p lossPorts) (ir.Shape, error) {
	switch r := c.Node.Str("reduction", "mean"); r {
	case "none", "sum", "mean":
	default:
		return ir.Shape{}, c.Errorf("reduction is %q; it must be none, sum or mean", r)
	}
	if !c.Has(p.labels) {
		return ir.Shape{}, c.Errorf("the labels are missing")
	}
	x, labels := c.Shape(p.scores), c.Shape(p.labels)
	if x.Ranked && x.Rank() < 2 {
		return ir.Shape{}, c.Errorf("the scores have shape %s; they need a batch and a class axis", x)
	}
	per := labels
	if x.Ranked {
		per = ir.Dims(append([]ir.Dim{x.Dims[0]}, x.Dims[2:]...)...)
		if labels.Ranked && labels.Rank() != per.Rank() {
			return ir.Shape{}, c.Errorf("the labels have shape %s, the scores %s: one label for each position is needed", labels, x)
		}
		for i := 0; labels.Ranked && i < per.Rank(); i++ {
			if per.Dims[i].Differ(labels.Dims[i]) {
				return ir.Shape{}, c.Errorf("the labels have shape %s, the scores %s: one label for each position is needed", labels, x)
			}
		}
	}
	w := ir.Shape{}
	if p.weights >= 0 {
		w = c.Shape(p.weights)
	}
	if w.Ranked && x.Ranked && (w.Rank() != 1 || w.Dims[0].Differ(x.Dims[1])) {
		return ir.Shape{}, c.Errorf("the weights have shape %s; one for each of %s classes is needed", w, x.Dims[1])
	}
	if lossReduction(c.Node) != 0 {
		return ir.Dims(), nil
	}
	return per, nil
}

// lossLabels is what labels and weights say: for each position its class (-1:
// ignored) and its weight.
func lossLabels(c *ir.EvalCtx, p lossPorts, v lossView) (class []int64, weight []float64, err error) {
	class = append(class, c.In(p.labels).Ints()...)
	weight = make([]float64, len(class))
	if int64(len(class)) != v.positions() {
		return nil, nil, c.Errorf("%d labels for %d positions", len(class), v.positions())
	}
	ignored, has := lossIgnored(c, p)
	for i, k := range class {
		switch {
		case has && k == ignored:
			class[i] = -1
			continue
		case k < 0 || k >= v.classes:
			return nil, nil, c.Errorf("label %d at position %d is not in [0, %d)", k, i, v.classes)
		}
		weight[i] = 1
		if p.weights >= 0 && c.Has(p.weights) {
			weight[i] = c.In(p.weights).Floats()[k]
		}
	}
	return class, weight, nil
}

func lossIgnored(c *ir.EvalCtx, p lossPorts) (label int64, has bool) {
	if p.ignore >= 0 && c.Has(p.ignore) {
		if ns := c.In(p.ignore).Ints(); len(ns) > 0 {
			return ns[0], true
		}
	}
	if a := c.Node.Attr("ignore_index"); a != nil {
		return a.I, true
	}
	return 0, false
}

// logSoftmaxClasses is the log-softmax of x over the class axis.
func logSoftmaxClasses(x []float64, v lossView) []float64 {
	out := make([]float64, len(x))
	for pos := range v.positions() {
		top, sum := math.Inf(-1), 0.0
		for k := range v.classes {
			top = max(top, x[v.at(pos, k)])
		}
		for k := range v.classes {
			sum += math.Exp(x[v.at(pos, k)] - top)
		}
		for k := range v.classes {
			out[v.at(pos, k)] = x[v.at(pos, k)] - top - math.Log(sum)
		}
	}
	return out
}

// lossEval reduces the losses of log-probabilities.
func lossEval(c *ir.EvalCtx, p lossPorts, v lossView, logProb []float64, d ir.DType) error {
	class, weight, err := lossLabels(c, p, v)
	if err != nil {
		return err
	}
	per := make([]float64, len(class))
	sum, norm := 0.0, 0.0
	for i, k := range class {
		if k >= 0 {
			per[i] = -weight[i] * logProb[v.at(int64(i), k)]
		}
		sum += per[i]
		norm += weight[i]
	}
	switch lossReduction(c.Node) {
	case 0:
		c.Set(0, ir.FromFloats(d, per, c.In(p.labels).Dims...))
	case 1:
		c.Set(0, ir.FromFloats(d, []float64{sum}))
	default:
		c.Set(0, ir.FromFloats(d, []float64{sum / norm}))
	}
	return nil
}

// lossFactors is the factor of each position in the gradient: weight times
// the loss's own gradient, over the sum of weights for the mean.
func lossFactors(c *ir.EvalCtx, dy []float64, weight []float64) []float64 {
	norm := 0.0
	for _, w := range weight {
		norm += w
	}
	out := make([]float64, len(weight))
	for i, w := range weight {
		switch {
		case w == 0:
		case lossReduction(c.Node) == 0:
			out[i] = w * dy[i]
		case lossReduction(c.Node) == 1:
			out[i] = w * dy[0]
		default:
			out[i] = w * dy[0] / norm
		}
	}
	return out
}

// lossCUDA: the loss (x: scores or, with is_log, log-probabilities) and its
// gradient. log_prob may be x. A label that is neither a class nor the ignored one makes NaN.
const lossCUDA = `
// loss_class gives the class of a label: -1 ignored, -2 invalid.
template <class I> MEMOC_FN int64_t loss_class(I label, int64_t classes, const int64_t* ignore_at, bool has_ignore, int64_t ignore) {
  int64_t k = int64_t(label);
  if (ignore_at != nullptr) has_ignore = true, ignore = ignore_at[0];
  if (has_ignore && k == ignore) return -1;
  return k >= 0 && k < classes ? k : -2;
}

template <class T, class I, class W, class P>
void cross_entropy(Stream& s, const T* x, const I* label, const W* weight, const int64_t* ignore_at, P* loss, P* log_prob,
                   int64_t n, int64_t classes, int64_t inner, int64_t reduction, bool has_ignore, int64_t ignore, bool is_log,
                   void* workspace) {
  int64_t positions = n * inner;
  double* term = static_cast<double*>(workspace);
  double* norm = term + positions;
  block_rows(s, positions, [=] MEMOC_DEVICE(RowCtx& c, int64_t pos) {
    using A = Acc<T>;
    int64_t base = pos / inner * classes * inner + pos % inner;
    A top = lowest<A>(), sum = A(0), shift = A(0);
    if (is_log) top = A(0);
    else {
      for (int64_t k = c.tid; k < classes; k += c.size) top = max_of(top, to<A>(x[base + k * inner]));
      top = c.max(top);
      for (int64_t k = c.tid; k < classes; k += c.size) sum += exp_of(to<A>(x[base + k * inner]) - top);
      shift = log_of(c.sum(sum));
    }
    if (c.tid == 0 && loss != nullptr) {
      int64_t k = loss_class(label[pos], classes, ignore_at, has_ignore, ignore);
      double w = k == -1 ? 0.0 : k == -2 ? quiet_nan<double>() : weight == nullptr ? 1.0 : to<double>(weight[k]);
      double l = k < 0 ? w : -w * double(to<A>(x[base + k * inner]) - top - shift);
      if (reduction == 0) loss[pos] = to<P>(l);
      else {
        term[pos] = l;
        norm[pos] = w;
      }
    }
    c.sync();  // log_prob may be x: the label's score is read before it is overwritten
    if (log_prob != nullptr)
      for (int64_t k = c.tid; k < classes; k += c.size) log_prob[base + k * inner] = to<P>(to<A>(x[base + k * inner]) - top - shift);
  });
  if (reduction == 0 || loss == nullptr) return;
  block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
    double l = 0, w = 0;
    for (int64_t i = c.tid; i < positions; i += c.size) {
      l += term[i];
      w += norm[i];
    }
    l = c.sum(l);
    w = c.sum(w);
    if (c.tid == 0) loss[0] = to<P>(reduction == 1 ? l : l / w);
  });
}

// The workspace holds the sum of weights. dx may be x.
template <class T, class I, class W, class L, class D>
void cross_entropy_grad(Stream& s, const L* dy, const T* x, const I* label, const W* weight, const int64_t* ignore_at, const D* add,
                        D* dx, int64_t n, int64_t classes, int64_t inner, int64_t reduction, bool has_ignore, int64_t ignore,
                        bool is_log, void* workspace) {
  int64_t positions = n * inner;
  double* norm = static_cast<double*>(workspace);
  if (reduction == 2) {
    block_rows(s, 1, [=] MEMOC_DEVICE(RowCtx& c, int64_t) {
      double w = 0;
      for (int64_t i = c.tid; i < positions; i += c.size) {
        int64_t k = loss_class(label[i], classes, ignore_at, has_ignore, ignore);
        w += k == -1 ? 0.0 : k == -2 ? quiet_nan<double>() : weight == nullptr ? 1.0 : to<double>(weight[k]);
      }
      w = c.sum(w);
      if (c.tid == 0) norm[0] = w;
    });
  }
  block_rows(s, positions, [=] MEMOC_DEVICE(RowCtx& c, int64_t pos) {
    using A = Acc<T>;
    int64_t base = pos / inner * classes * inner + pos % inner;
    int64_t hit = loss_class(label[pos], classes, ignore_at, has_ignore, ignore);
    double f = hit == -1 ? 0.0 : hit == -2 ? quiet_nan<double>() : weight == nullptr ? 1.0 : to<double>(weight[hit]);
    if (f != 0) {
      f *= dy == nullptr ? 1.0 : to<double>(dy[reduction == 0 ? pos : 0]);
      if (reduction == 2) f /= norm[0];
    }
    A top = A(0), sum = A(0), scale = A(1);
    if (!is_log) {
      top = lowest<A>();
      for (int64_t k = c.tid; k < classes; k += c.size) top = max_of(top, to<A>(x[base + k * inner]));
      top = c.max(top);
      for (int64_t k = c.tid; k < classes; k += c.size) sum += exp_of(to<A>(x[base + k * inner]) - top);
      scale = A(1) / c.sum(sum);
    }
    for (int64_t k = c.tid; k < classes; k += c.size) {
      int64_t i = base + k * inner;
      A p = exp_of(to<A>(x[i]) - top) * scale;
      A g = f == 0 ? A(0) : A(f) * (p - A(k == hit ? 1 : 0));
      dx[i] = to<D>(add == nullptr ? g : g + to<A>(add[i]));
    }
  });
}`

// lossKernel is the kernel of a loss operator.
func lossKernel(c *ir.NodeCtx, p lossPorts, lossOut, logOut int, isLog bool) (ir.Kernel, error) {
	v := lossViewOf(c.InShape(p.scores))
	d := c.OutDType(0)
	ignore := c.Node.Attr("ignore_index")
	return ir.Kernel{Func: "cross_entropy", Source: lossCUDA,
		Types: []ir.DType{c.InDType(p.scores), c.InDType(p.labels), c.InDType(p.scores), d},
		Args: []ir.KernelArg{ir.InArg(p.scores), ir.InArg(p.labels), inArgOrNull(c, p.weights), inArgOrNull(c, p.ignore),
			outArgOrNull(c, lossOut), outArgOrNull(c, logOut), ir.IntArg(v.n), ir.IntArg(v.classes), ir.IntArg(v.inner), ir.IntArg(lossReduction(c.Node)),
			ir.BoolArg(ignore != nil), ir.IntArg(c.Node.Int("ignore_index", 0)), ir.BoolArg(isLog), ir.WorkspaceArg()}}, nil
}

// inArgOrNull is nullptr for port -1.
func inArgOrNull(c *ir.NodeCtx, port int) ir.KernelArg {
	if port < 0 {
		return ir.InArg(len(c.Node.In))
	}
	return ir.InArg(port)
}

func outArgOrNull(c *ir.NodeCtx, port int) ir.KernelArg {
	if port < 0 {
		return ir.OutArg(len(c.Node.Out))
	}
	return ir.OutArg(port)
}

// lossAxes: every position makes its loss and its log-probabilities (output
// logOut, -1 for none) by itself; a sum of losses adds up over the batch.
func lossAxes(n *ir.Node, p lossPorts, logOut int) ir.AxisMap {
	x := inShapeOf(n, p.scores)
	if x.Rank() < 2 {
		return ir.AxisMap{}
	}
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	if logOut >= 0 && logOut < len(n.Out) {
		m.Out[logOut] = make([]ir.OutAxis, x.Rank())
		for a := range x.Rank() {
			if a != 1 {
				m.Out[logOut][a] = ir.OutAxis{{In: p.scores, Axis: a}}
			}
		}
	}
	switch {
	case logOut == 0:
	case lossReduction(n) == 0:
		m.Out[0] = make([]ir.OutAxis, x.Rank()-1)
		for a := range m.Out[0] {
			m.Out[0][a] = ir.OutAxis{{In: p.scores, Axis: a + min(a, 1)}, {In: p.labels, Axis: a}}
		}
	case lossReduction(n) == 1 && len(n.Out) == 1:
		m.Sum = []ir.AxisRef{{In: p.scores, Axis: 0}, {In: p.labels, Axis: 0}}
	}
	return m
}

// lossCost counts the softmax and, as scratch, a loss and a weight in double
// for each position.
func lossCost(p lossPorts) func(*ir.CostCtx) ir.Cost {
	return func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		v := lossViewOf(c.InShape(p.scores))
		return ir.Cost{FLOPs: 4 * ir.Elems(c.InShape(p.scores)), Read: read, Write: write,
			Workspace: 16 * v.positions(), DType: c.InDType(p.scores)}
	}
}

// lossSamples are scores and labels in the forms the losses take; head stands
// before them.
func lossSamples() []ir.Sample {
	labels := func(dims []int64, vals ...int64) *ir.Tensor { return ir.FromInts(ir.Int64, vals, dims...) }
	x, l := wave(1, 4, 3), labels([]int64{4}, 0, 2, 1, 2)
	x3, l3 := wave(2, 2, 3, 2, 2), labels([]int64{2, 2, 2}, 0, 2, 1, 2, 2, 0, 1, 1)
	w := floats([]int64{3}, 0.5, 1.25, 2)
	how := func(r string, ignore ...int64) []ir.Attr {
		attrs := []ir.Attr{ir.StringAttr("reduction", r)}
		for _, i := range ignore {
			attrs = append(attrs, ir.IntAttr("ignore_index", i))
		}
		return attrs
	}
	return []ir.Sample{
		{Name: "default", In: []*ir.Tensor{x, l}},
		{Name: "int32", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{0, 2, 1, 2}, 4)}},
		{Name: "sum", In: []*ir.Tensor{x, l}, Attrs: how("sum")},
		{Name: "none", In: []*ir.Tensor{x, l}, Attrs: how("none")},
		{Name: "weights", In: []*ir.Tensor{x, l, w}, Attrs: how("mean")},
		{Name: "ignored", In: []*ir.Tensor{x, labels([]int64{4}, 0, -100, 1, -100)}, Attrs: how("mean", -100)},
		{Name: "ignored class", In: []*ir.Tensor{x, l, w}, Attrs: how("mean", 2)},
		{Name: "ignored, none", In: []*ir.Tensor{x, l, w}, Attrs: how("none", 2)},
		{Name: "all ignored, sum", In: []*ir.Tensor{x, labels([]int64{4}, -1, -1, -1, -1)}, Attrs: how("sum", -1)},
		{Name: "axes", In: []*ir.Tensor{x3, l3, w}, Attrs: how("mean", 0)},
		{Name: "axes, none", In: []*ir.Tensor{x3, l3}, Attrs: how("none")},
		{Name: "no positions", In: []*ir.Tensor{wave(1, 0, 3), labels([]int64{0})}, Attrs: how("sum")},
	}
}

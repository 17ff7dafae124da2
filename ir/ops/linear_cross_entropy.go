package ops

import (
	"math"

	"memoc/ir"
)

// LinearCrossEntropy is the loss head of a language model as one operator:
// projection, bias, factor, cap, softmax and cross entropy with their
// gradients, chunk after
// chunk along the tokens, so that the scores [tokens, vocabulary] never exist.
// The gradients are for a loss gradient of one and are made together with the
// loss, so that nothing is computed twice (the method of Liger-Kernel, Hsu et
// al. 2024, and of fused linear cross entropy in Megatron-LM). In half types
// the scores and their gradients are rounded as the separate operators round
// them, and the gradients of weight and bias are summed over chunks in float.
//
// The score of token i and class v is cap tanh(z / cap), or z without a cap,
// where z = scale (X W + bias).
var _ = ir.Register(ir.Op{
	Domain: ir.MemocDomain,
	Name:   "LinearCrossEntropy",
	Doc:    "Cross entropy of X W + bias at the labels, with the gradients, in chunks of tokens.",
	Since:  []int{1},
	In:     ir.Ports("X:T, W:T, labels:I, bias:T?"), Out: ir.Ports("loss:L, dX:T?, dW:T?, dbias:T?"),
	Types:     map[string]ir.DTypeSet{"T": ir.Floats, "L": ir.Floats, "I": ir.Indices},
	Infer:     linearCrossEntropyInfer,
	Axes:      linearCrossEntropyAxes,
	Cost:      linearCrossEntropyCost,
	Grad:      ir.GradOf(linearCrossEntropyGrad),
	Recompute: ir.Never("it makes the gradients of the whole head"),
	Eval:      linearCrossEntropyEval,
	Kernel:    ir.KernelOf(linearCrossEntropyKernel),
	Function:  functionOf(linearCrossEntropyFunction),
	Samples: func() []ir.Sample {
		labels := ir.FromInts(ir.Int64, []int64{3, 0, -100, 2, 1}, 5)
		ignore := ir.IntAttr("ignore_index", -100)
		plain := ir.FromInts(ir.Int32, []int64{3, 0, 2}, 3)
		return []ir.Sample{
			{Name: "mean", In: []*ir.Tensor{wave(1, 5, 3), wave(2, 3, 4), labels}, Attrs: []ir.Attr{ignore, ir.IntAttr("chunk", 2)}},
			{Name: "sum", In: []*ir.Tensor{wave(1, 5, 3), wave(2, 3, 4), labels}, Attrs: []ir.Attr{ignore, ir.StringAttr("reduction", "sum")}},
			{Name: "sum, gradients", In: []*ir.Tensor{wave(1, 5, 3), wave(2, 3, 4), labels}, NumOut: 3, Attrs: []ir.Attr{ignore, ir.StringAttr("reduction", "sum")}},
			{Name: "mean, gradients", In: []*ir.Tensor{wave(1, 5, 3), wave(2, 3, 4), labels}, NumOut: 3, Attrs: []ir.Attr{ignore}},
			{Name: "transposed", In: []*ir.Tensor{wave(3, 3, 2), wave(4, 4, 2), plain}, Attrs: []ir.Attr{ir.IntAttr("transW", 1), ir.IntAttr("chunk", 1)}},
			{Name: "all ignored", In: []*ir.Tensor{wave(1, 2, 3), wave(2, 3, 4), ir.FromInts(ir.Int64, []int64{-100, -100}, 2)},
				Attrs: []ir.Attr{ignore, ir.StringAttr("reduction", "sum")}},
			{Name: "bias", In: []*ir.Tensor{wave(1, 5, 3), wave(2, 3, 4), labels, wave(5, 4)}, Attrs: []ir.Attr{ignore, ir.IntAttr("chunk", 2)}},
			{Name: "capped", In: []*ir.Tensor{wave(3, 3, 2), wave(4, 4, 2), plain, wave(5, 4)},
				Attrs: []ir.Attr{ir.IntAttr("transW", 1), ir.FloatAttr("scale", 3), ir.FloatAttr("softcap", 0.5), ir.StringAttr("reduction", "sum")}},
		}
	},
})

// linearCrossEntropyAxes: the gradient of a token is made by itself, but that
// the mean divides by the number of labels that count.
func linearCrossEntropyAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	if len(n.Out) < 2 || n.Out[1] == nil || inShapeOf(n, 0).Rank() != 2 {
		return m
	}
	label := ir.AxisLink{In: 2, Axis: 0}
	if lossReduction(n) == 2 {
		label.Rel = ir.Whole
	}
	m.Out[1] = []ir.OutAxis{{{In: 0, Axis: 0}, label}, nil}
	return m
}

func linearCrossEntropyInfer(c *ir.InferCtx) error {
	x, w, labels := c.Shape(0), c.Shape(1), c.Shape(2)
	if x.Ranked && x.Rank() != 2 || w.Ranked && w.Rank() != 2 || labels.Ranked && labels.Rank() != 1 {
		return c.Errorf("X, W and labels have shapes %s, %s and %s; a matrix, a matrix and a vector are needed", x, w, labels)
	}
	hidden := 0
	if c.Node.Int("transW", 0) != 0 {
		hidden = 1
	}
	if x.Ranked && w.Ranked && x.Dims[1].Differ(w.Dims[hidden]) {
		return c.Errorf("X of shape %s and W of shape %s do not multiply", x, w)
	}
	if x.Ranked && labels.Ranked && x.Dims[0].Differ(labels.Dims[0]) {
		return c.Errorf("%s labels for %s tokens", labels.Dims[0], x.Dims[0])
	}
	if b := c.Shape(3); c.Has(3) && b.Ranked && (b.Rank() != 1 || w.Ranked && b.Dims[0].Differ(w.Dims[1-hidden])) {
		return c.Errorf("the bias of shape %s does not fit W of shape %s", b, w)
	}
	switch r := c.Node.Str("reduction", "mean"); r {
	case "sum", "mean":
	default:
		return c.Errorf("reduction is %q; it must be sum or mean", r)
	}
	c.SetTensor(0, ir.DType(c.Node.Int("to", int64(c.DType(0)))), ir.Dims())
	c.Set(1, c.In(0))
	c.Set(2, c.In(1))
	if c.Has(3) {
		c.Set(3, c.In(3))
	}
	return nil
}

// headSizes is tokens, hidden size, vocabulary and tokens of a chunk.
func headSizes(n *ir.Node, x, w []int64) (tokens, hidden, vocab, chunk int64) {
	tokens, hidden, vocab = x[0], x[1], w[1]
	if n.Int("transW", 0) != 0 {
		vocab = w[0]
	}
	chunk = n.Int("chunk", tokens)
	return tokens, hidden, vocab, max(1, min(chunk, tokens))
}

// headWorkspace is the parts of the workspace in bytes, each aligned: the
// scores of a chunk, the loss of every token and the number of labels that
// count, the sums of the weight's and the bias's gradients in float, and the
// products' scratch.
func headWorkspace(c *ir.NodeCtx) (scores, losses, sum, biasSum, products int64) {
	tokens, hidden, vocab, chunk := headSizes(c.Node, c.InShape(0), c.InShape(1))
	size := int64(c.InDType(0).Bits() / 8)
	scores = ir.Padded(chunk * vocab * size)
	losses = ir.Padded((tokens + 2) * 8)
	if size == 2 && c.HasOut(2) {
		sum = ir.Padded(hidden * vocab * 4)
	}
	if size == 2 && c.HasOut(3) {
		biasSum = ir.Padded(vocab * 4)
	}
	return scores, losses, sum, biasSum, gemmWorkspace(2*chunk*hidden*vocab, c.InDType(0))
}

func linearCrossEntropyCost(c *ir.CostCtx) ir.Cost {
	tokens, hidden, vocab, _ := headSizes(c.Node, c.InShape(0), c.InShape(1))
	products := int64(1)
	for out := 1; out <= 2; out++ {
		if c.HasOut(out) {
			products++
		}
	}
	scores, losses, sum, biasSum, scratch := headWorkspace(c)
	read, write := c.Traffic()
	product := 2 * tokens * hidden * vocab
	return ir.Cost{FLOPs: products * product, Forward: product, Read: read, Write: write,
		Workspace: scores + losses + sum + biasSum + scratch, Unit: ir.Matrix, DType: c.InDType(0)}
}

// linearCrossEntropyGrad: the gradients are outputs of the forward node, for a
// loss gradient of one.
func linearCrossEntropyGrad(c *ir.GradCtx) error {
	dloss := c.OutGrad(0)
	if dloss == nil || c.OutGrad(1) != nil || c.OutGrad(2) != nil || c.OutGrad(3) != nil {
		return c.Node.Errorf("grad", "not derived yet: second derivatives of the loss head")
	}
	one := false
	if t := dloss.Const(); t != nil && t.Len() == 1 {
		one = t.Floats()[0] == 1
	}
	for out, i := range []int{0, 1, 3} {
		if !c.Needs(i) {
			continue
		}
		g := c.Out(1 + out)
		if !one {
			g = c.Mul(g, c.Cast(dloss, g.Type.DType))
		}
		c.Set(i, g)
	}
	return nil
}

func linearCrossEntropyEval(c *ir.EvalCtx) error {
	x, w := c.In(0), c.In(1)
	tokens, hidden, vocab, _ := headSizes(c.Node, x.Dims, w.Dims)
	class, _, err := lossLabels(c, lossPorts{scores: 0, labels: 2, weights: -1, ignore: -1}, lossView{tokens, vocab, 1})
	if err != nil {
		return err
	}
	count := 0.0
	for _, k := range class {
		if k >= 0 {
			count++
		}
	}
	scale := 1.0
	if lossReduction(c.Node) == 2 && count > 0 {
		scale = 1 / count
	}
	h := lossHead{x: x.Floats(), w: w.Floats(), hidden: int(hidden), vocab: int(vocab), transW: c.Node.Int("transW", 0) != 0,
		scale: float64(c.Node.Float("scale", 1)), softcap: float64(c.Node.Float("softcap", 0)),
		round: func(v float64) float64 { return roundTo(x.DType, v) }, dx: make([]float64, len(x.Floats())), dw: make([]float64, len(w.Floats())),
		bias: make([]float64, vocab), dbias: make([]float64, vocab)}
	if c.Has(3) {
		h.bias = c.In(3).Floats()
	}
	sum := 0.0
	for i, k := range class {
		sum += h.token(i, int(k), scale)
	}
	if lossReduction(c.Node) == 2 {
		sum /= count // 0/0 where every label is ignored, as ONNX has it
	}
	c.Set(0, ir.FromFloats(ir.DType(c.Node.Int("to", int64(x.DType))), []float64{sum}))
	if c.HasOut(1) {
		c.Set(1, ir.FromFloats(x.DType, h.dx, x.Dims...))
	}
	if c.HasOut(2) {
		c.Set(2, ir.FromFloats(x.DType, h.dw, w.Dims...))
	}
	if c.HasOut(3) {
		c.Set(3, ir.FromFloats(x.DType, h.dbias, vocab))
	}
	return nil
}

// lossHead adds up the loss head token by token.
type lossHead struct {
	x, w, bias     []float64
	dx, dw, dbias  []float64
	hidden, vocab  int
	transW         bool
	scale, softcap float64
	round          func(float64) float64
}

// at is the index of weight (h, v).
func (d *lossHead) at(h, v int) int {
	if d.transW {
		return v*d.hidden + h
	}
	return h*d.vocab + v
}

// token is the loss of token i at class k (-1: ignored); it adds the token's
// gradients, scaled.
func (d *lossHead) token(i, k int, scale float64) float64 {
	if k < 0 {
		return 0
	}
	x, dx := d.x[i*d.hidden:(i+1)*d.hidden], d.dx[i*d.hidden:(i+1)*d.hidden]
	scores := make([]float64, d.vocab)
	top := math.Inf(-1)
	for v := range scores {
		s := 0.0
		for h, xh := range x {
			s += xh * d.w[d.at(h, v)]
		}
		scores[v] = d.score(d.round(d.round(s) + d.bias[v]))
		top = max(top, scores[v])
	}
	sum := 0.0
	for _, s := range scores {
		sum += math.Exp(s - top)
	}
	for v, s := range scores {
		g := math.Exp(s-top) / sum
		if v == k {
			g--
		}
		g = d.round(g * scale * d.slope(s))
		d.dbias[v] += g
		for h := range x {
			dx[h] += g * d.w[d.at(h, v)]
			d.dw[d.at(h, v)] += x[h] * g
		}
	}
	return math.Log(sum) + top - scores[k]
}

// score is what a product with its bias becomes.
func (d *lossHead) score(z float64) float64 {
	z *= d.scale
	if d.softcap > 0 {
		z = d.softcap * math.Tanh(z/d.softcap)
	}
	return z
}

// slope is the derivative of score where it is s.
func (d *lossHead) slope(s float64) float64 {
	if d.softcap > 0 {
		return d.scale * (1 - s/d.softcap*(s/d.softcap))
	}
	return d.scale
}

// Package headmatch finds loss heads: a projection of hidden states to scores
// of classes, and their cross entropy with labels, in the forms that exporters
// and tracers write. It only reads the graph; the pass losshead changes it. A
// form that is not understood to the last node is refused with the reason:
// what is taken for a head that it is not would be a wrong gradient.
package headmatch

import (
	"fmt"

	"memoc/ir"
)

// Head is a loss head: Loss is Factor times the sum, or the mean if Mean, of
// the cross entropies of the tokens that count.
type Head struct {
	Loss   *ir.Value
	Mean   bool
	Factor float64

	Scores *ir.Value // what the softmax reads
	Labels *ir.Value // class numbers, one a token in any shape
	Wraps  bool      // labels below 0 count classes from the end
	Ignore *int64    // tokens of this label do not count
	Mask   *ir.Value // nor do those whose bool is false (true, if Masks); nil: there is none
	Masks  bool

	// Scores are Rows applied to Softcap tanh(Z / Softcap), or to Z where
	// Softcap is 0, for Z = Scale (X W + Bias).
	X, W, Bias     *ir.Value
	TransW         bool // W is [classes, hidden]
	Scale, Softcap float64
	Rows           []*ir.Node // move rows and leave the classes; first comes first

	Inner []*ir.Value // of the size of the scores; beside the head only their shapes are read
	Back  *Backward   // the gradient, where a traced graph holds it
}

// Backward is the gradient of a head in a traced graph: values that the head's
// own outputs replace. Nil ones are not there.
type Backward struct {
	X    *ir.Value // a row of the hidden size for each token
	W    *ir.Value // as Head.W, or transposed if WT
	WT   bool
	Bias *ir.Value // as many elements as Head.Bias
}

// Starts reports whether n begins a head's loss, and the scores it reads.
func Starts(n *ir.Node) (scores *ir.Value, ok bool) {
	switch {
	case is(n, "SoftmaxCrossEntropyLoss") || n.Domain == ir.MsDomain && n.Op == "SoftmaxCrossEntropyLossInternal":
		return n.In[0], true
	case is(n, "LogSoftmax"):
		return n.In[0], true
	}
	return nil, false
}

// Find looks at the head whose loss begins at n. trained are the names of the
// weights that are trained by request, which no factor may be.
func Find(n *ir.Node, trained map[string]bool) (h *Head, why string) {
	h = &Head{Factor: 1, Scale: 1, Scores: n.In[0]}
	m := &matcher{h: h, start: n, trained: trained}
	if _, ok := h.Scores.Type.Shape.Static(); !ok || h.Scores.Type.Shape.Rank() < 2 {
		return nil, "the sizes of its scores are not bound, or it has one token"
	}
	if is(n, "LogSoftmax") {
		why = m.spelled()
	} else {
		why = m.operator()
	}
	if why == "" {
		why = m.projection()
	}
	if why == "" && m.traced {
		why = m.backward()
	}
	if why != "" {
		return nil, why
	}
	return h, ""
}

type matcher struct {
	h       *Head
	start   *ir.Node
	trained map[string]bool

	classes int        // the axis of the scores that is the classes
	logProb *ir.Value  // nil where the loss is one operator
	readers []*ir.Node // of logProb that the forward pass knows
	count   *ir.Value  // the number of tokens that count, where the mean is spelled
	traced  bool       // logProb has readers beside these
	product *ir.Node
}

// operator takes a loss that is one node.
func (m *matcher) operator() string {
	n, h := m.start, m.h
	m.classes = 1
	if len(n.In) > 2 && n.In[2] != nil {
		return "the loss has class weights"
	}
	for _, v := range n.Out[1:] {
		if used(v) {
			m.logProb, m.traced = v, true // by its gradient alone, which backward sees to
		}
	}
	h.Labels = n.In[1]
	if a := n.Attr("ignore_index"); a != nil {
		h.Ignore = &a.I
	}
	if len(n.In) > 3 && n.In[3] != nil {
		c := n.In[3].Const()
		if c == nil || c.Len() != 1 {
			return "the label to ignore is computed"
		}
		h.Ignore = &c.Ints()[0]
	}
	return m.reduced(n)
}

// reduced takes the reduction of an operator's loss.
func (m *matcher) reduced(n *ir.Node) string {
	switch m.h.Loss = n.Out[0]; n.Str("reduction", "mean") {
	case "mean":
		m.h.Mean = true
	case "none":
		return m.total(n.Out[0], 1)
	}
	return ""
}

// projection follows the scores back to the product that makes them.
func (m *matcher) projection() string {
	h, v := m.h, m.h.Scores
	rank := v.Type.Shape.Rank()
	if m.classes != rank-1 {
		// The classes stand second, the tokens' axes around them.
		n := v.Def
		if n == nil || !is(n, "Transpose") || !movesClasses(n, m.classes) || !single(v) {
			return "the classes are not the scores' last axis"
		}
		v = n.In[0]
	}
	factor := 1.0
	for {
		if v.Def == nil || len(readersOf(v)) != 1 || v.IsOutput() {
			return fmt.Sprintf("%q has other readers, or is no result", v.Name)
		}
		h.Inner = append(h.Inner, v)
		n := v.Def
		if n.Domain != ir.OnnxDomain {
			return "the scores come from " + n.FullOp()
		}
		switch {
		case n.Op == "MatMul" || n.Op == "Gemm":
			h.Scale = factor
			m.product = n
			return m.operands()
		case n.Op == "Cast" && n.In[0].Type.DType.IsFloat() || n.Op == "Identity":
			v = n.In[0]
		case keepsClasses(n, v):
			h.Rows = append([]*ir.Node{n}, h.Rows...)
			v = n.In[0]
		default:
			next, why := m.pointwise(n, &factor)
			if why != "" {
				return why
			}
			v = next
		}
	}
}

// pointwise takes in a factor, a cap or a bias; factor is what multiplies v
// so far.
func (m *matcher) pointwise(n *ir.Node, factor *float64) (v *ir.Value, why string) {
	h := m.h
	switch n.Op {
	case "Mul", "Div":
		c, x := m.factorOf(n)
		switch {
		case x == nil || !sameShape(x, n.Out[0]):
			return nil, "the scores are multiplied by no constant"
		case h.Bias != nil:
			return nil, "the scores are multiplied before the bias is added"
		}
		*factor *= c
		return x, ""
	case "Tanh":
		if h.Softcap != 0 || h.Bias != nil || *factor <= 0 {
			return nil, "the scores pass through a Tanh that is no cap"
		}
		h.Softcap = *factor
		return n.In[0], ""
	case "Add":
		for i, b := range n.In {
			x := n.In[1-i]
			if b.Type.Shape.Rank() == 1 && sameShape(x, n.Out[0]) && h.Bias == nil && lastDim(b).Equal(lastDim(x)) && x.Type.Shape.Rank() > 1 {
				h.Bias = b
				return x, ""
			}
		}
		return nil, "what is added to the scores is no bias"
	}
	return nil, "the scores come from " + n.FullOp()
}

// operands finds hidden states and weight of the product.
func (m *matcher) operands() string {
	n, h := m.product, m.h
	if n.Op == "Gemm" {
		if why := m.gemm(); why != "" {
			return why
		}
	}
	h.X, h.W = n.In[0], n.In[1]
	if h.W.Type.Shape.Rank() != 2 || h.X.Type.Shape.Rank() < 2 {
		return "the projection's weight is no matrix"
	}
	if d := h.W.Def; d != nil && is(d, "Transpose") && d.In[0].Type.Shape.Rank() == 2 && swaps(d) {
		h.W, h.TransW = d.In[0], !h.TransW
	}
	if _, ok := h.X.Type.Shape.Static(); !ok {
		return "its sizes are not bound"
	}
	if h.Bias != nil && h.Bias.Type.DType != h.X.Type.DType {
		return "the bias is of another type than the projection"
	}
	return ""
}

func (m *matcher) gemm() string {
	n, h := m.product, m.h
	h.TransW = n.Int("transB", 0) != 0
	if n.Int("transA", 0) != 0 {
		return "the projection's input is transposed"
	}
	alpha := float64(n.Float("alpha", 1))
	if len(n.In) < 3 || n.In[2] == nil {
		if h.Bias != nil && alpha != 1 {
			return "the scores are multiplied before the bias is added"
		}
		h.Scale *= alpha
		return ""
	}
	b := n.In[2]
	if h.Bias != nil || alpha != 1 || n.Float("beta", 1) != 1 || b.Type.Shape.Rank() != 1 || !lastDim(b).Equal(lastDim(n.Out[0])) {
		return "the projection has a factor, or a bias that is no vector of classes"
	}
	h.Bias = b
	return ""
}

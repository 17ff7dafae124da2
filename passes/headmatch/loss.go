package headmatch

import "memoc/ir"

// spelled takes a loss that begins with a LogSoftmax: the operator for the
// negative log-likelihood, or a look-up of each token's label.
func (m *matcher) spelled() string {
	n := m.start
	rank := n.In[0].Type.Shape.Rank()
	standard := int64(-1)
	if n.Version < 13 {
		standard = 1
	}
	axis, ok := ir.NormAxis(n.Int("axis", standard), rank)
	if !ok || n.Version < 13 && axis != rank-1 {
		return "the softmax is not along the classes"
	}
	m.classes, m.logProb = axis, n.Out[0]
	var start *ir.Node
	for _, r := range readersOf(m.logProb) {
		if is(r, "NegativeLogLikelihoodLoss") || is(r, "GatherElements") {
			if start != nil {
				return "the log-probabilities are looked up twice"
			}
			start = r
		}
	}
	switch {
	case start == nil:
		return "nothing looks up the log-probabilities of labels"
	case plain(start.In[0]) != m.logProb:
		return "the log-probabilities are no data of the look-up"
	}
	m.readers = append(m.readers, start)
	m.traced = len(readersOf(m.logProb)) > 1
	if start.Op == "NegativeLogLikelihoodLoss" {
		return m.likelihood(start)
	}
	return m.lookedUp(start)
}

func (m *matcher) likelihood(n *ir.Node) string {
	switch {
	case m.classes != 1:
		return "the softmax is not along the classes"
	case len(n.In) > 2 && n.In[2] != nil:
		return "the loss has class weights"
	}
	if a := n.Attr("ignore_index"); a != nil {
		m.h.Ignore = &a.I
	}
	m.h.Labels = n.In[1]
	return m.reduced(n)
}

// lookedUp takes a GatherElements of the log-probabilities.
func (m *matcher) lookedUp(n *ir.Node) string {
	idx := n.In[1]
	scores, _ := m.h.Scores.Type.Shape.Static()
	dims, ok := idx.Type.Shape.Static()
	axis, inRange := ir.NormAxis(n.Int("axis", 0), len(scores))
	if !ok || !inRange || axis != m.classes || axis != len(scores)-1 || len(dims) != len(scores) {
		return "the log-probabilities are not looked up along the classes"
	}
	for i, d := range dims {
		if i == axis && d != 1 || i != axis && d != scores[i] {
			return "not one log-probability of each token is looked up"
		}
	}
	m.h.Labels, m.h.Wraps = idx, true
	return m.total(n.Out[0], -1)
}

// total follows the losses of tokens, times sign, down to their sum or mean.
func (m *matcher) total(v *ir.Value, sign float64) string {
	tokens := elements(v)
	for {
		n := reader(v)
		if n == nil {
			return "the losses of tokens are used one by one"
		}
		if elements(n.Out[0]) == 1 && (is(n, "ReduceSum") || is(n, "ReduceMean")) && n.In[0] == v {
			m.h.Factor = sign
			if mean := n.Op == "ReduceMean"; mean && m.h.Mask == nil && m.h.Ignore == nil {
				m.h.Mean = true
			} else if mean {
				m.h.Factor /= float64(tokens)
			}
			m.h.Loss = n.Out[0]
			m.afterSum()
			return ""
		}
		if n.Domain != ir.OnnxDomain || elements(n.Out[0]) != tokens {
			return "the losses of tokens go through " + n.FullOp()
		}
		switch n.Op {
		case "Neg":
			sign = -sign
		case "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity":
			if n.In[0] != v {
				return "the losses of tokens are read as a shape"
			}
		case "Cast":
			if n.Out[0].Type.DType.Bits() < v.Type.DType.Bits() || !n.Out[0].Type.DType.IsFloat() {
				return "the losses of tokens are rounded before they are summed"
			}
		case "Where", "Mul":
			if why := m.masked(n, v, tokens); why != "" {
				return why
			}
		default:
			return "the losses of tokens go through " + n.FullOp()
		}
		v = n.Out[0]
	}
}

// masked takes a mask of tokens: Where(mask, v, 0), or v times a mask that was
// cast.
func (m *matcher) masked(n *ir.Node, v *ir.Value, tokens int64) string {
	var mask *ir.Value
	masks := false
	if n.Op == "Where" {
		masks = n.In[2] == v
		if x, ok := m.stays(other(n, v, 1)); !ok || x != 0 || n.In[0] == v {
			return "the losses of tokens are chosen from two"
		}
		mask = n.In[0]
	} else {
		d := plain(other(n, v, 0)).Def
		if !is(d, "Cast") || d.In[0].Type.DType != ir.Bool {
			return "the tokens have weights"
		}
		mask = d.In[0]
	}
	if elements(mask) != tokens || m.h.Mask != nil && (m.h.Masks != masks || !alike(m.h.Mask, mask, tokens)) {
		return "the tokens have two masks, or one of another size"
	}
	m.h.Mask, m.h.Masks = mask, masks
	return ""
}

// afterSum takes in the sign and the division by the number of tokens that
// count, where these follow the sum.
func (m *matcher) afterSum() {
	h := m.h
	for {
		n := reader(h.Loss)
		switch {
		case n == nil || elements(n.Out[0]) != 1:
			return
		case is(n, "Neg"):
			h.Factor = -h.Factor
		case is(n, "Div") && n.In[0] == h.Loss && !h.Mean && h.Mask != nil && !h.Masks && h.Ignore == nil && (h.Factor == 1 || h.Factor == -1) && m.counts(n.In[1]):
			h.Mean, m.count = true, n.In[1]
		default:
			return
		}
		h.Loss = n.Out[0]
	}
}

// counts reports whether v is the number of tokens that the mask lets count.
func (m *matcher) counts(v *ir.Value) bool {
	n := uncast(v).Def
	if !is(n, "ReduceSum") || elements(n.Out[0]) != 1 || n.Out[0].Type.DType.Bits() < 32 {
		return false
	}
	c := plain(n.In[0])
	return is(c.Def, "Cast") && c.Def.In[0].Type.DType == ir.Bool && alike(c.Def.In[0], m.h.Mask, elements(m.h.Mask))
}

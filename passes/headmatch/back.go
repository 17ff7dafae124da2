package headmatch

import (
	"slices"

	"memoc/ir"
)

// backward takes the gradient of a traced step. Every part of it is held
// against the forward pass.
func (m *matcher) backward() string {
	h := m.h
	if h.Scale != 1 || h.Softcap != 0 || h.Factor != 1 || h.Masks {
		return "the gradient of a head of this form is not recognised"
	}
	for _, n := range h.Rows {
		if is(n, "Slice") || is(n, "Gather") || is(n, "Transpose") {
			return "the gradient of a head whose rows are moved is not recognised"
		}
	}
	switch {
	case m.logProb.IsOutput():
		return "the log-probabilities are used as well"
	case h.Wraps && h.Ignore == nil:
		return m.tracedGrad()
	case h.Loss == m.start.Out[0] && !is(m.start, "LogSoftmax"):
		return m.builtGrad()
	}
	return "the gradient of a head of this form is not recognised"
}

// builtGrad takes the gradient that ONNX Runtime builds: one operator makes that
// of the scores.
func (m *matcher) builtGrad() string {
	h := m.h
	readers := readersOf(m.logProb)
	if len(readers) != 1 || readers[0].Domain != ir.MsDomain || readers[0].Op != m.start.Op+"Grad" {
		return "the log-probabilities are used as well"
	}
	n := readers[0]
	if len(n.In) < 3 || n.In[0] == nil || n.In[1] != m.logProb || !alike(n.In[2], h.Labels, elements(h.Labels)) {
		return "the gradient of the loss has other labels"
	}
	if x, ok := folded(n.In[0]); !ok || x != 1 || elements(n.In[0]) != 1 {
		return "the gradient is that of another multiple of the loss"
	}
	ignore := n.Attr("ignore_index")
	var other *int64
	if ignore != nil {
		other = &ignore.I
	}
	if len(n.In) > 4 && n.In[4] != nil {
		c := n.In[4].Const()
		if c == nil || c.Len() != 1 {
			return "the label to ignore is computed"
		}
		other = &c.Ints()[0]
	}
	switch {
	case (other == nil) != (h.Ignore == nil) || other != nil && *other != *h.Ignore:
		return "the gradient ignores another label"
	case len(n.In) > 3 && n.In[3] != nil || n.Str("reduction", "mean") != m.start.Str("reduction", "mean"):
		return "the gradient is that of another loss"
	case !sameShape(n.Out[0], h.Scores):
		return "the gradient of the scores has another shape"
	}
	return m.products(n.Out[0])
}

// tracedGrad takes the gradient as PyTorch's tracer writes it:
//
//	G  = ScatterElements(0, label, -1) * w      w = Where(mask, 1/count, 0)
//	dS = G - Exp(logProb) * ReduceSum(G, classes)
//	dX = dS W^T,  dW = X^T dS,  dbias = ReduceSum(dS, tokens)
func (m *matcher) tracedGrad() string {
	var exp *ir.Node
	for _, n := range readersOf(m.logProb) {
		switch {
		case slices.Contains(m.readers, n):
		case is(n, "Exp") && exp == nil:
			exp = n
		default:
			return "the log-probabilities are used as well"
		}
	}
	if exp == nil {
		return "the log-probabilities are used as well"
	}
	mul := reader(exp.Out[0])
	if !is(mul, "Mul") {
		return "the gradient of the softmax has another form"
	}
	sub := reader(mul.Out[0])
	if !is(sub, "Sub") || sub.In[1] != mul.Out[0] {
		return "the gradient of the softmax has another form"
	}
	g := sub.In[0]
	if !m.rowSum(other(mul, exp.Out[0], 0), g) || len(g.Uses()) != 2 || g.IsOutput() {
		return "the gradient of the softmax has another form"
	}
	if why := m.lookUpGrad(g); why != "" {
		return why
	}
	return m.products(sub.Out[0])
}

// rowSum reports whether v is the sum of g over the classes.
func (m *matcher) rowSum(v, g *ir.Value) bool {
	n := v.Def
	if !is(n, "ReduceSum") || n.In[0] != g || !sameShape(g, m.h.Scores) {
		return false
	}
	want := slices.Clone(g.Type.Shape.Dims)
	want[m.classes] = ir.N(1)
	return v.Type.Shape.Equal(ir.Dims(want...))
}

// lookUpGrad holds g against the gradient of the sum or mean of what was
// looked up.
func (m *matcher) lookUpGrad(g *ir.Value) string {
	const form = "the gradient of the looked-up log-probabilities has another form"
	h, tokens := m.h, elements(m.h.Labels)
	n := g.Def
	if !is(n, "Mul") {
		return form
	}
	scatter, w := n.In[0], n.In[1]
	if !is(scatter.Def, "ScatterElements") {
		scatter, w = w, scatter
	}
	s := scatter.Def
	if !is(s, "ScatterElements") || !sameShape(scatter, h.Scores) || s.Str("reduction", "none") != "none" {
		return form
	}
	axis, _ := ir.NormAxis(s.Int("axis", 0), h.Scores.Type.Shape.Rank())
	zero, okZero := folded(s.In[0])
	one, okOne := folded(s.In[2])
	if axis != m.classes || !okZero || zero != 0 || !okOne || one != -1 || !alike(s.In[1], h.Labels, tokens) || !sameShape(s.In[1], h.Labels) {
		return form
	}
	if !sameShape(w, h.Labels) && elements(w) != 1 {
		return form
	}
	if h.Mask != nil {
		d := plain(w).Def
		if !is(d, "Where") || !alike(d.In[0], h.Mask, tokens) {
			return "the gradient has another mask than the loss"
		}
		if x, ok := filled(d.In[2]); !ok || x != 0 {
			return form
		}
		w = d.In[1]
	}
	if !m.lossGradient(w) {
		return "the gradient is that of another multiple of the loss"
	}
	return ""
}

// folded is filled of a value of a traced step, where an initializer is what
// the exporter folded: weights are inputs.
func folded(v *ir.Value) (x float64, ok bool) {
	if x, ok := filled(v); ok {
		return x, true
	}
	if v.Init == nil || v.IsInput() || v.Init.External != nil || elements(v) > 1<<20 || !v.Type.DType.IsFloat() {
		return 0, false
	}
	t, err := v.Init.Tensor()
	if err != nil || t.Len() == 0 {
		return 0, false
	}
	vals := t.Floats()
	return vals[0], !slices.ContainsFunc(vals, func(y float64) bool { return y != vals[0] })
}

// lossGradient reports whether v is what the sum of the losses is divided by
// in the loss, as a factor.
func (m *matcher) lossGradient(v *ir.Value) bool {
	if elements(v) != 1 {
		return false
	}
	if !m.h.Mean {
		x, ok := filled(v)
		return ok && x == 1
	}
	d := plain(v).Def
	if !is(d, "Div") || m.count == nil {
		return false // a mean that no count was found of is one over all tokens
	}
	x, ok := filled(d.In[0])
	return ok && x == 1 && alike(d.In[1], m.count, elements(m.h.Labels))
}

// products follows the gradient of the scores to what is made from it.
func (m *matcher) products(ds *ir.Value) string {
	m.h.Back = &Backward{}
	if why := m.follow(ds, false, 0); why != "" {
		return why
	}
	if b := m.h.Back; b.X == nil && b.W == nil {
		return "the gradient of the scores is multiplied with nothing"
	}
	return ""
}

// follow takes the readers of v, which has the elements of the gradient of the
// scores, as a matrix transposed if turned.
func (m *matcher) follow(v *ir.Value, turned bool, depth int) string {
	if v.IsOutput() || depth > 8 {
		return "the gradient of the scores is used as well"
	}
	for _, u := range v.Uses() {
		n, why := u.Node, ""
		switch {
		case u.Port == 0 && !turned && (is(n, "Cast") && n.Out[0].Type.DType.IsFloat() || is(n, "Identity") || is(n, "Reshape") && keepsClasses(n, n.Out[0])):
			why = m.follow(n.Out[0], false, depth+1)
		case is(n, "Transpose") && v.Type.Shape.Rank() == 2 && swaps(n):
			why = m.follow(n.Out[0], !turned, depth+1)
		case isProduct(n):
			why = m.multiplied(n, u.Port, turned)
		case is(n, "ReduceSum") && u.Port == 0 && !turned && m.sumsTokens(n):
			m.h.Back.Bias = n.Out[0]
		default:
			why = "the gradient of the scores goes through " + n.FullOp()
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// sumsTokens reports whether n sums the gradient of the scores to that of the
// bias.
func (m *matcher) sumsTokens(n *ir.Node) bool {
	h, rank := m.h, n.In[0].Type.Shape.Rank()
	axes, ok := n.IntList("axes")
	if len(n.In) > 1 && n.In[1] != nil {
		axes, ok = (&ir.InferCtx{Node: n}).StaticInts(1)
	}
	seen := map[int]bool{}
	for _, a := range axes {
		k, inRange := ir.NormAxis(a, rank)
		ok = ok && inRange && k != rank-1
		seen[k] = true
	}
	return ok && len(seen) == rank-1 && h.Bias != nil && h.Back.Bias == nil && n.Out[0].Type.DType == h.Bias.Type.DType
}

// multiplied takes a product that reads the gradient of the scores at a port.
func (m *matcher) multiplied(n *ir.Node, port int, turned bool) string {
	h, b := m.h, m.h.Back
	const form = "the gradient of the scores is multiplied with something else"
	if n.Out[0].Type.DType != h.X.Type.DType {
		return "the gradient's product is of another type than the head's"
	}
	factor, swapped := matrix(n.In[1-port])
	turned, swapped = turned != transposes(n, port), swapped != transposes(n, 1-port)
	w, wSwapped := matrix(h.W)
	x, xSwapped := matrix(h.X)
	switch {
	case factor == w && port == 0 && !turned && b.X == nil:
		// dS is [tokens, classes]: the weight must be [classes, hidden].
		if classesFirst := h.TransW != (swapped != wSwapped); !classesFirst {
			return form
		}
		b.X = n.Out[0]
	case plain(factor) == plain(x) && !xSwapped && b.W == nil && n.In[0].Type.Shape.Rank() == 2 && n.In[1].Type.Shape.Rank() == 2:
		// The tokens must meet: dS^T X, or X^T dS.
		if port == 0 && (!turned || swapped) || port == 1 && (turned || !swapped) {
			return form
		}
		b.W, b.WT = n.Out[0], (port == 0) != h.TransW
	default:
		return form
	}
	return ""
}

// isProduct reports whether n multiplies two matrices and nothing else.
func isProduct(n *ir.Node) bool {
	fused := n.Domain == ir.MsDomain && n.Op == "FusedMatMul" && n.Int("transBatchA", 0) == 0 && n.Int("transBatchB", 0) == 0
	return is(n, "MatMul") || (is(n, "Gemm") && (len(n.In) < 3 || n.In[2] == nil) || fused) && n.Float("alpha", 1) == 1
}

// transposes reports whether a product turns the operand at a port.
func transposes(n *ir.Node, port int) bool {
	return !is(n, "MatMul") && n.Int([]string{"transA", "transB"}[port], 0) != 0
}

// matrix is v before transpositions of matrices; swapped is their parity.
func matrix(v *ir.Value) (base *ir.Value, swapped bool) {
	for {
		switch n := v.Def; {
		case is(n, "Identity"):
			v = n.In[0]
		case is(n, "Transpose") && v.Type.Shape.Rank() == 2 && swaps(n):
			v, swapped = n.In[0], !swapped
		default:
			return v, swapped
		}
	}
}

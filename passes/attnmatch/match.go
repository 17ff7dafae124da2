// Package attnmatch finds attention that is spelled out in standard operators:
// a product of queries and keys, scale, mask and softmax, and a product with
// values; and its gradient, where the graph holds that too. It changes
// nothing: what it finds is a description with the nodes involved.
//
// It knows how exporters write attention, and nothing of what replaces it.
package attnmatch

import (
	"fmt"
	"math"
	"slices"

	"memoc/ir"
	"memoc/passes/mask"
)

// Match is one attention. Products are of rank 3, [heads, positions, width], or
// of rank 4, [batch, heads, positions, width].
type Match struct {
	Softmax, Scores, Out *ir.Node // Scores multiplies Q by K^T, Out the weights by V
	Q, KT, V             *ir.Value
	Perms                Perms
	Turned               bool // KT is the keys not transposed: the product does it
	// Dims is batch, heads, queries and keys; batch is 1 where nothing tells it
	// from the heads.
	Dims     [4]ir.Dim
	Scale    float64
	Softcap  float64
	Masks    []mask.Part
	Replaced bool     // a mask stands in the place of scores
	Added    bool     // a mask is added to them
	Guarded  bool     // a NaN of the softmax becomes 0
	Type     ir.DType // of the scores where masks meet them
	Back     *Backward

	weights map[*ir.Value]bool // what holds the softmax on its way to Out
	inner   map[*ir.Node]bool  // the nodes on that way
	merged  bool               // a mask was met where batch and heads are one axis
}

// Find describes the attention around a softmax. m is nil where there is none;
// why says what is in the way where it looks like one.
func Find(softmax *ir.Node) (m *Match, why string) {
	v := softmax.Out[0]
	rank := v.Type.Shape.Rank()
	if axis, ok := ir.NormAxis(softmax.Int("axis", defaultAxis(softmax)), rank); !ok || axis != rank-1 {
		return nil, ""
	}
	m = &Match{Softmax: softmax, Scale: 1, weights: map[*ir.Value]bool{}, inner: map[*ir.Node]bool{}}
	out, why := m.forward(v, 0)
	if out == nil || !reachesProduct(softmax.In[0], 12) {
		return nil, ""
	}
	m.Out, m.V = out, out.In[1]
	if e, ok := equationOf(out); ok {
		m.Perms.V, m.Perms.Out, _ = e.context()
	}
	if why == "" {
		why = m.upward(softmax.In[0])
	}
	if why == "" {
		why = m.shapes()
	}
	if why == "" {
		why = m.readers()
	}
	if why != "" {
		return nil, why
	}
	return m, ""
}

func defaultAxis(n *ir.Node) int64 {
	if n.Version > 0 && n.Version < 13 {
		return 1
	}
	return -1
}

// is reports whether n is an operator of the default domain.
func is(n *ir.Node, op ir.OpName) bool {
	return n != nil && n.Domain == ir.OnnxDomain && n.Op == op
}

// reachesProduct reports whether pointwise operators lead from v back to a
// product of two computed tensors.
func reachesProduct(v *ir.Value, depth int) bool {
	n := v.Def
	if n == nil || depth == 0 {
		return false
	}
	if isFused(n) {
		return n.In[0].Init == nil && n.In[1].Init == nil
	}
	if n.Domain != ir.OnnxDomain {
		return false
	}
	switch n.Op {
	case "MatMul", "Einsum":
		return n.In[0].Init == nil && len(n.In) > 1 && n.In[1].Init == nil // beside weights it is a projection
	case "Cast", "Identity", "Reshape", "Add", "Sub", "Mul", "Div", "Where", "Tanh", "Expand", "Max":
		for _, in := range n.In {
			if in != nil && reachesProduct(in, depth-1) {
				return true
			}
		}
	}
	return false
}

// forward follows the softmax to the product with the values. out is nil if
// there is none.
func (m *Match) forward(v *ir.Value, depth int) (out *ir.Node, why string) {
	if depth > 12 {
		return nil, ""
	}
	m.weights[v] = true
	for _, u := range v.Uses() {
		if e, ok := equationOf(u.Node); ok && u.Port == 0 {
			if _, _, ok := e.context(); ok {
				return u.Node, ""
			}
		}
		if n := u.Node; isProduct(n) && alpha(n) == 1 && u.Port == 0 && !turned(n, 0) && !turned(n, 1) {
			return n, ""
		}
	}
	for _, u := range v.Uses() {
		n := u.Node
		if u.Port < 0 || len(n.Out) == 0 || n.Out[0] == nil {
			continue
		}
		guard, reason := false, ""
		switch {
		case is(n, "Where"):
			if guard = isGuard(n, v); !guard {
				continue
			}
		case u.Port != 0:
			continue
		case is(n, "Dropout"):
			reason = dropoutInTheWay(n)
		case is(n, "Cast") && n.Out[0].Type.DType.IsFloat(), changesNothing(n), is(n, "Reshape") && splitsHeads(v, n.Out[0]):
		default:
			continue
		}
		if out, deeper := m.forward(n.Out[0], depth+1); out != nil {
			if reason == "" {
				reason = deeper
			}
			m.inner[n] = true
			m.Guarded = m.Guarded || guard
			return out, reason
		}
	}
	delete(m.weights, v)
	return nil, ""
}

// isGuard reports whether n is Where(IsNaN(v), 0, v).
func isGuard(n *ir.Node, v *ir.Value) bool {
	c := n.In[0].Def
	zero, ok := scalar(n.In[1])
	return is(c, "IsNaN") && c.In[0] == v && n.In[2] == v && ok && zero == 0
}

// dropoutInTheWay says why a Dropout keeps the attention apart, "" if it does
// nothing.
func dropoutInTheWay(n *ir.Node) string {
	ratio := 0.5
	switch {
	case len(n.In) > 1 && n.In[1] != nil:
		r, ok := scalar(n.In[1])
		if !ok {
			return "the ratio of the dropout of the weights is not known"
		}
		ratio = r
	case n.Attr("ratio") != nil:
		ratio = float64(n.Float("ratio", 0.5))
	}
	if len(n.Out) > 1 && n.Out[1] != nil && (len(n.Out[1].Uses()) > 0 || n.Out[1].IsOutput()) {
		return "the mask of the dropout of the weights is read"
	}
	if ratio == 0 || n.Version >= 7 && n.Version < 12 {
		return ""
	}
	if n.Version < 7 {
		if n.Int("is_test", 0) != 0 {
			return ""
		}
	} else if len(n.In) < 3 || n.In[2] == nil {
		return ""
	} else if t := n.In[2].Const(); t != nil && t.Len() == 1 && t.Ints()[0] == 0 {
		return ""
	}
	return "the weights are dropped out at random"
}

// changesNothing reports whether a node's result is its first input.
func changesNothing(n *ir.Node) bool {
	if n.Domain != ir.OnnxDomain {
		return false
	}
	switch n.Op {
	case "Identity":
		return true
	case "Expand", "Reshape", "Cast":
		return n.Out[0].Type.Shape.Ranked && n.In[0].Type.Equal(n.Out[0].Type)
	}
	return false
}

// splitsHeads reports whether one of a and b is [B,H,x,y] and the other
// [B*H,x,y].
func splitsHeads(a, b *ir.Value) bool {
	s, t := a.Type.Shape.Dims, b.Type.Shape.Dims
	if len(s) < len(t) {
		s, t = t, s
	}
	return len(s) == 4 && len(t) == 3 && s[0].Mul(s[1]).Equal(t[0]) && s[2].Equal(t[1]) && s[3].Equal(t[2])
}

// scalar is the number that v holds, if it is a constant of one element. A
// float initializer of rank 0 is the exporter's constant, not a parameter.
func scalar(v *ir.Value) (x float64, ok bool) {
	if n := v.Def; is(n, "Cast") && n.Out[0].Type.DType.IsFloat() || is(n, "Identity") {
		x, ok := scalar(n.In[0])
		return rounded(v.Type.DType, x), ok
	}
	t := v.Const()
	if t == nil || t.Len() != 1 || v.Init != nil && !v.Init.Constant && len(t.Dims) > 0 && t.DType.IsFloat() {
		return 0, false
	}
	if t.DType.IsFloat() {
		return t.Floats()[0], true
	}
	return float64(t.Ints()[0]), true
}

// hiding is scalar, and takes any constant of one element that is too low for a
// parameter.
func hiding(v *ir.Value) (x float64, ok bool) {
	if x, ok = scalar(v); ok {
		return x, true
	}
	if t := v.Const(); t != nil && t.Len() == 1 && t.DType.IsFloat() {
		x = t.Floats()[0]
	}
	return x, mask.Low(v.Type.DType, x)
}

// equation takes in scores made by an Einsum, whose operands may come in
// either order.
func (m *Match) equation(n *ir.Node, e equation) string {
	m.Scores, m.Turned = n, true
	ok := false
	m.Q, m.KT = n.In[0], n.In[1]
	if m.Perms.Q, m.Perms.K, ok = e.scores(); ok {
		return ""
	}
	m.Q, m.KT = n.In[1], n.In[0]
	if m.Perms.Q, m.Perms.K, ok = (equation{e.b, e.a, e.out}).scores(); ok {
		return ""
	}
	return fmt.Sprintf("the scores are made by %s, which is no product of queries and keys", n)
}

// rounded is x as the floating-point type d holds it.
func rounded(d ir.DType, x float64) float64 {
	if !d.IsFloat() {
		return x
	}
	return ir.FromFloats(d, []float64{x}).Floats()[0]
}

// upward follows the softmax's input back to the product of queries and keys.
func (m *Match) upward(v *ir.Value) string {
	scaled := 1.0 // what a mask further up would be multiplied by
	m.Type = v.Type.DType
	for range 24 {
		n := v.Def
		if v.IsOutput() || len(v.Uses()) != 1 {
			return fmt.Sprintf("the scores %q are read elsewhere too", v.Name)
		}
		if n == nil || n.Domain != ir.OnnxDomain && !isProduct(n) {
			return fmt.Sprintf("the scores come from %q", v.Name)
		}
		next := n.In[0]
		e, named := equationOf(n)
		switch {
		case named:
			return m.equation(n, e)
		case isProduct(n) && !turned(n, 0):
			m.Scores, m.Q, m.KT, m.Turned = n, n.In[0], n.In[1], turned(n, 1)
			m.Scale *= alpha(n)
			return ""
		case is(n, "Cast") && next.Type.DType.IsFloat(), changesNothing(n), is(n, "Reshape") && splitsHeads(next, v):
		case is(n, "Add") || is(n, "Where"):
			var why string
			if next, why = m.masked(n, v, scaled); why != "" {
				return why
			}
		case is(n, "Mul") || is(n, "Div"):
			var factor float64
			if factor, next = factorOf(n); next == nil {
				return fmt.Sprintf("the scores are multiplied by %q, no constant", n.In[1].Name)
			}
			if tanh := plain(next).Def; is(tanh, "Tanh") {
				inner, x := 1.0, tanh.In[0]
				if d := plain(x).Def; is(d, "Mul") || is(d, "Div") {
					if inner, x = factorOf(d); x == nil {
						return "the cap of the scores is no constant"
					}
				}
				if m.Softcap != 0 || m.Scale != 1 || math.Abs(inner*factor-1) > 1e-6 {
					return "the scores go through a tanh that is no cap"
				}
				m.Softcap, next = factor, x
				break
			}
			m.Scale *= factor
			scaled *= factor
		default:
			return fmt.Sprintf("the scores go through %s", n)
		}
		v = next
	}
	return "the scores come from far"
}

// plain is v before nodes that change nothing.
func plain(v *ir.Value) *ir.Value {
	for v.Def != nil && changesNothing(v.Def) {
		v = v.Def.In[0]
	}
	return v
}

// factorOf takes x*c or x/c apart; x is nil where neither is a constant.
func factorOf(n *ir.Node) (c float64, x *ir.Value) {
	if c, ok := scalar(n.In[1]); ok {
		if n.Op == "Div" {
			return 1 / c, n.In[0]
		}
		return c, n.In[0]
	}
	if c, ok := scalar(n.In[0]); ok && n.Op == "Mul" {
		return c, n.In[1]
	}
	return 0, nil
}

// masked takes the mask off the scores v that n makes.
func (m *Match) masked(n *ir.Node, v *ir.Value, scaled float64) (next *ir.Value, why string) {
	var part mask.Part
	switch {
	case n.Op == "Add":
		a, b := n.In[0], n.In[1]
		if !reachesProduct(a, 12) || !a.Type.Equal(v.Type) {
			a, b = b, a
		}
		next, part = a, mask.Part{V: b}
		m.Added = true
	case n.Op == "Where":
		low, ok := hiding(n.In[2])
		next, part = n.In[1], mask.Part{V: n.In[0], Low: low}
		if !ok {
			if low, ok = hiding(n.In[1]); !ok {
				return nil, "the scores are chosen from two tensors"
			}
			next, part = n.In[2], mask.Part{V: n.In[0], Not: true, Low: low}
		}
		m.Replaced = true
	}
	if scaled != 1 && !(n.Op == "Where" && scaled > 0) {
		return nil, "the scores are scaled after the mask"
	}
	part.Low *= scaled
	if !next.Type.Equal(v.Type) {
		return nil, "the mask broadcasts the scores"
	}
	if next.Type.Shape.Rank() == 3 {
		m.merged = true
	}
	if m.Softcap != 0 {
		return nil, "the scores are capped after the mask"
	}
	if len(m.Masks) == 0 || m.Type != ir.Float16 {
		m.Type = v.Type.DType
	}
	m.Masks = append(m.Masks, part)
	return next, ""
}

// shapes checks the operands against each other.
func (m *Match) shapes() string {
	q, kt, v, p := permuted(m.Q.Type.Shape, m.Perms.Q), permuted(m.KT.Type.Shape, m.Perms.K), permuted(m.V.Type.Shape, m.Perms.V), m.Scores.Out[0].Type.Shape
	r := q.Rank()
	if m.Turned && kt.Rank() >= 2 {
		kt = ir.Dims(slices.Clone(kt.Dims)...)
		d := kt.Dims
		d[len(d)-1], d[len(d)-2] = d[len(d)-2], d[len(d)-1]
	}
	if r != kt.Rank() || r != v.Rank() || r != 3 && r != 4 || m.Out.In[0].Type.Shape.Rank() != r {
		return fmt.Sprintf("queries %s, transposed keys %s and values %s are not of rank 3 or 4", q, kt, v)
	}
	for a := range r - 2 {
		one := r == 4 && a == 1 && kt.Dims[a].Equal(ir.N(1)) && v.Dims[a].Equal(ir.N(1)) // one head of keys for all
		if !q.Dims[a].Equal(p.Dims[a]) || !one && !(kt.Dims[a].Equal(q.Dims[a]) && v.Dims[a].Equal(q.Dims[a])) {
			return fmt.Sprintf("queries %s, transposed keys %s and values %s do not have the same heads", q, kt, v)
		}
	}
	if !kt.Dims[r-1].Equal(v.Dims[r-2]) || !q.Dims[r-1].Equal(kt.Dims[r-2]) {
		return fmt.Sprintf("queries %s, transposed keys %s and values %s do not fit", q, kt, v)
	}
	if m.Q.Type.DType != m.KT.Type.DType {
		return "queries and keys are of different types"
	}
	m.Dims = [4]ir.Dim{ir.N(1), p.Dims[0], p.Dims[r-2], p.Dims[r-1]}
	if r == 4 {
		m.Dims[0], m.Dims[1] = p.Dims[0], p.Dims[1]
	} else if s := m.split(); s != nil {
		if m.Perms.Q != nil || m.Perms.V != nil {
			return "the products are Einsums of batch and heads as one axis"
		}
		if m.merged {
			return "a mask is met where batch and heads are one axis"
		}
		m.Dims[0], m.Dims[1] = s.Dims[0], s.Dims[1]
	}
	return ""
}

// split is the shape of scores or weights of rank 4, nil if all are of rank 3.
func (m *Match) split() *ir.Shape {
	for v := m.Softmax.In[0]; v != m.Scores.Out[0]; v = v.Def.In[0] {
		if v.Type.Shape.Rank() == 4 {
			return &v.Type.Shape
		}
		if n := v.Def; !is(n, "Cast") && !is(n, "Reshape") && !is(n, "Identity") && !is(n, "Expand") {
			break
		}
	}
	for _, u := range m.Scores.Out[0].Uses() {
		if is(u.Node, "Reshape") && u.Node.Out[0].Type.Shape.Rank() == 4 {
			return &u.Node.Out[0].Type.Shape
		}
	}
	return nil
}

// readers checks who else reads the weights: nobody, or the gradient.
func (m *Match) readers() string {
	var others []ir.Use
	for v := range m.weights {
		if v.IsOutput() {
			return fmt.Sprintf("the weights %q are an output of the graph", v.Name)
		}
		for _, u := range v.Uses() {
			if u.Node == m.Out || m.inner[u.Node] || m.Guarded && is(u.Node, "IsNaN") {
				continue
			}
			others = append(others, u)
		}
	}
	switch {
	case len(others) == 0:
		return ""
	case m.Perms.Q != nil || m.Perms.V != nil:
		return "the products are Einsums, and the graph holds a gradient"
	case m.KT.Type.Shape.Rank() == 4 && !m.KT.Type.Shape.Dims[1].Equal(m.Dims[1]):
		return "the keys are broadcast to the heads of the queries, and the graph holds a gradient"
	}
	return m.backward()
}

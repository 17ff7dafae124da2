package attnmatch

import (
	"fmt"
	"math"
	"slices"

	"memoc/ir"
)

// Backward is the gradient of a Match that the graph holds: the products that
// make it, and how it leaves them.
type Backward struct {
	DOut       *ir.Value // the gradient of Out's result, as the products read it
	DQ, DK, DV *ir.Value
	Swapped    bool     // DK is [.., width, positions]
	First      *ir.Node // one of the two products that read DOut
	Second     *ir.Node // the other
}

// backward finds the gradient among the readers of the weights. It is strict:
// a reader that it cannot name is in the way.
func (m *Match) backward() string {
	b := &Backward{}
	alike := m.alike(m.Softmax.Out[0])
	var muls []*ir.Node
	var dp, ds *ir.Value // gradients of the weights and of the softmax's input
	for v, swapped := range alike {
		for _, u := range v.Uses() {
			n := u.Node
			switch {
			case n == m.Out || len(n.Out) > 0 && n.Out[0] != nil && in(alike, n.Out[0]):
			case isProduct(n) && u.Port == 0 && swapped != turned(n, 0) && !turned(n, 1) && alpha(n) == 1 && b.DV == nil:
				b.DV, b.DOut, b.First = n.Out[0], n.In[1], n
			case is(n, "Mul") && !swapped && !slices.Contains(muls, n):
				muls = append(muls, n)
			case n.Domain == ir.MsDomain && (n.Op == "SoftmaxGrad" || n.Op == "SoftmaxGrad_13") && u.Port == 1 && !swapped && dp == nil:
				dp, ds = n.In[0], n.Out[0]
			default:
				return fmt.Sprintf("the weights %q are read by %s", v.Name, n)
			}
		}
	}
	if b.DV == nil || m.Guarded || m.Softcap != 0 {
		return fmt.Sprintf("the weights %q are read elsewhere too", m.Softmax.Out[0].Name)
	}
	if dp == nil {
		if dp, ds = softmaxGrad(muls, alike); dp == nil {
			return "the weights are read by products that are no gradient of a softmax"
		}
	} else if len(muls) > 0 {
		return fmt.Sprintf("the weights are read by %s", muls[0])
	}
	if why := m.throughValues(b, dp); why != "" {
		return why
	}
	if why := m.throughScores(b, ds); why != "" {
		return why
	}
	m.Back = b
	return ""
}

// canon is v before nodes that change nothing and swaps of the last two axes;
// swapped is the parity of these.
func canon(v *ir.Value) (base *ir.Value, swapped bool) {
	for {
		v = plain(v)
		if !is(v.Def, "Transpose") || !swapsLast(v.Def) {
			return v, swapped
		}
		v, swapped = v.Def.In[0], !swapped
	}
}

// isProduct reports whether n multiplies matrices, perhaps turned and scaled.
func isProduct(n *ir.Node) bool {
	return is(n, "MatMul") || is(n, "Gemm") && len(n.In) == 2 || isFused(n) &&
		n.Int("transBatchA", 0) == 0 && n.Int("transBatchB", 0) == 0
}

func isFused(n *ir.Node) bool { return n.Domain == ir.MsDomain && n.Op == "FusedMatMul" }

// alpha is the number by which a product multiplies its result.
func alpha(n *ir.Node) float64 {
	return float64(n.Float("alpha", 1))
}

// turned reports whether a product reads an operand with its last two axes
// swapped.
func turned(n *ir.Node, port int) bool {
	return n.Int([]string{"transA", "transB"}[port], 0) != 0
}

// transposed reports whether a product reads the elements of v at a port, with
// the last two axes swapped or not.
func transposed(n *ir.Node, port int, v *ir.Value, swapped bool) bool {
	x, p := canon(n.In[port])
	y, q := canon(v)
	return x == y && (p != q != turned(n, port)) == swapped
}

// passes reports whether n, the only reader of v, hands on its elements.
func passes(n *ir.Node, v *ir.Value) bool {
	return is(n, "Cast") && n.Out[0].Type.DType.IsFloat() || changesNothing(n) || is(n, "Reshape") && splitsHeads(v, n.Out[0])
}

// throughValues follows the gradient of the weights back to the product of
// the output's gradient with the values.
func (m *Match) throughValues(b *Backward, dp *ir.Value) string {
	for dp.Def != nil && passes(dp.Def, dp.Def.In[0]) && len(dp.Def.In[0].Uses()) == 1 {
		dp = dp.Def.In[0]
	}
	if dp.Def == nil {
		return fmt.Sprintf("the gradient of the weights is %q", dp.Name)
	}
	n := dp.Def
	if !isProduct(n) || n.In[0] != b.DOut || turned(n, 0) || alpha(n) != 1 {
		return fmt.Sprintf("the gradient of the weights is made by %s", n)
	}
	if !transposed(n, 1, m.V, true) {
		return fmt.Sprintf("the gradient of the weights is made by %s, which does not read the values", n)
	}
	b.Second = n
	return ""
}

// throughScores follows the gradient of the softmax's input to the products
// that give those of queries and keys.
func (m *Match) throughScores(b *Backward, ds *ir.Value) string {
	scale := 1.0
	for len(ds.Uses()) == 1 && !ds.IsOutput() {
		n := ds.Uses()[0].Node
		if is(n, "Mul") || is(n, "Div") {
			c, x := factorOf(n)
			if x != ds {
				return fmt.Sprintf("the gradient of the scores goes through %s", n)
			}
			scale *= c
		} else if !passes(n, ds) && !m.blocks(n, ds) {
			break
		}
		ds = n.Out[0]
	}
	for _, u := range ds.Uses() {
		n := u.Node
		if got := scale * alphaOf(n); math.Abs(got-m.Scale) > 1e-6*math.Abs(m.Scale) {
			return fmt.Sprintf("the gradient of the scores is scaled by %g, the scores by %g", got, m.Scale)
		}
		if is(n, "Transpose") && swapsLast(n) && len(n.Out[0].Uses()) == 1 && is(n.Out[0].Uses()[0].Node, "MatMul") && n.Out[0].Uses()[0].Port == 0 {
			n = n.Out[0].Uses()[0].Node
			if alpha(n) == 1 && transposed(n, 1, m.Q, false) && b.DK == nil {
				b.DK = n.Out[0]
				continue
			}
		} else if isProduct(n) && u.Port == 0 && !turned(n, 0) && b.DQ == nil {
			if transposed(n, 1, m.KT, !m.Turned) {
				b.DQ = n.Out[0]
				continue
			}
		} else if isProduct(n) && u.Port == 1 && !turned(n, 1) && b.DK == nil {
			if transposed(n, 0, m.Q, true) {
				b.DK, b.Swapped = n.Out[0], true
				continue
			}
		}
		return fmt.Sprintf("the gradient of the scores is read by %s", n)
	}
	if b.DQ == nil || b.DK == nil {
		return "the gradient of queries or keys is missing"
	}
	return ""
}

func in(set map[*ir.Value]bool, v *ir.Value) bool { _, ok := set[v]; return ok }

// alike is the values that hold the elements of v in another type or layout;
// true marks those whose last two axes are swapped.
func (m *Match) alike(v *ir.Value) map[*ir.Value]bool {
	out := map[*ir.Value]bool{v: false}
	queue := []*ir.Value{v}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		for _, u := range x.Uses() {
			n := u.Node
			if u.Port != 0 && !m.inner[n] || len(n.Out) == 0 || n.Out[0] == nil {
				continue
			}
			swap := is(n, "Transpose") && swapsLast(n)
			same := is(n, "Cast") && n.Out[0].Type.DType.IsFloat() || changesNothing(n) || is(n, "Reshape") && splitsHeads(x, n.Out[0]) || m.inner[n]
			if !swap && !same || in(out, n.Out[0]) {
				continue
			}
			out[n.Out[0]] = out[x] != swap
			queue = append(queue, n.Out[0])
		}
	}
	return out
}

// swapsLast reports whether a Transpose swaps the last two axes alone.
func swapsLast(n *ir.Node) bool {
	perm, ok := n.IntList("perm")
	r := len(perm)
	if !ok || r < 2 {
		return false
	}
	for k, p := range perm {
		want := int64(k)
		switch k {
		case r - 2:
			want = int64(r - 1)
		case r - 1:
			want = int64(r - 2)
		}
		if p != want {
			return false
		}
	}
	return true
}

// alphaOf is alpha of a product, 1 of another node.
func alphaOf(n *ir.Node) float64 {
	if isProduct(n) {
		return alpha(n)
	}
	return 1
}

// blocks reports whether n puts 0 in the place of the gradient of scores that
// a mask had replaced.
func (m *Match) blocks(n *ir.Node, ds *ir.Value) bool {
	if !is(n, "Where") {
		return false
	}
	for _, p := range m.Masks {
		kept, gone := n.In[1], n.In[2]
		if p.Not {
			kept, gone = gone, kept
		}
		zero, ok := scalar(gone)
		if p.V == n.In[0] && p.V.Type.DType == ir.Bool && kept == ds && ok && zero == 0 {
			return true
		}
	}
	return false
}

// softmaxGrad recognises p*dp - p*sum(p*dp) and p*(dp - sum(p*dp)) from the
// nodes that multiply by the weights p.
func softmaxGrad(muls []*ir.Node, weights map[*ir.Value]bool) (dp, ds *ir.Value) {
	if len(muls) != 2 {
		return nil, nil
	}
	for _, pair := range [][2]*ir.Node{{muls[0], muls[1]}, {muls[1], muls[0]}} {
		first, second := pair[0], pair[1]
		dp := first.In[0]
		if in(weights, dp) {
			dp = first.In[1]
		}
		if sum, sub := sumOf(first.Out[0]); sum != nil && is(sub, "Sub") && sub.In[0] == first.Out[0] && sub.In[1] == second.Out[0] &&
			reads(second, sum.Out[0]) && only(second.Out[0], sub) && only(sum.Out[0], second) && len(dp.Uses()) == 1 && !dp.IsOutput() {
			return dp, sub.Out[0]
		}
		if len(first.Out[0].Uses()) != 1 || first.Out[0].IsOutput() || len(dp.Uses()) != 2 || dp.IsOutput() {
			continue
		}
		sum := first.Out[0].Uses()[0].Node
		if !rowSum(sum, first.Out[0]) || len(sum.Out[0].Uses()) != 1 {
			continue
		}
		sub := sum.Out[0].Uses()[0].Node
		if is(sub, "Sub") && sub.In[0] == dp && sub.In[1] == sum.Out[0] && reads(second, sub.Out[0]) && only(sub.Out[0], second) {
			return dp, second.Out[0]
		}
	}
	return nil, nil
}

// sumOf finds the row sum of v and the other reader of v, which has two.
func sumOf(v *ir.Value) (sum, other *ir.Node) {
	if len(v.Uses()) != 2 || v.IsOutput() {
		return nil, nil
	}
	a, b := v.Uses()[0].Node, v.Uses()[1].Node
	if rowSum(b, v) {
		a, b = b, a
	}
	if !rowSum(a, v) {
		return nil, nil
	}
	return a, b
}

// rowSum reports whether n sums v over its last axis, which it keeps.
func rowSum(n *ir.Node, v *ir.Value) bool {
	if !is(n, "ReduceSum") || n.In[0] != v || n.Int("keepdims", 1) == 0 {
		return false
	}
	axes, _ := n.IntList("axes")
	if len(n.In) > 1 && n.In[1] != nil {
		t := n.In[1].Const()
		if t == nil {
			return false
		}
		axes = t.Ints()
	}
	r := v.Type.Shape.Rank()
	if len(axes) != 1 {
		return false
	}
	a, ok := ir.NormAxis(axes[0], r)
	return ok && a == r-1
}

func reads(n *ir.Node, v *ir.Value) bool {
	for _, i := range n.In {
		if i == v {
			return true
		}
	}
	return false
}

// only reports whether n alone reads v.
func only(v *ir.Value, n *ir.Node) bool {
	return !v.IsOutput() && len(v.Uses()) == 1 && v.Uses()[0].Node == n
}

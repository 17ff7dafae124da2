package passes

import (
	"fmt"
	"math"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/ops"
	"memoc/passes/liveness"
	"memoc/passes/mask"
)

var attentionPass = Pass{
	Name:  "attention",
	Doc:   "Replaces attention by FlashAttention before differentiation, so that its gradient keeps the output and the log-sum-exp and no scores; masks by position, segment and key become attributes and vectors.",
	Stage: Simplify,
	After: []Edge{
		{"infer", "the lowering needs types and ranks"},
		{"fold", "head counts and masks are constants then"},
	},
	Optional: true,
	Run:      fuseAttention,
}

// attention is the state of the pass.
type attention struct {
	c        *Context
	e        *ir.Edit
	classes  map[string]*classified
	position map[*ir.Node]int
	reported map[string]bool // reasons given why masks stay tensors
	marked   bool            // the nodes of a traced backward pass are
	lowered  int
	left     int
}

// fuseAttention lowers every attention it understands. One it leaves alone is
// reported with the reason: its scores will be stored.
func fuseAttention(c *Context) (Result, error) {
	a := &attention{c: c, e: ir.NewEdit(c.Graph), classes: map[string]*classified{}, reported: map[string]bool{}, position: map[*ir.Node]int{}}
	for i, n := range c.Graph.Nodes {
		a.position[n] = i
	}
	for _, n := range c.Graph.Nodes {
		var err error
		switch {
		case n.Domain != ir.OnnxDomain:
		case n.Op == "Softmax":
			err = a.spelled(n)
		case n.Op == "Attention" && (c.Options.Train || hasSquareMask(n)) && c.spend():
			err = a.standard(n)
		}
		if err != nil {
			return Result{}, err
		}
	}
	a.e.Done()
	return Result{Changed: a.lowered > 0, Stats: []ir.KV{stat("lowered", a.lowered), stat("left", a.left)}}, nil
}

// markBackward marks the backward pass of a step that was traced as a whole,
// which is told by the place of the loss: the gradient that the pass puts in
// would be taken for its beginning.
func (a *attention) markBackward() {
	if a.marked {
		return
	}
	a.marked = true
	for _, n := range a.c.Graph.Nodes[liveness.BackwardFrom(a.c.Graph):] {
		n.Backward = true
	}
}

func hasSquareMask(n *ir.Node) bool { return len(n.In) > 3 && n.In[3] != nil && square(n.In[3]) }

// reportMask says why a mask stays a tensor, once for all attentions that
// share it.
func (a *attention) reportMask(n *ir.Node, why string) {
	if !a.reported[why] {
		a.reported[why] = true
		a.report(n, "the mask of the attention stays a tensor of queries by keys: %s", why)
	}
}

// report says why an attention is not fused.
func (a *attention) report(n *ir.Node, format string, args ...any) {
	a.c.warn(&diag.Diagnostic{ID: "attention", Loc: n.DiagLoc(), Message: fmt.Sprintf(format, args...)})
}

// standard lowers a node of the standard operator.
func (a *attention) standard(n *ir.Node) error {
	done, why, err := ops.LowerAttention(a.e, n, func(b *ir.Builder, f *ops.FlashForm) {
		a.ungroup(f)
		if f.Mask == nil || !square(f.Mask) {
			return
		}
		if why := a.standardMask(b, n, f); why != "" {
			a.reportMask(n, why)
		}
	})
	switch {
	case err != nil:
		return err
	case done:
		a.lowered++
	default:
		a.left++
		a.report(n, "the attention is not fused: %s", why)
	}
	return nil
}

// standardMask makes the mask of a lowered node what its class says.
func (a *attention) standardMask(b *ir.Builder, n *ir.Node, f *ops.FlashForm) string {
	bounded := n.Int("is_causal", 0) != 0 || n.Int("left_window_size", -1) >= 0 || n.Int("right_window_size", -1) >= 0
	need := maskNeed{parts: []mask.Part{{V: f.Mask, Low: math.Inf(-1)}}, scores: f.Q.Type.DType, zeroRows: true}
	q := f.Q.Type.Shape.Dims
	c := a.classify(need, ir.Dims(q[0], q[1], q[2], f.K.Type.Shape.Dims[2]))
	switch {
	case c.why != "":
		return c.why
	case bounded && (c.class.Lo != nil || c.class.Hi != nil || c.class.Empty && !math.IsInf(c.class.Hidden, -1)):
		return "the node is causal or has a window besides"
	}
	return a.apply(b, c, need, f)
}

// ungroup takes the keys and values of a form before they were repeated for
// groups of query heads, where both were.
func (a *attention) ungroup(f *ops.FlashForm) {
	k, v := ungrouped(f.K), ungrouped(f.V)
	if k != nil && v != nil && k.Type.Shape.Dims[1].Equal(v.Type.Shape.Dims[1]) {
		f.K, f.V = k, v
	}
}

// ungrouped is x [B,G,T,D] where v is [B,G*R,T,D] made by repeating each head R
// times; nil if v is not made so.
func ungrouped(v *ir.Value) *ir.Value {
	reshape := producer(v, "Reshape")
	if reshape == nil || v.Type.Shape.Rank() != 4 {
		return nil
	}
	wide := plain(reshape.In[0])
	expand := producer(wide, "Expand")
	if expand == nil || wide.Type.Shape.Rank() != 5 {
		return nil
	}
	five := plain(expand.In[0])
	if five.Def == nil || five.Def.Op != "Unsqueeze" && five.Def.Op != "Reshape" || five.Type.Shape.Rank() != 5 {
		return nil
	}
	x := five.Def.In[0]
	w, s := wide.Type.Shape.Dims, five.Type.Shape.Dims
	if x.Type.Shape.Rank() != 4 || !s[2].Equal(ir.N(1)) || !w[1].Mul(w[2]).Equal(v.Type.Shape.Dims[1]) {
		return nil
	}
	for from, to := range []int{0, 1, 3, 4} {
		d := x.Type.Shape.Dims[from]
		if !d.Equal(s[to]) || !d.Equal(w[to]) || from != 1 && !d.Equal(v.Type.Shape.Dims[from]) {
			return nil
		}
	}
	return x
}

// producer is the node of the default domain that makes v if it is of that
// operator, else nil.
func producer(v *ir.Value, op ir.OpName) *ir.Node {
	if v.Def == nil || v.Def.Domain != ir.OnnxDomain || v.Def.Op != op || v.Port != 0 {
		return nil
	}
	return v.Def
}

// plain is v before nodes that change nothing.
func plain(v *ir.Value) *ir.Value {
	for v.Def != nil && v.Def.Domain == ir.OnnxDomain && v.Port == 0 && changesNothing(v.Def) {
		v = v.Def.In[0]
	}
	return v
}

// changesNothing reports whether a node's result is its first input.
func changesNothing(n *ir.Node) bool {
	switch n.Op {
	case "Identity":
		return true
	case "Expand", "Reshape", "Cast", "Transpose", "Concat":
		if n.Op == "Concat" && len(n.In) != 1 || n.Op == "Transpose" && !identityPerm(n) {
			return false
		}
		return n.In[0].Type.Equal(n.Out[0].Type) && n.Out[0].Type.Shape.Ranked
	}
	return false
}

func identityPerm(n *ir.Node) bool {
	perm, ok := n.IntList("perm")
	for i, p := range perm {
		ok = ok && p == int64(i)
	}
	return ok
}

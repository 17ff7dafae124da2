package passes

import (
	"fmt"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/ops"
)

var attentionPass = Pass{
	Name:  "attention",
	Doc:   "Replaces Attention by FlashAttention before differentiation, so that its gradient keeps the output and the log-sum-exp and no scores.",
	Stage: Simplify,
	After: []Edge{
		{"infer", "the lowering needs types and ranks"},
		{"fold", "head counts and masks are constants then"},
	},
	Optional: true,
	Run:      lowerAttention,
}

// lowerAttention lowers every Attention node of a graph that is to be
// trained. A node it leaves alone is reported with the reason: its scores will
// be stored.
func lowerAttention(c *Context) (Result, error) {
	if !c.Options.Train {
		return Result{}, nil
	}
	e := ir.NewEdit(c.Graph)
	lowered, left := 0, 0
	for _, n := range c.Graph.Nodes {
		if n.Op != "Attention" || n.Domain != ir.OnnxDomain || !c.spend() {
			continue
		}
		done, why, err := ops.LowerAttention(e, n)
		switch {
		case err != nil:
			return Result{}, err
		case done:
			lowered++
		default:
			left++
			c.warn(&diag.Diagnostic{ID: "attention", Loc: n.DiagLoc(), Message: fmt.Sprintf("the attention is not fused: %s", why)})
		}
	}
	e.Done()
	return Result{Changed: lowered > 0, Stats: []ir.KV{stat("lowered", lowered), stat("left", left)}}, nil
}

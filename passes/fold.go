package passes

import (
	"slices"

	"memoc/ir"
)

var foldPass = Pass{
	Name:  "fold",
	Doc:   "Replaces integer values that inference knows, and small computations on constants, by constants.",
	Stage: Simplify,
	After: []Edge{{"infer", "the values come from inference"}, {"sequence", "lengths of sequences are known then"}},
	Run: func(c *Context) (Result, error) {
		folded, err := foldConstants(c)
		if err != nil {
			return Result{}, err
		}
		removed, err := removeDead(c.Graph)
		return Result{Changed: folded+removed > 0, Stats: []ir.KV{stat("folded", folded), stat("removed", removed)}}, err
	},
}

var cleanupPass = Pass{
	Name:  "cleanup",
	Doc:   "Removes what the backward pass left unused, and folds its shape computations.",
	Stage: Grad,
	After: []Edge{{"grad", "gradient rules may leave unused nodes"}},
	Run:   foldPass.Run,
}

// foldLimit bounds the elements of a folded constant: shapes, axes, scalars
// and small tables fold; anything that costs memory is left to run time.
const foldLimit = 1024

// foldConstants replaces what is known by initializers. Floating-point
// initializers of the model are never folded into anything: they are weights
// that training changes.
func foldConstants(c *Context) (int, error) {
	b := ir.NewBuilder(ir.NewEdit(c.Graph))
	folded := 0
	for _, n := range c.Graph.Nodes {
		if n.Decl == nil || n.Op == "Constant" && n.Domain == ir.OnnxDomain || !foldable(n) {
			continue
		}
		known := knownOutputs(n)
		if known == nil || !c.spend() {
			continue
		}
		for i, t := range known {
			if t == nil {
				continue
			}
			if err := b.Edit.ReplaceUses(n.Out[i], b.Const(t)); err != nil {
				return folded, err
			}
		}
		folded++
	}
	b.Edit.Done()
	return folded, nil
}

// foldable reports whether n is pure, somebody reads it, and none of its
// outputs is a graph output.
func foldable(n *ir.Node) bool {
	pure, _ := n.Decl.Recompute.OK()
	if !pure || len(n.Subgraphs()) > 0 {
		return false
	}
	read := false
	for _, v := range n.Out {
		if v != nil && v.IsOutput() {
			return false
		}
		read = read || v != nil && len(v.Uses()) > 0
	}
	return read
}

// knownOutputs is the values of n's outputs (nil for absent ones) where all
// are known and small, else nil.
func knownOutputs(n *ir.Node) []*ir.Tensor {
	out := make([]*ir.Tensor, len(n.Out))
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		if !readsParameter(n) {
			out[i] = knownInts(v)
		}
		if out[i] == nil {
			return evaluate(n)
		}
	}
	return out
}

// readsParameter reports whether n reads a floating-point initializer of more
// than one element: what training changes, and where a path to the loss may be
// cut, which is then reported at n.
func readsParameter(n *ir.Node) bool {
	return slices.ContainsFunc(n.In, func(v *ir.Value) bool {
		return v != nil && v.Init != nil && !v.Init.Constant && v.Type.DType.IsFloat() && v.Type.Shape.Rank() > 0
	})
}

// knownInts is the elements of v that inference knows, nil if it does not.
func knownInts(v *ir.Value) *ir.Tensor {
	dims, static := smallDims(v)
	if !static || v.Ints == nil || !v.Type.DType.IsInt() && v.Type.DType != ir.Bool {
		return nil
	}
	vals := make([]int64, len(v.Ints))
	for i, d := range v.Ints {
		n, ok := d.Int()
		if !ok {
			return nil
		}
		vals[i] = n
	}
	return ir.FromInts(v.Type.DType, vals, dims...)
}

// smallDims is the static dims of a tensor that may be folded.
func smallDims(v *ir.Value) ([]int64, bool) {
	dims, static := v.Type.Shape.Static()
	return dims, static && v.Type.Kind == ir.TensorKind && ir.Elems(dims) <= foldLimit
}

// evaluate runs n if all its inputs are constants that training cannot change.
func evaluate(n *ir.Node) []*ir.Tensor {
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		if _, small := smallDims(v); !small {
			return nil
		}
	}
	in := make([]ir.Datum, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if v.Init != nil && !v.Init.Constant && v.Type.DType.IsFloat() {
			return nil
		}
		t := v.Const()
		if t == nil {
			return nil
		}
		in[i] = t
	}
	if len(in) == 0 {
		return nil
	}
	made, err := ir.EvalNode(ir.NewEvalCtx(n, in))
	if err != nil {
		return nil // left to run time, which reports it
	}
	out := make([]*ir.Tensor, len(n.Out))
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		t, ok := made[i].(*ir.Tensor)
		if !ok || t == nil || !t.Type().Equal(v.Type) {
			return nil
		}
		out[i] = t
	}
	return out
}

// removeDead takes out nodes whose results nothing reads, last to first, and
// initializers that lost their last reader. Nodes with an effect beyond their
// outputs (random, stateful, unknown) stay.
func removeDead(g *ir.Graph) (int, error) {
	e := ir.NewEdit(g)
	outputs := map[*ir.Value]bool{}
	for _, v := range g.Outputs {
		outputs[v] = true
	}
	removed := 0
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !dead(n, outputs) {
			continue
		}
		if err := e.Remove(n); err != nil {
			return removed, err
		}
		removed++
	}
	removed += e.SweepConstants()
	e.Done()
	return removed, nil
}

func dead(n *ir.Node, outputs map[*ir.Value]bool) bool {
	if n.Decl == nil {
		return false
	}
	if pure, _ := n.Decl.Recompute.OK(); !pure {
		return false
	}
	for _, v := range n.Out {
		if v != nil && (len(v.Uses()) > 0 || outputs[v]) {
			return false
		}
	}
	return true
}

package passes

import (
	"memoc/ir"
)

var branchPass = Pass{
	Name:  "branch",
	Doc:   "Replaces an If whose condition is known by the branch it takes.",
	Stage: Simplify,
	After: []Edge{{"infer", "the condition comes from shapes"}},
	Run: func(c *Context) (Result, error) {
		taken := 0
		for {
			n, err := takeBranches(c)
			if err != nil {
				return Result{}, err
			}
			if n == 0 {
				break
			}
			taken += n
			// What a branch gives is more than what If promised of both.
			if err := ir.InferGraph(c.Graph, ir.InferOptions{}); err != nil {
				return Result{}, err
			}
		}
		return Result{Changed: taken > 0, Stats: []ir.KV{stat("taken", taken)}}, nil
	},
}

// takeBranches inlines the decided Ifs of g's top level once; an If inside a
// taken branch is for the next round.
func takeBranches(c *Context) (int, error) {
	e := ir.NewEdit(c.Graph)
	taken := 0
	for _, n := range c.Graph.Nodes {
		if n.Op != "If" || n.Domain != ir.OnnxDomain {
			continue
		}
		cond, ok := (&ir.InferCtx{Node: n}).StaticInts(0)
		if !ok || len(cond) != 1 || !c.spend() {
			continue
		}
		name := "else_branch"
		if cond[0] != 0 {
			name = "then_branch"
		}
		branch := n.Attr(name)
		if branch == nil || branch.G == nil {
			return taken, n.Errorf("shape", "the attribute %s is missing", name)
		}
		if err := inlineBranch(e, n, branch.G); err != nil {
			return taken, err
		}
		taken++
	}
	e.Done()
	return taken, nil
}

func inlineBranch(e *ir.Edit, n *ir.Node, g *ir.Graph) error {
	with := map[*ir.Value]*ir.Value{}
	for _, v := range g.Inits {
		with[v] = e.Graph().AddInit(e.Graph().Fresh(v.Name), v.Init)
	}
	for _, inner := range g.Nodes {
		if err := moveNode(e, n, inner, with); err != nil {
			return err
		}
	}
	for i, out := range n.Out {
		if out == nil || i >= len(g.Outputs) {
			continue
		}
		v := resolve(with, g.Outputs[i])
		out.Type = v.Type // the branch's own type is the more precise one
		if err := e.ReplaceUses(out, v); err != nil {
			return err
		}
	}
	return e.Remove(n)
}

func resolve(with map[*ir.Value]*ir.Value, v *ir.Value) *ir.Value {
	if w := with[v]; w != nil {
		return w
	}
	return v
}

// moveNode makes a copy of inner before n, reading what with maps its inputs
// to.
func moveNode(e *ir.Edit, n, inner *ir.Node, with map[*ir.Value]*ir.Value) error {
	in := make([]*ir.Value, len(inner.In))
	for i, v := range inner.In {
		in[i] = resolve(with, v)
	}
	out := make([]string, len(inner.Out))
	for i, v := range inner.Out {
		if v != nil {
			out[i] = e.Graph().Fresh(v.Name)
		}
	}
	made := e.InsertBefore(n, ir.NodeSpec{Name: e.Graph().Fresh(inner.Name), Domain: inner.Domain, Op: inner.Op,
		Version: inner.Version, In: in, Out: out, Attrs: inner.Attrs, Origin: inner.OriginName(), Loc: inner.Loc, Meta: inner.Meta})
	for i, v := range inner.Out {
		if v != nil {
			made.Out[i].Type, made.Out[i].Ints = v.Type, v.Ints
			with[v] = made.Out[i]
		}
	}
	if len(inner.Captures) > 0 {
		made.SetCaptures(inner.Captures)
		for _, v := range inner.Captures {
			if w := with[v]; w != nil {
				e.ReplaceCapture(made, v, w)
			}
		}
	}
	return nil
}

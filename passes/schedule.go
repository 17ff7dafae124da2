package passes

import (
	"memoc/ir"
)

var schedulePass = Pass{
	Name:  "schedule",
	Doc:   "Lets operations that read their last of something large run earlier where that lowers the peak.",
	Stage: Analyze,
	After: []Edge{
		{"cost", "orders are judged on the planning problem"},
	},
	Optional: true,
	Run:      runSchedule,
}

// scheduleTries bounds the orders tried; each costs a pass over the graph, so
// that large graphs get fewer.
const scheduleTries = 1 << 19

func runSchedule(c *Context) (Result, error) {
	tries := min(max(scheduleTries/(len(c.Problem.Ops)+1), 8), 256)
	if c.limit >= 0 {
		tries = min(tries, c.limit)
	}
	order, changed := c.Problem.Reorder(tries)
	if !changed {
		return Result{}, nil
	}
	if err := reorder(c, order); err != nil {
		// A view may need a shape that is computed in between: then the file's
		// order stays.
		return Result{Stats: []ir.KV{{Key: "kept", Value: err.Error()}}}, nil
	}
	for _, p := range []*Pass{&livenessPass, &costPass} {
		if _, err := p.Run(c); err != nil {
			return Result{}, err
		}
	}
	return Result{Changed: true, Stats: []ir.KV{stat("nodes", len(order))}}, nil
}

// reorder puts the nodes of the problem's operations in the given order. Nodes
// that do no work (constants, views) follow what they are made of: each is
// placed just before its first reader.
func reorder(c *Context, order []int) error {
	placed := map[*ir.Node]bool{}
	out := make([]*ir.Node, 0, len(c.Graph.Nodes))
	works := map[*ir.Node]bool{}
	for _, n := range c.Origin.node {
		works[n] = true
	}
	var place func(n *ir.Node)
	place = func(n *ir.Node) {
		if placed[n] {
			return
		}
		placed[n] = true
		for _, vs := range [][]*ir.Value{n.In, n.Captures} {
			for _, v := range vs {
				if v != nil && v.Def != nil && v.Def.Graph == c.Graph && !works[v.Def] {
					place(v.Def)
				}
			}
		}
		out = append(out, n)
	}
	for _, o := range order {
		place(c.Origin.node[o])
	}
	for _, n := range c.Graph.Nodes {
		place(n) // views that only graph outputs read
	}
	return ir.NewEdit(c.Graph).Reorder(out)
}

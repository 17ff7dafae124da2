package passes

import "memoc/ir"

var inferPass = Pass{
	Name:  "infer",
	Doc:   "Binds the symbols given with --dim and infers types, shapes and integer values that are shapes.",
	Stage: Infer,
	After: []Edge{{"inline", "calls of local functions have no shape rule"}},
	Run: func(c *Context) (Result, error) {
		err := ir.InferGraph(c.Graph, ir.InferOptions{Dims: c.Options.Dims, Strict: c.Options.Strict, Report: c.Report})
		return Result{Changed: true, Stats: []ir.KV{stat("nodes", len(c.Graph.Nodes))}}, err
	},
}

package passes

import "memoc/ir"

var inlinePass = Pass{
	Name:  "inline",
	Doc:   "Replaces calls of the model's local functions by their bodies.",
	Stage: Import,
	Run: func(c *Context) (Result, error) {
		before := len(c.Model.Functions)
		err := ir.Inline(c.Model)
		c.Graph = c.Model.Graph
		return Result{Changed: len(c.Model.Functions) != before, Stats: []ir.KV{stat("functions", before)}}, err
	},
}

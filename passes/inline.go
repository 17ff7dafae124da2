package passes

import "memoc/ir"

var inlinePass = Pass{
	Name:  "inline",
	Doc:   "Replaces calls of the model's local functions by their bodies.",
	Stage: Import,
	Run: func(c *Context) (Result, error) {
		return Result{}, nil
	},
}
var _ ir.KV

package passes

import (
	"fmt"

	"memoc/ir/planfile"
	"memoc/passes/check"
)

var checkPass = Pass{
	Name:  "check",
	Doc:   "Has the independent checker judge the finished plan, as it will be written.",
	Stage: Place,
	After: []Edge{{"order", "it judges offsets and waits"}},
	Run: func(c *Context) (Result, error) {
		if err := check.Model(planfile.FromProgram(c.Program), c.Graph); err != nil {
			return Result{}, fmt.Errorf("BUG: the plan is unsound: %w", err)
		}
		c.Program.Log = c.Log
		return Result{}, nil
	},
}

package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

var inferPass = Pass{
	Name:  "infer",
	Doc:   "Binds the symbols given with --dim and infers types, shapes and integer values that are shapes.",
	Stage: Infer,
	After: []Edge{{"inline", "calls of local functions have no shape rule"}},
	Run: func(c *Context) (Result, error) {
		if err := checkDims(c); err != nil {
			return Result{}, err
		}
		err := ir.InferGraph(c.Graph, ir.InferOptions{Dims: c.Options.Dims, Strict: c.Options.Strict, Report: c.Report})
		return Result{Changed: true, Stats: []ir.KV{stat("nodes", len(c.Graph.Nodes))}}, err
	},
}

// checkDims refuses a --dim that names no symbol of the model: a misspelt one
// would leave the right one unbound, or be taken as done.
func checkDims(c *Context) error {
	symbols := map[string]bool{}
	add := func(v *ir.Value) {
		if v == nil {
			return
		}
		for _, d := range v.Type.Shape.Dims {
			for _, s := range d.Symbols() {
				symbols[s] = true
			}
		}
	}
	for _, vs := range [][]*ir.Value{c.Graph.Inputs, c.Graph.Inits, c.Graph.Outputs} {
		for _, v := range vs {
			add(v)
		}
	}
	for _, n := range c.Graph.Nodes {
		for _, v := range n.Out {
			add(v)
		}
	}
	names := slices.Sorted(maps.Keys(symbols))
	for _, name := range slices.Sorted(maps.Keys(c.Options.Dims)) {
		if symbols[name] {
			continue
		}
		d := &diag.Diagnostic{ID: "dim", Severity: diag.Error, Help: "the model has no symbolic dims",
			Message: fmt.Sprintf("no dim of the model is called %q%s", name, suggestion(name, names))}
		if len(names) > 0 {
			d.Help = "its symbolic dims are " + strings.Join(names[:min(len(names), 12)], ", ")
		}
		return d
	}
	return nil
}

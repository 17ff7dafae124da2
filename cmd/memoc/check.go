package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/check"
)

var checkCommand = &command{
	name:    "check",
	args:    "DIR",
	doc:     "Verify a compiled folder from its files alone: overlaps, lifetimes, order of lanes, contents of every read, agreement with the model.",
	example: "memoc check out",
}

func init() { checkCommand.run = runCheck }

func runCheck(c *call) error {
	args, err := newFlags(c.cmd).parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	plan, m, err := loadCompiled(args[0])
	if err != nil {
		return err
	}
	if err := soundPlan(plan, m); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: sound: %d steps, %d buffers, %s on the device, %s on the host\n", args[0], len(plan.Steps), len(plan.Buffers),
		passes.FormatBytes(plan.Metrics.Peak), passes.FormatBytes(plan.Metrics.HostPeak))
	return nil
}

// soundPlan has the checker judge a plan that was read, with its model.
func soundPlan(plan *planfile.Plan, m *ir.Model) error {
	if err := check.Plan(plan); err != nil {
		return err
	}
	return check.Model(plan, m.Graph)
}

// unreadable is the error of a file that cannot be opened.
func unreadable(path string, err error) *diag.Diagnostic {
	d := &diag.Diagnostic{ID: "read", Severity: diag.Error, Loc: diag.Location{File: path}, Message: err.Error()}
	if errors.Is(err, fs.ErrNotExist) {
		d.Message, d.Help = "there is no such file or folder", "check the path"
	}
	return d
}

// loadCompiled reads plan.json and model.onnx of a compiled folder, with the
// model's types inferred anew.
func loadCompiled(dir string) (*planfile.Plan, *ir.Model, error) {
	data, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	if err != nil {
		d := unreadable(filepath.Join(dir, "plan.json"), err)
		d.Help = fmt.Sprintf("%s must be a folder that \"memoc compile -o\" wrote, with model and plan", dir)
		return nil, nil, d
	}
	plan, err := planfile.Decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, "plan.json"), err)
	}
	m, _, err := onnx.Load(filepath.Join(dir, "model.onnx"), onnx.Options{Unbridge: true})
	if err != nil {
		return nil, nil, err
	}
	return plan, m, ir.InferGraph(m.Graph, ir.InferOptions{})
}

// Command corpus tries memoc on every ONNX file below the given folders and
// prints docs/corpus.md: what loads, what is planned, what is refused and why.
//
//	go run ./testdata/corpus ../shared/corpus ../shared/models > docs/corpus.md
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx"
	_ "memoc/ir/ops"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/liveness"
)

// bindings are the values of symbolic dims that stand for a model's own sizes;
// every other symbol (batch, sequence) is 8.
var bindings = map[string]map[string]int64{
	"ort/training/eval_model.onnx":           {"input-0_dim1": 784},
	"ort/training/training_model.onnx":       {"input-0_dim1": 784},
	"ort/training/gradient_graph.onnx":       {"input1_dim1": 784},
	"ort/training/recompute_gelu.onnx":       {"input1_dim1": 784},
	"ort/transformer/GPT2Model_no_past.onnx": {"seq_len": 4},
	"ort/transformer/gpt2_megatron.onnx":     {"past_seq_len": 56},
	"dort/llama_dynamic_forward.onnx":        {"primals_13": 2, "primals_14": 1024},
}

func main() {
	fmt.Print("# The corpus\n\nWhat `go run ./testdata/corpus DIR...` finds: every ONNX file is loaded, its local functions are inlined, its shapes\n" +
		"inferred with every free symbol bound (8 where the model does not ask for more), and the step is planned on the h100 profile and\n" +
		"judged by the independent checker: models with an output called loss are trained, and steps are planned at 70 %. Nothing is\n" +
		"executed and no weight is read.\n\n" +
		"| file | nodes | warnings | outcome |\n|---|---:|---:|---|\n")
	device, err := cost.LoadDevice("h100")
	if err != nil {
		fatal(err)
	}
	count := map[string]int{}
	for _, root := range os.Args[1:] {
		files, err := find(root)
		if err != nil {
			fatal(err)
		}
		for _, f := range files {
			name, _ := filepath.Rel(root, f)
			name = filepath.ToSlash(name)
			nodes, warnings, kind, outcome := try(f, name, device)
			count[kind]++
			fmt.Printf("| %s | %d | %d | %s |\n", name, nodes, warnings, cell(outcome))
		}
	}
	fmt.Printf("\n%d files: %d planned, %d loaded but not planned, %d refused at loading.\n",
		count["planned"]+count["loaded"]+count["refused"], count["planned"], count["loaded"], count["refused"])
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func find(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".onnx") {
			out = append(out, path)
		}
		return err
	})
	slices.Sort(out)
	return out, err
}

// try carries one file as far as it goes: a model with an output called "loss"
// is trained, a step that holds a backward pass is planned at 70 %, and a
// forward model, where nothing waits, is planned without a budget.
func try(path, name string, device *cost.Device) (nodes, warnings int, kind, outcome string) {
	m, ds, err := onnx.Load(path, onnx.Options{})
	warnings = len(ds)
	if err != nil {
		return 0, warnings, "refused", "refused: " + err.Error()
	}
	nodes = len(m.Graph.Nodes)
	c := &passes.Context{Model: m, Graph: m.Graph, Report: func(*diag.Diagnostic) { warnings++ },
		Options: passes.Options{Device: device, HostBudget: -1, Dims: bind(m.Graph, bindings[name])}}
	backward := liveness.BackwardFrom(m.Graph) < len(m.Graph.Nodes)
	if !backward && slices.ContainsFunc(m.Graph.Outputs, func(v *ir.Value) bool { return v.Name == "loss" }) {
		c.Options.Train, c.Options.Loss, backward = true, "loss", true
	}
	if backward {
		c.Options.Budget.Share = 0.7
	}
	err = (&passes.Runner{}).Run(c)
	var infeasible *passes.Infeasible
	if errors.As(err, &infeasible) {
		kind, outcome = "planned", "loads; 70 % is infeasible, planned at the smallest budget, "+passes.FormatBytes(infeasible.Smallest)
		return nodes, warnings, kind, outcome
	}
	if err != nil {
		return nodes, warnings, "loaded", "loads; " + err.Error()
	}
	return nodes, warnings, "planned", fmt.Sprintf("planned: %s exported, %s unplanned, %s planned (ratio %.3f)", passes.FormatBytes(c.Metrics.PeakExported),
		passes.FormatBytes(c.Metrics.PeakUnplanned), passes.FormatBytes(c.Metrics.Peak), ratio(c.Metrics.Peak, c.Metrics.LowerBound))
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// bind gives every symbol of the inputs a value.
func bind(g *ir.Graph, given map[string]int64) map[string]ir.Dim {
	dims := map[string]ir.Dim{}
	for _, v := range g.Inputs {
		for _, d := range v.Type.Shape.Dims {
			for _, s := range d.Symbols() {
				n, ok := given[s]
				if !ok {
					n = 8
				}
				dims[s] = ir.N(n)
			}
		}
	}
	return dims
}

// cell makes text fit a table cell.
func cell(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	s = strings.ReplaceAll(s, "|", "\\|")
	if len(s) > 240 {
		s = s[:240] + "…"
	}
	return s
}

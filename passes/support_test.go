package passes_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/ir/onnx"
	_ "memoc/ir/ops"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// setup is what a test asks of one compilation.
type setup struct {
	train     string // name of the loss; "": the graph is taken as it is
	dims      map[string]ir.Dim
	budget    string // "": no limit
	host      int64  // host budget; noHost for none at all, 0 for the profile's
	strict    bool
	wrt       []string // what to train
	asIs      bool     // the execution order stays that of the file
	whole     bool     // the scores of a loss head stay whole, however large
	chunks    bool     // loss heads work in chunks, however small
	policy    plan.Policy
	mlpChunks int   // of feed-forward layers; 0: the plan decides
	wide      int64 // size of a layer's wide tensors from which on it does; 0: the default
}

// noHost is a host budget of no bytes (the zero value stands for the default).
const noHost = -1

func (s setup) options(t testing.TB) passes.Options {
	t.Helper()
	dev, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	o := passes.Options{Train: s.train != "", Loss: s.train, Dims: s.dims, Strict: s.strict, Wrt: s.wrt, Device: dev, HostBudget: -1, Policy: s.policy, MLPChunks: s.mlpChunks, ChunkBytes: s.wide}
	if s.asIs {
		o.Debug = passes.Debug{"schedule": {Off: true, Limit: -1}}
	}
	if s.whole {
		o.HeadBytes = math.MaxInt64
	}
	if s.chunks {
		o.HeadBytes = 1
	}
	switch {
	case s.host == noHost:
		o.HostBudget = 0
	case s.host > 0:
		o.HostBudget = s.host
	}
	if s.budget != "" {
		if o.Budget, err = passes.ParseBudget(s.budget); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// compile runs the pipeline on a fresh model.
func compile(t testing.TB, m *ir.Model, s setup) (*passes.Context, []*diag.Diagnostic, error) {
	t.Helper()
	return compileUntil(t, m, s, passes.Place+1)
}

func compileUntil(t testing.TB, m *ir.Model, s setup, stage passes.Stage) (*passes.Context, []*diag.Diagnostic, error) {
	t.Helper()
	var warnings []*diag.Diagnostic
	c := &passes.Context{Model: m, Graph: m.Graph, Options: s.options(t), Report: func(d *diag.Diagnostic) { warnings = append(warnings, d) }}
	err := (&passes.Runner{}).RunUntil(c, stage)
	return c, warnings, err
}

// mustCompile is compile of a model that has a plan.
func mustCompile(t testing.TB, m *ir.Model, s setup) *passes.Context {
	t.Helper()
	c, _, err := compile(t, m, s)
	if err != nil {
		t.Fatalf("budget %q, host %d: %v", s.budget, s.host, err)
	}
	return c
}

// text parses a graph of the default domain, opset 17, into a model of its
// own.
func text(t testing.TB, graph string) *ir.Model { return textAt(t, 17, graph) }

func textAt(t testing.TB, opset int, graph string) *ir.Model {
	t.Helper()
	m, err := ir.Parse("case", fmt.Sprintf("<ir_version: 8, opset_import: [\"\" : %d]>\n%s", opset, graph))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func load(t testing.TB, path string) *ir.Model {
	t.Helper()
	m, _, err := onnx.Load(path, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// shared finds a path below the folder of shared data, which lies beside the
// repository or where MEMOC_SHARED says; "" if it is not there.
func shared(path string) string {
	for _, root := range []string{os.Getenv("MEMOC_SHARED"), "../../shared", "../../../shared"} {
		p := filepath.Join(root, path)
		if _, err := os.Stat(p); root != "" && err == nil {
			return p
		}
	}
	return ""
}

// node finds a node by name, nil if there is none.
func node(g *ir.Graph, name string) *ir.Node {
	for _, n := range g.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// output finds a graph output by name.
func output(t testing.TB, g *ir.Graph, name string) *ir.Value {
	t.Helper()
	for _, v := range g.Outputs {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("the graph has no output %q", name)
	return nil
}

func run(t testing.TB, g *ir.Graph, in map[string]ir.Datum) map[string]ir.Datum {
	t.Helper()
	out, err := eval.Graph(g, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sameOutputs runs the program, twice in a row and in the given order of its
// lanes, and says how it differs from what is wanted.
func sameOutputs(p *ir.Program, in, want map[string]ir.Datum, o eval.Options) string {
	got, err := eval.Program(p, in, o)
	if err != nil {
		return err.Error()
	}
	for _, v := range p.Graph.Outputs {
		a, ok := got[v.Name].(*ir.Tensor)
		b, ok2 := want[v.Name].(*ir.Tensor)
		if !ok || !ok2 || !a.Type().Equal(b.Type()) || !bytes.Equal(a.Data, b.Data) {
			return fmt.Sprintf("output %q differs", v.Name)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d outputs, want %d", len(got), len(want))
	}
	return ""
}

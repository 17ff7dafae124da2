package passes_test

import (
	"context"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"memoc/codegen/cuda"
	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// tolerance of the emitted program against the interpreter, relative to the
// largest element: sums are taken in another order.
var tolerance = map[ir.DType]float64{ir.Float: 1e-4, ir.Double: 1e-9, ir.Float16: 1e-2, ir.BFloat16: 4e-2}

// TestEmittedProgram builds what is emitted with g++ and runs it: two steps,
// many orders of the lanes, each step seeing the bytes it declared and no
// others; against the interpreter on the unplanned graph.
func TestEmittedProgram(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	if testing.Short() {
		t.Skip("builds programs")
	}
	for _, s := range []struct {
		name   string
		make   func() *ir.Model
		setup  setup
		rarely bool
	}{
		{"llama-tiny", func() *ir.Model { return load(t, "../testdata/models/llama-tiny.onnx") }, setup{train: "loss", budget: "60%"}, false},
		{"edges", func() *ir.Model {
			return text(t, `g (float[4] x, float[0,4] none, bool[3] b) => (float[4] v, float[4] x, float[4] w, float[3,4] z, bool[3] nb) <float[4] w = {1,2,3,4}, float[3,4] y = {1,2,3,4,5,6,7,8,9,10,11,12}> {
				v = Relu (x) a = Relu (none) z = Concat <axis = 0> (a, y) nb = Not (b) }`)
		}, setup{}, false},
		{"chunks", func() *ir.Model { return generated(t, "gpt", ir.BFloat16, 1, 2, 12) }, setup{train: "loss", mlpChunks: 3, budget: "50%", host: noHost}, false},
		{"gpt-tiny at least", func() *ir.Model { return load(t, "../testdata/models/gpt-tiny.onnx") }, setup{train: "loss", budget: "25%", host: noHost}, true},
		{"gpt-tiny", func() *ir.Model { return load(t, "../testdata/models/gpt-tiny.onnx") }, setup{train: "loss", budget: "60%"}, true},
		{"llama-bf16", func() *ir.Model { return load(t, "../testdata/models/llama-bf16.onnx") }, setup{train: "loss", budget: "60%"}, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			if s.rarely && !long() {
				t.Skip("set MEMOC_LONG=1")
			}
			plain, _, err := compileUntil(t, s.make(), s.setup, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(plain.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			want := run(t, plain.Graph, in)
			c := mustCompile(t, s.make(), s.setup)
			got := emitted(t, c, in)
			if len(got) != len(want) {
				t.Errorf("%d outputs, want %d", len(got), len(want))
			}
			for name, o := range got {
				if how := closeTo(o, want[name].(*ir.Tensor)); how > 1 {
					t.Errorf("output %q differs by %.3g times what its type allows", name, how)
				}
			}
		})
	}
}

// emitted builds what is emitted for c and runs two steps of it in several
// orders of the lanes, each step seeing the bytes it declared and no others.
func emitted(t *testing.T, c *passes.Context, in map[string]ir.Datum) map[string]*ir.Tensor {
	t.Helper()
	files, err := cuda.Emit(c.Program)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := cuda.WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	h, err := cuda.BuildHost(context.Background(), dir, filepath.Join(dir, "step"))
	if err != nil {
		t.Fatal(err)
	}
	var named []cuda.Named
	for _, v := range c.Graph.Inputs {
		named = append(named, cuda.Named{Name: v.Name, Tensor: in[v.Name].(*ir.Tensor)})
	}
	got, err := h.Run(context.Background(), named, cuda.RunOptions{Steps: 2, Schedules: 6, Schedule: 3, Paranoid: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ir.Tensor{}
	for _, o := range got {
		out[o.Name] = o.Tensor
	}
	return out
}

// closeTo is the largest difference as a multiple of what is allowed.
func closeTo(a, b *ir.Tensor) float64 {
	if !a.Type().Equal(b.Type()) {
		return math.Inf(1)
	}
	x, y := a.Floats(), b.Floats()
	largest, worst := 0.0, 0.0
	for i := range y {
		largest = max(largest, math.Abs(y[i]))
		if d := math.Abs(x[i] - y[i]); !(d <= worst) {
			worst = d
		}
	}
	if math.IsNaN(worst) {
		return math.Inf(1)
	}
	return worst / (tolerance[b.DType]*largest + 1e-6)
}

package passes_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/npz"
	"memoc/passes"
)

// recorded lists the cases with values of another framework: folders with
// model.onnx and case.npz, and files beside their model in testdata.
func recorded(t testing.TB) (models, values []string) {
	t.Helper()
	if dir := shared("models"); dir != "" {
		cases, err := filepath.Glob(filepath.Join(dir, "*", "case.npz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			models, values = append(models, filepath.Join(filepath.Dir(c), "model.onnx")), append(values, c)
		}
	}
	own, err := filepath.Glob("../testdata/gradients/*.npz")
	if err != nil || len(own) == 0 {
		t.Fatalf("no testdata/gradients: %v", err)
	}
	for _, c := range own {
		models = append(models, filepath.Join("../testdata/models", strings.TrimSuffix(filepath.Base(c), ".npz")+".onnx"))
		values = append(values, c)
	}
	return models, values
}

// TestRecordedGradients trains every recorded model and compares the loss and
// every gradient with what another framework computed in double precision,
// with loss heads whole and in chunks, and with feed-forward layers in chunks.
func TestRecordedGradients(t *testing.T) {
	models, values := recorded(t)
	for i, path := range models {
		name := filepath.Base(filepath.Dir(path))
		if filepath.Base(path) != "model.onnx" {
			name = filepath.Base(path)
		}
		t.Run(name, func(t *testing.T) {
			a, err := npz.Read(values[i])
			if err != nil {
				t.Fatal(err)
			}
			if a.Get("loss") == nil && a.Get("out/loss") == nil {
				t.Skip("recorded without values: it is random")
			}
			compareRecorded(t, path, a, setup{})
			compareRecorded(t, path, a, setup{chunks: true})
			compareRecorded(t, path, a, setup{mlpChunks: 3})
		})
	}
}

func compareRecorded(t *testing.T, path string, a *npz.Archive, s setup) {
	t.Helper()
	if a.Get("out/loss") == nil { // else it is a whole step
		s.train = "loss"
	}
	c, _, err := compileUntil(t, load(t, path), s, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]ir.Datum{}
	half := false
	for _, v := range c.Graph.Inputs {
		x := a.Get("in/" + v.Name)
		if x == nil {
			t.Fatalf("no value is recorded for the input %q", v.Name)
		}
		if in[v.Name], err = npz.As(x, v.Type.DType); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range c.Graph.Inits {
		half = half || v.Type.DType == ir.BFloat16
	}
	out := run(t, c.Graph, in)
	if half {
		got, want := floats(t, out["loss"])[0], a.Get("loss").Floats()[0]
		if !(math.Abs(got-want) <= 0.01*math.Abs(want)) {
			t.Errorf("the loss is %v, recorded %v", got, want)
		}
		return
	}
	compared := 0
	for _, key := range a.Names {
		var output string
		switch {
		case key == "loss":
			output = "loss"
		case strings.HasPrefix(key, "grad/"):
			output = strings.TrimPrefix(key, "grad/") + "_grad"
		case strings.HasPrefix(key, "out/"):
			output = strings.TrimPrefix(key, "out/")
		default:
			continue
		}
		got, ok := out[output].(*ir.Tensor)
		if !ok {
			t.Errorf("the step has no output %q", output)
			continue
		}
		compared++
		if how := apart(got.Floats(), a.Get(key).Floats()); how != "" {
			t.Errorf("%s: %s", output, how)
		}
	}
	if compared < 2 {
		t.Errorf("%d values compared", compared)
	}
}

// apart says how values differ by more than a part in ten thousand of the
// largest (and a little, as some gradients are zero by mathematics).
func apart(got, want []float64) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d elements, recorded %d", len(got), len(want))
	}
	largest, worst := 0.0, 0.0
	for i := range want {
		largest = max(largest, math.Abs(want[i]))
		if d := math.Abs(got[i] - want[i]); !(d <= worst) {
			worst = d
		}
	}
	if !(worst <= 1e-4*largest+1e-6) {
		return fmt.Sprintf("differs by %g, largest recorded element %g", worst, largest)
	}
	return ""
}

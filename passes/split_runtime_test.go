package passes_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"memoc/codegen/onnxout"
	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/npz"
	"memoc/passes"
)

// TestSplitsInONNXRuntime writes models with splits, has the ONNX checker look
// at them and ONNX Runtime execute them, and compares with the interpreter on
// the unplanned graph. MEMOC_PYTHON is a Python that has both.
func TestSplitsInONNXRuntime(t *testing.T) {
	python := os.Getenv("MEMOC_PYTHON")
	if python == "" {
		t.Skip("set MEMOC_PYTHON to a Python with onnxruntime")
	}
	dir := t.TempDir()
	var folders []string
	for _, s := range splitSubjects(t) {
		if strings.Contains(s.name, "dropout") {
			continue // it draws its own random numbers
		}
		for _, k := range splitCases() {
			if k.often {
				name := strings.NewReplacer("/", "_", " ", "_", ",", "").Replace(s.name + "-" + k.name)
				folders = append(folders, filepath.Join(dir, name))
				writeSplit(t, folders[len(folders)-1], s, k)
			}
		}
	}
	out, err := exec.Command(python, append([]string{"../.ci/splits.py"}, folders...)...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if ok := strings.Count(string(out), "\nok ") + 1; ok < 8 {
		t.Errorf("%d models compared: the case shows too little", ok)
	}
}

// writeSplit writes a subject before and after planning, with inputs and the
// outputs they must give.
func writeSplit(t *testing.T, dir string, s splitSubject, k splitCase) {
	t.Helper()
	base, _, err := compileUntil(t, s.make(t), s.setup, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(base.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := run(t, base.Graph, in)
	m := s.make(t)
	o := s.setup.options(t)
	o.Choose = k.choose
	c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
	if err := (&passes.Runner{}).Run(c); err != nil {
		t.Fatal(err)
	}
	after, err := onnxout.Encode(c.Program, m)
	if err != nil {
		t.Fatal(err)
	}
	unplanned := &ir.Program{Graph: base.Graph, Places: make([]ir.Place, base.Graph.NumValues())}
	for i := range unplanned.Places {
		unplanned.Places[i].Buffer = -1
	}
	before, err := onnxout.Encode(unplanned, base.Model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"model.onnx": after, "before.onnx": before} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	weights, err := filepath.Glob(filepath.Join(filepath.Dir(m.Path), "*.data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range weights {
		at, err := filepath.Abs(w)
		if err == nil {
			err = os.Symlink(at, filepath.Join(dir, filepath.Base(w)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, set := range map[string]map[string]ir.Datum{"in.npz": in, "want.npz": want} {
		a := &npz.Archive{}
		for _, key := range slices.Sorted(maps.Keys(set)) {
			a.Add(key, set[key].(*ir.Tensor))
		}
		if err := npz.Write(filepath.Join(dir, name), a); err != nil {
			t.Fatal(err)
		}
	}
}

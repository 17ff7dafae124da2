package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/onnx"
)

// notForPython are the files whose text onnx.parser cannot read, because the
// model itself has tensors without an element type.
var notForPython = []string{
	"deeploy/Transformer_Train/network.onnx", "deeploy/cct_train/network.onnx", "deeploy/tinytransformer_train/network.onnx",
}

// TestText prints every model, reads the text, verifies that graph and prints
// it again: the texts are equal. Python's onnx.parser, where it is installed,
// reads the text too.
func TestText(t *testing.T) {
	out := t.TempDir()
	total := 0
	for _, root := range []string{"corpus", "models"} {
		dir := shared(t, root)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" {
				return err
			}
			name, _ := filepath.Rel(dir, path)
			if _, ok := refused[name]; ok {
				return nil
			}
			total++
			text := textRoundTrip(t, name, path)
			if slices.Contains(notForPython, name) {
				return nil
			}
			return os.WriteFile(filepath.Join(out, strings.ReplaceAll(name, "/", "_")), []byte(text), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%s: %d models\n", t.Name(), total)
	pythonReads(t, out)
}

func textRoundTrip(t *testing.T, name, path string) string {
	t.Helper()
	m, _, err := onnx.Load(path, onnx.Options{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	text := ir.Print(m, ir.TextOptions{})
	again, err := ir.Parse(name, text)
	if err != nil {
		t.Error(err)
		return text
	}
	if ir.Print(again, ir.TextOptions{}) != text {
		t.Errorf("%s: the second print differs", name)
	}
	before, after := ir.VerifyStructure(m.Graph), ir.VerifyStructure(again.Graph)
	if (before == nil) != (after == nil) {
		t.Errorf("%s: verifying gives %v, and after printing and parsing %v", name, before, after)
	}
	return text
}

func pythonReads(t *testing.T, dir string) {
	python := os.Getenv("MEMOC_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import onnx.parser").Run() != nil {
		t.Log("no Python with onnx (set MEMOC_PYTHON): its parser is not tried")
		return
	}
	script := `
import os, sys, onnx.parser
for f in sorted(os.listdir(sys.argv[1])):
    try: onnx.parser.parse_model(open(os.path.join(sys.argv[1], f)).read())
    except Exception as e: print(f, str(e)[:400])`
	out, err := exec.Command(python, "-c", script, dir).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

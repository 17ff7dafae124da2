package conformance

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx"
)

// refused are the files that must not load, with a word of the reason.
var refused = map[string]string{
	"ort/malformed/icm_undefined_input.onnx":          `"Addcst"`,
	"ort/malformed/test_arbitrary_external_file.onnx": "evil_weights",
}

// TestRoundTrip reads every model and writes it again, first as it was read and
// then after inference: the bytes must not change.
func TestRoundTrip(t *testing.T) {
	same, total := 0, 0
	for _, root := range []string{"corpus", "models"} {
		dir := shared(t, root)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" {
				return err
			}
			name, _ := filepath.Rel(dir, path)
			if why, ok := refused[name]; ok {
				if _, _, err := onnx.Load(path, onnx.Options{}); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: got %v, want a refusal that says %s", name, err, why)
				}
				return nil
			}
			if roundTrip(t, name, path) {
				same++
			}
			total++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%s: %d of %d files byte for byte, %d refused as they must be\n", t.Name(), same, total, len(refused))
}

func roundTrip(t *testing.T, name, path string) bool {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := onnx.Load(path, onnx.Options{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return false
	}
	for _, when := range []string{"read", "inferred"} {
		got, err := onnx.Encode(m)
		if err != nil {
			t.Errorf("%s as %s: %v", name, when, err)
			return false
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s as %s: %d bytes, want %d", name, when, len(got), len(want))
			return false
		}
		// An error of inference leaves the graph as it was.
		_ = ir.InferGraph(m.Graph, ir.InferOptions{Report: func(*diag.Diagnostic) {}})
	}
	return true
}

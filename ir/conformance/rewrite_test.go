package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/onnx"
)

// TestRewrite encodes every model anew, as if each node had been made by a
// pass, and reads it again: the text form must not change.
func TestRewrite(t *testing.T) {
	keep := os.Getenv("MEMOC_KEEP") // a folder to leave the files in, for other tools to look at
	for _, root := range []string{"corpus", "models"} {
		dir := shared(t, root)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(dir, path)
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" || refused[name] != "" {
				return err
			}
			m, warnings, err := onnx.Load(path, onnx.Options{})
			if err != nil {
				return err
			}
			same := true
			for _, w := range warnings {
				// Written as a call of a function, for readers that go by the import.
				same = same && w.ID != "op-version"
				if w.ID == "domain-not-imported" {
					m.Opsets[w.Loc.Op[:strings.Index(w.Loc.Op, "::")]] = w.Loc.Opset // as writing adds it
				}
			}
			before := ir.Print(m, ir.TextOptions{})
			m.Graph.Walk(func(n *ir.Node) {
				n.Raw = nil
				for i := range n.Attrs {
					n.Attrs[i].Raw = nil
				}
			})
			b, err := onnx.Encode(m)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return nil
			}
			if keep != "" {
				out := filepath.Join(keep, strings.ReplaceAll(name, "/", "__"))
				if err := os.WriteFile(out, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			again, _, err := onnx.Decode(b, filepath.Dir(path), onnx.Options{Name: filepath.Base(path)})
			if err != nil {
				t.Errorf("%s: what is written is not read: %v", name, err)
				return nil
			}
			if after := ir.Print(again, ir.TextOptions{}); same && before != after {
				t.Errorf("%s: %s", name, firstDifference(before, after))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return "was\n\t" + as[i] + "\nis\n\t" + bs[i]
		}
	}
	return "one text is longer"
}

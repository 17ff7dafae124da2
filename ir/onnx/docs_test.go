package onnx

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrorsAreDocumented looks for the IDs of this package's messages in
// docs/errors.md.
func TestErrorsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/errors.md")
	must(t, err)
	id := regexp.MustCompile(`(?:refuse|warn|fail|callError)\((?:n, |c\.call, )?"([a-z-]+)"|ID: "([a-z-]+)"`)
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, f := range append(files, "../inline.go") {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		must(t, err)
		for _, m := range id.FindAllStringSubmatch(string(src), -1) {
			if name := m[1] + m[2]; !strings.Contains(string(docs), "| `"+name+"` |") {
				t.Errorf("%s: %q is not in docs/errors.md", f, name)
			}
		}
	}
}

package passes_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestKnownFaultsAreTested holds docs/known-faults.md against the tests: every
// test that it names is where it says.
func TestKnownFaultsAreTested(t *testing.T) {
	page, err := os.ReadFile("../docs/known-faults.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (B\\d\\d) \\|.*\\| (`Test.*`) \\| `([^`]*)`.*\\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 40 {
		t.Errorf("%d rows", len(rows))
	}
	seen := map[string]bool{}
	for _, row := range rows {
		src, err := os.ReadFile(filepath.Join("..", row[3]))
		if err != nil {
			t.Errorf("%s: %v", row[1], err)
			continue
		}
		for _, name := range strings.Split(row[2], ", ") {
			name = strings.Trim(name, "`")
			seen[name] = true
			if !strings.Contains(string(src), "func "+name+"(") {
				t.Errorf("%s: %s has no %s", row[1], row[3], name)
			}
		}
	}
	files, err := filepath.Glob("faults_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`func (TestB\d\d\w*)\(`).FindAllStringSubmatch(string(src), -1) {
			if !seen[m[1]] {
				t.Errorf("%s is not in docs/known-faults.md", m[1])
			}
		}
	}
}

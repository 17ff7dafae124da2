// Package memoc_test holds the repository's own rules: which package may
// import which, and how long files and functions may be.
package memoc_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// levels is the house of docs/architecture.md: a package imports packages of
// lower levels only, and those of its own level that its entry names.
var levels = map[string]struct {
	level int
	also  []string
}{
	"ir/diag":                 {0, nil},
	"ir/mutate":               {0, nil},
	"passes/place":            {0, nil},
	"passes/sim":              {0, nil},
	"passes/layers":           {0, nil},
	"passes/plan":             {0, []string{"passes/sim"}},
	"ir":                      {1, nil},
	"passes/place/torchsnap":  {1, nil},
	"ir/npz":                  {2, nil},
	"ir/ops":                  {2, nil},
	"ir/eval":                 {2, nil},
	"ir/onnx":                 {2, []string{"ir/onnx/internal/onnxpb"}},
	"ir/onnx/internal/onnxpb": {2, nil},
	"ir/planfile":             {2, nil},
	"ir/models":               {2, nil},
	"ir/handmade":             {2, nil},
	"passes/liveness":         {2, nil},
	"passes/cost":             {2, nil},
	"ir/onnxgo":               {3, nil},
	"ir/conformance":          {3, nil},
	"passes/mask":             {2, nil},
	"passes/tokens":           {2, []string{"passes/liveness"}},
	"passes/chunks":           {3, nil},
	"passes/attnmatch":        {2, []string{"passes/mask"}},
	"passes/headmatch":        {2, nil},
	"passes/check":            {3, nil},
	"codegen/cuda":            {3, nil},
	"codegen/dot":             {3, nil},
	"codegen/onnxout":         {3, nil},
	"passes":                  {4, nil},
	"passes/fit":              {4, []string{"passes"}},
	"cmd/memoc":               {5, nil},
	"testdata/models":         {5, nil},
	"testdata/corpus":         {5, nil},
	"testdata/policies":       {5, nil},
}

// pure packages import nothing of memoc but each other as listed above.
var pure = []string{"passes/place", "passes/sim", "passes/plan", "passes/layers", "ir/diag", "ir/mutate"}

func TestImports(t *testing.T) {
	for name, imports := range packages(t) {
		from, ok := levels[name]
		if !ok {
			t.Errorf("package %s has no level: add it to the table here and in docs/architecture.md", name)
			continue
		}
		for _, imp := range imports {
			to, ok := levels[imp]
			switch {
			case !ok || slices.Contains(from.also, imp):
			case to.level >= from.level:
				t.Errorf("%s (level %d) imports %s (level %d)", name, from.level, imp, to.level)
			case slices.Contains(pure, name):
				t.Errorf("%s is pure and imports %s", name, imp)
			case strings.HasPrefix(name, "codegen") && strings.HasPrefix(imp, "passes"):
				t.Errorf("%s imports %s: all that an emitter needs is in the Program", name, imp)
			}
		}
	}
}

// TestFuzzTargetsAreGates: exploration finds faults by luck, so every fuzz
// target's property is also tried on the mutations that are the same each time.
func TestFuzzTargetsAreGates(t *testing.T) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			found++
			if !strings.Contains(string(text), fmt.Sprintf("mutate.Test(t, %q,", m[1])) {
				t.Errorf("%s: %s has no test with mutate.Test", path, m[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d fuzz targets (%v)", found, err)
	}
}

// TestOnlyTheLoaderSeesProtobuf keeps the wire format in one package.
func TestOnlyTheLoaderSeesProtobuf(t *testing.T) {
	for name, imports := range allImports(t) {
		for _, imp := range imports {
			if strings.HasPrefix(imp, "google.golang.org/protobuf") && !strings.HasPrefix(name, "ir/onnx") {
				t.Errorf("%s imports %s", name, imp)
			}
		}
	}
}

func packages(t *testing.T) map[string][]string {
	out := map[string][]string{}
	for name, imports := range allImports(t) {
		out[name] = nil
		for _, imp := range imports {
			if rest, ok := strings.CutPrefix(imp, "memoc/"); ok {
				out[name] = append(out[name], rest)
			}
		}
	}
	return out
}

func allImports(t *testing.T) map[string][]string {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "./...", "./testdata/models", "./testdata/corpus", "./testdata/policies")
	text, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	out := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		if err := d.Decode(&p); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(p.ImportPath, "memoc/"); ok && len(p.GoFiles) > 0 {
			out[name] = p.Imports
		}
	}
}

const (
	maxFunction = 60 // lines
	maxFile     = 600
)

// longFunctions may be longer than maxFunction: tables and switches that would
// be harder to read in pieces. The value says why.
var longFunctions = map[string]string{
	"ir/ops/shared_global_pool.go:declare":      "one declaration of an operator",
	"ir/ops/softmax_grad.go:softmaxGradOp":      "one declaration of an operator",
	"ir/ops/window_functions.go:windowFunction": "one declaration of an operator",
}

// TestHouseIsDescribed: the table of docs/architecture.md lists these levels.
func TestHouseIsDescribed(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| ([0-9]) \\| `([^`]+)` \\| ").FindAllStringSubmatch(string(page), -1) {
		described[m[2]] = m[1]
		if _, ok := levels[m[2]]; !ok {
			t.Errorf("docs/architecture.md describes %s, which the table here does not have", m[2])
		}
	}
	for pkg, l := range levels {
		if described[pkg] != fmt.Sprint(l.level) {
			t.Errorf("docs/architecture.md has %s on level %q, the table here on %d", pkg, described[pkg], l.level)
		}
	}
}

// TestLinks: what a page links to in the repository is there.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

func TestSizes(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		if n := fset.Position(f.End()).Line; n > maxFile {
			t.Errorf("%s has %d lines, more than %d", path, n, maxFile)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if key := filepath.ToSlash(path) + ":" + fn.Name.Name; n > maxFunction && longFunctions[key] == "" {
				t.Errorf("%s has %d lines, more than %d", key, n, maxFunction)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEdgesChangeInOnePlace: passes edit graphs through ir.Edit alone.
func TestEdgesChangeInOnePlace(t *testing.T) {
	for _, dir := range []string{"passes", "codegen", "cmd"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				as, ok := n.(*ast.AssignStmt)
				if !ok {
					return true
				}
				for _, lhs := range as.Lhs {
					ix, ok := lhs.(*ast.IndexExpr)
					if !ok {
						continue
					}
					if sel, ok := ix.X.(*ast.SelectorExpr); ok && (sel.Sel.Name == "In" || sel.Sel.Name == "Out") {
						if id, ok := sel.X.(*ast.Ident); ok && (id.Name == "n" || id.Name == "node") {
							t.Errorf("%s assigns to an edge of a node; use ir.Edit", fset.Position(as.Pos()))
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

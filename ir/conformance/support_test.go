package conformance

import (
	"archive/tar"
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	_ "memoc/ir/ops"
)

var update = flag.Bool("update", false, "rewrite the lists of cases that do not pass yet")

// shared finds a path below the folder of shared data, which lies beside the
// repository or where MEMOC_SHARED says.
func shared(t testing.TB, path string) string {
	t.Helper()
	roots := []string{os.Getenv("MEMOC_SHARED"), "../../../shared", "../../../../shared"}
	for _, root := range roots {
		p := filepath.Join(root, path)
		if _, err := os.Stat(p); root != "" && err == nil {
			return p
		}
	}
	t.Skipf("no ../shared/%s", path)
	return ""
}

// unpack reads a .tar.xz into memory.
func unpack(t testing.TB, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(shared(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := xz.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(bufio.NewReaderSize(x, 1<<20)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			files[h.Name] = b
		}
	}
}

// verdict is how a case went. class is empty where it passed, else the class
// of the reason that the list of pending cases holds; never marks what must
// not be listed.
type verdict struct {
	class  string
	detail string
	never  bool
}

var pass = verdict{}

func pending(class, format string, args ...any) verdict {
	return verdict{class: class, detail: fmt.Sprintf(format, args...)}
}

// caseName makes one word of a case's name.
func caseName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 100)]
}

// guard runs a case and turns a panic into a verdict that cannot be listed.
func guard(f func() verdict) (v verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = verdict{class: "panic", detail: fmt.Sprint(r), never: true}
		}
	}()
	return f()
}

// judge holds verdicts against the list of pending cases.
func judge(t *testing.T, list string, verdicts map[string]verdict) {
	t.Helper()
	path := filepath.Join("testdata", list)
	listed := readList(t, path)
	names := make([]string, 0, len(verdicts))
	for name := range verdicts {
		names = append(names, name)
	}
	slices.Sort(names)
	counts := map[string]int{}
	var out bytes.Buffer
	for _, name := range names {
		v := verdicts[name]
		class, _, _ := strings.Cut(v.class, ":")
		counts[class]++
		if v.class != "" && !v.never {
			fmt.Fprintf(&out, "%s %s\n", name, v.class)
		}
		if v.class != "" && v.detail != "" && testing.Verbose() {
			t.Logf("%s: %s: %s", name, v.class, v.detail)
		}
		_, isListed := listed[name]
		switch {
		case v.never:
			t.Errorf("%s: %s: %s", name, v.class, v.detail)
		case *update:
		case v.class == "" && isListed:
			t.Errorf("%s passes and is listed in %s; run the test with -update", name, path)
		case v.class != "" && !isListed:
			t.Errorf("%s does not pass: %s: %s", name, v.class, v.detail)
		}
		delete(listed, name)
	}
	for name := range listed {
		if !*update {
			t.Errorf("%s lists %s, which is no case", path, name)
		}
	}
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	summary(t, counts, len(verdicts))
}

func summary(t *testing.T, counts map[string]int, total int) {
	t.Helper()
	var parts []string
	for class, n := range counts {
		if class != "" {
			parts = append(parts, fmt.Sprintf("%s %d", class, n))
		}
	}
	slices.Sort(parts)
	fmt.Printf("%s: %d of %d pass; %s\n", t.Name(), counts[""], total, strings.Join(parts, ", "))
}

func readList(t *testing.T, path string) map[string]string {
	t.Helper()
	out := map[string]string{}
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	last := ""
	for line := range strings.Lines(string(b)) {
		name, class, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if name <= last {
			t.Errorf("%s is not sorted at %s", path, name)
		}
		out[name], last = class, name
	}
	return out
}

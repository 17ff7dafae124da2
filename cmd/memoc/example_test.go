package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWorkedExample holds the dumps of docs/architecture.md against what the
// compiler prints and writes now. Between "<!-- example: NAME -->" and
// "<!-- end -->" stands what NAME gives.
func TestWorkedExample(t *testing.T) {
	dir := t.TempDir()
	var out, dumps bytes.Buffer
	if code := run([]string{"compile", "../../testdata/models/example/three.onnx", "--train", "--loss", "loss", "--budget", "80%",
		"-d", "infer/dump", "-d", "cleanup/dump", "-d", "rewrite/dump", "-o", dir}, &out, &dumps); code != exitOK {
		t.Fatalf("code %d: %s", code, dumps.String())
	}
	plan, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	fillExamples(t, "docs/architecture.md", func(name string) string { return exampleText(name, dumps.String(), string(plan)) })
}

// TestSplitExample is TestWorkedExample of docs/planner.md.
func TestSplitExample(t *testing.T) {
	var out, dumps bytes.Buffer
	if code := run([]string{"compile", "../../testdata/models/example/three.onnx", "--train", "--loss", "loss", "--budget", "80%", "--host-budget", "3MiB",
		"--device", "../../testdata/devices/slow.json", "-d", "cleanup/dump", "-d", "rewrite/dump", "-o", t.TempDir()}, &out, &dumps); code != exitOK {
		t.Fatalf("code %d: %s", code, dumps.String())
	}
	var shown bytes.Buffer
	if code := run([]string{"inspect", "../../testdata/models/gpt-tiny.onnx", "--train", "--loss", "loss"}, &shown, &dumps); code != exitOK {
		t.Fatalf("code %d: %s", code, dumps.String())
	}
	fillExamples(t, "docs/planner.md", func(name string) string { return exampleText(name, dumps.String(), shown.String()) })
}

var marked = regexp.MustCompile(`(?s)(<!-- example: ([^\n]+) -->\n).*?(<!-- end -->)`)

// fillExamples holds the marked parts of a page against what text gives.
func fillExamples(t *testing.T, name string, text func(example string) string) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	page(t, name, marked.ReplaceAllFunc(old, func(part []byte) []byte {
		m := marked.FindSubmatch(part)
		block := text(string(m[2]))
		if block == "" {
			t.Errorf("%s: memoc prints nothing for the example %q", name, m[2])
		}
		return []byte(string(m[1]) + "\n" + block + "\n" + string(m[3]))
	}))
}

// TestReadme holds the README's table against what memoc prints; -update draws
// its picture anew, too.
func TestReadme(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Symlink(filepath.Join(root, "testdata"), "testdata"); err != nil {
		t.Fatal(err)
	}
	compile := func(flags ...string) string {
		var out, messages bytes.Buffer
		args := append([]string{"compile", "testdata/models/gpt-tiny.onnx", "--train", "--loss", "loss", "--budget", "60%"}, flags...)
		if code := run(args, &out, &messages); code != exitOK {
			t.Fatalf("%q: code %d: %s", args, code, messages.String())
		}
		return out.String()
	}
	table := compile("-o", "out")
	fillExamples(t, "README.md", func(string) string {
		return regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSuffix(table, "\n"), "    ") + "\n"
	})
	compile("--host-budget", "256KiB", "--svg", "arena.svg")
	svg, err := os.ReadFile("arena.svg")
	if err != nil {
		t.Fatal(err)
	}
	// Every change of an operator's workspace changes the picture a little, so
	// an older one will do.
	if *update {
		page(t, "docs/arena.svg", svg)
	}
}

// exampleText is an indented block: a dump "after PASS", what inspect says of
// a layer, the moving buffers of the plan, or the line of a step or a decision.
func exampleText(name, dumps, plan string) string {
	var b strings.Builder
	add := func(line string) { b.WriteString("    " + strings.TrimRight(line, "\n") + "\n") }
	kind, what, _ := strings.Cut(name, " ")
	inside := false
	for line := range strings.Lines(map[bool]string{true: dumps, false: plan}[kind == "after"]) {
		switch kind {
		case "after":
			if strings.HasPrefix(line, "# ") {
				inside = strings.HasSuffix(line, " "+name+"\n")
			}
			if inside {
				add(line)
			}
			inside = inside && !strings.HasPrefix(line, "}")
		case "inspect":
			if strings.HasPrefix(line, "    "+what) {
				add(strings.TrimPrefix(line, "    "))
			}
		case "buffers":
			if strings.Contains(line, `"first":`) && !strings.Contains(line, `"persistent"`) {
				add(line)
			}
		case "step":
			if strings.Contains(line, `"node":"`+what+`"`) {
				add(line)
			}
		case "decision":
			if strings.Contains(line, `"tensor":"`+what+`"`) {
				add(line)
			}
		}
	}
	return b.String()
}

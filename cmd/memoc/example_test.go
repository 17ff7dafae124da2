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
	old, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- example: ([^\n]+) -->\n).*?(<!-- end -->)`)
	page(t, "architecture.md", marked.ReplaceAllFunc(old, func(part []byte) []byte {
		m := marked.FindSubmatch(part)
		text := exampleText(string(m[2]), dumps.String(), string(plan))
		if text == "" {
			t.Errorf("the compiler prints nothing for the example %q", m[2])
		}
		return []byte(string(m[1]) + "\n" + text + "\n" + string(m[3]))
	}))
}

// exampleText is an indented block: a dump "after PASS", the moving buffers of
// the plan, or the line of a step or a decision.
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

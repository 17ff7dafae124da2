package ops

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"memoc/ir"
)

// TestDocs keeps docs/ops.md equal to the declarations; -update rewrites it.
func TestDocs(t *testing.T) {
	const path = "../../docs/ops.md"
	want := opsPage()
	if *update {
		if err := os.MkdirAll("../../docs", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/ops.md is stale; run: go test ./ir/ops -run TestDocs -update")
	}
}

// opsPage is the table of all operators.
func opsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Operators\n\nGenerated from the declarations in `ir/ops` by `go test ./ir/ops -run TestDocs -update`.\n\n")
	b.WriteString("\"Since\" lists the opset versions that changed the operator, all of which are read.\n")
	domain := "?"
	for _, op := range ir.Operators() {
		if op.Domain == "test" {
			continue
		}
		if op.Domain != domain {
			domain = op.Domain
			name := domain
			if name == "" {
				name = "ai.onnx"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| operator | since | gradient | recompute | kernel | what it does |\n|---|---|---|---|---|---|\n", name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", op.Name, strings.Trim(fmt.Sprint(op.Since), "[]"),
			yesOr(op.Grad.Rule != nil, op.Grad.None), yesOr(op.Recompute.OK()),
			yesOr(op.Kernel.Make != nil, op.Kernel.None), cell(op.Doc))
	}
	return b.Bytes()
}

func yesOr(yes bool, why string) string {
	if yes {
		return "yes"
	}
	return "no: " + cell(why)
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"memoc/codegen/cuda"
	"memoc/codegen/onnxout"
	"memoc/ir"
	"memoc/ir/handmade"
	"memoc/ir/planfile"
)

// splitFolder writes a folder as compile does, for a step whose tensors are
// split along their tokens.
func splitFolder(t *testing.T, batch int64) string {
	t.Helper()
	c, err := handmade.Split(batch)
	if err != nil {
		t.Fatal(err)
	}
	c.Program.Decisions = []ir.Decision{{Tensor: "h", Bytes: 2048, Kind: ir.SplitTokens, Reason: "five of eight tokens", Produce: "h", Head: 1280}}
	dir := t.TempDir()
	model, err := onnxout.Encode(c.Program, &ir.Model{IRVersion: 8, Opsets: map[string]int{"": 17, ir.MemocDomain: 1}, Graph: c.Program.Graph})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planfile.FromProgram(c.Program).Encode()
	if err != nil {
		t.Fatal(err)
	}
	files, err := cuda.Emit(c.Program)
	if err != nil {
		t.Fatal(err)
	}
	if err := cuda.WriteDir(filepath.Join(dir, "cuda"), files); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"model.onnx": model, "plan.json": plan} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The commands read back a folder with splits: it is sound, executes as its
// model does, and is explained.
func TestFolderWithSplits(t *testing.T) {
	for _, batch := range []int64{1, 3} {
		dir := splitFolder(t, batch)
		commands := [][]string{{"check", dir}, {"run", dir, "--compare"}, {"explain", dir}, {"explain", dir, "h"}}
		if _, err := exec.LookPath("g++"); err == nil && !testing.Short() {
			commands = append(commands, []string{"run", dir, "--backend", "host"})
		}
		for _, args := range commands {
			var out, messages bytes.Buffer
			if code := run(args, &out, &messages); code != exitOK {
				t.Errorf("batch %d, %q: code %d, %s", batch, args, code, messages.String())
			}
			if args[0] == "explain" && !strings.Contains(out.String(), "split") {
				t.Errorf("batch %d, %q says nothing of a split:\n%s", batch, args, out.String())
			}
		}
		for _, c := range []struct{ value, says string }{
			{"h.in", `"h.in" is a part of "h.whole"`},
			{"h.head", `"h.head" is a view or a range of "h"`},
		} {
			var out, messages bytes.Buffer
			if code := run([]string{"explain", dir, c.value}, &out, &messages); code != exitUsage || !strings.Contains(messages.String(), c.says) {
				t.Errorf("batch %d, explain %s: code %d, %s", batch, c.value, code, messages.String())
			}
		}
	}
}

// A plan that was edited is refused before anything executes.
func TestEditedSplitIsRefused(t *testing.T) {
	for _, c := range []struct{ old, edited, rule string }{
		{`"rows":3,"pitch":2048`, `"rows":3,"pitch":1792`, "ranges"},
		{`"parts":["h.in"]`, `"parts":[]`, "races"},
		{`"version":2`, `"version":1`, "version 1"},
	} {
		dir := splitFolder(t, 3)
		path := filepath.Join(dir, "plan.json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		spoiled := bytes.Replace(data, []byte(c.old), []byte(c.edited), 1)
		if bytes.Equal(spoiled, data) {
			t.Fatalf("the plan has no %s", c.old)
		}
		if err := os.WriteFile(path, spoiled, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"check", dir}, {"run", dir}} {
			var out, messages bytes.Buffer
			if code := run(args, &out, &messages); code == exitOK || !strings.Contains(messages.String(), c.rule) {
				t.Errorf("%s, %q: code %d, %s", c.edited, args, code, messages.String())
			}
		}
	}
}

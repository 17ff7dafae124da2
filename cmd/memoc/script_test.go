package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"memoc/ir/npz"
	"memoc/ir/planfile"
)

var update = flag.Bool("update", false, "rewrite the generated pages and the expectations of scripts")

// TestMain lets scripts run this test binary as "memoc".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"memoc": main})
}

// TestScripts runs testdata/script. A script finds the repository's testdata
// under $DATA, and has the commands
//
//	exit CODE memoc ARGS…   the command must end with that exit code
//	keys FILE KEY…          a JSON object must have these keys and no others
//	samenpz A B             two archives must hold the same arrays
//	replace OLD NEW FILE    a text is replaced wherever it stands
func TestScripts(t *testing.T) {
	data, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("GPT", filepath.Join(data, "models", "gpt-tiny.onnx"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": scriptExit, "keys": scriptKeys, "samenpz": scriptSameNPZ, "replace": scriptReplace,
		},
	})
}

// scriptExit runs a command and wants one exit code of it.
func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND ARGS…")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exited interface{ ExitCode() int }
		if !errors.As(err, &exited) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exited.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// scriptKeys wants exactly the given keys of a JSON object.
func scriptKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: keys FILE KEY…")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &object); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	var got []string
	for k := range object {
		got = append(got, k)
	}
	want := slices.Clone(args[1:])
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		ts.Fatalf("%s has the keys %q, want %q", args[0], got, want)
	}
}

// scriptSameNPZ compares two archives array by array, bit for bit.
func scriptSameNPZ(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: samenpz A B")
	}
	a, err := npz.Read(ts.MkAbs(args[0]))
	ts.Check(err)
	b, err := npz.Read(ts.MkAbs(args[1]))
	ts.Check(err)
	same := slices.Equal(a.Names, b.Names)
	for _, name := range a.Names {
		x, err := npz.As(a.Get(name), a.Get(name).DType)
		ts.Check(err)
		y := b.Get(name)
		same = same && y != nil && y.DType == x.DType && slices.Equal(x.Dims, y.Dims) && bytes.Equal(x.Data, y.Data)
	}
	if same == neg {
		ts.Fatalf("the same arrays: %v", same)
	}
}

func scriptReplace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace OLD NEW FILE")
	}
	text := ts.ReadFile(args[2])
	if !strings.Contains(text, args[0]) {
		ts.Fatalf("%s does not contain %q", args[2], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.ReplaceAll(text, args[0], args[1])), 0o644))
}

func TestPanicsAreOurFault(t *testing.T) {
	c := &command{name: "boom", run: func(*call) error { panic("no such thing") }}
	var out bytes.Buffer
	if code := report(guarded(c, []string{"a", "b"}, &out, &out), c, &out, &out); code != exitInternal {
		t.Errorf("a panic ends with code %d, want %d", code, exitInternal)
	}
	for _, want := range []string{"BUG: no such thing", "memoc boom a b"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the message does not say %q:\n%s", want, out.String())
		}
	}
}

// root is the repository.
var root, _ = filepath.Abs("../..")

// page compares a generated page, by its path in the repository, with the file
// there, or rewrites it.
func page(t *testing.T, name string, want []byte) {
	t.Helper()
	path := filepath.Join(root, name)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what memoc says now; go test ./cmd/memoc -update rewrites it", name)
	}
}

func TestPipelinePage(t *testing.T) {
	var list, text bytes.Buffer
	if code := run([]string{"passes"}, &list, &list); code != exitOK {
		t.Fatalf("memoc passes ends with code %d: %s", code, list.String())
	}
	text.WriteString("# The passes\n\nWhat `memoc passes` prints: every pass with its number, stage and whether it can be turned off (`-d=<pass>/off`), and what it\n" +
		"must come after and why. The order is the list in `passes/pipeline.go`; the program does not start if a reason is broken by it.\n" +
		"This page is written by `go test ./cmd/memoc -update`.\n\n")
	for line := range strings.Lines(list.String()) {
		text.WriteString("    " + line)
	}
	page(t, "docs/pipeline.md", text.Bytes())
}

// TestPagesAreComplete: docs/cli.md names every flag of every command, and
// docs/plan.md every member of plan.json.
func TestPagesAreComplete(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	cli := read("cli.md")
	flagLine := regexp.MustCompile(`(?m)^  (--?[a-z-]+)`)
	for _, c := range commands() {
		var help bytes.Buffer
		commandHelp(&help, c)
		flags, _, _ := strings.Cut(help.String(), "\nExample:")
		for _, m := range flagLine.FindAllStringSubmatch(flags, -1) {
			if !regexp.MustCompile("`" + m[1] + "[ `|]").MatchString(cli) {
				t.Errorf("docs/cli.md does not describe %s of memoc %s", m[1], c.name)
			}
		}
	}
	plan := read("plan.md")
	var members func(reflect.Type)
	members = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(plan, "`"+name+"`") {
				t.Errorf("docs/plan.md does not describe %q of %s", name, typ)
			}
			members(f.Type)
		}
	}
	members(reflect.TypeFor[planfile.Plan]())
}

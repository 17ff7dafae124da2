package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx"
	"memoc/passes"
)

var compileCommand = &command{
	name:    "compile",
	args:    "MODEL [flags]",
	doc:     "Plan a model's memory and write the rewritten model, the CUDA program, the plan and the graph.",
	example: "memoc compile testdata/models/gpt-tiny.onnx --train --loss loss --budget 60% -o out",
}

func init() { compileCommand.run = runCompile }

func runCompile(c *call) error {
	f := newFlags(c.cmd)
	cf := f.compile()
	out := f.String("o", "", "write the artifacts into `DIR`")
	asJSON := f.Bool("json", false, "print the table as one JSON object")
	svg := f.String("svg", "", "draw the device arena over the step into `FILE.svg`: time across, address up")
	what := f.whatIf()
	emit := f.String("emit", "model,plan,dot,cuda", "which artifacts to write: `LIST`")
	args, err := f.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	wanted, err := parseEmit(*emit)
	if err != nil {
		return err
	}
	if *out == "" && f.given("emit") {
		return &usageError{"--emit needs -o DIR"}
	}
	cf.whatIf = what.print || what.svg != ""
	ctx, err := compileModel(c, cf, args[0])
	if err != nil {
		return err
	}
	if d := deviceMemory(ctx); d != nil {
		printWarnings(c, []*diag.Diagnostic{d})
	}
	if *out != "" {
		if err := writeArtifacts(ctx, *out, wanted, cf.read(args[0])); err != nil {
			return err
		}
		if d := externalData(ctx.Graph, *out); d != nil && wanted["model"] {
			printWarnings(c, []*diag.Diagnostic{d})
		}
	}
	if *svg != "" {
		if err := writeFile(*svg, func(w io.Writer) error { return drawArena(w, ctx.Program) }); err != nil {
			return err
		}
	}
	if what.svg != "" {
		if err := writeFile(what.svg, func(w io.Writer) error { return drawCurve(w, ctx) }); err != nil {
			return err
		}
	}
	if *asJSON {
		return printJSON(c.stdout, ctx, what.print)
	}
	printTable(c.stdout, ctx, *out)
	if what.print {
		return printCurve(c.stdout, ctx)
	}
	return nil
}

// externalData is the note that the written model refers to data files, which
// are looked for beside it; nil if it refers to none or they are there.
func externalData(g *ir.Graph, dir string) *diag.Diagnostic {
	missing := map[string]bool{}
	for _, v := range g.Inits {
		if x := v.Init.External; x != nil {
			if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(x.Location))); err != nil {
				missing[x.Location] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(missing))
	return &diag.Diagnostic{ID: "external-data", Severity: diag.Note,
		Message: fmt.Sprintf("the written model refers to external data that is not in %s: %s", dir, strings.Join(names[:min(len(names), 4)], ", ")),
		Help:    "put the model's data file there before it is run"}
}

// deviceMemory is the note that a plan is larger than the device it is for.
func deviceMemory(c *passes.Context) *diag.Diagnostic {
	dev, size := c.Options.Device, passes.FormatBytes
	if c.Program.Metrics.Peak <= dev.MemoryBytes-dev.Reserved {
		return nil
	}
	return &diag.Diagnostic{ID: "device-memory", Severity: diag.Note, Message: fmt.Sprintf(
		"the plan needs %s, but the device has %s, of which CUDA itself takes about %s; say with --budget what the plan may use",
		size(c.Program.Metrics.Peak), size(dev.MemoryBytes), size(dev.Reserved))}
}

// read lists the model files that a compilation reads.
func (cf *compileFlags) read(model string) []string {
	if cf.backward == "" {
		return []string{model}
	}
	return []string{model, cf.backward}
}

func ignoreDescribed(err error) error {
	if err == errDescribed {
		return nil
	}
	return err
}

// loadModel reads a model, with its second half if one is given, and prints
// the warnings. The second result is the values that cross between the halves.
func loadModel(c *call, cf *compileFlags, path string) (*ir.Model, []*ir.Value, error) {
	m, warnings, err := onnx.Load(path, onnx.Options{Strict: cf.strict})
	printWarnings(c, warnings)
	if err != nil {
		return nil, nil, err
	}
	if cf.backward == "" {
		return m, nil, nil
	}
	second, warnings, err := onnx.Load(cf.backward, onnx.Options{Strict: cf.strict})
	printWarnings(c, warnings)
	if err != nil {
		return nil, nil, err
	}
	return passes.Join(m, second, cf.mapping)
}

func printWarnings(c *call, ds []*diag.Diagnostic) {
	for _, d := range ds {
		c.warn(fmt.Sprintf("memoc: %s: %v", d.Severity, d))
	}
}

// warn prints a line, unless the command has printed the same before.
func (c *call) warn(line string) {
	if c.warned[line] {
		return
	}
	if c.warned == nil {
		c.warned = map[string]bool{}
	}
	c.warned[line] = true
	fmt.Fprintln(c.stderr, line)
}

// compileModel runs the whole pipeline on a model file.
func compileModel(c *call, cf *compileFlags, path string) (*passes.Context, error) {
	opt, err := cf.options()
	if err != nil {
		return nil, err
	}
	m, crossing, err := loadModel(c, cf, path)
	if err != nil {
		return nil, err
	}
	warnings := &warningList{}
	p := newProgress(c.stderr)
	ctx := &passes.Context{Model: m, Graph: m.Graph, Options: opt, Crossing: crossing, Report: warnings.add, Progress: p.update}
	r := &passes.Runner{Out: c.stderr, Dump: dumper(c.stderr), Reproduce: "memoc " + strings.Join(os.Args[1:], " ")}
	err = r.Run(ctx)
	p.done()
	warnings.print(c)
	return ctx, err
}

// dumper prints the graph after a pass, for -d=<pass>/dump; passes are numbered
// as "memoc passes" numbers them.
func dumper(w interface{ Write([]byte) (int, error) }) func(int, string, *ir.Graph) error {
	return func(i int, pass string, g *ir.Graph) error {
		_, err := fmt.Fprintf(w, "# %02d after %s\n%s", i+1, pass, ir.PrintGraph(g, ir.TextOptions{}))
		return err
	}
}

// warningList gathers the warnings of a run and prints the first of each kind
// with a count of the rest, so that a large export does not bury them.
type warningList struct{ all []*diag.Diagnostic }

func (l *warningList) add(d *diag.Diagnostic) { l.all = append(l.all, d) }

const warningsPerKind = 5

func (l *warningList) print(c *call) {
	count := map[string]int{}
	var kinds []string
	for _, d := range l.all {
		if count[d.ID] == 0 {
			kinds = append(kinds, d.ID)
		}
		if count[d.ID]++; count[d.ID] <= warningsPerKind {
			c.warn(fmt.Sprintf("memoc: %s: %v", d.Severity, d))
		}
	}
	for _, k := range kinds {
		if n := count[k] - warningsPerKind; n > 0 {
			c.warn(fmt.Sprintf("memoc: and %d more warnings of the kind %q", n, k))
		}
	}
}

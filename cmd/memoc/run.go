package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"memoc/codegen/cuda"
	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/ir/npz"
	"memoc/passes"
)

var runCommand = &command{
	name: "run",
	args: "MODEL|DIR [flags]",
	doc: "Execute a model as it is, or a compiled folder, on the CPU.\n" +
		"With --train the gradients are outputs named <initializer>_grad.\n" +
		"With --compare the planned step is executed in its poisoned arena and held against the unplanned graph, bit for bit.",
	example: "memoc run out --compare",
}

func init() { runCommand.run = runRun }

// runFlags are the flags of run beyond those of planning.
type runFlags struct {
	*compileFlags
	set                   *flags
	inputs, save, backend string
	compare               bool
	seed, step            uint64
}

func runRun(c *call) error {
	f := newFlags(c.cmd)
	rf := &runFlags{compileFlags: f.compile(), set: f}
	f.StringVar(&rf.inputs, "inputs", "", "read inputs from `FILE.npz`, by name; a leading in/ is dropped (default: seeded random)")
	f.StringVar(&rf.save, "save", "", "write the outputs to `FILE.npz`, by name")
	f.StringVar(&rf.backend, "backend", "interp", "what executes: `NAME`, interp (the reference interpreter) or host (the emitted program, built with g++)")
	f.BoolVar(&rf.compare, "compare", false, "hold the planned step against the unplanned graph, bit for bit")
	f.Uint64Var(&rf.seed, "seed", 1, "seed of random inputs and of random operators: `N`")
	f.Uint64Var(&rf.step, "step", 0, "number of the step, which random operators draw by: `N`")
	args, err := f.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	if rf.backend != "interp" && rf.backend != "host" {
		return &usageError{fmt.Sprintf("--backend: nothing is called %q%s; use interp or host", rf.backend, didYouMean(rf.backend, []string{"interp", "host"}))}
	}
	s, err := prepare(c, rf, args[0])
	if err != nil {
		return err
	}
	in, err := readInputs(rf, s.unplanned)
	if err != nil {
		return err
	}
	out, err := s.execute(c, rf, in)
	if err != nil {
		return err
	}
	if rf.save != "" {
		err = saveOutputs(rf.save, s.unplanned, out)
	} else {
		printOutputs(c, s.unplanned, out)
	}
	if err == nil && s.verdict != "" {
		fmt.Fprintln(c.stdout, s.verdict)
	}
	return err
}

// subject is what run executes: a graph, and where it was planned its Program.
type subject struct {
	unplanned *ir.Graph
	program   *ir.Program // nil for a model that is run as it is
	dir       string      // the compiled folder, "" for a model
	modelDir  string      // where external data lies
	verdict   string      // of --compare, below the outputs
}

// prepare loads a model or a compiled folder. A model is planned only if the
// plan is needed: to compare, or to run the emitted program.
func prepare(c *call, rf *runFlags, path string) (*subject, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if info.IsDir() {
		if err := rf.nothingToPlan(c.cmd, path); err != nil {
			return nil, err
		}
		plan, m, err := loadCompiled(path)
		if err != nil {
			return nil, err
		}
		if err := soundPlan(plan, m); err != nil {
			return nil, err // it may have been edited
		}
		p, err := plan.Program(m.Graph)
		return &subject{unplanned: m.Graph, program: p, dir: path, modelDir: path}, err
	}
	before, err := stepGraph(c, rf, path)
	if err != nil {
		return nil, err
	}
	s := &subject{unplanned: before, modelDir: filepath.Dir(path)}
	if rf.compare || rf.backend == "host" {
		ctx, err := compileModel(c, rf.compileFlags, path)
		if err != nil {
			return nil, err
		}
		s.program = ctx.Program
	}
	return s, nil
}

// nothingToPlan refuses flags of planning for a folder that holds a plan: they
// would do nothing.
func (rf *runFlags) nothingToPlan(cmd *command, dir string) error {
	planning := newFlags(cmd)
	planning.compile()
	var err error
	planning.VisitAll(func(fl *flag.Flag) {
		if err == nil && rf.set.given(fl.Name) {
			err = &usageError{fmt.Sprintf("%s is for a model: %s is compiled, and runs as it was planned", dashed(fl.Name), dir)}
		}
	})
	return err
}

// stepGraph is the model's graph as it is executed without a plan: functions
// inlined, types inferred, and with --train the backward pass added.
func stepGraph(c *call, rf *runFlags, path string) (*ir.Graph, error) {
	ctx, err := analyzeModel(c, rf.compileFlags, path)
	if err != nil {
		return nil, err
	}
	return ctx.Graph, nil
}

func (s *subject) execute(c *call, rf *runFlags, in map[string]ir.Datum) (map[string]ir.Datum, error) {
	var planned map[string]ir.Datum
	var err error
	switch {
	case rf.backend == "host":
		planned, err = s.runHost(rf, in)
	case s.program != nil:
		planned, err = eval.Program(s.program, in, eval.Options{Seed: rf.seed, Step: rf.step})
	}
	if err != nil {
		return nil, err
	}
	if planned != nil && !rf.compare {
		return planned, nil
	}
	out, err := eval.Graph(s.unplanned, in, eval.Options{Seed: rf.seed, Step: rf.step})
	if err != nil || !rf.compare {
		return out, err
	}
	return planned, s.compare(c, rf, planned, out)
}

// compare holds planned against unplanned outputs: bit for bit on the
// interpreter. The emitted program has its own arithmetic (float sums in
// another order), so it is held to a tolerance of the element type.
func (s *subject) compare(c *call, rf *runFlags, planned, unplanned map[string]ir.Datum) error {
	g, different := s.unplanned, 0
	for _, v := range g.Outputs {
		a, _ := planned[v.Name].(*ir.Tensor)
		b, _ := unplanned[v.Name].(*ir.Tensor)
		if a == nil || b == nil {
			return fmt.Errorf("output %q is no tensor", v.Name)
		}
		equal, how := bytes.Equal(a.Data, b.Data), "bits"
		if rf.backend == "host" && !equal {
			equal, how = closeTo(a, b)
		}
		if !equal {
			different++
			fmt.Fprintf(c.stdout, "output %q differs: %s\n", v.Name, how)
		}
	}
	if different > 0 {
		fmt.Fprintf(c.stdout, "%d of %d outputs differ\n", different, len(g.Outputs))
		return errDifferent
	}
	what := "bit for bit"
	if rf.backend == "host" {
		what = "within the tolerance of their types"
	}
	s.verdict = fmt.Sprintf("planned and unplanned agree %s in all %d outputs", what, len(g.Outputs))
	return nil
}

// tolerances of the emitted program against the interpreter, relative to the
// largest expected element: accumulation in float rounds differently in
// another order.
var tolerances = map[ir.DType]float64{ir.Float: 1e-4, ir.Double: 1e-9, ir.Float16: 1e-2, ir.BFloat16: 4e-2}

func closeTo(a, b *ir.Tensor) (bool, string) {
	tol, ok := tolerances[b.DType]
	if !ok || a.DType != b.DType || !slices.Equal(a.Dims, b.Dims) {
		return false, fmt.Sprintf("%s against %s", a.Type(), b.Type())
	}
	x, y := a.Floats(), b.Floats()
	largest, worst := 0.0, 0.0
	for i := range y {
		if x[i] == y[i] || x[i] != x[i] && y[i] != y[i] {
			continue // equal, infinities included, or both not a number
		}
		if d := abs(x[i] - y[i]); !(d <= worst) {
			worst = d
		}
	}
	for _, v := range y {
		if abs(v) <= math.MaxFloat64 {
			largest = max(largest, abs(v))
		}
	}
	return worst <= tol*largest+1e-6, fmt.Sprintf("largest difference %g, largest value %g", worst, largest)
}

func abs(x float64) float64 {
	if x < 0 {
		return -x
	}
	return x
}

// runHost builds and runs the emitted program: the compiled folder's own, or
// one emitted for the occasion.
func (s *subject) runHost(rf *runFlags, in map[string]ir.Datum) (map[string]ir.Datum, error) {
	dir := filepath.Join(s.dir, "cuda")
	work, err := os.MkdirTemp("", "memoc-host-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if s.dir == "" {
		files, err := cuda.Emit(s.program)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(work, "cuda")
		if err := cuda.WriteDir(dir, files); err != nil {
			return nil, err
		}
	}
	ctx := context.Background()
	h, err := cuda.BuildHost(ctx, dir, filepath.Join(work, "step"))
	if err != nil {
		return nil, err
	}
	var named []cuda.Named
	for _, v := range s.unplanned.Inputs {
		if t, ok := in[v.Name].(*ir.Tensor); ok {
			named = append(named, cuda.Named{Name: v.Name, Tensor: t})
		}
	}
	opt := cuda.RunOptions{Seed: rf.seed, FirstStep: rf.step, ModelDir: s.modelDir}
	if rf.compare {
		opt.Schedules = 8 // every legal order of the lanes must give the same bytes
	}
	res, err := h.Run(ctx, named, opt)
	if err != nil {
		return nil, err
	}
	out := map[string]ir.Datum{}
	for _, r := range res {
		out[r.Name] = r.Tensor
	}
	return out, nil
}

// readInputs reads the graph's inputs from an archive, or draws them.
func readInputs(rf *runFlags, g *ir.Graph) (map[string]ir.Datum, error) {
	if rf.inputs == "" {
		return eval.RandomInputs(g, rf.seed)
	}
	a, err := npz.Read(rf.inputs)
	if err != nil {
		return nil, err
	}
	var names []string
	byName := map[string]*ir.Value{}
	for _, v := range g.Inputs {
		names = append(names, v.Name)
		byName[v.Name] = v
	}
	prefixed := slices.ContainsFunc(a.Names, func(n string) bool { return strings.HasPrefix(n, "in/") })
	in := map[string]ir.Datum{}
	for _, key := range a.Names {
		name, isInput := strings.CutPrefix(key, "in/")
		v := byName[name]
		switch {
		case prefixed && !isInput:
			continue // expected values beside the inputs
		case v == nil:
			return nil, &diag.Diagnostic{ID: "inputs", Severity: diag.Error,
				Message: fmt.Sprintf("%s: the model has no input %q%s", rf.inputs, name, didYouMean(name, names))}
		}
		t, err := npz.As(a.Get(key), v.Type.DType)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", rf.inputs, key, err)
		}
		in[name] = t
	}
	for _, v := range g.Inputs {
		if in[v.Name] == nil && v.Init == nil {
			return nil, &diag.Diagnostic{ID: "inputs", Severity: diag.Error,
				Message: fmt.Sprintf("%s holds no value for the input %q of type %s", rf.inputs, v.Name, v.Type)}
		}
	}
	return in, nil
}

func saveOutputs(path string, g *ir.Graph, out map[string]ir.Datum) error {
	a := &npz.Archive{}
	for _, v := range g.Outputs {
		t, ok := out[v.Name].(*ir.Tensor)
		if !ok {
			return fmt.Errorf("output %q is no tensor, and .npz holds nothing else", v.Name)
		}
		a.Add(v.Name, t)
	}
	return npz.Write(path, a)
}

// printOutputs prints each output's type and its first elements.
func printOutputs(c *call, g *ir.Graph, out map[string]ir.Datum) {
	const shown = 6
	for _, v := range g.Outputs {
		t, ok := out[v.Name].(*ir.Tensor)
		if !ok {
			fmt.Fprintf(c.stdout, "%s: %s\n", v.Name, v.Type)
			continue
		}
		fmt.Fprintf(c.stdout, "%s %s (%s)", v.Name, t.Type(), passes.FormatBytes(int64(len(t.Data))))
		if t.DType.IsFloat() || t.DType.IsInt() || t.DType == ir.Bool {
			vals := t.Floats()
			for _, x := range vals[:min(len(vals), shown)] {
				fmt.Fprintf(c.stdout, " %.6g", x)
			}
			if len(vals) > shown {
				fmt.Fprint(c.stdout, " …")
			}
		}
		fmt.Fprintln(c.stdout)
	}
}

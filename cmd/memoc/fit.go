package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/passes"
	"memoc/passes/fit"
	"memoc/passes/plan"
)

var fitCommand = &command{
	name: "fit",
	args: "MODEL|gpt|llama [flags]",
	doc: "Find the longest sequence, or the largest batch, that fits under each policy, and what it costs.\n" +
		"MODEL has a symbolic dim, or is a generated model: gpt or llama with the flags of \"memoc model\".",
	example: "memoc fit gpt --preset 7b --device a800 --gpus 8",
}

func init() { fitCommand.run = runFit }

// fitFlags are what fit asks beside the flags of planning and of models.
type fitFlags struct {
	*flags
	compile   *compileFlags
	model     *modelFlags
	vary      string
	dim       map[string]string // by what varies: the symbol that stands for it
	gpus      int
	optimizer float64
	at        []int64
	from, max int64
	step      int64
	csv, svg  string
	json      bool
	warnings  warningList
}

func (f *flags) fit() *fitFlags {
	ff := &fitFlags{flags: f, compile: f.compile(), model: f.model(), dim: map[string]string{}}
	f.StringVar(&ff.vary, "vary", "seq", "what to change: `seq` or batch")
	for _, what := range varied {
		f.Func(what+"-dim", "symbolic dim `NAME` of an ONNX model that --vary "+what+" changes", func(s string) error { ff.dim[what] = s; return nil })
	}
	f.IntVar(&ff.gpus, "gpus", 1, "`N` GPUs that share the model, ideally: each does 1/N of every operation. Sizes are for one of them")
	f.Func("host", "host memory of one GPU: `SIZE` (the same as --host-budget)", func(s string) (err error) {
		ff.compile.hostBudget, err = passes.ParseSize(s)
		return err
	})
	f.Float64Var(&ff.optimizer, "optimizer-bytes-per-param", 12, "`BYTES` a parameter of optimizer state that the graph does not hold: 12 is a master weight and two moments in float, 0 none")
	f.Func("at", "look at the sizes `LIST` (8K,128K,1M) alone, and do not search the largest", func(s string) (err error) {
		ff.at, err = parseCounts(s)
		return err
	})
	f.count("from", "the smallest size looked at: `N` (default 1024 tokens, or 1 sequence)", &ff.from)
	f.count("max", "the largest size looked at: `N` (default 8M tokens, or 64K sequences)", &ff.max)
	f.count("step", "find the largest size to within `N` (default a 64th of it, but at least --from)", &ff.step)
	f.StringVar(&ff.csv, "csv", "", "write every size looked at into `FILE.csv`")
	f.StringVar(&ff.svg, "svg", "", "draw utilization over size into `FILE.svg`")
	f.BoolVar(&ff.json, "json", false, "print one JSON object")
	return ff
}

func runFit(c *call) error {
	ff := newFlags(c.cmd).fit()
	args, err := ff.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	if err := ff.check(args[0]); err != nil {
		return err
	}
	source, err := ff.source(c, args[0])
	if err != nil {
		return err
	}
	opt, err := ff.options()
	if err != nil {
		return err
	}
	line := newProgress(c.stderr)
	opt.Progress = func(p plan.Policy, size int64) { line.note(fmt.Sprintf("%s at %s %d", p, ff.vary, size)) }
	curves, err := fit.Search(source, opt)
	line.done()
	ff.warnings.print(c)
	if err != nil {
		return err
	}
	return ff.write(c, &fitResult{model: ff.title(args[0]), vary: ff.vary, opt: opt, curves: curves})
}

// write prints the result and writes the files that were asked for. That nothing
// fits at all is an error.
func (ff *fitFlags) write(c *call, r *fitResult) error {
	if err := r.nothing(); err != nil {
		return err
	}
	if ff.csv != "" {
		if err := writeFile(ff.csv, r.csv); err != nil {
			return err
		}
	}
	if ff.svg != "" {
		if err := writeFile(ff.svg, r.svg); err != nil {
			return err
		}
	}
	if ff.json {
		return r.json(c.stdout)
	}
	return r.print(c.stdout)
}

var varied = []string{"seq", "batch"}

// isGenerated reports whether a model is generated, not read.
func isGenerated(model string) bool { return slices.Contains(archs, model) }

// check refuses combinations that mean nothing.
func (ff *fitFlags) check(model string) error {
	if !slices.Contains(varied, ff.vary) {
		return unknown("size to vary", ff.vary, varied)
	}
	for _, what := range varied {
		if ff.dim[what] != "" && (what != ff.vary || isGenerated(model)) {
			return &usageError{fmt.Sprintf("--%s-dim is for --vary %s of an ONNX model", what, what)}
		}
	}
	for _, name := range modelFlagNames {
		if ff.given(name) && !isGenerated(model) {
			return &usageError{fmt.Sprintf("--%s is for the generated models %s", name, strings.Join(archs, " and "))}
		}
		if ff.given(name) && name == ff.vary {
			return &usageError{fmt.Sprintf("--%s gives a value to what --vary %s changes", name, ff.vary)}
		}
	}
	switch {
	case isGenerated(model) && (ff.given("train") || ff.given("loss") || ff.given("backward") || ff.given("dim")):
		return &usageError{"--train, --loss, --backward and --dim are for ONNX models: generated ones are trained"}
	case ff.gpus < 1:
		return &usageError{fmt.Sprintf("--gpus must be positive, not %d", ff.gpus)}
	case !(ff.optimizer >= 0) || ff.optimizer > 1024:
		return &usageError{fmt.Sprintf("--optimizer-bytes-per-param: %v is no number of bytes of a parameter", ff.optimizer)}
	case ff.compile.budget.Share > 0:
		return &usageError{"--budget must be a size here: the share of what?"}
	case len(ff.at) > 0 && (ff.from > 0 || ff.max > 0 || ff.step > 0):
		return &usageError{"--from, --max and --step are for the search that --at leaves out"}
	case ff.max > 0 && ff.max < ff.from:
		return &usageError{"--max is less than --from"}
	}
	return nil
}

func (ff *fitFlags) options() (fit.Options, error) {
	o, err := ff.compile.options()
	if err != nil {
		return fit.Options{}, err
	}
	opt := fit.Options{Device: o.Device, GPUs: ff.gpus, Memory: o.Device.MemoryBytes - o.Device.Reserved, Host: o.Device.HostBytes,
		OptimizerBytes: ff.optimizer, At: slices.Compact(slices.Sorted(slices.Values(ff.at))), Step: ff.step}
	if ff.compile.budget.Bytes > 0 {
		opt.Memory = ff.compile.budget.Bytes
	}
	if ff.compile.hostBudget >= 0 {
		opt.Host = ff.compile.hostBudget
	}
	opt.From, opt.Max = 1024, 8<<20
	if ff.vary == "batch" {
		opt.From, opt.Max = 1, 64<<10
	}
	opt.From = cmp.Or(ff.from, min(opt.From, cmp.Or(ff.max, opt.From)))
	opt.Max = cmp.Or(ff.max, max(opt.Max, opt.From))
	if ff.given("policy") {
		opt.Policies = []plan.Policy{o.Policy}
		return opt, nil
	}
	for _, name := range plan.PolicyNames() {
		p, err := plan.ParsePolicy(name)
		if err != nil {
			return opt, err
		}
		opt.Policies = append(opt.Policies, p)
	}
	return opt, nil
}

// title names the model as the table does.
func (ff *fitFlags) title(model string) string {
	if !isGenerated(model) {
		return model
	}
	name := model
	if ff.model.preset != "" {
		name += " " + ff.model.preset
	}
	if ff.vary == "batch" {
		return fmt.Sprintf("%s, sequences of %d tokens", name, ff.model.seq)
	}
	return fmt.Sprintf("%s, batch %d", name, ff.model.batch)
}

// source makes the model at each size. The first one's warnings are printed;
// those of other sizes say the same.
func (ff *fitFlags) source(c *call, model string) (fit.Source, error) {
	if isGenerated(model) {
		return ff.generated(model)
	}
	opt, err := ff.compile.options()
	if err != nil {
		return nil, err
	}
	m, crossing, err := loadModel(c, ff.compile, model)
	if err != nil {
		return nil, err
	}
	symbol, err := ff.symbol(m.Graph)
	if err != nil {
		return nil, err
	}
	var first atomic.Pointer[passes.Context]
	first.Store(&passes.Context{Model: m, Graph: m.Graph, Crossing: crossing, Report: ff.warnings.add})
	return func(size int64) (*passes.Context, error) {
		ctx := first.Swap(nil)
		if ctx == nil {
			m, crossing, err := loadModel(&call{cmd: c.cmd, stderr: io.Discard}, ff.compile, model)
			if err != nil {
				return nil, err
			}
			ctx = &passes.Context{Model: m, Graph: m.Graph, Crossing: crossing}
		}
		ctx.Options = opt
		ctx.Options.Dims = map[string]ir.Dim{symbol: ir.N(size)}
		for name, d := range opt.Dims {
			ctx.Options.Dims[name] = d
		}
		return ctx, nil
	}, nil
}

func (ff *fitFlags) generated(arch string) (fit.Source, error) {
	cfg, err := ff.model.config(arch)
	if err != nil {
		return nil, err
	}
	opt, err := (&compileFlags{train: true, loss: "loss", wrt: ff.compile.wrt, strict: ff.compile.strict, hostBudget: -1,
		device: ff.compile.device, debug: ff.compile.debug}).options()
	if err != nil {
		return nil, err
	}
	return func(size int64) (*passes.Context, error) {
		at := cfg
		if at.Seq = size; ff.vary == "batch" {
			at.Seq, at.Batch = cfg.Seq, size
		}
		m, err := models.Build(at)
		if err != nil {
			return nil, &usageError{err.Error()}
		}
		return &passes.Context{Model: m, Graph: m.Graph, Options: opt}, nil
	}, nil
}

// usualNames are what exporters call the dims, in the order of preference.
var usualNames = map[string][]string{
	"seq":   {"seq", "sequence", "sequence_length", "seq_len", "seq_length", "seqlen", "s", "S"},
	"batch": {"batch", "batch_size", "b", "B", "N"},
}

// symbol is the free dim of the model that varies; all others must have values.
func (ff *fitFlags) symbol(g *ir.Graph) (string, error) {
	var free []string
	for _, v := range g.Inputs {
		for _, d := range v.Type.Shape.Dims {
			for _, s := range d.Symbols() {
				if _, bound := ff.compile.dims[s]; !bound && !slices.Contains(free, s) {
					free = append(free, s)
				}
			}
		}
	}
	if len(free) == 0 {
		return "", &usageError{"the model's inputs have no free dim: there is nothing to vary"}
	}
	name := ff.dim[ff.vary]
	if name != "" && !slices.Contains(free, name) {
		return "", &usageError{fmt.Sprintf("--%s-dim: no free dim of the model's inputs is called %q%s; they are %s", ff.vary, name, didYouMean(name, free), strings.Join(free, ", "))}
	}
	for _, usual := range usualNames[ff.vary] {
		if name == "" && slices.Contains(free, usual) {
			name = usual
		}
	}
	if name == "" && len(free) == 1 {
		name = free[0]
	}
	if name == "" {
		return "", &usageError{fmt.Sprintf("which dim is --vary %s? The model's free ones are %s; say --%s-dim NAME", ff.vary, strings.Join(free, ", "), ff.vary)}
	}
	for _, s := range free {
		if s != name {
			return "", &usageError{fmt.Sprintf("dim %q has no value: say --dim %s=N", s, s)}
		}
	}
	return name, nil
}

// count is a flag of one number as parseCounts reads it.
func (f *flags) count(name, text string, to *int64) {
	f.Func(name, text, func(s string) (err error) {
		*to, err = parseCount(s)
		return err
	})
}

func parseCount(s string) (int64, error) {
	l, err := parseCounts(s)
	if err == nil && len(l) != 1 {
		err = fmt.Errorf("%q is more than one number", s)
	}
	if err != nil {
		return 0, err
	}
	return l[0], nil
}

// parseCounts reads "8K,131072,1M": K is 1024 and M is 1024 K.
func parseCounts(s string) ([]int64, error) {
	var out []int64
	for _, text := range strings.Split(s, ",") {
		digits, factor := strings.TrimSpace(text), int64(1)
		for i, suffix := range []string{"k", "m"} {
			if rest, ok := strings.CutSuffix(strings.ToLower(digits), suffix); ok {
				digits, factor = rest, 1<<(10*(i+1))
				break
			}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/factor {
			return nil, fmt.Errorf("%q is no size: write for example 8192, 8K or 1M", text)
		}
		out = append(out, n*factor)
	}
	return out, nil
}

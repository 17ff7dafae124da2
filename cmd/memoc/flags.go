package main

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// flags is a command's flag set. Flags may stand before, between and after
// positional arguments, with one dash or two.
type flags struct {
	*flag.FlagSet
	values map[string]string // placeholder of each flag's value, for help
}

func newFlags(c *command) *flags {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return &flags{FlagSet: fs, values: map[string]string{}}
}

// parse reads the command line; it returns the positional arguments, and an
// error if their number is not between least and most.
func (f *flags) parse(c *call, least, most int) ([]string, error) {
	var positional []string
	rest := c.args
	if slices.Equal(rest, []string{describeFlags}) {
		f.describe(c.stdout)
		return nil, errDescribed
	}
	for len(rest) > 0 {
		if err := f.Parse(rest); err != nil {
			return nil, f.explain(err)
		}
		if rest = f.Args(); len(rest) > 0 {
			positional = append(positional, rest[0])
			rest = rest[1:]
		}
	}
	if (len(positional) < least || len(positional) > most) && most == 0 {
		return nil, &usageError{"it takes no arguments"}
	}
	if len(positional) < least || len(positional) > most {
		return nil, &usageError{fmt.Sprintf("expected arguments: %s", c.cmd.args)}
	}
	return positional, nil
}

// given reports whether a flag stands on the command line.
func (f *flags) given(name string) bool {
	found := false
	f.Visit(func(fl *flag.Flag) { found = found || fl.Name == name })
	return found
}

// describeFlags is how help asks a command for its flags without running it.
const describeFlags = "--describe-flags"

var errDescribed = fmt.Errorf("described")

// badValue matches the flag package's error for a value that a flag refuses.
var badValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value "(.*?)" for (?:flag )?-([a-z-]+): (.*)$`)

// explain turns the flag package's error into ours, with a suggestion.
func (f *flags) explain(err error) error {
	if err == flag.ErrHelp {
		return errHelp
	}
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "flag provided but not defined: "); ok {
		var names []string
		f.VisitAll(func(fl *flag.Flag) { names = append(names, fl.Name) })
		name = strings.TrimLeft(name, "-")
		msg = fmt.Sprintf("no flag is called %s", dashed(name))
		if s := diag.Suggest(name, names); s != "" {
			msg += "; did you mean " + dashed(s) + "?"
		}
	} else if m := badValue.FindStringSubmatch(msg); m != nil {
		value, name, why := m[1], m[2], m[3]
		if why == "parse error" {
			why = fmt.Sprintf("%q is no value for it", value)
		}
		msg = why
		if !strings.HasPrefix(why, "-") {
			msg = dashed(name) + ": " + why
		}
	} else if name, ok := strings.CutPrefix(msg, "flag needs an argument: -"); ok {
		msg = dashed(name) + " needs a value"
	}
	return &usageError{msg}
}

// dashed is a flag as help prints it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func (f *flags) describe(w io.Writer) {
	any := false
	f.VisitAll(func(fl *flag.Flag) {
		if !any {
			fmt.Fprintln(w, "\nFlags:")
			any = true
		}
		name, text := flag.UnquoteUsage(fl)
		fmt.Fprintf(w, "  %-28s %s", strings.TrimRight(dashed(fl.Name)+" "+name, " "), text)
		if !slices.Contains([]string{"", "false", "0", "0s"}, fl.DefValue) && !strings.Contains(text, "(default") {
			fmt.Fprintf(w, " (default %s)", fl.DefValue)
		}
		fmt.Fprintln(w)
	})
}

// compileFlags are the flags of every command that plans.
type compileFlags struct {
	train      bool
	loss       string
	wrt        []string
	dims       map[string]ir.Dim
	budget     passes.Budget
	hostBudget int64
	device     string
	backward   string
	mapping    map[string]string
	strict     bool
	policy     plan.Policy
	tile       int64
	chunks     int
	whatIf     bool // the trade-off will be asked for
	debug      passes.Debug
}

func (f *flags) compile() *compileFlags {
	cf := &compileFlags{dims: map[string]ir.Dim{}, hostBudget: -1, debug: passes.Debug{}, mapping: map[string]string{}}
	f.BoolVar(&cf.train, "train", false, "build the backward pass of a forward model")
	f.StringVar(&cf.loss, "loss", "", "`NAME` of the value to differentiate, with --train")
	f.Func("wrt", "train the initializer `NAME`, and no others (repeatable; default: all that can be trained)", func(s string) error {
		cf.wrt = append(cf.wrt, s)
		return nil
	})
	f.Func("dim", "bind a symbolic dim: `name=N` (repeatable)", func(s string) error { return parseDim(cf.dims, s) })
	f.Func("budget", "device memory: `SIZE` (80GB, 80GiB, bytes) or share of what can be saved (60%)", func(s string) (err error) {
		cf.budget, err = passes.ParseBudget(s)
		return err
	})
	f.Func("host-budget", "host memory for swapping: `SIZE` (default: the device profile's)", func(s string) (err error) {
		cf.hostBudget, err = passes.ParseSize(s)
		return err
	})
	f.Func("policy", "what may be done with tensors: `NAME`, auto (whatever is fastest), keep, swap, recompute or memo (default auto)", func(s string) (err error) {
		if cf.policy, err = plan.ParsePolicy(s); err != nil {
			return fmt.Errorf("nothing is called %q%s; use %s", s, didYouMean(s, plan.PolicyNames()), strings.Join(plan.PolicyNames(), ", "))
		}
		return nil
	})
	f.Func("tile", "tensors may be cut every `N` tokens (default 128, and an eighth of a sequence of less than 1024)", func(s string) (err error) {
		if cf.tile, err = strconv.ParseInt(s, 10, 64); err != nil || cf.tile <= 0 {
			return fmt.Errorf("%q: write a positive number of tokens", s)
		}
		return nil
	})
	f.Func("mlp-chunks", "run feed-forward layers in `N` chunks of tokens (default: what the plan is fastest with)", func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of chunks", s)
		}
		cf.chunks = n
		return nil
	})
	f.StringVar(&cf.device, "device", "h100", "device profile: `NAME` (see \"memoc devices\") or a .json file")
	f.StringVar(&cf.backward, "backward", "", "`FILE` with the backward half of a split export")
	f.Func("map", "with --backward, pair an input of the second file with a value of the first: `input=value` (repeatable)", func(s string) error {
		k, v, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("write input=value")
		}
		cf.mapping[k] = v
		return nil
	})
	f.BoolVar(&cf.strict, "strict", false, "refuse what is otherwise accepted with a warning")
	f.Func("d", "debugging of a pass: `pass/option`, options off, time, dump, debug=n, limit=n (repeatable; pass may be all)", cf.debug.Set)
	return cf
}

// parseDim reads "name=N".
func parseDim(dims map[string]ir.Dim, s string) error {
	name, val, ok := strings.Cut(s, "=")
	if strings.HasSuffix(name, "<") {
		return fmt.Errorf("%q: a bound is not enough, plans are for one size; write name=N", s)
	}
	n, err := parseCount(val)
	if !ok || err != nil || name == "" {
		return fmt.Errorf("%q: write name=N with a positive N", s)
	}
	dims[name] = ir.N(n)
	return nil
}

// loadDevice reads a profile; a name that none has is a mistake on the command
// line, a bad file one in the file.
func loadDevice(name string) (*cost.Device, error) {
	dev, err := cost.LoadDevice(name)
	if err == nil || strings.HasSuffix(name, ".json") {
		return dev, err
	}
	all, listErr := cost.Devices()
	if listErr != nil {
		return nil, listErr
	}
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	return nil, &usageError{fmt.Sprintf("--device: no profile is called %q%s; use one of %s, or the path of a .json profile",
		name, didYouMean(name, names), strings.Join(names, ", "))}
}

// options makes the compiler's options of the flags.
func (cf *compileFlags) options() (passes.Options, error) {
	dev, err := loadDevice(cf.device)
	if err != nil {
		return passes.Options{}, err
	}
	if cf.train && cf.loss == "" {
		return passes.Options{}, &usageError{"--train needs --loss NAME"}
	}
	if !cf.train && cf.loss != "" {
		return passes.Options{}, &usageError{"--loss needs --train"}
	}
	return passes.Options{Train: cf.train, Loss: cf.loss, Wrt: cf.wrt, Dims: cf.dims, Strict: cf.strict, Budget: cf.budget,
		HostBudget: cf.hostBudget, Device: dev, Policy: cf.policy, Tile: cf.tile, MLPChunks: cf.chunks, WhatIf: cf.whatIf, Debug: cf.debug}, nil
}

// Command memoc is an ahead-of-time memory compiler for ONNX graphs: see
// README.md, or run "memoc help".
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	_ "memoc/ir/ops"

	"memoc/ir/diag"
	"memoc/passes"
	"memoc/passes/check"
)

// Version is the release this binary belongs to.
const Version = "0.1.0"

// Exit codes: what scripts may rely on (docs/cli.md).
const (
	exitOK         = 0
	exitDifferent  = 1 // a check failed: values differ, or a plan breaks a rule
	exitUsage      = 2
	exitInput      = 3 // the model, a file or a value given is not acceptable
	exitInfeasible = 4
	exitInternal   = 5 // our fault
)

// command is one sub-command.
type command struct {
	name    string
	args    string // as help shows them
	doc     string
	example string
	run     func(c *call) error
}

// call is one invocation: where to print, and the command's own flags.
type call struct {
	cmd    *command
	args   []string
	stdout io.Writer
	stderr io.Writer
	warned map[string]bool // lines printed: run reads a model twice, and warns once
}

func commands() []*command {
	return []*command{compileCommand, runCommand, inspectCommand, explainCommand, fitCommand, checkCommand, placeCommand,
		passesCommand, opsCommand, devicesCommand, modelCommand, versionCommand}
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		return help(args[1:], stdout, stderr)
	case "-version", "--version":
		args = []string{"version"}
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
		if c.name != args[0] {
			continue
		}
		return report(guarded(c, args[1:], stdout, stderr), c, stdout, stderr)
	}
	fmt.Fprintf(stderr, "memoc: no command is called %q%s; run \"memoc help\"\n", args[0], didYouMean(args[0], names))
	return exitUsage
}

// guarded runs a command; a panic outside of the passes, which name
// themselves, is our fault too and becomes an error.
func guarded(c *command, args []string, stdout, stderr io.Writer) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("BUG: %v\n%splease report it with: memoc %s %s", x, debug.Stack(), c.name, strings.Join(args, " "))
		}
	}()
	return c.run(&call{cmd: c, args: args, stdout: stdout, stderr: stderr})
}

func didYouMean(name string, among []string) string {
	if s := diag.Suggest(name, among); s != "" {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}

// usageError is a mistake on the command line.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

// errHelp asks for a command's help on standard output.
var errHelp = errors.New("help")

// errDifferent reports that a comparison failed, already printed.
var errDifferent = errors.New("different")

// report prints an error and chooses the exit code.
func report(err error, c *command, stdout, stderr io.Writer) int {
	var (
		use        *usageError
		infeasible *passes.Infeasible
		broken     *check.Fault
		d          *diag.Diagnostic
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errHelp):
		commandHelp(stdout, c)
		return exitOK
	case errors.Is(err, errDifferent):
		return exitDifferent
	case errors.As(err, &use):
		fmt.Fprintf(stderr, "memoc %s: %s\nrun \"memoc help %s\"\n", c.name, use.msg, c.name)
		return exitUsage
	}
	fmt.Fprintf(stderr, "memoc %s: error: %v\n", c.name, err)
	switch {
	case errors.As(err, &infeasible):
		return exitInfeasible
	case strings.Contains(err.Error(), "BUG:"), errors.As(err, &d) && d.ID == "internal":
		return exitInternal
	case errors.As(err, &broken):
		return exitDifferent
	}
	return exitInput
}

func usage(w io.Writer) {
	fmt.Fprint(w, "memoc plans the memory of a training step given as an ONNX graph.\n\nUsage: memoc COMMAND [ARGUMENTS]\n\n")
	for _, c := range commands() {
		first, _, _ := strings.Cut(c.doc, "\n")
		fmt.Fprintf(w, "  %-10s %s\n", c.name, first)
	}
	fmt.Fprint(w, "\nRun \"memoc help COMMAND\" for its flags and an example.\n")
}

func help(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stdout)
		return exitOK
	}
	var names []string
	for _, c := range commands() {
		if c.name == args[0] {
			commandHelp(stdout, c)
			return exitOK
		}
		names = append(names, c.name)
	}
	fmt.Fprintf(stderr, "memoc: no command is called %q%s\n", args[0], didYouMean(args[0], names))
	return exitUsage
}

func commandHelp(w io.Writer, c *command) {
	fmt.Fprintf(w, "Usage: %s\n\n%s\n", strings.TrimSpace("memoc "+c.name+" "+c.args), c.doc)
	_ = c.run(&call{cmd: c, args: []string{describeFlags}, stdout: w, stderr: w}) // always errDescribed
	fmt.Fprintf(w, "\nExample:\n  %s\n", c.example)
}

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"memoc/ir"
	"memoc/passes"
	"memoc/passes/cost"
)

var (
	passesCommand = &command{name: "passes", doc: "List the passes in order, with the reasons for the order.", example: "memoc passes"}
	opsCommand    = &command{name: "ops", args: "[NAME]", doc: "List the operators memoc knows: versions, gradient, recomputation, kernel.",
		example: "memoc ops Softmax"}
	devicesCommand = &command{name: "devices", doc: "List the device profiles.", example: "memoc devices"}
	versionCommand = &command{name: "version", doc: "Print the version.", example: "memoc version"}
)

func init() {
	passesCommand.run = runPasses
	opsCommand.run = runOps
	devicesCommand.run = runDevices
	versionCommand.run = func(c *call) error {
		if _, err := newFlags(c.cmd).parse(c, 0, 0); err != nil {
			return ignoreDescribed(err)
		}
		fmt.Fprintln(c.stdout, "memoc", Version)
		return nil
	}
}

func runPasses(c *call) error {
	if _, err := newFlags(c.cmd).parse(c, 0, 0); err != nil {
		return ignoreDescribed(err)
	}
	for i, p := range passes.Pipeline {
		kind := "required"
		if p.Optional {
			kind = "optional"
		}
		fmt.Fprintf(c.stdout, "%2d %-10s %-9s %s\n   %s\n", i+1, p.Name, p.Stage, kind, p.Doc)
		for _, e := range p.After {
			fmt.Fprintf(c.stdout, "   after %s: %s\n", e.Pass, e.Why)
		}
	}
	return nil
}

func runOps(c *call) error {
	args, err := newFlags(c.cmd).parse(c, 0, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	var names []string
	w := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "operator\tsince\tgradient\trecompute\tkernel")
	shown := 0
	for _, op := range ir.Operators() {
		names = append(names, op.Name)
		if len(args) == 1 && op.Name != args[0] && ir.FullOp(op.Domain, op.Name) != args[0] {
			continue
		}
		shown++
		_, never := op.Recompute.OK()
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", ir.FullOp(op.Domain, op.Name), strings.Trim(fmt.Sprint(op.Since), "[]"),
			yesOr(op.Grad.None), yesOr(never), yesOr(op.Kernel.None))
	}
	if shown == 0 {
		return &usageError{fmt.Sprintf("no operator is called %q%s", args[0], didYouMean(args[0], names))}
	}
	return w.Flush()
}

func yesOr(why string) string {
	if why == "" {
		return "yes"
	}
	return "no: " + why
}

func runDevices(c *call) error {
	if _, err := newFlags(c.cmd).parse(c, 0, 0); err != nil {
		return ignoreDescribed(err)
	}
	ds, err := cost.Devices()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "name\tmemory\tbf16 TFLOP/s\tGB/s\tcopy GB/s\thost memory\tdevice")
	for _, d := range ds {
		fmt.Fprintf(w, "%s\t%s\t%g\t%g\t%g / %g\t%s\t%s\n", d.Name, passes.FormatBytes(d.MemoryBytes), d.MatrixTFLOPS["bfloat16"],
			d.MemoryGBps, d.OutGBps, d.InGBps, passes.FormatBytes(d.HostBytes), d.Description)
	}
	return w.Flush()
}

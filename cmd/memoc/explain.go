package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"memoc/ir/planfile"
	"memoc/passes"
)

var explainCommand = &command{
	name: "explain",
	args: "DIR [TENSOR|LAYER]",
	doc: "Say why a compiled folder's plan does with every tensor what it does: bytes, lifetime, decision, what each alternative costs, and what binds.\n" +
		"A LAYER is the first part of names, such as layer0, or its number.",
	example: "memoc explain out layer0.up",
}

func init() { explainCommand.run = runExplain }

func runExplain(c *call) error {
	f := newFlags(c.cmd)
	asJSON := f.Bool("json", false, "print one JSON object")
	args, err := f.parse(c, 1, 2)
	if err != nil {
		return ignoreDescribed(err)
	}
	plan, err := readPlan(args[0])
	if err != nil {
		return err
	}
	what := ""
	if len(args) == 2 {
		what = args[1]
	}
	ds, err := chosen(plan, what)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(explanation{plan.Name, plan.Metrics, ds})
	}
	if len(ds) == 1 && what != "" {
		explainOne(c.stdout, plan, &ds[0])
		return nil
	}
	return explainAll(c.stdout, plan, ds)
}

// explanation is the JSON of explain.
type explanation struct {
	Model   string              `json:"model"`
	Metrics planfile.Metrics    `json:"metrics"`
	Tensors []planfile.Decision `json:"tensors"`
}

// readPlan reads plan.json of a compiled folder.
func readPlan(dir string) (*planfile.Plan, error) {
	path := filepath.Join(dir, "plan.json")
	data, err := os.ReadFile(path)
	if err != nil {
		d := unreadable(path, err)
		d.Help = fmt.Sprintf("%s must be a folder that \"memoc compile -o\" wrote, with the plan", dir)
		return nil, d
	}
	plan, err := planfile.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return plan, nil
}

// chosen is the decisions that what names: a tensor, a layer, or all.
func chosen(p *planfile.Plan, what string) ([]planfile.Decision, error) {
	if what == "" {
		return append([]planfile.Decision{}, p.Decisions...), nil
	}
	number, err := strconv.Atoi(what)
	numbered := err == nil
	var out []planfile.Decision
	var names []string
	for _, d := range p.Decisions {
		if d.Tensor == what {
			return []planfile.Decision{d}, nil
		}
		if layer, n := layerOf(d.Tensor); layer == what || numbered && n == number {
			out = append(out, d)
		}
		names = append(names, d.Tensor)
		if layer, _ := layerOf(d.Tensor); layer != "" {
			names = append(names, layer)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, v := range p.Values {
		if v.Name == what {
			return nil, &usageError{undecided(p, &v)}
		}
		if len(what) > 2 {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return nil, &usageError{fmt.Sprintf("no tensor or layer of the plan is called %q%s", what, didYouMean(what, slices.Compact(names)))}
}

// layerName is a name up to the first number in it.
var layerName = regexp.MustCompile(`^(.*?[A-Za-z_./]?)([0-9]+)(?:[./_].*|$)`)

// layerOf is the layer that a tensor's name begins with, and its number;
// "" and -1 where it begins with none.
func layerOf(tensor string) (string, int) {
	m := layerName.FindStringSubmatch(tensor)
	if m == nil {
		return "", -1
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return "", -1
	}
	return m[1] + m[2], n
}

// undecided is why nothing was decided about a value of the plan.
func undecided(p *planfile.Plan, v *planfile.Value) string {
	for i := range p.Values {
		if w := &p.Values[i]; slices.Contains(w.Parts, v.Name) {
			return fmt.Sprintf("%q is a part of %q, which is a tensor split by tokens that comes back: ask for the tensor", v.Name, w.Name)
		}
	}
	if v.Base != v.Name {
		return fmt.Sprintf("%q is a view or a range of %q: ask for that", v.Name, v.Base)
	}
	class := "transient"
	if v.Buffer >= 0 && v.Buffer < len(p.Buffers) {
		class = p.Buffers[v.Buffer].Class
	}
	return fmt.Sprintf("nothing was decided about %q: it lies in a %s buffer and does not wait between the forward and the backward pass", v.Name, class)
}

func explainAll(out io.Writer, p *planfile.Plan, ds []planfile.Decision) error {
	fmt.Fprintf(out, "%s on %s: peak %s", p.Name, p.Device, passes.FormatBytes(p.Metrics.Peak))
	if p.Metrics.Budget > 0 {
		fmt.Fprintf(out, " of a budget of %s", passes.FormatBytes(p.Metrics.Budget))
	}
	fmt.Fprintf(out, ", %d tensors decided on\n", len(ds))
	if s := chunksLine(p.Metrics.Chunks, p.Metrics.ChunkedLayers, p.Metrics.ChunkedBytes); s != "" {
		fmt.Fprintln(out, s)
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "tensor\tbytes\tsteps\tdecision\tkeep: at the peak\tswap: copies\trecompute\tbinds\treason")
	for i := range ds {
		d := &ds[i]
		fmt.Fprintf(w, "%s\t%s\t%d-%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Tensor, passes.FormatBytes(d.Bytes), d.First, d.End, d.Decision,
			priceCell(d, "keep"), priceCell(d, "swap"), priceCell(d, "recompute"), d.Binds, d.Reason)
	}
	return w.Flush()
}

// priceCell is one alternative in a cell of the table.
func priceCell(d *planfile.Decision, kind string) string {
	for _, a := range d.Alternatives {
		switch {
		case a.Decision != kind:
		case kind == "keep":
			return passes.FormatBytes(a.Bytes)
		case !a.Possible:
			return "-"
		case kind == "swap" && strings.HasPrefix(a.Note, "hides"):
			return duration(a.Time) + " hidden"
		default:
			return duration(a.Time)
		}
	}
	return ""
}

func explainOne(w io.Writer, p *planfile.Plan, d *planfile.Decision) {
	fmt.Fprintf(w, "%s %s, %s, made by %s\n", d.Tensor, d.Type, passes.FormatBytes(d.Bytes), d.Producer)
	fmt.Fprintf(w, "  alive        steps %d to %d of %d\n", d.First, d.End, len(p.Steps))
	fmt.Fprintf(w, "  decision     %s: %s\n", d.Decision, d.Reason)
	if d.Extra > 0 {
		fmt.Fprintf(w, "  adds         %s of computation\n", duration(d.Extra))
	}
	fmt.Fprintf(w, "  what binds   %s\n", d.Binds)
	for _, a := range d.Alternatives {
		what := passes.FormatBytes(a.Bytes) + " at the peak"
		if a.Decision != "keep" {
			what = duration(a.Time)
		}
		switch {
		case !a.Possible:
			what = "not possible"
		case a.Decision == "split" && a.Time == 0:
			what = "possible" // what it costs depends on where it is cut
		}
		fmt.Fprintf(w, "  %-12s %s; %s\n", a.Decision, what, a.Note)
	}
}

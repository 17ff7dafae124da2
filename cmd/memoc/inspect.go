package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"memoc/codegen/dot"
	"memoc/ir"
	"memoc/passes"
	"memoc/passes/liveness"
)

var inspectCommand = &command{
	name:    "inspect",
	args:    "MODEL [flags]",
	doc:     "Show what is in a model: inputs, outputs, classes of tensors, the largest ones, and where memory peaks.",
	example: "memoc inspect testdata/models/gpt-tiny.onnx",
}

func init() { inspectCommand.run = runInspect }

// inspection is what inspect found; it is also the JSON.
type inspection struct {
	Model     string          `json:"model"`
	Opsets    map[string]int  `json:"opsets"`
	Nodes     int             `json:"nodes"`
	Inputs    []tensorInfo    `json:"inputs"`
	Outputs   []tensorInfo    `json:"outputs"`
	Operators []operatorCount `json:"operators"`
	Classes   []classInfo     `json:"classes"`
	Largest   []tensorInfo    `json:"largest"`
	Peak      int64           `json:"peak"`
	PeakNode  string          `json:"peak_node"`
	Alive     []tensorInfo    `json:"alive_at_peak"`
	Unsized   []string        `json:"unsized"` // tensors without a static size, as far as listed
	Layers    []layerInfo     `json:"layers"`
}

type tensorInfo struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"` // -1: no static size
	Class string `json:"class,omitempty"`
}

type classInfo struct {
	Class   string `json:"class"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

type operatorCount struct {
	Op    string `json:"op"`
	Count int    `json:"count"`
	Known bool   `json:"known"`
}

func runInspect(c *call) error {
	f := newFlags(c.cmd)
	cf := f.compile()
	asJSON := f.Bool("json", false, "print one JSON object")
	asDot := f.Bool("dot", false, "print the graph in DOT")
	args, err := f.parse(c, 1, 1)
	if err != nil {
		return ignoreDescribed(err)
	}
	ctx, err := analyzeModel(c, cf, args[0])
	if err != nil {
		return err
	}
	if *asDot {
		_, err := c.stdout.Write(dot.Render(&ir.Program{Graph: ctx.Graph, Lanes: []ir.Lane{{Name: "compute"}}}))
		return err
	}
	in, err := inspect(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(c.stdout).Encode(in)
	}
	in.print(c.stdout)
	return nil
}

// analyzeModel runs the pipeline up to the analyses; nothing is planned and
// symbolic dims are allowed.
func analyzeModel(c *call, cf *compileFlags, path string) (*passes.Context, error) {
	opt, err := cf.options()
	if err != nil {
		return nil, err
	}
	m, crossing, err := loadModel(c, cf, path)
	if err != nil {
		return nil, err
	}
	warnings := &warningList{}
	ctx := &passes.Context{Model: m, Graph: m.Graph, Options: opt, Crossing: crossing, Report: warnings.add}
	err = (&passes.Runner{Out: c.stderr, Dump: dumper(c.stderr)}).RunUntil(ctx, passes.Analyze)
	warnings.print(c)
	return ctx, err
}

const listed = 12 // rows of each list that people read

func inspect(c *passes.Context) (*inspection, error) {
	g := c.Graph
	in := &inspection{Model: c.Model.Path, Opsets: g.Opsets, Nodes: len(g.Nodes), Operators: operatorCounts(g),
		Inputs: infos(g.Inputs), Outputs: infos(g.Outputs)}
	live, err := liveness.Analyze(g, liveness.Lenient)
	if err != nil {
		return nil, err
	}
	in.Unsized = unsized(g)
	in.classes(live)
	peak, at := live.Peak()
	in.Peak = peak
	if len(g.Nodes) > 0 {
		in.PeakNode = g.Nodes[at].String()
	}
	for i := range live.Storages {
		s := &live.Storages[i]
		v := s.Known(g)
		info := tensorInfo{v.Name, v.Type.String(), s.Bytes, s.Class.String()}
		in.Largest = append(in.Largest, info)
		if s.Def >= 0 && s.Def <= at && at < s.End(len(g.Nodes)) {
			in.Alive = append(in.Alive, info)
		}
	}
	in.Largest, in.Alive = topBytes(in.Largest), topBytes(in.Alive)
	in.Layers = layerInfos(live)
	return in, nil
}

func topBytes(ts []tensorInfo) []tensorInfo {
	slices.SortStableFunc(ts, func(a, b tensorInfo) int { return int(max(min(b.Bytes-a.Bytes, 1), -1)) })
	return ts[:min(len(ts), listed)]
}

func infos(vs []*ir.Value) []tensorInfo {
	out := []tensorInfo{}
	for _, v := range vs {
		bytes, err := v.Type.Bytes()
		if err != nil {
			bytes = -1
		}
		out = append(out, tensorInfo{Name: v.Name, Type: v.Type.String(), Bytes: bytes})
	}
	return out
}

func unsized(g *ir.Graph) []string {
	out := []string{}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v == nil || len(out) >= listed {
				continue
			}
			if _, err := v.Type.Bytes(); err != nil {
				out = append(out, fmt.Sprintf("%s: %v", v.Name, err))
			}
		}
	}
	return out
}

func operatorCounts(g *ir.Graph) []operatorCount {
	count := map[string]*operatorCount{}
	var names []string
	g.Walk(func(n *ir.Node) {
		name := n.FullOp()
		if count[name] == nil {
			count[name] = &operatorCount{Op: name, Known: n.Decl != nil}
			names = append(names, name)
		}
		count[name].Count++
	})
	slices.Sort(names)
	out := []operatorCount{}
	for _, n := range names {
		out = append(out, *count[n])
	}
	return out
}

func (in *inspection) classes(live *liveness.Result) {
	for _, class := range []ir.Class{ir.Persistent, ir.Output, ir.Skeletal, ir.Transient} {
		info := classInfo{Class: class.String()}
		for i := range live.Storages {
			if s := &live.Storages[i]; s.Class == class {
				info.Tensors++
				info.Bytes += s.Bytes
			}
		}
		in.Classes = append(in.Classes, info)
	}
}

func (in *inspection) print(out io.Writer) {
	size := func(n int64) string {
		if n < 0 {
			return "?"
		}
		return passes.FormatBytes(n)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "%s: %d nodes\n", in.Model, in.Nodes)
	table := func(title string, ts []tensorInfo) {
		if len(ts) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for i, t := range ts {
			if i == listed {
				fmt.Fprintf(w, "  and %d more\n", len(ts)-i)
				break
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", t.Name, t.Type, size(t.Bytes), t.Class)
		}
	}
	table("inputs", in.Inputs)
	table("outputs", in.Outputs)
	fmt.Fprintln(w, "\noperators")
	for _, o := range in.Operators {
		note := ""
		if !o.Known {
			note = "unknown to memoc"
		}
		fmt.Fprintf(w, "  %s\t%d\t%s\n", o.Op, o.Count, note)
	}
	fmt.Fprintln(w, "\nclasses")
	for _, c := range in.Classes {
		fmt.Fprintf(w, "  %s\t%d tensors\t%s\n", c.Class, c.Tensors, size(c.Bytes))
	}
	table("largest tensors", in.Largest)
	fmt.Fprintf(w, "\npeak %s at %s\n", size(in.Peak), in.PeakNode)
	table("alive there", in.Alive)
	printLayers(w, in.Layers)
	if len(in.Unsized) > 0 {
		fmt.Fprintln(w, "\nwithout a fixed size (not counted above)")
		for _, u := range in.Unsized {
			fmt.Fprintf(w, "  %s\n", u)
		}
	}
}

// Package dot draws a Program as a DOT graph: every node with its lane, every
// tensor's edge with its size, and the decisions as colours.
package dot

import (
	"fmt"
	"strings"

	"github.com/emicklei/dot"

	"memoc/ir"
)

// colours of nodes by what they are in the plan.
const (
	runColour    = "#dbe9f6"
	rematColour  = "#fde2b3"
	copyColour   = "#cfead1"
	weightColour = "#eeeeee"
)

// edgeColours by the decision on the tensor.
var edgeColours = map[ir.DecisionKind]string{ir.Keep: "#1f4e99", ir.Swap: "#2a8a3a", ir.Remat: "#c77700", ir.SplitTokens: "#8a2a8a"}

// Render is the graph of p in DOT. Nodes are named n0, n1, … in execution
// order and labelled with what the model calls them: any name is a legal
// label, none could be an identifier.
func Render(p *ir.Program) []byte {
	d := &drawing{g: dot.NewGraph(dot.Directed), p: p, node: map[*ir.Value]dot.Node{}, decided: map[string]ir.Decision{}}
	d.g.Attr("rankdir", "TB")
	d.g.NodeInitializer(func(n dot.Node) { n.Attr("shape", "box").Attr("style", "filled").Attr("fontname", "Helvetica") })
	for _, x := range p.Decisions {
		d.decided[x.Tensor] = x
	}
	d.legend()
	d.sources()
	for i, n := range p.Graph.Nodes {
		d.operation(i, n)
	}
	d.results()
	return []byte(d.g.String())
}

type drawing struct {
	g       *dot.Graph
	p       *ir.Program
	node    map[*ir.Value]dot.Node
	decided map[string]ir.Decision
}

// escape makes text a DOT label: a backslash and a quote are escaped, line
// breaks become DOT's own.
func escape(s string) string {
	return strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\r", "", "\n", "\\n").Replace(s)
}

func label(lines ...string) dot.Literal {
	for i := range lines {
		lines[i] = escape(lines[i])
	}
	return dot.Literal("\"" + strings.Join(lines, "\\n") + "\"")
}

func (d *drawing) legend() {
	sub := d.g.Subgraph("legend", dot.ClusterOption{})
	for _, x := range []struct{ id, text, fill string }{
		{"l_run", "compute lane", runColour}, {"l_remat", "recomputed (.remat)", rematColour}, {"l_copy", "copy lanes", copyColour},
		{"l_weight", "weight, input, output", weightColour},
	} {
		sub.Node(x.id).Attr("label", label(x.text)).Attr("fillcolor", x.fill)
	}
}

// sources draws inputs and weights.
func (d *drawing) sources() {
	seen := map[*ir.Value]bool{}
	i := 0
	for _, vs := range [][]*ir.Value{d.p.Graph.Inputs, d.p.Graph.Inits} {
		for _, v := range vs {
			if seen[v] || len(v.Uses()) == 0 && !v.IsInput() {
				continue
			}
			seen[v] = true
			n := d.g.Node(fmt.Sprintf("s%d", i)).Attr("label", label(v.Name, v.Type.String())).
				Attr("shape", "ellipse").Attr("fillcolor", weightColour)
			d.node[v] = n
			i++
		}
	}
}

func (d *drawing) operation(i int, n *ir.Node) {
	fill, lane := runColour, ""
	switch {
	case n.Domain == ir.MemocDomain && n.Op == "SwapOut":
		fill, lane = copyColour, d.p.Lanes[ir.OutLane].Name
	case n.Domain == ir.MemocDomain && n.Op == "SwapIn":
		fill, lane = copyColour, d.p.Lanes[ir.InLane].Name
	case strings.Contains(n.Name, ".remat"):
		fill = rematColour
	}
	lines := []string{n.Name, n.FullOp()}
	if lane != "" {
		lines = append(lines, "lane "+lane)
	}
	node := d.g.Node(fmt.Sprintf("n%d", i)).Attr("label", label(lines...)).Attr("fillcolor", fill)
	for _, vs := range [][]*ir.Value{n.In, n.Captures} {
		for _, v := range vs {
			if from, ok := d.node[v]; v != nil && ok {
				d.edge(from, node, v)
			}
		}
	}
	for _, v := range n.Out {
		if v != nil {
			d.node[v] = node
		}
	}
}

func (d *drawing) edge(from, to dot.Node, v *ir.Value) {
	e := d.g.Edge(from, to).Attr("label", label(v.Name, v.Type.String()))
	if x, ok := d.decided[v.Name]; ok {
		e.Attr("color", edgeColours[x.Kind]).Attr("tooltip", label(x.Kind.String()+": "+x.Reason))
	}
}

func (d *drawing) results() {
	for i, v := range d.p.Graph.Outputs {
		n := d.g.Node(fmt.Sprintf("o%d", i)).Attr("label", label(v.Name, v.Type.String())).
			Attr("shape", "ellipse").Attr("fillcolor", weightColour).Attr("penwidth", "2")
		if from, ok := d.node[v]; ok {
			d.edge(from, n, v)
		}
	}
}

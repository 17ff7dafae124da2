// Package dot draws a Program as a DOT graph: every node with its lane, every
// tensor's edge with its size, and the decisions as colours.
package dot

import (
	"fmt"
	"slices"
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
	rangeColour  = "#ead9f2"
)

// edgeColours by the decision on the tensor.
var edgeColours = map[ir.DecisionKind]string{ir.Keep: "#1f4e99", ir.Swap: "#2a8a3a", ir.Remat: "#c77700", ir.SplitTokens: "#8a2a8a"}

// drawn is the number of operations above which a graph is reduced to those
// that decisions touch: layout programs take minutes for more, and nobody
// reads them.
const drawn = 1500

// Render is the graph of p in DOT. Nodes are named n0, n1, … in execution
// order and labelled with what the model calls them: any name is a legal
// label, none could be an identifier. Tensors' names and types are tooltips of
// the edges. Of a graph of more than 1,500 operations only those are drawn
// that make, move or recompute a decided tensor, at most 1,500, and a note
// says how many are left out.
func Render(p *ir.Program) []byte {
	d := &drawing{g: dot.NewGraph(dot.Directed), p: p, node: map[*ir.Value]dot.Node{}, decided: map[string]ir.Decision{}, isStep: map[*ir.Node]bool{}}
	for i := range p.Steps {
		d.isStep[p.Steps[i].Node] = true
	}
	// Straight edges and bounded crossing reduction: exact layouts of hundreds
	// of long edges between forward and backward pass take minutes.
	for _, kv := range [][2]string{{"rankdir", "TB"}, {"splines", "line"}, {"nslimit", "1"}, {"nslimit1", "1"}, {"mclimit", "0.2"}} {
		d.g.Attr(kv[0], kv[1])
	}
	d.g.NodeInitializer(func(n dot.Node) { n.Attr("shape", "box").Attr("style", "filled").Attr("fontname", "Helvetica") })
	for _, x := range p.Decisions {
		d.decided[x.Tensor] = x
	}
	d.legend()
	chosen := d.chosen()
	if left := len(p.Graph.Nodes) - len(chosen); left > 0 {
		d.g.Node("note").Attr("label", label(fmt.Sprintf("%d of %d operations are not drawn:", left, len(p.Graph.Nodes)),
			"these are the ones that decisions touch")).Attr("shape", "note").Attr("fillcolor", "white")
	}
	d.sources(chosen)
	for i, n := range p.Graph.Nodes {
		if chosen[n] {
			d.operation(i, n)
		}
	}
	d.results()
	return []byte(d.g.String())
}

// chosen is the operations to draw.
func (d *drawing) chosen() map[*ir.Node]bool {
	out := map[*ir.Node]bool{}
	all := len(d.p.Graph.Nodes) <= drawn
	for _, n := range d.p.Graph.Nodes {
		if len(out) < drawn && (all || d.touched(n)) {
			out[n] = true
		}
	}
	return out
}

// touched reports whether a decision is about the node: it copies, it is a
// clone, it cuts or joins a split tensor, or it makes a decided tensor.
func (d *drawing) touched(n *ir.Node) bool {
	if d.where(n) != "" || n.Domain == ir.MemocDomain && (n.Op == "SwapOut" || n.Op == "SwapIn") || strings.Contains(n.Name, ".remat") {
		return true
	}
	for _, v := range n.Out {
		if v != nil {
			if x, ok := d.decided[v.Name]; ok && x.Kind != ir.Keep {
				return true
			}
		}
	}
	return false
}

type drawing struct {
	g       *dot.Graph
	p       *ir.Program
	node    map[*ir.Value]dot.Node
	decided map[string]ir.Decision
	isStep  map[*ir.Node]bool
}

// escape makes text a DOT label: a backslash and a quote are escaped, line
// breaks become DOT's own, and an ampersand is written as an entity, because
// labels may hold entities.
func escape(s string) string { return escapes.Replace(s) }

var escapes = strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\r", "", "\n", "\\n", "&", "&amp;")

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
		{"l_range", "parts of a tensor that is split by tokens (dashed: nothing is moved)", rangeColour},
		{"l_weight", "weight, input, output", weightColour},
	} {
		sub.Node(x.id).Attr("label", label(x.text)).Attr("fillcolor", x.fill)
	}
}

// sources draws the inputs and weights that a drawn operation reads.
func (d *drawing) sources(chosen map[*ir.Node]bool) {
	read := func(v *ir.Value) bool {
		return slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return chosen[u.Node] })
	}
	seen := map[*ir.Value]bool{}
	i := 0
	for _, vs := range [][]*ir.Value{d.p.Graph.Inputs, d.p.Graph.Inits} {
		for _, v := range vs {
			if seen[v] || !read(v) {
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
	where := d.where(n)
	if where != "" {
		lines = append(lines, where)
	} else if part, ok := d.p.SliceOf(n); ok && !part.Contiguous() {
		lines = append(lines, "packs "+bytesOf(part))
	}
	if where != "" && (n.Op == "Slice" || n.Op == "Concat") {
		fill = rangeColour
	}
	node := d.g.Node(fmt.Sprintf("n%d", i)).Attr("label", label(lines...)).Attr("fillcolor", fill)
	if fill == rangeColour && !d.isStep[n] {
		node.Attr("style", "filled,dashed")
	}
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

// where says in which part of a buffer a node's result lies, and of a join that
// it is made of parts; "" where it has the buffer to itself.
func (d *drawing) where(n *ir.Node) string {
	if len(n.Out) == 0 || n.Out[0] == nil || int(n.Out[0].ID) >= len(d.p.Places) {
		return ""
	}
	pl := d.p.Places[n.Out[0].ID]
	if pl.Buffer < 0 || pl.Size == 0 {
		return ""
	}
	for port := range n.In {
		if d.p.InOutput(n, port) {
			return "parts in place"
		}
	}
	if pl.Size >= d.p.Buffers[pl.Buffer].Size {
		return ""
	}
	return bytesOf(pl)
}

func bytesOf(p ir.Place) string {
	rows, size := p.Pieces()
	if rows == 1 {
		return fmt.Sprintf("bytes [%d,%d) of its buffer", p.Offset, p.End())
	}
	return fmt.Sprintf("%d rows of %d bytes, %d apart, from %d on", rows, size, p.Pitch, p.Offset)
}

func (d *drawing) edge(from, to dot.Node, v *ir.Value) {
	e := d.g.Edge(from, to)
	tip := []string{v.Name, v.Type.String()}
	if x, ok := d.decided[v.Name]; ok {
		tip = append(tip, x.Kind.String()+": "+x.Reason)
		e.Attr("color", edgeColours[x.Kind]).Attr("penwidth", "2")
	}
	e.Attr("tooltip", label(tip...))
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

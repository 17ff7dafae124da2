package ir

import (
	"fmt"
	"slices"
	"strings"
)

// ValueID and NodeID are dense within a root graph (subgraphs share the root's
// counters), so that an analysis is a slice.
type (
	ValueID int
	NodeID  int
)

// OpName names an operator within its domain.
type OpName = string

// The domains memoc knows. The default domain's two spellings are one: the
// loader stores "".
const (
	OnnxDomain      = ""
	MsDomain        = "com.microsoft"
	TrainingDomain  = "ai.onnx.preview.training"
	MemocDomain     = "ai.memoc"
	AtenDomain      = "org.pytorch.aten"
	OnnxScriptLib   = "pkg.onnxscript.torch_lib"
	OnnxScriptLibCo = "pkg.onnxscript.torch_lib.common"
)

// Value is one edge source: a graph input, an initializer or an output of a
// node. Type and Ints are set once, by the loader or by inference.
type Value struct {
	ID    ValueID
	Name  string
	Type  Type
	Ints  []Dim   // the elements, where it is a small integer tensor inference knows; else nil
	Def   *Node   // nil for inputs and initializers
	Port  int     // which output of Def
	Graph *Graph  // the scope it belongs to
	Init  *Weight // non-nil for an initializer (that may be an input as well)
	Doc   string

	uses []Use
}

// Use is one reader of a value: input Port of Node, or a capture by one of the
// node's subgraphs (Port -1).
type Use struct {
	Node *Node
	Port int
}

// Uses lists the readers in no particular order; graph outputs are not uses.
func (v *Value) Uses() []Use { return v.uses }

// IsInput reports whether v is an input of its graph.
func (v *Value) IsInput() bool {
	if v.Def != nil || v.Graph == nil {
		return false
	}
	for _, in := range v.Graph.Inputs {
		if in == v {
			return true
		}
	}
	return false
}

// IsOutput reports whether v is among its graph's outputs.
func (v *Value) IsOutput() bool {
	if v.Graph == nil {
		return false
	}
	for _, out := range v.Graph.Outputs {
		if out == v {
			return true
		}
	}
	return false
}

// Loc is where a node came from.
type Loc struct {
	File  string // model file, "" for nodes memoc made
	Path  string // graph path: "graph", "graph/if1.then_branch", "function f"
	Index int    // position in that graph's node list as read
}

// String prints "model.onnx:graph:node 12".
func (l Loc) String() string {
	if l.File == "" && l.Path == "" {
		return "memoc"
	}
	return fmt.Sprintf("%s:%s:node %d", l.File, l.Path, l.Index)
}

// Node is one operation. In and Out hold nil for absent optional values; only
// Edit and the graph's builder methods change them.
type Node struct {
	ID       NodeID
	Name     string // unique in the root graph
	Domain   string
	Op       OpName
	Overload string
	Version  int // opset version of Domain the model imports; 0 unknown
	In       []*Value
	Out      []*Value
	Captures []*Value // outer values that subgraphs among the attributes read
	Attrs    []Attr
	Graph    *Graph
	Decl     *Op    // nil for an unknown operator
	Origin   string // name of the node this is derived from (clone, gradient); "" for an original
	Backward bool   // made by or belonging to the backward pass
	Loc      Loc
	Doc      string
	Meta     []KV
	Raw      []byte // the encoded NodeProto as read; nil once it no longer describes the node
}

// KV is a metadata entry.
type KV struct{ Key, Value string }

// OriginName is the name of the original node: what keys random numbers.
func (n *Node) OriginName() string {
	if n.Origin != "" {
		return n.Origin
	}
	return n.Name
}

// FullOp prints "com.microsoft::Gelu" or "Add".
func (n *Node) FullOp() string { return FullOp(n.Domain, n.Op) }

// FullOp prints domain and name as FullOp of a node does.
func FullOp(domain, op string) string {
	if domain == "" {
		return op
	}
	return domain + "::" + op
}

// String names the node in messages: `node "n" (Add@17)`.
func (n *Node) String() string {
	return fmt.Sprintf("node %q (%s@%d)", n.Name, n.FullOp(), n.Version)
}

// Graph is a list of nodes in execution order with its inputs, initializers
// and outputs. Nodes is a topological order at all times.
type Graph struct {
	Name    string
	Doc     string
	Inputs  []*Value
	Inits   []*Value
	Outputs []*Value
	Nodes   []*Node
	Owner   *Node          // the node whose attribute this is; nil for the root
	Opsets  map[string]int // domain to version, shared by all subgraphs
	Meta    []KV
	Raw     []byte // encoded GraphProto as read, for fields memoc does not model

	names *nameTable // shared by root and subgraphs
}

type nameTable struct {
	used      map[string]bool // value and node names, in one space
	next      map[string]int  // next suffix to try for a base name
	values    int
	nodes     int
	freshDims int
}

// NewGraph is an empty root graph.
func NewGraph(name string, opsets map[string]int) *Graph {
	return &Graph{Name: name, Opsets: opsets,
		names: &nameTable{used: map[string]bool{}, next: map[string]int{}}}
}

// NewSubgraph is an empty graph that shares names and opsets with g.
func (g *Graph) NewSubgraph(name string) *Graph {
	return &Graph{Name: name, Opsets: g.Opsets, names: g.names}
}

// NumValues and NumNodes bound the IDs of the root graph and all subgraphs.
func (g *Graph) NumValues() int { return g.names.values }

// NumNodes bounds the node IDs of the root graph and all subgraphs.
func (g *Graph) NumNodes() int { return g.names.nodes }

// Fresh is base if no value or node of any scope has that name, else base with
// a numeric suffix. The name is reserved.
func (g *Graph) Fresh(base string) string {
	t := g.names
	if base != "" && !t.used[base] {
		t.used[base] = true
		return base
	}
	for i := t.next[base]; ; i++ {
		s := fmt.Sprintf("%s_%d", base, i)
		if !t.used[s] {
			t.next[base] = i + 1
			t.used[s] = true
			return s
		}
	}
}

// Reserve takes a name as it is (a model's own); false if it is taken.
func (g *Graph) Reserve(name string) bool {
	if g.names.used[name] {
		return false
	}
	g.names.used[name] = true
	return true
}

// freshPrefix starts the names of symbols that inference made.
const freshPrefix = "_u"

// fresh reports whether d is a symbol that inference made.
func (d Dim) fresh() bool {
	name, ok := d.IsSym()
	return ok && strings.HasPrefix(name, freshPrefix)
}

// anyFresh reports whether a symbol of d stands for an extent that inference
// could not tell, which no user can bind.
func (d Dim) anyFresh() bool {
	return slices.ContainsFunc(d.Symbols(), func(s string) bool { return strings.HasPrefix(s, freshPrefix) })
}

// FreshDim is a new symbol that equals no other.
func (g *Graph) FreshDim() Dim {
	for {
		g.names.freshDims++
		s := fmt.Sprintf("%s%d", freshPrefix, g.names.freshDims)
		if !g.names.used["dim "+s] {
			return Sym(s)
		}
	}
}

// NewValue makes a value of g that nothing defines yet; name is taken as is.
func (g *Graph) NewValue(name string, t Type) *Value {
	v := &Value{ID: ValueID(g.names.values), Name: name, Type: t, Graph: g}
	g.names.values++
	g.names.used[name] = true
	return v
}

// AddInput appends a graph input.
func (g *Graph) AddInput(name string, t Type) *Value {
	v := g.NewValue(name, t)
	g.Inputs = append(g.Inputs, v)
	return v
}

// AddInit appends an initializer.
func (g *Graph) AddInit(name string, w *Weight) *Value {
	v := g.NewValue(name, w.Type)
	v.Init = w
	g.Inits = append(g.Inits, v)
	return v
}

// NodeSpec is what a new node is made of. Empty output names are absent
// outputs; Out names are taken as they are (use Fresh).
type NodeSpec struct {
	Name, Domain, Op string
	Version          int // 0: the graph's opset for Domain
	In               []*Value
	Out              []string
	Attrs            []Attr
	Origin           string
	Backward         bool
	Loc              Loc
	Meta             []KV
}

// NewNode makes a node with its outputs and registers its uses, without
// placing it in any node list.
func (g *Graph) NewNode(s NodeSpec) *Node {
	version := s.Version
	if version == 0 {
		version = g.Opsets[s.Domain]
	}
	n := &Node{ID: NodeID(g.names.nodes), Name: s.Name, Domain: s.Domain, Op: s.Op, Version: version,
		In: s.In, Attrs: s.Attrs, Graph: g, Origin: s.Origin, Backward: s.Backward, Loc: s.Loc, Meta: s.Meta}
	g.names.nodes++
	n.Decl = Lookup(s.Domain, s.Op)
	for i, name := range s.Out {
		if name == "" {
			n.Out = append(n.Out, nil)
			continue
		}
		v := g.NewValue(name, Type{})
		v.Def, v.Port = n, i
		n.Out = append(n.Out, v)
	}
	for i, v := range n.In {
		if v != nil {
			v.uses = append(v.uses, Use{n, i})
		}
	}
	for _, sub := range n.Subgraphs() {
		sub.Owner = n
	}
	return n
}

// SetCaptures records the outer values that a node's subgraphs read, each
// once; the loader calls it once the subgraphs are built.
func (n *Node) SetCaptures(vs []*Value) {
	for _, v := range n.Captures {
		v.dropUse(Use{n, -1})
	}
	seen := map[*Value]bool{}
	vs = slices.DeleteFunc(slices.Clone(vs), func(v *Value) bool {
		again := seen[v]
		seen[v] = true
		return again
	})
	n.Captures = vs
	for _, v := range vs {
		v.uses = append(v.uses, Use{n, -1})
	}
}

// Append makes a node at the end of g's order.
func (g *Graph) Append(s NodeSpec) *Node {
	n := g.NewNode(s)
	g.Nodes = append(g.Nodes, n)
	return n
}

func (v *Value) dropUse(u Use) {
	for i, w := range v.uses {
		if w == u {
			last := len(v.uses) - 1
			v.uses[i] = v.uses[last]
			v.uses = v.uses[:last]
			return
		}
	}
	panic(fmt.Sprintf("BUG: %s does not use %q", u.Node, v.Name))
}

// Walk calls f on every node of g and its subgraphs, outer nodes first.
func (g *Graph) Walk(f func(*Node)) {
	for _, n := range g.Nodes {
		f(n)
		for _, sub := range n.Subgraphs() {
			sub.Walk(f)
		}
	}
}

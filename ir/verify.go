package ir

import (
	"fmt"

	"memoc/ir/diag"
)

// Verify checks everything that passes rely on, in g and all its subgraphs,
// and returns the first fault found: a diagnostic whose ID is "verify-" and
// the rule. The rules, in the order they are tried:
//
//	owner     a listed node or value belongs to the graph that lists it
//	id        IDs are dense and each is used once
//	name      names are present and unique over all scopes
//	link      Def, Port and Init agree with where a value is listed
//	order     a node reads only what earlier nodes, or outer graphs, made
//	scope     no value of an inner graph is read outside of it
//	dangling  what is read is made by something in the graph
//	captures  Captures are the outer values that the subgraphs read
//	uses      the uses of a value are exactly its readers
//	ports     inputs and outputs are as many as the operator has
//	type      a value has the type that its data or its operator's shape rule
//	          gives it (outputs of unknown operators may have none)
//	shape     the operator's shape rule does not contradict the stored types
//
// It never changes g, so that a compilation with and without it is the same.
func Verify(g *Graph) error { return verifyGraph(g, true) }

// VerifyStructure is Verify without the rules type and shape: for a graph
// whose types are not inferred.
func VerifyStructure(g *Graph) error { return verifyGraph(g, false) }

func verifyGraph(g *Graph, types bool) (err error) {
	v := &verifier{root: g, values: make([]*Value, g.NumValues()), nodes: make([]*Node, g.NumNodes()),
		visible: make([]bool, g.NumValues()), reads: make([]int, g.NumValues()),
		valueNames: make(map[string]*Value, g.NumValues()), nodeNames: make(map[string]*Node, g.NumNodes())}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *diag.Diagnostic:
			err = r
		default:
			panic(r)
		}
	}()
	if g.Owner != nil {
		v.fail("owner", diag.Location{}, "the graph to verify is a subgraph of %s", g.Owner)
	}
	v.collect(g)
	v.scope(g)
	for _, x := range v.values {
		if x != nil {
			v.uses(x)
		}
	}
	fresh := g.names.freshDims
	defer func() { g.names.freshDims = fresh }()
	for _, h := range v.graphs {
		if types {
			v.sources(h)
		}
		for _, n := range h.Nodes {
			v.ports(n)
			if types {
				v.shapes(n)
			}
		}
	}
	return nil
}

type verifier struct {
	root       *Graph
	graphs     []*Graph
	values     []*Value // by ID: those that some graph lists
	nodes      []*Node
	visible    []bool // by value ID: in scope at the node being visited
	reads      []int  // by value ID
	valueNames map[string]*Value
	nodeNames  map[string]*Node
}

func (v *verifier) fail(rule string, loc diag.Location, format string, args ...any) {
	panic(&diag.Diagnostic{ID: "verify-" + rule, Severity: diag.Error, Loc: loc, Message: "BUG: " + fmt.Sprintf(format, args...)})
}

func (v *verifier) check(ok bool, rule string, n *Node, format string, args ...any) {
	if ok {
		return
	}
	loc := diag.Location{}
	if n != nil {
		loc = n.DiagLoc()
	}
	v.fail(rule, loc, format, args...)
}

// collect registers what g and its subgraphs list.
func (v *verifier) collect(g *Graph) {
	v.graphs = append(v.graphs, g)
	inits := make(map[*Value]bool, len(g.Inits))
	for _, x := range g.Inits {
		v.check(x != nil, "link", nil, "an initializer of graph %q is nil", g.Name)
		inits[x] = true
		v.value(g, x)
		v.check(x.Def == nil, "link", nil, "initializer %q is made by %s", x.Name, x.Def)
		v.check(x.Init != nil, "link", nil, "initializer %q has no data", x.Name)
	}
	for _, x := range g.Inputs {
		v.check(x != nil, "link", nil, "an input of graph %q is nil", g.Name)
		v.check(x.Def == nil, "link", nil, "graph input %q is made by %s", x.Name, x.Def)
		v.check(x.Init == nil || inits[x], "link", nil, "graph input %q has data but is not among the initializers", x.Name)
		if !inits[x] {
			v.value(g, x)
		}
	}
	for _, n := range g.Nodes {
		v.node(g, n)
		for _, sub := range n.Subgraphs() {
			v.check(sub.Owner == n, "owner", n, "its subgraph %q says that it belongs to another node", sub.Name)
			v.check(sub.names == g.names, "owner", n, "its subgraph %q has a table of names of its own", sub.Name)
			v.collect(sub)
		}
	}
}

func (v *verifier) node(g *Graph, n *Node) {
	v.check(n != nil, "link", nil, "a node of graph %q is nil", g.Name)
	v.check(n.Graph == g, "owner", n, "graph %q lists it, but it belongs to another graph", g.Name)
	v.check(int(n.ID) >= 0 && int(n.ID) < len(v.nodes), "id", n, "its ID %d is not below %d", n.ID, len(v.nodes))
	v.check(v.nodes[n.ID] != n, "owner", n, "it is listed twice")
	v.check(v.nodes[n.ID] == nil, "id", n, "it has the ID %d of %s", n.ID, v.nodes[n.ID])
	v.nodes[n.ID] = n
	v.check(n.Name != "", "name", n, "it has no name")
	v.check(v.nodeNames[n.Name] == nil, "name", n, "two nodes are named %q", n.Name)
	v.nodeNames[n.Name] = n
	for i, x := range n.Out {
		if x == nil {
			continue
		}
		v.value(g, x)
		v.check(x.Def == n && x.Port == i, "link", n, "its output %d, %q, says that it is output %d of another node", i, x.Name, x.Port)
		v.check(x.Init == nil, "link", n, "its output %q has the data of an initializer", x.Name)
	}
}

func (v *verifier) value(g *Graph, x *Value) {
	v.check(x.Graph == g, "owner", x.Def, "graph %q lists tensor %q, but it belongs to another graph", g.Name, x.Name)
	v.check(int(x.ID) >= 0 && int(x.ID) < len(v.values), "id", x.Def, "the ID %d of tensor %q is not below %d", x.ID, x.Name, len(v.values))
	v.check(v.values[x.ID] != x, "owner", x.Def, "tensor %q is listed twice", x.Name)
	v.check(v.values[x.ID] == nil, "id", x.Def, "tensor %q has the ID %d of another", x.Name, x.ID)
	v.values[x.ID] = x
	v.check(x.Name != "", "name", x.Def, "a tensor has no name")
	v.check(v.valueNames[x.Name] == nil, "name", x.Def, "two tensors are named %q", x.Name)
	v.check(v.root.names.used[x.Name], "name", x.Def, "the name of tensor %q is not reserved", x.Name)
	v.valueNames[x.Name] = x
}

// scope walks g in order; what is visible when a node is reached is what it
// may read.
func (v *verifier) scope(g *Graph) {
	for _, xs := range [][]*Value{g.Inputs, g.Inits} {
		v.show(xs, true)
	}
	for _, n := range g.Nodes {
		for _, x := range n.In {
			v.read(g, n, x)
		}
		v.captures(n)
		for _, sub := range n.Subgraphs() {
			v.scope(sub)
		}
		v.show(n.Out, true)
	}
	for _, x := range g.Outputs {
		v.check(x != nil, "dangling", nil, "an output of graph %q is nil", g.Name)
		v.visibleTo(g, g.Owner, x, fmt.Sprintf("graph %q gives out", g.Name))
	}
	if g.Owner == nil {
		return
	}
	for _, xs := range [][]*Value{g.Inputs, g.Inits} {
		v.show(xs, false)
	}
	for _, n := range g.Nodes {
		v.show(n.Out, false)
	}
}

func (v *verifier) show(xs []*Value, visible bool) {
	for _, x := range xs {
		if x != nil {
			v.visible[x.ID] = visible
		}
	}
}

func (v *verifier) read(g *Graph, n *Node, x *Value) {
	if x != nil {
		v.visibleTo(g, n, x, "it reads")
		v.reads[x.ID]++
	}
}

// visibleTo checks a reading of x in graph g.
func (v *verifier) visibleTo(g *Graph, n *Node, x *Value, who string) {
	known := int(x.ID) >= 0 && int(x.ID) < len(v.values) && v.values[x.ID] == x
	v.check(known, "dangling", n, "%s tensor %q, which nothing in the graph makes", who, x.Name)
	if v.visible[x.ID] {
		return
	}
	for h := g; h != nil; {
		v.check(h != x.Graph, "order", n, "%s tensor %q before it is made by %s", who, x.Name, x.Def)
		if h.Owner == nil {
			break
		}
		h = h.Owner.Graph
	}
	v.check(false, "scope", n, "%s tensor %q of the inner graph %q", who, x.Name, x.Graph.Name)
}

func (v *verifier) captures(n *Node) {
	if len(n.Captures) == 0 && len(n.Subgraphs()) == 0 {
		return
	}
	outer := map[*Value]bool{}
	for _, x := range n.OuterValues() {
		outer[x] = true
	}
	for _, x := range n.Captures {
		v.check(outer[x], "captures", n, "it lists tensor %q as captured (once more than it is, or its subgraphs do not read it)", x.Name)
		delete(outer, x)
		v.read(n.Graph, n, x)
	}
	for _, x := range n.OuterValues() {
		v.check(!outer[x], "captures", n, "its subgraphs read tensor %q, which is not listed as captured", x.Name)
	}
}

// uses checks that x.uses are exactly the readings counted.
func (v *verifier) uses(x *Value) {
	seen := make(map[Use]bool, len(x.uses))
	for _, u := range x.uses {
		n := u.Node
		known := n != nil && int(n.ID) < len(v.nodes) && v.nodes[n.ID] == n
		v.check(known, "uses", x.Def, "tensor %q counts a reader that is not in the graph: %v", x.Name, n)
		v.check(!seen[u], "uses", n, "tensor %q counts its port %d twice", x.Name, u.Port)
		seen[u] = true
		reads := u.Port >= 0 && u.Port < len(n.In) && n.In[u.Port] == x
		if u.Port == -1 {
			for _, y := range n.Captures {
				reads = reads || x == y
			}
		}
		v.check(reads, "uses", n, "tensor %q counts its port %d as a reader, which it is not", x.Name, u.Port)
	}
	v.check(len(x.uses) == v.reads[x.ID], "uses", x.Def, "tensor %q counts %d readers and has %d", x.Name, len(x.uses), v.reads[x.ID])
}

package ir

import (
	"fmt"
	"strings"

	"memoc/ir/diag"
)

// inlineLimit bounds the nodes that inlining may make: functions that call
// each other can unfold exponentially.
const inlineLimit = 1 << 20

// Inline replaces every call of a model-local function by its body: inner
// names are made fresh, attribute references bound, nested calls unfolded, and
// nodes keep the operator version their function imports. Functions that
// stand for operators of memoc's own domain are kept as calls. Functions that
// nothing calls any more are dropped from the model.
func Inline(m *Model) error {
	in := &inliner{root: m.Graph, functions: map[string]*Function{}}
	for _, f := range m.Functions {
		in.functions[callKey(f.Domain, f.Name, f.Overload)] = f
	}
	if len(in.functions) == 0 {
		return nil
	}
	if err := in.graph(m.Graph); err != nil || in.calls == 0 {
		return err
	}
	m.Functions = in.reachable(m)
	return nil
}

func callKey(domain, name, overload string) string { return domain + "\x00" + name + "\x00" + overload }

type inliner struct {
	root      *Graph
	functions map[string]*Function
	stack     []string
	calls     int
	made      int
}

// callee is the function that n calls and that is to be inlined.
func (in *inliner) callee(n *Node) *Function {
	f := in.functions[callKey(n.Domain, n.Op, n.Overload)]
	if f == nil || n.Domain == MemocDomain && n.Decl != nil {
		return nil
	}
	return f
}

// reachable lists the functions that nodes of the graph still call.
func (in *inliner) reachable(m *Model) []*Function {
	needed := map[*Function]bool{}
	var visit func(n *Node)
	visit = func(n *Node) {
		f := in.functions[callKey(n.Domain, n.Op, n.Overload)]
		if f != nil && !needed[f] {
			needed[f] = true
			f.Body.Walk(visit)
		}
	}
	m.Graph.Walk(visit)
	var out []*Function
	for _, f := range m.Functions {
		if needed[f] {
			out = append(out, f)
		}
	}
	return out
}

// graph inlines the calls in g and its subgraphs.
func (in *inliner) graph(g *Graph) error {
	nodes := make([]*Node, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		made, err := in.node(g, n)
		if err != nil {
			return err
		}
		nodes = append(nodes, made...)
	}
	g.Nodes = nodes
	return nil
}

// node is what stands for n after inlining: n itself where it is no call.
func (in *inliner) node(g *Graph, n *Node) ([]*Node, error) {
	if f := in.callee(n); f != nil {
		return in.call(g, n, f)
	}
	before := in.calls
	for _, sub := range n.Subgraphs() {
		if err := in.graph(sub); err != nil {
			return nil, err
		}
	}
	if in.calls != before {
		n.Raw = nil
		n.SetCaptures(n.OuterValues())
	}
	return []*Node{n}, nil
}

func callError(n *Node, id, format string, args ...any) error {
	return &diag.Diagnostic{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Loc: n.DiagLoc()}
}

// call replaces one call by the function's body. The values that the call
// made are made by inner nodes afterwards, so that their readers stay.
func (in *inliner) call(g *Graph, n *Node, f *Function) ([]*Node, error) {
	id := FullOp(f.Domain, f.Name)
	for _, s := range in.stack {
		if s == id+f.Overload {
			return nil, callError(n, "function-recursion", "function %s calls itself (%s)", id, strings.Join(in.stack, " calls "))
		}
	}
	if len(n.In) > len(f.Inputs) || len(n.Out) > len(f.Outputs) {
		return nil, callError(n, "function-arity", "the call has %d inputs and %d outputs, but function %s has %d and %d",
			len(n.In), len(n.Out), id, len(f.Inputs), len(f.Outputs))
	}
	in.stack = append(in.stack, id+f.Overload)
	defer func() { in.stack = in.stack[:len(in.stack)-1] }()
	in.calls++
	for i, v := range n.In {
		if v != nil {
			v.dropUse(Use{n, i})
		}
	}
	n.SetCaptures(nil)
	c := &cloner{in: in, call: n, fn: f, vals: map[*Value]*Value{}, outs: map[*Value]*Value{}}
	for i, v := range f.Body.Inputs {
		c.vals[v] = nil
		if i < len(n.In) {
			c.vals[v] = n.In[i]
		}
	}
	var late []int // outputs that no inner node can make directly
	for i, out := range n.Out {
		v := f.Body.Outputs[i]
		switch {
		case out == nil:
		case v.Def == nil || c.outs[v] != nil:
			late = append(late, i)
		default:
			c.outs[v] = out
		}
	}
	made, err := c.nodes(g, f.Body.Nodes)
	if err != nil {
		return nil, err
	}
	for _, i := range late {
		src := c.value(f.Body.Outputs[i])
		if src == nil {
			return nil, callError(n, "function-arity", "output %q of function %s is its input, which the call leaves out", f.Outputs[i], id)
		}
		made = append(made, identityTo(g, src, n.Out[i], n))
	}
	var out []*Node
	for _, m := range made { // nested calls
		ms, err := in.node(g, m)
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

// identityTo makes a node that gives src to the existing value dst.
func identityTo(g *Graph, src, dst *Value, call *Node) *Node {
	n := g.NewNode(NodeSpec{Name: g.Fresh(call.Name + "/Identity"), Op: "Identity", In: []*Value{src}, Loc: call.Loc})
	n.Out = []*Value{dst}
	dst.Def, dst.Port = n, 0
	return n
}

// cloner copies the body of a function into a graph.
type cloner struct {
	in   *inliner
	call *Node
	fn   *Function
	vals map[*Value]*Value // value of the body to its copy; nil: absent
	outs map[*Value]*Value // output of the body to the call's value
}

// value is the copy of v; a value from outside the body stands for itself.
func (c *cloner) value(v *Value) *Value {
	if v == nil {
		return nil
	}
	if w, ok := c.vals[v]; ok {
		return w
	}
	return v
}

func (c *cloner) values(vs []*Value) []*Value {
	out := make([]*Value, len(vs))
	for i, v := range vs {
		out[i] = c.value(v)
	}
	return out
}

func (c *cloner) fresh(g *Graph, name string) string { return g.Fresh(c.call.Name + "/" + name) }

func (c *cloner) nodes(g *Graph, nodes []*Node) ([]*Node, error) {
	out := make([]*Node, 0, len(nodes))
	for _, n := range nodes {
		if c.in.made++; c.in.made > inlineLimit {
			return nil, callError(c.call, "function-size", "inlining the model's functions gives more than %d nodes", inlineLimit)
		}
		m, err := c.node(g, n)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (c *cloner) node(g *Graph, n *Node) (*Node, error) {
	spec := NodeSpec{Name: c.fresh(g, n.Name), Domain: n.Domain, Op: n.Op, Version: n.Version,
		In: trimAbsent(c.values(n.In)), Loc: n.Loc, Meta: n.Meta}
	for _, a := range n.Attrs {
		b, ok, err := c.attr(g, a)
		if err != nil {
			return nil, err
		}
		if ok {
			spec.Attrs = append(spec.Attrs, b)
		}
	}
	for _, v := range n.Out {
		name := ""
		if v != nil && c.outs[v] == nil {
			name = c.fresh(g, v.Name)
		}
		spec.Out = append(spec.Out, name)
	}
	m := g.NewNode(spec)
	m.Overload, m.Doc = n.Overload, n.Doc
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		if out := c.outs[v]; out != nil {
			m.Out[i] = out
			out.Def, out.Port = m, i
		} else {
			m.Out[i].Type = outsideType(v.Type)
		}
		c.vals[v] = m.Out[i]
	}
	if len(m.Subgraphs()) > 0 {
		m.SetCaptures(m.OuterValues())
	}
	return m, nil
}

// outsideType is what a declared type in a function's body says at a call:
// its symbols are the function's own, so only a static shape holds.
func outsideType(t Type) Type {
	if _, ok := t.Shape.Static(); !ok {
		t.Shape = Shape{}
	}
	if t.Elem != nil {
		e := outsideType(*t.Elem)
		t.Elem = &e
	}
	return t
}

// attr copies an attribute. One that refers to an attribute of the function
// takes the call's value, or the default; ok is false where there is neither.
func (c *cloner) attr(g *Graph, a Attr) (b Attr, ok bool, err error) {
	name := a.Name
	if a.Ref != "" {
		bound := c.call.Attr(a.Ref)
		for i := range c.fn.AttrDefaults {
			if bound == nil && c.fn.AttrDefaults[i].Name == a.Ref {
				bound = &c.fn.AttrDefaults[i]
			}
		}
		if bound == nil {
			return Attr{}, false, nil
		}
		if a = *bound; a.Ref != "" {
			return Attr{}, false, callError(c.call, "function-attribute", "attribute %q refers to %q outside of a function", name, a.Ref)
		}
	}
	if a.Name != name {
		a.Name, a.Raw = name, nil
	}
	if a.G != nil {
		a.Raw = nil
		if a.G, err = c.graph(g, a.G); err != nil {
			return a, false, err
		}
	}
	graphs := a.Graphs
	a.Graphs = nil
	for _, sub := range graphs {
		a.Raw = nil
		s, err := c.graph(g, sub)
		if err != nil {
			return a, false, err
		}
		a.Graphs = append(a.Graphs, s)
	}
	return a, true, nil
}

// graph copies a subgraph.
func (c *cloner) graph(outer, sub *Graph) (*Graph, error) {
	g := outer.NewSubgraph(sub.Name)
	g.Doc, g.Meta = sub.Doc, sub.Meta
	for _, v := range sub.Inputs {
		w := g.AddInput(c.fresh(g, v.Name), outsideType(v.Type))
		w.Init = v.Init
		c.vals[v] = w
	}
	for _, v := range sub.Inits {
		if v.IsInput() {
			g.Inits = append(g.Inits, c.vals[v])
			continue
		}
		c.vals[v] = g.AddInit(c.fresh(g, v.Name), v.Init)
	}
	nodes, err := c.nodes(g, sub.Nodes)
	if err != nil {
		return nil, err
	}
	g.Nodes = nodes
	for _, v := range sub.Outputs {
		w := c.value(v)
		if w == nil {
			return nil, callError(c.call, "function-arity", "a subgraph gives %q, which the call leaves out", v.Name)
		}
		g.Outputs = append(g.Outputs, w)
	}
	return g, nil
}

package ir

import (
	"fmt"
	"slices"
)

// Edit is the one way passes change a graph. Edges change at once; insertions
// and removals reach Graph.Nodes together when Done is called, which keeps
// thousands of them linear.
type Edit struct {
	g       *Graph
	before  map[*Node][]*Node
	after   map[*Node][]*Node
	tail    []*Node
	removed map[*Node]bool
	changes int
}

// NewEdit starts editing g.
func NewEdit(g *Graph) *Edit {
	return &Edit{g: g, before: map[*Node][]*Node{}, after: map[*Node][]*Node{}, removed: map[*Node]bool{}}
}

// Graph is the graph being edited.
func (e *Edit) Graph() *Graph { return e.g }

// Changes counts the edits made.
func (e *Edit) Changes() int { return e.changes }

// InsertBefore makes a node that will stand just before at (after earlier
// insertions there); at == nil appends. Its outputs get their types by Infer.
func (e *Edit) InsertBefore(at *Node, s NodeSpec) *Node {
	n := e.g.NewNode(s)
	e.changes++
	if at == nil {
		e.tail = append(e.tail, n)
	} else {
		e.before[at] = append(e.before[at], n)
	}
	return n
}

// InsertAfter makes a node that will stand just after at.
func (e *Edit) InsertAfter(at *Node, s NodeSpec) *Node {
	n := e.g.NewNode(s)
	e.changes++
	e.after[at] = append(e.after[at], n)
	return n
}

// SetInput lets input port of n read v instead.
func (e *Edit) SetInput(n *Node, port int, v *Value) {
	old := n.In[port]
	if old == v {
		return
	}
	if old != nil {
		old.dropUse(Use{n, port})
	}
	n.In[port] = v
	if v != nil {
		v.uses = append(v.uses, Use{n, port})
	}
	n.Raw = nil
	e.changes++
}

// ReplaceUses lets every reader of old, and the graph's outputs, read with
// instead. The types must be equal.
func (e *Edit) ReplaceUses(old, with *Value) error {
	if !old.Type.Equal(with.Type) {
		return fmt.Errorf("BUG: %q of type %s cannot stand for %q of type %s", with.Name, with.Type, old.Name, old.Type)
	}
	for _, u := range slices.Clone(old.uses) {
		switch {
		case u.Port < 0 && slices.Contains(u.Node.Captures, old):
			e.ReplaceCapture(u.Node, old, with)
		case u.Port >= 0 && u.Node.In[u.Port] == old:
			e.SetInput(u.Node, u.Port, with)
		}
	}
	for i, out := range e.g.Outputs {
		if out == old {
			e.g.Outputs[i] = with
			e.changes++
		}
	}
	return nil
}

// ReplaceCapture lets the subgraphs of owner read with where they read old.
func (e *Edit) ReplaceCapture(owner *Node, old, with *Value) {
	for _, sub := range owner.Subgraphs() {
		sub.Walk(func(n *Node) {
			for i, v := range n.In {
				if v == old {
					e.SetInput(n, i, with)
				}
			}
			if slices.Contains(n.Captures, old) {
				n.SetCaptures(replaced(n.Captures, old, with))
				n.Raw = nil
			}
		})
		sub.Outputs = replaced(sub.Outputs, old, with)
	}
	owner.SetCaptures(replaced(owner.Captures, old, with))
	owner.Raw = nil
	e.changes++
}

// replaced is vs with one value in place of another.
func replaced(vs []*Value, old, with *Value) []*Value {
	out := slices.Clone(vs)
	for i, v := range out {
		if v == old {
			out[i] = with
		}
	}
	return out
}

// Remove takes a node out of the graph. It is an error if an output is still
// read or is a graph output.
func (e *Edit) Remove(n *Node) error {
	for _, v := range n.Out {
		if v == nil {
			continue
		}
		if len(v.uses) > 0 {
			return fmt.Errorf("BUG: removing %s: %q is read by %s", n, v.Name, v.uses[0].Node)
		}
		if v.IsOutput() {
			return fmt.Errorf("BUG: removing %s: %q is a graph output", n, v.Name)
		}
	}
	dropInputs(n)
	for _, sub := range n.Subgraphs() {
		sub.Walk(dropInputs)
	}
	e.removed[n] = true
	e.changes++
	return nil
}

// dropInputs forgets the uses of a node inside a removed node's subgraph.
func dropInputs(n *Node) {
	for i, v := range n.In {
		if v != nil {
			v.dropUse(Use{n, i})
		}
	}
	for _, v := range n.Captures {
		v.dropUse(Use{n, -1})
	}
}

// RemoveInit takes an initializer that nothing reads out of the graph.
func (e *Edit) RemoveInit(v *Value) error {
	if len(v.uses) > 0 || v.IsOutput() {
		return fmt.Errorf("BUG: removing initializer %q that is still read", v.Name)
	}
	for i, w := range e.g.Inits {
		if w == v {
			e.g.Inits = append(e.g.Inits[:i:i], e.g.Inits[i+1:]...)
			e.changes++
			return nil
		}
	}
	return fmt.Errorf("BUG: %q is no initializer", v.Name)
}

// Reorder puts the graph's nodes in another order: the same nodes, each after
// those it reads from; an error, and no change, if that does not hold.
func (e *Edit) Reorder(nodes []*Node) error {
	if len(nodes) != len(e.g.Nodes) {
		return fmt.Errorf("an order of %d nodes for a graph of %d", len(nodes), len(e.g.Nodes))
	}
	at := make(map[*Node]int, len(nodes))
	for i, n := range nodes {
		at[n] = i
	}
	for _, n := range e.g.Nodes {
		i, ok := at[n]
		if !ok {
			return fmt.Errorf("the new order lacks %s", n)
		}
		for _, vs := range [][]*Value{n.In, n.Captures} {
			for _, v := range vs {
				if v == nil || v.Def == nil || v.Def.Graph != e.g {
					continue
				}
				if j, ok := at[v.Def]; !ok || j >= i {
					return fmt.Errorf("the new order has %s before %s, which it reads from", n, v.Def)
				}
			}
		}
	}
	e.g.Nodes = nodes
	e.changes++
	return nil
}

// Rename gives v a name that no value of the graph has any more; the name of
// a removed value may be taken over.
func (e *Edit) Rename(v *Value, name string) {
	e.g.names.used[name] = true
	v.Name = name
	if v.Def != nil {
		v.Def.Raw = nil
	}
	e.changes++
}

// SweepConstants takes out the constants memoc made that nothing reads any
// more, and returns their number.
func (e *Edit) SweepConstants() int {
	before := len(e.g.Inits)
	e.g.Inits = slices.DeleteFunc(e.g.Inits, func(v *Value) bool {
		return v.Init.Constant && len(v.uses) == 0 && !v.IsOutput()
	})
	n := before - len(e.g.Inits)
	e.changes += n
	return n
}

// Done puts the insertions and removals into the node list.
func (e *Edit) Done() {
	out := make([]*Node, 0, len(e.g.Nodes)+len(e.before)+len(e.tail))
	var place func(ns []*Node)
	place = func(ns []*Node) {
		for _, n := range ns {
			place(e.before[n])
			if !e.removed[n] {
				out = append(out, n)
			}
			place(e.after[n])
		}
	}
	place(e.g.Nodes)
	place(e.tail)
	e.g.Nodes = out
	*e = *NewEdit(e.g)
}

package onnxgo

import (
	"fmt"
	"slices"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
	"gorgonia.org/tensor"

	"memoc/ir"
	"memoc/ir/eval"
)

var (
	_ backend.ComputationBackend = (*Backend)(nil)
	_ onnx.DataCarrier           = (*Node)(nil)
	_ onnx.Namer                 = (*Node)(nil)
)

// Backend receives one model from onnx-go.
type Backend struct {
	opset int
	seed  uint64
	nodes []*Node // by ID
	ops   []operation
}

// New is an empty backend for a model that imports that version of the default
// operator set.
func New(opset int) *Backend { return &Backend{opset: opset} }

// SetSeed sets the seed of random operators.
func (b *Backend) SetSeed(seed uint64) { b.seed = seed }

type operation struct {
	onnx.Operation
	outs []*Node
}

// Node is a tensor of the model, in onnx-go's terms a node.
type Node struct {
	id    int64
	name  string
	value tensor.Tensor
	ins   []edge // what the operation that makes it reads
}

// edge leads from the result of an operation to an operand.
type edge struct {
	from, to *Node
	pos      float64 // of the operand
}

// ID implements graph.Node.
func (n *Node) ID() int64 { return n.id }

// SetName implements onnx.Namer.
func (n *Node) SetName(name string) { n.name = name }

// GetName implements onnx.Namer.
func (n *Node) GetName() string { return n.name }

// SetTensor implements onnx.DataCarrier.
func (n *Node) SetTensor(t tensor.Tensor) error {
	n.value = t
	return nil
}

// GetTensor implements onnx.DataCarrier.
func (n *Node) GetTensor() tensor.Tensor { return n.value }

// From implements graph.Edge.
func (e edge) From() graph.Node { return e.from }

// To implements graph.Edge.
func (e edge) To() graph.Node { return e.to }

// ReversedEdge implements graph.Edge.
func (e edge) ReversedEdge() graph.Edge { return edge{e.to, e.from, e.pos} }

// Weight implements graph.WeightedEdge.
func (e edge) Weight() float64 { return e.pos }

// NewNode implements graph.NodeAdder. IDs count from 0: onnx-go takes the i-th
// node for the i-th input.
func (b *Backend) NewNode() graph.Node { return &Node{id: int64(len(b.nodes))} }

// AddNode implements graph.NodeAdder.
func (b *Backend) AddNode(n graph.Node) {
	if n.ID() != int64(len(b.nodes)) {
		panic(fmt.Sprintf("onnxgo: node %d is added out of order", n.ID()))
	}
	b.nodes = append(b.nodes, n.(*Node))
}

// NewWeightedEdge implements graph.WeightedEdgeAdder.
func (b *Backend) NewWeightedEdge(from, to graph.Node, weight float64) graph.WeightedEdge {
	return edge{from.(*Node), to.(*Node), weight}
}

// SetWeightedEdge implements graph.WeightedEdgeAdder. An operand that is read
// twice has two edges.
func (b *Backend) SetWeightedEdge(e graph.WeightedEdge) {
	from := e.From().(*Node)
	from.ins = append(from.ins, edge{from, e.To().(*Node), e.Weight()})
}

// ApplyOperation implements onnx.OperationCarrier.
func (b *Backend) ApplyOperation(op onnx.Operation, outs ...graph.Node) error {
	o := operation{Operation: op}
	for _, n := range outs {
		o.outs = append(o.outs, n.(*Node))
	}
	b.ops = append(b.ops, o)
	return nil
}

// Node implements graph.Graph.
func (b *Backend) Node(id int64) graph.Node {
	if id < 0 || id >= int64(len(b.nodes)) {
		return nil
	}
	return b.nodes[id]
}

// Nodes implements graph.Graph.
func (b *Backend) Nodes() graph.Nodes { return b.list(func(*Node) bool { return true }) }

func (b *Backend) list(keep func(*Node) bool) graph.Nodes {
	var out []graph.Node
	for _, n := range b.nodes {
		if keep(n) {
			out = append(out, n)
		}
	}
	return iterator.NewOrderedNodes(out)
}

// From implements graph.Graph: the operands of what makes the node.
func (b *Backend) From(id int64) graph.Nodes {
	return b.list(func(n *Node) bool { return b.HasEdgeFromTo(id, n.id) })
}

// To implements graph.Directed: the results that read the node.
func (b *Backend) To(id int64) graph.Nodes {
	return b.list(func(n *Node) bool { return b.HasEdgeFromTo(n.id, id) })
}

// HasEdgeBetween implements graph.Graph.
func (b *Backend) HasEdgeBetween(x, y int64) bool {
	return b.HasEdgeFromTo(x, y) || b.HasEdgeFromTo(y, x)
}

// HasEdgeFromTo implements graph.Directed.
func (b *Backend) HasEdgeFromTo(u, v int64) bool { return b.Edge(u, v) != nil }

// Edge implements graph.Graph.
func (b *Backend) Edge(u, v int64) graph.Edge {
	if u < 0 || u >= int64(len(b.nodes)) {
		return nil
	}
	for _, e := range b.nodes[u].ins {
		if e.to.id == v {
			return e
		}
	}
	return nil
}

// Run implements backend.ComputationBackend: it evaluates the graph with the
// tensors that are set, and sets those of all results.
func (b *Backend) Run() error {
	g, values, err := b.build(nil, nil)
	if err != nil {
		return err
	}
	results, err := eval.Graph(g, nil, eval.Options{Seed: b.seed})
	if err != nil {
		return err
	}
	for n, v := range values {
		d, ok := results[v.Name].(*ir.Tensor)
		if v.Def == nil || !ok {
			continue
		}
		if n.value, err = FromTensor(d); err != nil {
			return fmt.Errorf("tensor %q: %w", n.name, err)
		}
	}
	return nil
}

// Graph is the model as memoc's graph. inputs and outputs are the IDs that
// onnx-go's Model has in fields of these names; every other tensor that no
// operation makes becomes an initializer.
func (b *Backend) Graph(inputs, outputs []int64) (*ir.Graph, error) {
	g, _, err := b.build(inputs, outputs)
	return g, err
}

// build makes the graph; with outputs == nil everything made is an output.
func (b *Backend) build(inputs, outputs []int64) (*ir.Graph, map[*Node]*ir.Value, error) {
	g := ir.NewGraph("onnx-go", map[string]int{ir.OnnxDomain: b.opset})
	values := map[*Node]*ir.Value{}
	made := map[*Node]bool{}
	for _, op := range b.ops {
		for _, n := range op.outs {
			made[n] = true
		}
	}
	for _, n := range b.nodes {
		if made[n] || n.value == nil || n.name == "" {
			continue
		}
		t, err := ToTensor(n.value)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", n.name, err)
		}
		if slices.Contains(inputs, n.id) {
			values[n] = g.AddInput(n.name, t.Type())
		} else {
			values[n] = g.AddInit(n.name, ir.WeightOf(t))
		}
	}
	for i, op := range b.ops {
		if err := op.node(g, i, values); err != nil {
			return nil, nil, err
		}
	}
	for _, n := range b.nodes {
		v := values[n]
		if v != nil && (outputs == nil && v.Def != nil || slices.Contains(outputs, n.id)) {
			g.Outputs = append(g.Outputs, v)
		}
	}
	return g, values, ir.InferGraph(g, ir.InferOptions{})
}

// node adds the operation to g.
func (op *operation) node(g *ir.Graph, index int, values map[*Node]*ir.Value) error {
	spec := ir.NodeSpec{Name: g.Fresh(fmt.Sprintf("%s_%d", op.Name, index)), Op: op.Name, Loc: ir.Loc{File: "onnx-go", Path: "graph", Index: index}}
	for _, domain := range []string{ir.OnnxDomain, ir.MsDomain, ir.TrainingDomain} {
		if ir.Lookup(domain, op.Name) != nil {
			spec.Domain = domain
			break
		}
	}
	if ir.Lookup(spec.Domain, op.Name) == nil {
		return &onnx.ErrNotImplemented{Operator: op.Name, Message: "memoc does not know it"}
	}
	if spec.Domain != ir.OnnxDomain {
		spec.Version = 1
	}
	var err error
	if spec.Attrs, err = attributes(op.Attributes); err != nil {
		return fmt.Errorf("operator %s: %w", op.Name, err)
	}
	var from *Node
	for _, n := range op.outs {
		name := n.name
		if name != "" && from == nil {
			from = n
		}
		spec.Out = append(spec.Out, name)
	}
	if from == nil {
		return nil // no output is asked for
	}
	ins := slices.Clone(from.ins)
	slices.SortStableFunc(ins, func(x, y edge) int { return int(x.pos) - int(y.pos) })
	for _, e := range ins {
		v := values[e.to]
		if v == nil && e.to.name != "" && len(ins) > 1 {
			return fmt.Errorf("operator %s reads %q, which has no value", op.Name, e.to.name)
		}
		spec.In = append(spec.In, v) // nil: absent, or the input that onnx-go invents for an operator without one
	}
	for len(spec.In) > 0 && spec.In[len(spec.In)-1] == nil {
		spec.In = spec.In[:len(spec.In)-1]
	}
	n := g.Append(spec)
	for i, out := range op.outs {
		if n.Out[i] != nil {
			values[out] = n.Out[i]
		}
	}
	return nil
}

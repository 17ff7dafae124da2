package ops

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"memoc/ir"
)

// mode is how much of a sample's inputs inference is told.
type mode int

const (
	asConstants   mode = iota // every input is an initializer
	asInputs                  // graph inputs with static shapes
	ownSymbols                // float inputs: one symbol for each dim of each input; others constant
	sharedSymbols             // float inputs: equal extents above 1 are one symbol; others constant
	unranked                  // graph inputs of unknown rank
)

func (m mode) String() string {
	return [...]string{"constants", "static inputs", "a symbol for each dim", "a symbol for each extent", "unknown ranks"}[m]
}

// built is a graph around one node made from a sample.
type built struct {
	graph      *ir.Graph
	node       *ir.Node
	mode       mode
	args       []ir.Datum        // of node, nil for absent ones
	env        map[string]ir.Dim // values of the symbols
	seed, step uint64
}

func absent(s ir.Sample, i int) bool { return slices.Contains(s.Absent, i) || s.In[i] == nil }

// opsets are the versions a graph around a sample imports; opset is the
// default domain's, 0 for the newest.
func opsets(op *ir.Op, s ir.Sample, opset int) map[string]int {
	v := s.Version
	newest := op.Since[len(op.Since)-1]
	sets := map[string]int{ir.OnnxDomain: max(newestOpset, newest), ir.MsDomain: 1, ir.MemocDomain: 1}
	if op.Domain != ir.OnnxDomain {
		sets[ir.OnnxDomain] = newestOpset
		sets[op.Domain] = newest
	}
	if v != 0 {
		sets[op.Domain] = v
	}
	if opset != 0 {
		sets[ir.OnnxDomain] = opset
	}
	return sets
}

// numOut is how many outputs a sample asks for.
func numOut(op *ir.Op, s ir.Sample) int {
	if s.NumOut > 0 {
		return s.NumOut
	}
	n := 0
	for _, p := range op.Out {
		if !p.Optional {
			n++
		}
	}
	return n
}

// build makes the graph of one node and infers it.
func build(op *ir.Op, s ir.Sample, m mode) (*built, error) { return buildAt(op, s, m, 0) }

func buildAt(op *ir.Op, s ir.Sample, m mode, opset int) (*built, error) {
	g := ir.NewGraph("sample", opsets(op, s, opset))
	b := &built{graph: g, mode: m, env: map[string]ir.Dim{}, seed: 1, step: 2}
	in := make([]*ir.Value, len(s.In))
	for i, x := range s.In {
		if seq, ok := s.Seqs[i]; ok {
			in[i] = g.AddInput(fmt.Sprintf("in%d", i), sequenceType(seq, m))
			b.args = append(b.args, seq)
			continue
		}
		if absent(s, i) {
			b.args = append(b.args, nil)
			continue
		}
		in[i] = b.addInput(fmt.Sprintf("in%d", i), x)
		b.args = append(b.args, x)
	}
	var out []string
	for i := range numOut(op, s) {
		out = append(out, fmt.Sprintf("out%d", i))
	}
	b.node = g.Append(ir.NodeSpec{Name: "node", Domain: op.Domain, Op: op.Name, In: in, Out: out, Attrs: slices.Clone(s.Attrs)})
	b.node.Decl = op // which is not the registered one where a test plants a fault
	return b, ir.InferNode(g, b.node)
}

// sequenceType is what is known of a sequence of tensors: the extents that all
// elements share.
func sequenceType(seq ir.Sequence, m mode) ir.Type {
	first := seq[0].(*ir.Tensor)
	shape := ir.Ints64(first.Dims...)
	for _, d := range seq {
		if x := d.(*ir.Tensor); m == unranked || !slices.Equal(x.Dims, first.Dims) {
			shape = ir.Shape{}
		}
	}
	return ir.SequenceOf(ir.TensorOf(first.DType, shape))
}

func (b *built) addInput(name string, x *ir.Tensor) *ir.Value {
	t := x.Type()
	symbols := b.mode == ownSymbols || b.mode == sharedSymbols
	switch {
	case b.mode == asConstants || symbols && !x.DType.IsFloat():
		return b.graph.AddInit(name, ir.WeightOf(x))
	case b.mode == unranked:
		t.Shape = ir.Shape{}
	case symbols:
		dims := make([]ir.Dim, len(x.Dims))
		for a, n := range x.Dims {
			sym := fmt.Sprintf("%s_%d", name, a)
			if b.mode == sharedSymbols {
				sym = fmt.Sprintf("n%d", n)
			}
			if b.mode == sharedSymbols && n == 1 {
				dims[a] = ir.N(1)
				continue
			}
			dims[a] = ir.Sym(sym)
			b.env[sym] = ir.N(n)
		}
		t.Shape = ir.Dims(dims...)
	}
	return b.graph.AddInput(name, t)
}

func mustBuild(t testing.TB, op *ir.Op, s ir.Sample, m mode) *built {
	t.Helper()
	b, err := build(op, s, m)
	if err != nil {
		t.Fatalf("inference with %s: %v", m, err)
	}
	return b
}

// eval runs the node alone on its arguments.
func (b *built) eval() ([]ir.Datum, error) {
	env := map[*ir.Value]ir.Datum{}
	for i, v := range b.node.In {
		if v != nil {
			env[v] = b.args[i]
		}
	}
	if err := b.evalNode(b.node, env); err != nil {
		return nil, err
	}
	out := make([]ir.Datum, len(b.node.Out))
	for i, v := range b.node.Out {
		if v != nil {
			out[i] = env[v]
		}
	}
	return out, nil
}

// evalGraph runs all nodes; env holds the inputs and receives every value.
func (b *built) evalGraph(g *ir.Graph, env map[*ir.Value]ir.Datum) error {
	for _, n := range g.Nodes {
		if err := b.evalNode(n, env); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	return nil
}

func (b *built) evalNode(n *ir.Node, env map[*ir.Value]ir.Datum) error {
	in := make([]ir.Datum, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		d, ok := env[v]
		if !ok && v.Init != nil {
			x, err := v.Init.Tensor()
			if err != nil {
				return err
			}
			d, ok = x, true
		}
		if !ok {
			return fmt.Errorf("value %q is not defined", v.Name)
		}
		in[i] = d
	}
	c := ir.NewEvalCtx(n, in)
	c.Random = ir.RandomStream{Seed: ir.RandomKey(b.seed, n.OriginName()), Step: b.step}
	c.Subgraph = func(g *ir.Graph, args []ir.Datum) ([]ir.Datum, error) {
		for i, v := range g.Inputs {
			if i < len(args) {
				env[v] = args[i]
			}
		}
		if err := b.evalGraph(g, env); err != nil {
			return nil, err
		}
		out := make([]ir.Datum, len(g.Outputs))
		for i, v := range g.Outputs {
			out[i] = env[v]
			if x := v.Init; out[i] == nil && x != nil {
				out[i], _ = x.Tensor()
			}
		}
		return out, nil
	}
	out, err := ir.EvalNode(c)
	if err != nil {
		return err
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		if i >= len(out) || out[i] == nil {
			return fmt.Errorf("evaluation leaves output %d unset", i)
		}
		env[v] = out[i]
	}
	return nil
}

func mustEval(t testing.TB, b *built) []ir.Datum {
	t.Helper()
	before := make([][]byte, len(b.args))
	for i, d := range b.args {
		if x, ok := d.(*ir.Tensor); ok {
			before[i] = slices.Clone(x.Data)
		}
	}
	out, err := b.eval()
	if err != nil {
		t.Fatalf("evaluation: %v", err)
	}
	for i, d := range b.args {
		if x, ok := d.(*ir.Tensor); ok && !bytes.Equal(before[i], x.Data) {
			t.Errorf("evaluation changes input %d", i)
		}
	}
	return out
}

func sameBits(a, b ir.Datum) bool {
	x, ok := a.(*ir.Tensor)
	y, ok2 := b.(*ir.Tensor)
	if !ok || !ok2 {
		return ok == ok2
	}
	return x.DType == y.DType && slices.Equal(x.Dims, y.Dims) && bytes.Equal(x.Data, y.Data) && slices.Equal(x.Strings, y.Strings)
}

// tolerance is relative to the larger of an element and the largest element:
// a few roundings of the type, as kernels sum in their own order.
func tolerance(d ir.DType) float64 {
	switch d {
	case ir.Double:
		return 1e-11
	case ir.Float:
		return 2e-6
	case ir.Float16:
		return 2e-3
	case ir.BFloat16:
		return 1.6e-2
	}
	return 0
}

// compare says how got differs from want, "" if it does not.
func compare(got, want *ir.Tensor, tol float64) string {
	if got.DType != want.DType || !slices.Equal(got.Dims, want.Dims) {
		return fmt.Sprintf("got %s, want %s", got.Type(), want.Type())
	}
	if got.DType == ir.String {
		if !slices.Equal(got.Strings, want.Strings) {
			return fmt.Sprintf("got %q, want %q", got.Strings, want.Strings)
		}
		return ""
	}
	if !got.DType.IsFloat() {
		if !bytes.Equal(got.Data, want.Data) {
			return fmt.Sprintf("got bytes %x, want %x", head(got.Data), head(want.Data))
		}
		return ""
	}
	return compareFloats(got.Floats(), want.Floats(), tol)
}

func head(data []byte) []byte { return data[:min(len(data), 64)] }

func compareFloats(got, want []float64, tol float64) string {
	scale := 0.0
	for _, w := range want {
		if !math.IsInf(w, 0) && !math.IsNaN(w) {
			scale = max(scale, math.Abs(w))
		}
	}
	for i, w := range want {
		g := got[i]
		if g == w || g != g && w != w {
			continue
		}
		if !(math.Abs(g-w) <= tol*max(scale, 1)) || math.IsInf(w, 0) {
			return fmt.Sprintf("element %d is %v, want %v (all: %v, want %v)", i, g, w, got[:min(len(got), 24)], want[:min(len(want), 24)])
		}
	}
	return ""
}

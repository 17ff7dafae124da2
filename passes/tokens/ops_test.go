package tokens_test

import (
	"fmt"
	"slices"
	"testing"

	"memoc/ir"
	_ "memoc/ir/ops"
	"memoc/passes/tokens"
)

// TestOperators runs every operator's samples by token along every axis there
// is: on ranges of it they must give ranges of the output. Extents that are
// products come from inputs in which the factors are dimensions of their own,
// so that batch rows lie outside and parts of heads inside of the tokens.
func TestOperators(t *testing.T) {
	ran, merged := map[string]int{}, 0
	for _, op := range ir.Operators() {
		name := ir.FullOp(op.Domain, op.Name)
		t.Run(name, func(t *testing.T) {
			for _, s := range op.Samples() {
				if len(s.Seqs) > 0 || slices.ContainsFunc(s.Attrs, func(a ir.Attr) bool { return a.G != nil }) {
					continue
				}
				for _, whole := range []bool{true, false} {
					g := sampleGraph(op, s, whole)
					if g == nil {
						continue
					}
					vals := runOn(t, g, inputsOf(s, g))
					for _, i := range tokens.Each(g) {
						merged += mergedNodes(i, g)
						if ran[name] += checkRanges(t, i, g, vals, cutsOf(i.Tokens())); t.Failed() {
							t.Fatalf("sample %q, %d tokens", s.Name, i.Tokens())
						}
					}
				}
			}
		})
	}
	if merged < 100 {
		t.Errorf("%d nodes ran along a factor of a dimension", merged)
	}
	for _, name := range []string{"MatMul", "Gemm", "Add", "Gelu", "LayerNormalization", "RMSNormalization", "Softmax", "Reshape",
		"Transpose", "Expand", "Slice", "Concat", "Split", "Gather", "Einsum", "Where", "Cast", "ReduceSum", "ai.memoc::FlashAttention",
		"ai.memoc::FlashAttentionGrad", "ai.memoc::SoftmaxGrad", "com.microsoft::BiasGelu", "com.microsoft::FusedMatMul"} {
		if ran[name] == 0 {
			t.Errorf("%s was never run by token", name)
		}
	}
}

// TestBadNodes: nodes with an input less, or of unknown shape, are no reason to
// panic.
func TestBadNodes(t *testing.T) {
	for _, op := range ir.Operators() {
		t.Run(ir.FullOp(op.Domain, op.Name), func(t *testing.T) {
			for _, s := range op.Samples() {
				if len(s.Seqs) > 0 {
					continue
				}
				for k := range s.In {
					less := s
					less.In = slices.Clone(s.In)
					less.In[k] = nil
					lookAt(sampleGraph(op, less, true))
					less.In = s.In[:k]
					lookAt(sampleGraph(op, less, true))
					less.In = append(slices.Clone(s.In), s.In[k])
					lookAt(sampleGraph(op, less, true))
					if g := sampleGraph(op, s, true); g != nil {
						for _, v := range slices.Concat(g.Inputs, g.Inits, g.Outputs) {
							if v != nil {
								v.Type.Shape = ir.Shape{}
								lookAt(g)
							}
						}
					}
				}
			}
		})
	}
}

func lookAt(g *ir.Graph) {
	if g == nil {
		return
	}
	for _, i := range append(tokens.Each(g), tokens.Find(g)) {
		for _, n := range g.Nodes {
			i.Why(n)
		}
	}
}

// mergedNodes is how many nodes run by tokens that are but a factor of a
// dimension of the output.
func mergedNodes(i *tokens.Info, g *ir.Graph) (n int) {
	for _, node := range g.Nodes {
		if _, ok := i.Range(node); ok {
			if a, _ := i.Axis(node.Out[0]); node.Name == "node" && a.Outer*a.Inner > 1 {
				n++
			}
		}
	}
	return n
}

// sampleGraph is a graph of the sample's node with float inputs as inputs and
// all else constant; nil if it is not valid as such. In parts, every input
// dimension that is a product is given as two dimensions and merged.
func sampleGraph(op *ir.Op, s ir.Sample, whole bool) *ir.Graph {
	sets := map[string]int{ir.OnnxDomain: max(24, op.Since[len(op.Since)-1]), ir.MsDomain: 1, ir.MemocDomain: 1}
	if op.Domain != ir.OnnxDomain {
		sets[op.Domain] = op.Since[len(op.Since)-1]
	}
	if s.Version != 0 {
		sets[op.Domain] = s.Version
	}
	g := ir.NewGraph("sample", sets)
	in := make([]*ir.Value, len(s.In))
	for k, x := range s.In {
		name := fmt.Sprintf("in%d", k)
		switch {
		case x == nil || slices.Contains(s.Absent, k):
		case !x.DType.IsFloat():
			in[k] = g.AddInit(name, ir.WeightOf(x))
		case whole:
			in[k] = g.AddInput(name, x.Type())
		default:
			v := g.AddInput(name, x.Reshaped(partsOf(x.Dims)...).Type())
			shape := g.AddInit(name+".shape", ir.WeightOf(ir.FromInts(ir.Int64, x.Dims, int64(len(x.Dims)))))
			in[k] = appended(g, ir.NodeSpec{Op: "Reshape", Name: name + ".merge", In: []*ir.Value{v, shape}, Out: []string{name + ".merged"}, Version: 13})
		}
	}
	outs := max(s.NumOut, len(slices.DeleteFunc(slices.Clone(op.Out), func(p ir.Port) bool { return p.Optional })))
	spec := ir.NodeSpec{Name: "node", Domain: op.Domain, Op: op.Name, In: in, Attrs: s.Attrs}
	for o := range outs {
		spec.Out = append(spec.Out, fmt.Sprintf("out%d", o))
	}
	if appended(g, spec) == nil && outs > 0 {
		return nil
	}
	for _, n := range g.Nodes {
		if n.Name == "node" {
			g.Outputs = n.Out
		}
	}
	return g
}

// appended is the first output of a new node, nil if it is not valid.
func appended(g *ir.Graph, s ir.NodeSpec) *ir.Value {
	n := g.Append(s)
	if err := ir.InferNode(g, n); err != nil || len(n.Out) == 0 {
		return nil
	}
	return n.Out[0]
}

// partsOf parts every dimension that is a product in two.
func partsOf(dims []int64) (out []int64) {
	for _, d := range dims {
		f := int64(2)
		for f < d && d%f != 0 {
			f++
		}
		if d < 4 || f >= d {
			out = append(out, d)
			continue
		}
		out = append(out, f, d/f)
	}
	return out
}

func inputsOf(s ir.Sample, g *ir.Graph) map[string]ir.Datum {
	in := map[string]ir.Datum{}
	for _, v := range g.Inputs {
		var k int
		fmt.Sscanf(v.Name, "in%d", &k)
		dims, _ := v.Type.Shape.Static()
		in[v.Name] = s.In[k].Reshaped(dims...)
	}
	return in
}

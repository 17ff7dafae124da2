package conformance

import (
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/mutate"
	"memoc/ir/onnx"
)

func FuzzInfer(f *testing.F) { mutate.Explore(f, samples(), inferEnds) }

func TestInferMutated(t *testing.T) {
	mutate.Test(t, "FuzzInfer", samples(), 25, inferEnds, mutate.Messages, mutate.Messages, mutate.Messages)
}

// samples are the samples of all operators.
func samples() (seeds [][]byte) {
	for _, op := range ir.Operators() {
		for _, s := range op.Samples() {
			if b, err := sampleModel(op, s); err == nil && len(b) < 1<<12 {
				seeds = append(seeds, b)
			}
		}
	}
	return seeds
}

// inferEnds: whatever a file holds, reading, inlining and shape inference end
// in a sound graph or in an error, never in a panic.
func inferEnds(b []byte) (accepted bool, wrong error) {
	m, _, err := onnx.Decode(b, "", onnx.Options{})
	if err != nil || ir.Inline(m) != nil {
		return false, nil
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{Report: func(*diag.Diagnostic) {}}); err != nil {
		return true, nil // nothing is done with such a graph
	}
	return true, ir.Verify(m.Graph)
}

// sampleModel is a model of one node. Small integer inputs are initializers,
// so that rules that ask for values find them; the others are inputs.
func sampleModel(op *ir.Op, s ir.Sample) ([]byte, error) {
	version := s.Version
	if version == 0 {
		version = op.Since[len(op.Since)-1]
	}
	g := ir.NewGraph("g", map[string]int{op.Domain: version})
	spec := ir.NodeSpec{Name: "n", Domain: op.Domain, Op: op.Name, Attrs: s.Attrs}
	absent := map[int]bool{}
	for _, i := range s.Absent {
		absent[i] = true
	}
	for i, t := range s.In {
		switch name := g.Fresh("x"); {
		case absent[i] || t == nil:
			spec.In = append(spec.In, nil)
		case t.DType.IsInt():
			spec.In = append(spec.In, g.AddInit(name, ir.WeightOf(t)))
		default:
			spec.In = append(spec.In, g.AddInput(name, t.Type()))
		}
	}
	for range max(s.NumOut, 1) {
		spec.Out = append(spec.Out, g.Fresh("y"))
	}
	g.Outputs = g.Append(spec).Out
	return onnx.Encode(&ir.Model{IRVersion: 9, Opsets: g.Opsets, Graph: g})
}

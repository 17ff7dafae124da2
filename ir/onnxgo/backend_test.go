package onnxgo_test

import (
	"slices"
	"testing"

	goonnx "github.com/owulveryck/onnx-go"
	"gorgonia.org/tensor"

	"memoc/ir"
	"memoc/ir/onnx"
	"memoc/ir/onnxgo"
	_ "memoc/ir/ops"
)

// program is y = (x + w) * (x + w): an operand that is read twice.
func program(t *testing.T) []byte {
	t.Helper()
	g := ir.NewGraph("g", map[string]int{"": 13})
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Ints64(2)))
	w := g.AddInit("w", ir.WeightOf(ir.FromFloats(ir.Float, []float64{1, 2}, 2)))
	sum := g.Append(ir.NodeSpec{Name: "sum", Op: "Add", In: []*ir.Value{x, w}, Out: []string{"s"}}).Out[0]
	g.Outputs = g.Append(ir.NodeSpec{Name: "square", Op: "Mul", In: []*ir.Value{sum, sum}, Out: []string{"y"}}).Out
	g.Outputs[0].Type = x.Type
	b, err := onnx.Encode(&ir.Model{IRVersion: 7, Opsets: g.Opsets, Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRunThroughOnnxGo(t *testing.T) {
	b := onnxgo.New(13)
	m := goonnx.NewModel(b)
	if err := m.UnmarshalBinary(program(t)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ x, y []float32 }{{[]float32{2, 3}, []float32{9, 25}}, {[]float32{-1, 0}, []float32{0, 4}}} {
		if err := m.SetInput(0, tensor.New(tensor.WithShape(2), tensor.WithBacking(c.x))); err != nil {
			t.Fatal(err)
		}
		if err := b.Run(); err != nil {
			t.Fatal(err)
		}
		out, err := m.GetOutputTensors()
		if err != nil {
			t.Fatal(err)
		}
		if got := out[0].Data().([]float32); !slices.Equal(got, c.y) {
			t.Errorf("got %v, want %v", got, c.y)
		}
	}
	g, err := b.Graph(m.Input, m.Output)
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.Verify(g); err != nil {
		t.Fatal(err)
	}
	if len(g.Inputs) != 1 || len(g.Inits) != 1 || len(g.Outputs) != 1 || g.Outputs[0].Name != "y" || len(g.Nodes) != 2 {
		t.Errorf("got %s", ir.PrintGraph(g, ir.TextOptions{}))
	}
}

package ops

import (
	"testing"

	"memoc/ir"
)

// Gradients in old operator sets are made of what these have: Gemm has its C
// always before opset 11, Sign came with opset 9.
func TestGradientsInOldOpsets(t *testing.T) {
	for _, op := range []string{"MatMul", "Gemm", "Abs"} {
		for _, opset := range []int{7, 8, 9, 10, 11} {
			g := ir.NewGraph("old", map[string]int{"": opset, ir.MsDomain: 1, ir.MemocDomain: 1})
			in := []*ir.Value{g.AddInput("a", ir.TensorOf(ir.Float, ir.Ints64(2, 3)))}
			switch op {
			case "Gemm":
				in = append(in, g.AddInput("b", ir.TensorOf(ir.Float, ir.Ints64(3, 4))), g.AddInput("c", ir.TensorOf(ir.Float, ir.Ints64(4))))
			case "MatMul":
				in = append(in, g.AddInput("b", ir.TensorOf(ir.Float, ir.Ints64(3, 4))))
			}
			n := g.Append(ir.NodeSpec{Name: "n", Op: op, In: in, Out: []string{"y"}})
			if err := ir.InferNode(g, n); err != nil {
				t.Fatal(err)
			}
			dy := g.AddInput("dy", n.Out[0].Type)
			needs := make([]bool, len(in))
			for i := range needs {
				needs[i] = true
			}
			if err := n.Decl.Grad.Rule(ir.NewGradCtx(ir.NewBuilder(ir.NewEdit(g)), n, []*ir.Value{dy}, needs)); err != nil {
				t.Fatalf("%s at opset %d: %v", op, opset, err)
			}
			for _, m := range g.Nodes[1:] {
				if m.Decl.Younger(opset) {
					t.Errorf("%s at opset %d: the gradient has %s", op, opset, m)
				}
				if m.Op == "Gemm" && opset < 11 && len(m.In) < 3 {
					t.Errorf("%s at opset %d: the gradient has a Gemm without C", op, opset)
				}
			}
		}
	}
}

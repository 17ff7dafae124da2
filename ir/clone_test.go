package ir_test

import (
	"testing"

	"memoc/ir"
)

// A clone prints as the original and verifies; editing it, also inside of a
// subgraph, leaves the original as it was.
func TestClone(t *testing.T) {
	m, err := ir.Parse("clone", `<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3] x, bool c) => (float[2,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,9}> {
  [mul] a = MatMul (x, w)
  [if] y = If (c) <then_branch = t () => (float[2,3] p) { [neg] p = Neg (a) }, else_branch = e () => (float[2,3] q) { [exp] q = Exp (a) }>
}`)
	if err != nil {
		t.Fatal(err)
	}
	g := m.Graph
	before := ir.PrintGraph(g, ir.TextOptions{})
	h := g.Clone()
	if got := ir.PrintGraph(h, ir.TextOptions{}); got != before {
		t.Errorf("the clone is\n%s\nof\n%s", got, before)
	}
	if err := ir.VerifyStructure(h); err != nil {
		t.Error(err)
	}
	e := ir.NewEdit(h)
	n := e.InsertBefore(h.Nodes[1], ir.NodeSpec{Name: h.Fresh("tanh"), Op: "Tanh", In: []*ir.Value{h.Nodes[0].Out[0]}, Out: []string{h.Fresh("b")}})
	e.ReplaceCapture(h.Nodes[1], h.Nodes[0].Out[0], n.Out[0])
	e.Done()
	if err := ir.VerifyStructure(h); err != nil {
		t.Error(err)
	}
	if err := ir.VerifyStructure(g); err != nil {
		t.Error(err)
	}
	if got := ir.PrintGraph(g, ir.TextOptions{}); got != before {
		t.Errorf("editing the clone made of the original\n%s", got)
	}
	if g.Fresh("tanh") != "tanh" {
		t.Error("a name of the clone is taken in the original")
	}
}

package ir

import "testing"

// TestFollowAllOfSymbols: of N against M nobody knows which is broadcast, so
// nothing may be claimed; an axis that both share follows both.
func TestFollowAllOfSymbols(t *testing.T) {
	g := NewGraph("g", map[string]int{OnnxDomain: 20})
	a := g.AddInput("a", TensorOf(Float, Dims(Sym("N"), Sym("T"), N(1))))
	b := g.AddInput("b", TensorOf(Float, Dims(Sym("M"), Sym("T"), N(4))))
	n := g.Append(NodeSpec{Name: "n", Op: "NoSuchOperator", In: []*Value{a, b}, Out: []string{"c"}})
	n.Out[0].Type = TensorOf(Float, Dims(g.FreshDim(), Sym("T"), N(4)))
	got := FollowAll(n).Out[0]
	if got[0] != nil {
		t.Errorf("axis 0: %v claimed of N against M", got[0])
	}
	if len(got[1]) != 2 {
		t.Errorf("axis 1: %v, want links to both inputs", got[1])
	}
	if len(got[2]) != 1 || got[2][0].In != 1 {
		t.Errorf("axis 2: %v, want a link to b alone", got[2])
	}
}

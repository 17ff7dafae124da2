package eval

import (
	"bytes"
	"testing"

	"memoc/ir"
)

// A token input that reaches a Gather through a Cast and a shift stays within
// the table, also where the Gather is inside a subgraph.
func TestRandomInputsStayInRange(t *testing.T) {
	g := newGraph()
	ints := func(name string, n int64) *ir.Value {
		return g.AddInput(name, ir.TensorOf(ir.Int64, ir.Ints64(n)))
	}
	table := g.AddInput("table", ir.TensorOf(ir.Float, ir.Ints64(5, 2)))
	scores := g.AddInput("scores", ir.TensorOf(ir.Float, ir.Ints64(200, 3)))
	ids, mask, labels, inner, free := ints("ids", 200), ints("attention_mask", 200), ints("labels", 200), ints("inner", 200), ints("free", 200)
	cast := g.Append(ir.NodeSpec{Name: "cast", Op: "Cast", In: []*ir.Value{ids}, Out: []string{"cast_out"}})
	g.Append(ir.NodeSpec{Name: "gather", Op: "Gather", In: []*ir.Value{table, cast.Out[0]}, Out: []string{"e"}})
	g.Append(ir.NodeSpec{Name: "loss", Op: "SoftmaxCrossEntropyLoss", In: []*ir.Value{scores, labels}, Out: []string{"l"}})
	sub := g.NewSubgraph("then")
	sub.Append(ir.NodeSpec{Name: "in_gather", Op: "Gather", In: []*ir.Value{scores, inner}, Out: []string{"f"},
		Attrs: []ir.Attr{ir.IntAttr("axis", -1)}})
	n := g.Append(ir.NodeSpec{Name: "if", Op: "If", Out: []string{"h"}, Attrs: []ir.Attr{{Name: "then_branch", Kind: ir.AttrGraph, G: sub}}})
	n.SetCaptures([]*ir.Value{scores, inner})
	in, err := RandomInputs(g, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v      *ir.Value
		lo, hi int64
	}{{ids, 0, 5}, {mask, 0, 2}, {labels, 0, 3}, {inner, 0, 3}, {free, 1, 8}} {
		seen := map[int64]bool{}
		for _, x := range in[c.v.Name].(*ir.Tensor).Ints() {
			seen[x] = true
			if x < c.lo || x >= c.hi {
				t.Fatalf("%s holds %d, outside [%d,%d)", c.v.Name, x, c.lo, c.hi)
			}
		}
		if len(seen) != int(c.hi-c.lo) {
			t.Errorf("%s takes %d values of [%d,%d)", c.v.Name, len(seen), c.lo, c.hi)
		}
	}
	again, err := RandomInputs(g, 7)
	if err != nil {
		t.Fatal(err)
	}
	other, err := RandomInputs(g, 8)
	if err != nil {
		t.Fatal(err)
	}
	data := func(m map[string]ir.Datum) []byte { return m["scores"].(*ir.Tensor).Data }
	if !bytes.Equal(data(in), data(again)) || bytes.Equal(data(in), data(other)) {
		t.Error("values must depend on the seed and on nothing else")
	}
}

func TestRandomInputsNameTheFreeDim(t *testing.T) {
	g := newGraph()
	g.AddInput("x", ir.TensorOf(ir.Float, ir.Dims(ir.Sym("seq"))))
	_, err := RandomInputs(g, 1)
	wantError(t, err, `"x"`, `"seq"`)
}

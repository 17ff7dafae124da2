package eval

import (
	"bytes"
	"strings"
	"testing"

	"memoc/ir"
)

// formsText holds what a plan treats in ways of their own: a constant that is
// loaded once, a view that is a step with a place of its own, a loop that
// captures a planned tensor, a tensor without elements, one that only inference
// reads, and a weight that no step reads from an arena.
const formsText = `g (float[64] x, float[0] nothing) => (float[64] y, float[0] z, float[64] x)
<float[64] w = ["elided": "64 elements"], float[64] c, int64[2] dims, float[8,8] v, float[8,8] s, int64[2] shape, float[64] f,
 float[64] l> {
  [c] c = ConstantOfShape <value = float[1] {2.5}> (n)
  [v] v = Reshape (x, dims)
  [s] s = Add (v, v)
  [shape] shape = Shape (s)
  [f] f = Reshape (s, flat)
  [l] l = test.eval.Repeat (three, f) <body = b (float[64] p) => (float[64] q) { [q] q = Add (p, f) }>
  [y0] y0 = Add (l, c)
  [y] y = Add (y0, w)
  [z] z = Add (nothing, nothing)
}`

func formsGraph(t *testing.T) *ir.Graph {
	t.Helper()
	text := strings.Replace(formsText, `float[64] c,`, `int64[1] n = {64}, int64[1] flat = {64}, int64 three = {3}, int64[2] dims = {8,8}, float[64] y0, float[64] c,`, 1)
	text = strings.Replace(text, ` int64[2] dims, float[8,8] v`, ` float[8,8] v`, 1)
	g, err := ir.ParseGraph("t", text, map[string]int{"": 17, testDomain: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.Inits[0].Init = ir.WeightOf(testInput()["x"].(*ir.Tensor))
	if err := ir.InferGraph(g, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	return g
}

func formsProgram(t *testing.T) *maker {
	m := newMaker(formsGraph(t))
	m.p.Arenas = m.p.Arenas[:1]
	m.at(0, 0, ir.Persistent, 0, 6, "x")
	m.at(0, 256, ir.Persistent, 0, 6, "c")
	m.at(0, 512, ir.Transient, 0, 2, "v")
	m.at(0, 768, ir.Skeletal, 1, 3, "s", "f")
	m.at(0, 512, ir.Transient, 2, 5, "l", "y0")
	m.at(0, 1024, ir.Output, 4, 6, "y")
	for _, n := range []string{"v", "s", "l", "y0", "y"} {
		m.add(0, n)
		s := m.at2(n)
		kept := s.Reads[:0]
		for _, a := range s.Reads {
			if a.Buffer >= 0 {
				kept = append(kept, a)
			}
		}
		s.Reads = kept
	}
	m.p.Steps = append(m.p.Steps, ir.Step{Node: m.nodes["z"], Workspace: -1})
	return m
}

func TestProgramForms(t *testing.T) {
	in := testInput()
	in["nothing"] = ir.NewTensor(ir.Float, 0)
	want, err := Graph(formsGraph(t), in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for order := range uint64(8) {
		got, err := Program(formsProgram(t).p, in, Options{Order: order, Steps: 2})
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			d, ok := got[name].(*ir.Tensor)
			if !ok || !bytes.Equal(d.Data, w.(*ir.Tensor).Data) {
				t.Errorf("order %d: output %s differs", order, name)
			}
		}
	}
}

// A capture is a read like any other, and a loose tensor is one that nobody
// made.
func TestProgramFormsFaults(t *testing.T) {
	in := testInput()
	in["nothing"] = ir.NewTensor(ir.Float, 0)
	for _, c := range []struct {
		says  string
		plant func(m *maker)
	}{
		{`reads tensor "f", but does not state`, func(m *maker) { m.at2("l").Reads = nil }},
		{`gives it no bytes`, func(m *maker) { m.p.Places[m.values["y0"].ID].Buffer = -1; m.at2("y").Reads = nil }},
		{`hold tensor "x"`, func(m *maker) { m.p.Buffers[m.buffer["x"]].Offset = 256 }},
	} {
		m := formsProgram(t)
		c.plant(m)
		_, err := Program(m.p, in, Options{})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %s", err, c.says)
		}
	}
}

package eval

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
)

// The step of the tests: a and s leave for host memory through one slot after
// the other, b takes a's bytes meanwhile, and both come back.
//
//	a = x + w     step 0
//	a.out         step 1   out lane
//	s = a + a     step 2   view of a: r
//	b = s + w     step 3   in a's bytes, once a.out has ended
//	s.out         step 4   out lane
//	u = b + b     step 5   in s's bytes, once s.out has ended
//	a.in          step 6   in lane, where b was
//	y = u + a.in  step 7
//	s.in          step 8   in lane, where a.in was, through a slot of its own
//	z = y + s.in  step 9   writes over y in place; has a workspace
const programText = `g (float[64] x) => (float[64] z)
<float[64] w = ["elided": "64 elements"], float[64] a, float[64] ao, float[8,8] r, float[64] rr, float[64] s, float[64] b,
 float[64] so, float[64] u, float[64] ai, float[64] y, float[64] si, int64[2] k, int64[1] kk> {
  [k] k = Constant <value = int64[2] {8,8}> ()
  [kk] kk = Constant <value = int64[1] {64}> ()
  [a] a = Add (x, w)
  ["a.out"] ao = ai.memoc.SwapOut (a)
  [r] r = Reshape (a, k)
  [rr] rr = Reshape (r, kk)
  [s] s = Add (a, rr)
  [b] b = Add (s, w)
  ["s.out"] so = ai.memoc.SwapOut (s)
  [u] u = Add (b, b)
  ["a.in"] ai = ai.memoc.SwapIn (ao)
  [y] y = Add (u, ai)
  ["s.in"] si = ai.memoc.SwapIn (so)
  [z] z = Add (y, si)
}`

// plainText is the step before planning.
const plainText = `g (float[64] x) => (float[64] z)
<float[64] w = ["elided": "64 elements"], float[64] a, float[64] s, float[64] b, float[64] u, float[64] y> {
  [a] a = Add (x, w)
  [s] s = Add (a, a)
  [b] b = Add (s, w)
  [u] u = Add (b, b)
  [y] y = Add (u, a)
  [z] z = Add (y, s)
}`

const tensorSize = 256

func parsed(t *testing.T, text string) *ir.Graph {
	t.Helper()
	g, err := ir.ParseGraph("t", text, map[string]int{"": 17, ir.MemocDomain: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := ir.NewTensor(ir.Float, 64)
	for i, d := 0, ir.View[float32](w); i < len(d); i++ {
		d[i] = float32(i)*0.37 - 5
	}
	g.Inits[0].Init = ir.WeightOf(w)
	if err := ir.InferGraph(g, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	return g
}

// maker lays out a Program by names.
type maker struct {
	p      *ir.Program
	values map[string]*ir.Value
	nodes  map[string]*ir.Node
	buffer map[string]int
	step   map[string]int
}

func newMaker(g *ir.Graph) *maker {
	m := &maker{values: map[string]*ir.Value{}, nodes: map[string]*ir.Node{}, buffer: map[string]int{}, step: map[string]int{}}
	m.p = &ir.Program{Graph: g, Arenas: []ir.Arena{{Name: "device", Size: 2048}, {Name: "host", Size: 512}},
		Lanes: []ir.Lane{{Name: "compute"}, {Name: "out"}, {Name: "in"}}, Places: make([]ir.Place, g.NumValues())}
	for i := range m.p.Places {
		m.p.Places[i].Buffer = -1
	}
	for _, vs := range [][]*ir.Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			m.values[v.Name] = v
		}
	}
	for _, n := range g.Nodes {
		m.nodes[n.Name] = n
		m.values[n.Out[0].Name] = n.Out[0]
	}
	return m
}

// at places values (the first names the buffer) at an offset for steps
// [first, end).
func (m *maker) at(arena int, offset int64, class ir.Class, first, end int, values ...string) {
	m.buffer[values[0]] = len(m.p.Buffers)
	for _, v := range values {
		m.p.Places[m.values[v].ID] = ir.Place{Buffer: len(m.p.Buffers), Size: tensorSize}
	}
	m.p.Buffers = append(m.p.Buffers, ir.Buffer{Name: values[0], Arena: arena, Offset: offset, Size: tensorSize, First: first, End: end, Class: class})
}

func (m *maker) add(lane int, node string, waits ...string) {
	kind := ir.RunStep
	switch lane {
	case ir.OutLane:
		kind = ir.CopyOutStep
	case ir.InLane:
		kind = ir.CopyInStep
	}
	n := m.nodes[node]
	s := ir.Step{Kind: kind, Lane: lane, Node: n, Workspace: -1}
	for _, w := range waits {
		s.Waits = append(s.Waits, m.step[w])
	}
	seen := map[int]bool{}
	for _, v := range n.In {
		if b := m.p.Places[v.ID].Buffer; !seen[b] {
			seen[b] = true
			s.Reads = append(s.Reads, ir.Access{Buffer: b, Size: tensorSize})
		}
	}
	s.Writes = []ir.Access{{Buffer: m.p.Places[n.Out[0].ID].Buffer, Size: tensorSize}}
	m.step[node] = len(m.p.Steps)
	m.p.Steps = append(m.p.Steps, s)
}

func (m *maker) at2(node string) *ir.Step { return &m.p.Steps[m.step[node]] }

func soundProgram(t *testing.T) *maker {
	m := newMaker(parsed(t, programText))
	const dev, host = ir.DeviceArena, ir.HostArena
	m.at(dev, 0, ir.Persistent, 0, 10, "x")
	m.at(dev, 256, ir.Persistent, 0, 10, "w")
	m.at(dev, 512, ir.Skeletal, 0, 3, "a", "r", "rr")
	m.at(dev, 768, ir.Skeletal, 2, 5, "s")
	m.at(dev, 512, ir.Transient, 3, 6, "b")
	m.at(dev, 768, ir.Transient, 5, 8, "u")
	m.at(dev, 512, ir.Skeletal, 6, 8, "ai")
	m.at(dev, 1024, ir.Output, 7, 10, "y", "z")
	m.at(dev, 512, ir.Skeletal, 8, 10, "si")
	m.at(host, 0, ir.HostSlot, 1, 7, "ao")
	m.at(host, 256, ir.HostSlot, 4, 9, "so")
	const run, out, in = ir.ComputeLane, ir.OutLane, ir.InLane
	m.add(run, "a")
	m.add(out, "a.out", "a")
	m.add(run, "s")
	m.add(run, "b", "a.out")
	m.add(out, "s.out", "s")
	m.add(run, "u", "s.out")
	m.add(in, "a.in", "a.out", "u")
	m.add(run, "y", "a.in")
	m.add(in, "s.in", "s.out", "y")
	m.add(run, "z", "s.in")
	m.at2("z").Workspace = len(m.p.Buffers)
	m.at2("z").Writes = append(m.at2("z").Writes, ir.Access{Buffer: len(m.p.Buffers), Size: 100})
	m.p.Buffers = append(m.p.Buffers, ir.Buffer{Name: "z.workspace", Offset: 768, Size: 100, First: 9, End: 10, Class: ir.Scratch})
	return m
}

func testInput() map[string]ir.Datum {
	x := ir.NewTensor(ir.Float, 64)
	for i, d := 0, ir.View[float32](x); i < len(d); i++ {
		d[i] = float32(i*i)*0.11 + 1
	}
	return map[string]ir.Datum{"x": x}
}

func wanted(t *testing.T) []byte {
	t.Helper()
	out, err := Graph(parsed(t, plainText), testInput(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out["z"].(*ir.Tensor).Data
}

// The sound program agrees with the unplanned graph in every order and in two
// steps on the same arenas.
func TestProgram(t *testing.T) {
	want := wanted(t)
	for order := range uint64(60) {
		for _, blind := range []bool{false, true} {
			out, err := Program(soundProgram(t).p, testInput(), Options{Order: order, Steps: 2, Blind: blind})
			if err != nil {
				t.Fatalf("order %d: %v", order, err)
			}
			if !bytes.Equal(out["z"].(*ir.Tensor).Data, want) {
				t.Fatalf("order %d: the planned step differs", order)
			}
		}
	}
}

// Each fault shows as an error that names it, and without looking at owners as
// a difference, in the issue order or in some other.
func TestProgramFaults(t *testing.T) {
	for _, c := range []struct {
		name, says string
		inOrder    bool // shows in the issue order already
		noDiff     bool // the bytes happen to be right, or the run stops
		plant      func(m *maker)
	}{
		{"a.out does not wait for a", `tensor "a" is read`, false, false, func(m *maker) { m.at2("a.out").Waits = nil }},
		{"b does not wait for a.out", `tensor "a" is read`, false, false, func(m *maker) { m.at2("b").Waits = nil }},
		{"a.in does not wait for a.out", `tensor "ao" is read`, false, false, func(m *maker) {
			m.at2("a.in").Waits = nil // nor for u, which waits for it in turn
		}},
		{"a.in does not wait for u", `tensor "b" is read`, false, false, func(m *maker) { m.at2("a.in").Waits = m.at2("a.in").Waits[:1] }},
		{"y does not wait for a.in", `tensor "ai" is read`, false, false, func(m *maker) { m.at2("y").Waits = nil }},
		{"s.in does not wait for y", `tensor "ai" is read`, false, false, func(m *maker) { m.at2("s.in").Waits = m.at2("s.in").Waits[:1] }},
		{"one host slot for two", `hold tensor "so"`, true, false, func(m *maker) { m.p.Buffers[m.buffer["so"]].Offset = 0 }},
		{"host slots overlap by a byte", `hold tensor "so"`, true, false, func(m *maker) { m.p.Buffers[m.buffer["so"]].Offset = 255 }},
		{"u lies on b", `"b" and "u", which share bytes`, true, true, func(m *maker) {
			m.p.Buffers[m.buffer["u"]].Offset = 512
			m.p.Buffers[m.buffer["ai"]].Offset = 1280
			m.nodes["y"].In[0] = m.values["b"]
			m.at2("y").Reads[0].Buffer = m.buffer["b"]
			m.p.Buffers[m.buffer["b"]].End = 8
		}},
		{"read after its bytes were reused", `hold tensor "u"`, true, false, func(m *maker) {
			m.nodes["y"].In[0] = m.values["s"]
			m.at2("y").Reads[0].Buffer = m.buffer["s"]
			m.p.Buffers[m.buffer["s"]].End = 8
			m.p.Buffers[m.buffer["u"]].End = 10
			m.nodes["z"].In[0] = m.values["u"]
			m.at2("z").Reads[0].Buffer = m.buffer["u"]
			m.p.Buffers[m.at2("z").Workspace].Offset = 1280
		}},
		{"workspace over an input of its step", `"y" and "z.workspace", which share bytes`, true, true, func(m *maker) {
			m.p.Buffers[m.at2("z").Workspace].Offset = 1100
		}},
		{"undeclared read", `does not state that it reads bytes [0,256) of buffer "w"`, true, true, func(m *maker) {
			m.at2("b").Reads = m.at2("b").Reads[:1]
		}},
		{"undeclared write", `does not state that it writes`, true, true, func(m *maker) { m.at2("b").Writes = nil }},
		{"short copy", `bytes more than it writes`, true, true, func(m *maker) { m.at2("a.out").Writes[0].Size = 100 }},
		{"use after death", `is alive in steps [0,2) only`, true, true, func(m *maker) { m.p.Buffers[m.buffer["a"]].End = 2 }},
		{"output freed", `output "z" lies in buffer "y"`, true, true, func(m *maker) {
			m.p.Buffers[m.buffer["y"]].End = 9
			m.at2("z").Writes[0] = m.at2("z").Writes[1]
			m.at2("z").Reads = nil
		}},
		{"outside of the arena", `takes [1900,2156)`, true, true, func(m *maker) { m.p.Buffers[m.buffer["u"]].Offset = 1900 }},
		{"waits for the future", `which is not before it`, true, true, func(m *maker) { m.at2("b").Waits = []int{3} }},
		{"step left out", `tensor "so" is read`, true, false, func(m *maker) {
			i := m.step["s.out"]
			m.at2("s.out").Node = nil
			m.p.Steps = append(m.p.Steps[:i:i], m.p.Steps[i+1:]...)
			for k := range m.p.Steps {
				s := &m.p.Steps[k]
				var waits []int
				for _, w := range s.Waits {
					if w > i {
						w--
					}
					if w != i || k != i {
						waits = append(waits, min(w, k-1))
					}
				}
				s.Waits = waits
			}
			for b := range m.p.Buffers {
				m.p.Buffers[b].First, m.p.Buffers[b].End = 0, 10
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) { checkFault(t, c.says, c.inOrder, c.noDiff, c.plant) })
	}
}

func checkFault(t *testing.T, says string, inOrder, noDiff bool, plant func(*maker)) {
	want := wanted(t)
	reported, different := map[string]int{}, 0
	for order := range uint64(60) {
		for _, blind := range []bool{false, true} {
			m := soundProgram(t)
			plant(m)
			out, err := Program(m.p, testInput(), Options{Order: order, Steps: 2, Blind: blind})
			switch {
			case err != nil:
				if !strings.Contains(err.Error(), "BUG") {
					t.Fatalf("%v is not called our fault", err)
				}
				if blind {
					different++
				} else {
					reported[err.Error()]++
				}
			case blind && !bytes.Equal(out["z"].(*ir.Tensor).Data, want):
				different++
			}
			if order == 0 && !blind && (err != nil) != inOrder {
				t.Errorf("in issue order: %v", err)
			}
		}
	}
	found := false
	for msg := range reported {
		found = found || strings.Contains(msg, says)
	}
	if !found {
		t.Errorf("no order reports %q but %v", says, reported)
	}
	if !noDiff && different == 0 {
		t.Error("blind runs never differ")
	}
}

// Random operators draw alike in the planned and in the unplanned run, and
// anew in each step.
func TestProgramRandom(t *testing.T) {
	text := `g (float[64] x) => (float[64] y) <float[64] w = ["elided": ""], float[64] u> {
  [drop%s] u = test.eval.Uniform (x) #@ origin "drop"
  [y] y = Add (u, w) }`
	parse := func(suffix string) *ir.Graph {
		g, err := ir.ParseGraph("t", fmt.Sprintf(text, suffix), map[string]int{"": 17, testDomain: 1})
		if err != nil {
			t.Fatal(err)
		}
		g.Inits[0].Init = ir.WeightOf(ir.NewTensor(ir.Float, 64))
		return g
	}
	m := newMaker(parse("1"))
	m.at(0, 0, ir.Persistent, 0, 2, "x")
	m.at(0, 256, ir.Persistent, 0, 2, "w")
	m.at(0, 512, ir.Transient, 0, 2, "u")
	m.at(0, 768, ir.Output, 1, 2, "y")
	m.add(0, "drop1")
	m.add(0, "y")
	r, err := NewRunner(m.p, Options{Seed: 5, Keep: func(v *ir.Value) bool { return v.Name == "u" }})
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(3) {
		got, err := r.Step(testInput())
		if err != nil {
			t.Fatal(err)
		}
		want, err := Graph(parse("2"), testInput(), Options{Seed: 5, Step: step})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got["y"].(*ir.Tensor).Data, want["y"].(*ir.Tensor).Data) || got["u"] == nil {
			t.Errorf("step %d differs", step)
		}
	}
}

func TestOwners(t *testing.T) {
	a, b := &ir.Value{Name: "a"}, &ir.Value{Name: "b"}
	var o owners
	o.set(0, 10, a)
	o.set(4, 6, b)
	o.set(8, 12, nil)
	o.set(20, 30, b)
	o.set(0, 0, b)
	for _, c := range []struct {
		from, to int64
		v        *ir.Value
		ok       bool
	}{{0, 4, a, true}, {0, 5, a, false}, {4, 6, b, true}, {6, 8, a, true}, {6, 9, a, false}, {8, 12, a, false}, {20, 30, b, true}, {19, 21, b, false}, {29, 31, b, false}, {3, 3, b, true}} {
		if bad, found := o.find(c.from, c.to, c.v); found == c.ok {
			t.Errorf("[%d,%d) holds %s: %v, found %+v", c.from, c.to, c.v.Name, c.ok, bad)
		}
	}
}

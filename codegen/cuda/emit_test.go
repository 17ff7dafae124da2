package cuda

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	_ "memoc/ir/ops"
)

// plan lays a graph out in the plainest way: every value in bytes of its own,
// views on their base, all nodes on the compute lane in order.
func plan(t *testing.T, g *ir.Graph) *ir.Program {
	t.Helper()
	p := &ir.Program{Name: g.Name, Graph: g, Device: "test", Arenas: []ir.Arena{{Name: "device", Align: 256}, {Name: "host", Align: 256}},
		Lanes: []ir.Lane{{Name: "compute"}, {Name: "out"}, {Name: "in"}}, Places: make([]ir.Place, g.NumValues())}
	for i := range p.Places {
		p.Places[i].Buffer = -1
	}
	isOutput := map[*ir.Value]bool{}
	for _, v := range g.Outputs {
		isOutput[v] = true
	}
	place := func(v *ir.Value, first int, class ir.Class) {
		n, err := v.Type.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if isOutput[v] && class != ir.Persistent {
			class = ir.Output
		}
		p.Places[v.ID] = ir.Place{Buffer: addBuffer(p, ir.Buffer{Name: v.Name, Value: v, Size: n, First: first, End: len(g.Nodes), Class: class}), Size: n}
	}
	for _, v := range append(append([]*ir.Value{}, g.Inputs...), g.Inits...) {
		place(v, 0, ir.Persistent)
	}
	for i, n := range g.Nodes {
		s := ir.Step{Node: n, Workspace: -1}
		c, err := ir.NewNodeCtx(n)
		if err != nil {
			t.Fatal(err)
		}
		for o, v := range n.Out {
			if v == nil {
				continue
			}
			if in := -1; n.Decl.View != nil {
				if in = n.Decl.View(n, o); in >= 0 {
					p.Places[v.ID] = p.Places[n.In[in].ID]
					continue
				}
			}
			place(v, i, ir.Transient)
			s.Writes = append(s.Writes, access(p, v))
		}
		for _, v := range n.In {
			if v != nil {
				s.Reads = append(s.Reads, access(p, v))
			}
		}
		if w := n.Decl.Cost(c).Workspace; w > 0 {
			s.Workspace = addBuffer(p, ir.Buffer{Name: n.Name + ".workspace", Size: w, First: i, End: i + 1, Class: ir.Scratch})
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

func addBuffer(p *ir.Program, b ir.Buffer) int {
	a := &p.Arenas[b.Arena]
	b.Offset = a.Size
	a.Size = (a.Size + b.Size + 255) / 256 * 256
	p.Buffers = append(p.Buffers, b)
	return len(p.Buffers) - 1
}

func access(p *ir.Program, v *ir.Value) ir.Access {
	pl := p.Places[v.ID]
	return ir.Access{Buffer: pl.Buffer, Offset: pl.Offset, Size: pl.Size}
}

func needCompiler(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	if testing.Short() {
		t.Skip("compiles C++")
	}
}

func build(t *testing.T, p *ir.Program) *HostProgram {
	t.Helper()
	needCompiler(t)
	files, err := Emit(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	exe, err := BuildHost(context.Background(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func floats(vals []float64, dims ...int64) *ir.Tensor { return ir.FromFloats(ir.Float, vals, dims...) }

// swapGraph is in + w -> a -> b, c = b + a, where a may travel through host
// memory between its two uses.
func swapGraph() (*ir.Graph, []*ir.Value) {
	g := ir.NewGraph("swap \"graph\" ż ??/", map[string]int{"": 17})
	in := g.AddInput("in", ir.TensorOf(ir.Float, ir.Ints64(2, 3)))
	w := g.AddInit("w??/\\", ir.WeightOf(floats([]float64{10, 20, 30}, 3)))
	b := ir.NewBuilder(ir.NewEdit(g))
	a := b.Add(in, w)
	soft := b.Op("Softmax", []*ir.Value{a})
	c := b.Add(soft, a)
	b.Edit.Done()
	g.Outputs = []*ir.Value{c, c, in}
	return g, []*ir.Value{in, w, a, soft, c}
}

func TestEmitAndRun(t *testing.T) {
	g, _ := swapGraph()
	exe := build(t, plan(t, g))
	x := floats([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
	out, err := exe.Run(context.Background(), []Named{{"in", x}}, RunOptions{Steps: 2, Paranoid: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 2 || out[0].Name != g.Outputs[0].Name || out[1].Name != "in" {
		t.Fatalf("outputs %v", out)
	}
	e := math.Exp(-11) + math.Exp(-22) + 1
	for i, want := range []float64{11 + math.Exp(-22)/e, 22 + math.Exp(-11)/e, 33 + 1/e, 14 + math.Exp(-22)/e, 25 + math.Exp(-11)/e, 36 + 1/e} {
		if got := out[0].Tensor.Floats()[i]; math.Abs(got-want) > 1e-5 {
			t.Errorf("output %d: %v, want %v", i, got, want)
		}
	}
	profile := filepath.Join(t.TempDir(), "profile.csv")
	if out, err := exec.Command(exe.Exe, "--fill", "--steps", "3", "--profile", profile).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, _ := os.ReadFile(profile); !strings.HasPrefix(string(text), "index,name,ns\n0,\"Add\",") || strings.Count(string(text), "\n") != 4 {
		t.Errorf("profile %q", text)
	}
	if _, err := exe.Run(context.Background(), nil, RunOptions{}); err == nil || !strings.Contains(err.Error(), `no value for input 'in'`) {
		t.Errorf("a missing input: %v", err)
	}
}

// swapProgram plans swapGraph with a copied out, in two rows, and back; c takes
// a's place.
func swapProgram(t *testing.T) *ir.Program {
	g, v := swapGraph()
	p := plan(t, g)
	a, soft := v[2], v[3]
	slot := addBuffer(p, ir.Buffer{Name: "a slot", Arena: ir.HostArena, Size: 28, First: 1, End: 4, Class: ir.HostSlot})
	apart := ir.Place{Buffer: slot, Size: 24, Rows: 2, Pitch: 16}
	again := addBuffer(p, ir.Buffer{Name: "a again", Value: a, Size: 24, First: 3, End: 5})
	p.Buffers[p.Places[a.ID].Buffer].End = 3
	p.Buffers[p.Places[soft.ID].Buffer].End = 5
	first, last := p.Steps[0], p.Steps[2]
	mid := p.Steps[1]
	out := ir.Step{Kind: ir.CopyOutStep, Lane: ir.OutLane, Workspace: -1, Waits: []int{0},
		Reads: []ir.Access{{Buffer: p.Places[a.ID].Buffer, Size: 24}}, Writes: []ir.Access{apart}}
	in := ir.Step{Kind: ir.CopyInStep, Lane: ir.InLane, Workspace: -1, Waits: []int{1},
		Reads: []ir.Access{apart}, Writes: []ir.Access{{Buffer: again, Size: 24}}}
	last.Waits = []int{3}
	last.Reads = []ir.Access{access(p, soft), {Buffer: again, Size: 24}}
	p.Steps = []ir.Step{first, out, mid, in, last}
	// The last node reads the copy that came back.
	back := g.NewValue("a.in", a.Type)
	p.Places = append(p.Places, ir.Place{Buffer: again, Size: 24})
	ir.NewEdit(g).SetInput(last.Node, 1, back)
	return p
}

func TestFaultsAreFound(t *testing.T) {
	x := Named{"in", floats([]float64{1, 2, 3, 4, 5, 6}, 2, 3)}
	for _, c := range []struct {
		name, want string
		spoil      func(p *ir.Program)
	}{
		{"legal", "", func(p *ir.Program) {}},
		{"out does not wait", "race: step 'step 1' (lane 1) reads device bytes", func(p *ir.Program) { p.Steps[1].Waits = nil }},
		{"in does not wait", "race: step 'step 3' (lane 2) reads host bytes [0, 12) and step 'step 1' (lane 1) writes", func(p *ir.Program) { p.Steps[3].Waits = nil }},
		{"use does not wait", "(lane 2) writes them, and nothing orders the two", func(p *ir.Program) { p.Steps[4].Waits = nil }},
		{"slot ends early", "use after free: step 'step 3' (lane 2) reads host bytes [0, 12), which belonged to 'a slot'", func(p *ir.Program) {
			p.Buffers[p.Steps[1].Writes[0].Buffer].End = 2
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := swapProgram(t)
			c.spoil(p)
			exe := build(t, p)
			_, err := exe.Run(context.Background(), []Named{x}, RunOptions{Steps: 2, Schedules: 10, Paranoid: c.want == ""})
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestUnknownOperator(t *testing.T) {
	g := ir.NewGraph("g", map[string]int{"": 17, "custom": 3})
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Ints64(2)))
	n := g.Append(ir.NodeSpec{Name: "odd one", Domain: "custom", Op: "Odd", In: []*ir.Value{x}, Out: []string{"y"}})
	p := &ir.Program{Graph: g, Arenas: make([]ir.Arena, 2), Lanes: make([]ir.Lane, 1), Steps: []ir.Step{{Node: n, Workspace: -1}}}
	_, err := Emit(p)
	if err == nil {
		t.Fatal("emitted")
	}
	for _, want := range []string{"custom::Odd", "odd one", "version 3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// TestManySteps holds the size of what is emitted for a deep graph: launches
// are shared by equal layers, so that only table rows grow.
func TestManySteps(t *testing.T) {
	g := ir.NewGraph("deep", map[string]int{"": 17})
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Ints64(4, 8)))
	w := g.AddInit("w", ir.WeightOf(floats(make([]float64, 8), 8)))
	b := ir.NewBuilder(ir.NewEdit(g))
	v := x
	for range 500 {
		v = b.Op("Softmax", []*ir.Value{b.Add(v, w)})
	}
	b.Edit.Done()
	g.Outputs = []*ir.Value{v}
	p := plan(t, g)
	e := newEmitter(p)
	if err := e.collect(); err != nil {
		t.Fatal(err)
	}
	if n := len(e.kernels.launches); n != 2 {
		t.Errorf("%d launch functions for 1000 steps of two kinds", n)
	}
	exe := build(t, p)
	if _, err := exe.Run(context.Background(), []Named{{"x", floats(make([]float64, 32), 4, 8)}}, RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestDeterministic(t *testing.T) {
	text := func() string {
		g, _ := swapGraph()
		files, err := Emit(plan(t, g))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range files {
			fmt.Fprintln(&b, f.Path)
			if err := f.Write(&b); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	want := text()
	for range 5 {
		if text() != want {
			t.Fatal("two emissions differ")
		}
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		dims, strides []int64
		mode          indexing
		m             int64
	}{
		{nil, nil, single, 0},
		{[]int64{4, 5}, []int64{5, 1}, whole, 0},
		{[]int64{4, 5}, []int64{0, 0}, single, 0},
		{[]int64{4, 5}, []int64{0, 1}, suffix, 5},
		{[]int64{4, 5}, []int64{1, 0}, prefix, 5},
		{[]int64{4, 5, 6}, []int64{0, 6, 1}, suffix, 30},
		{[]int64{4, 5, 6}, []int64{5, 1, 0}, prefix, 6},
		{[]int64{4, 5, 6}, []int64{6, 0, 1}, general, 0},
		{[]int64{4, 5, 6}, []int64{0, 1, 0}, general, 0},
	} {
		if mode, m := classify(c.dims, c.strides); mode != c.mode || m != c.m {
			t.Errorf("%v by %v: %d, %d; want %d, %d", c.dims, c.strides, mode, m, c.mode, c.m)
		}
	}
}

package check_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/handmade"
	"memoc/ir/models"
	"memoc/ir/onnx"
	_ "memoc/ir/ops"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/check"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// good is a sound plan to break.
type good struct {
	name string
	g    *ir.Graph
	file []byte
}

func (b *good) plan(t *testing.T) *planfile.Plan {
	t.Helper()
	p, err := planfile.Decode(b.file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const smallGraph = `<ir_version: 8, opset_import: ["" : 17]>
g (float[16,16] x) => (float loss, float[16,16] c, float[16,2] top)
<float[16,16] w = ["elided": ""], float[4] half = {1,2,3,4}, int64[2] flat = {4, 64}, int64[1] two = {2}> {
  a = MatMul (x, w)
  b = Tanh (a)
  r = Reshape (b, flat)
  s = Softmax (r)
  t = Relu (s)
  top, at = TopK (b, two)
  c = MatMul (b, w)
  p, q = Split <axis = 1> (c)
  u = Mul (p, q)
  loss1 = ReduceMean <keepdims = 0> (t)
  loss2 = ReduceMean <keepdims = 0> (u)
  loss = Add (loss1, loss2)
}`

// plans makes the sound plans: a small graph, and a model that swaps and
// recomputes; each as it was planned, and with buffers so far apart that faults
// have room.
func plans(t *testing.T) []good {
	t.Helper()
	var out []good
	keep := func(name string, p *planfile.Plan, g *ir.Graph) {
		file, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := check.Model(p, g); err != nil {
			t.Fatalf("%s: the sound plan is refused: %v", name, err)
		}
		out = append(out, good{name, g, file})
	}
	for _, batch := range []int64{1, 3} {
		c, err := handmade.Split(batch)
		if err != nil {
			t.Fatal(err)
		}
		p := planfile.FromProgram(c.Program)
		keep(fmt.Sprintf("split in %d rows, tight", batch), p, c.Program.Graph)
		spread(p)
		keep(fmt.Sprintf("split in %d rows, wide", batch), p, c.Program.Graph)
	}
	add := func(name string, m *ir.Model, o passes.Options) {
		dev, err := cost.LoadDevice("h100")
		if err != nil {
			t.Fatal(err)
		}
		o.Device, o.HostBudget = dev, -1
		c := &passes.Context{Model: m, Graph: m.Graph, Options: o, Report: func(*diag.Diagnostic) {}}
		if err := (&passes.Runner{}).Run(c); err != nil {
			t.Fatal(err)
		}
		p := planfile.FromProgram(c.Program)
		for _, kind := range []string{"tight", "wide"} {
			if kind == "wide" && o.Budget.Share == 0.2 {
				continue // the same graph as at 0.4, without copies
			}
			if kind == "wide" {
				spread(p)
			}
			keep(name+", "+kind, p, c.Graph)
		}
	}
	m, err := ir.Parse("small", smallGraph)
	if err != nil {
		t.Fatal(err)
	}
	add("small", m, passes.Options{})
	m, err = models.Build(models.Config{Arch: "gpt", Layers: 1, Hidden: 16, Heads: 2, Vocab: 32, Seq: 21, Batch: 2, DType: ir.Float, InlineLimit: -1, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	add("gpt, split", m, passes.Options{Train: true, Loss: "loss", Choose: halves})
	for _, share := range []float64{0.4, 0.2} {
		m, _, err = onnx.Load("../../testdata/models/gpt-tiny.onnx", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		add(fmt.Sprintf("gpt-tiny at %v", share), m, passes.Options{Train: true, Loss: "loss", Budget: passes.Budget{Share: share}})
	}
	return out
}

// halves splits every tensor that can be, in the middle of its tokens.
func halves(p *plan.Problem) []plan.Choice {
	c := p.Initial()
	for t := range c {
		if c[t] == plan.Keep && p.Splittable(t) && !p.Tensors[t].Output {
			c[t] = plan.SplitAt(p.Tiles() / 2)
		}
	}
	return c
}

// spread gives every buffer bytes of its own for the whole step.
func spread(p *planfile.Plan) {
	top := make([]int64, len(p.Arenas))
	for i := range p.Buffers {
		b := &p.Buffers[i]
		b.Offset = top[b.Arena]
		top[b.Arena] += (b.Size + 255) / 256 * 256
		b.First, b.End = 0, len(p.Steps)
	}
	p.Metrics.Budget = 0
	p.Metrics.Peak, p.Metrics.LowerBound, p.Metrics.HostPeak = top[0], top[0], top[1]
	for a := range p.Arenas {
		p.Arenas[a].Size, p.Arenas[a].LowerBound = top[a], top[a]
	}
	p.Arenas[0].Budget = 0
}

// places bounds how many places of one plan each fault is planted in.
const places = 4

// TestPlantedFaults breaks sound plans in one way at a time and wants the rule
// named.
func TestPlantedFaults(t *testing.T) {
	all := plans(t)
	for _, f := range append(faults, splitFaults...) {
		t.Run(f.what, func(t *testing.T) {
			planted := 0
			for i := range all {
				for k := range places {
					p := all[i].plan(t)
					if !f.plant(p, k) {
						break
					}
					planted++
					err := check.Model(p, all[i].g)
					var broken *check.Fault
					if !errors.As(err, &broken) {
						t.Errorf("%s, place %d: not found: %v", all[i].name, k, err)
					} else if broken.Rule != f.rule {
						t.Errorf("%s, place %d: named %q, want %q: %v", all[i].name, k, broken.Rule, f.rule, err)
					}
				}
			}
			if planted == 0 {
				t.Error("no plan has a place for it")
			}
		})
	}
}

// TestRulesAreDocumented holds docs/check.md against the rules in the code and
// those that are planted above.
func TestRulesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
	}
	inCode, tested := map[string]bool{}, map[string]bool{}
	for _, file := range []string{"check.go", "order.go", "model.go", "bytes.go", "rows.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`fault\("([a-z-]+)"`).FindAllStringSubmatch(string(src), -1) {
			inCode[m[1]] = true
		}
	}
	for _, f := range append(faults, splitFaults...) {
		tested[f.rule] = true
	}
	for rule := range inCode {
		if !documented[rule] {
			t.Errorf("docs/check.md does not say what %q is", rule)
		}
		if !tested[rule] {
			t.Errorf("no fault is planted for %q", rule)
		}
	}
	for rule := range documented {
		if !inCode[rule] {
			t.Errorf("docs/check.md lists %q, which no code names", rule)
		}
	}
}

// Host slots: two tensors of one size, one after the other in one slot. The
// second copy out must wait for the first copy in.
func TestHostSlotReusedTooEarly(t *testing.T) {
	p := hostSlotPlan()
	if err := check.Plan(p); err != nil {
		t.Fatalf("the sound plan is refused: %v", err)
	}
	p.Steps[4].Waits = []int{3} // its source alone
	err := check.Plan(p)
	if err == nil || !strings.HasPrefix(err.Error(), "races: ") || !strings.Contains(err.Error(), "arena host") {
		t.Errorf("the slot is overwritten while it is read: %v", err)
	}
}

// hostSlotPlan: a is made, moved out and brought back, then b the same.
func hostSlotPlan() *planfile.Plan {
	p := &planfile.Plan{Version: planfile.Version, Lanes: []string{"compute", "out", "in"}, Outputs: []string{"b.in"},
		Arenas: []planfile.Arena{{Name: "device", Size: 1024, Align: 256, LowerBound: 512}, {Name: "host", Size: 256, Align: 256, LowerBound: 256, Budget: 256}}}
	p.Metrics.Peak, p.Metrics.LowerBound, p.Metrics.HostPeak, p.Metrics.HostBudget = 1024, 512, 256, 256
	add := func(name string, arena int, offset int64, first, end int, class string) {
		p.Values = append(p.Values, planfile.Value{Name: name, Base: name, Buffer: len(p.Buffers), Size: 256})
		p.Buffers = append(p.Buffers, planfile.Buffer{Name: name, Arena: arena, Offset: offset, Size: 256, First: first, End: end, Class: class})
	}
	add("a", 0, 0, 0, 2, "skeletal")
	add("a.out", 1, 0, 1, 4, "host-slot")
	add("a.in", 0, 256, 2, 4, "skeletal")
	add("b", 0, 512, 3, 5, "skeletal")
	add("b.out", 1, 0, 4, 6, "host-slot")
	add("b.in", 0, 768, 5, 6, "output")
	step := func(kind string, lane int, read, write string, waits ...int) {
		s := planfile.Step{Kind: kind, Lane: lane, Node: write, Writes: []string{write}, Workspace: -1, Waits: waits}
		if read != "" {
			s.Reads = []string{read}
		}
		p.Steps = append(p.Steps, s)
	}
	step("run", 0, "", "a")
	step("copy-out", 1, "a", "a.out", 0)
	step("copy-in", 2, "a.out", "a.in", 1)
	step("run", 0, "", "b")
	step("copy-out", 1, "b", "b.out", 2, 3)
	step("copy-in", 2, "b.out", "b.in", 4)
	return p
}

package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"memoc/codegen/cuda"
	"memoc/codegen/dot"
	"memoc/codegen/onnxout"
	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/onnx"
	"memoc/ir/planfile"
	"memoc/passes"
)

// written is the model that a compilation emits, read again.
func written(t testing.TB, c *passes.Context) *ir.Model {
	t.Helper()
	b, err := onnxout.Encode(c.Program, c.Model)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := onnx.Decode(b, "", onnx.Options{Name: "model.onnx", Strict: true})
	if err != nil {
		t.Fatalf("what is written is refused: %v", err)
	}
	return m
}

// runWritten executes an emitted model: calls inlined, nothing planned.
func runWritten(t testing.TB, m *ir.Model, in map[string]ir.Datum) map[string]ir.Datum {
	t.Helper()
	if err := ir.Inline(m); err != nil {
		t.Fatal(err)
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	return run(t, m.Graph, in)
}

func TestB32WeightsThatAreNotThere(t *testing.T) {
	m := text(t, `g (float[1,50000] x) => (float[1,50000] y) <float[50000,50000] W = ["location": "w.bin", "offset": "4096", "length": "10000000000"]> {
		h = MatMul (x, W) y = Relu (h) }`)
	c := mustCompile(t, m, setup{})
	if c.Metrics.Peak < 10_000_000_000 {
		t.Errorf("peak %d", c.Metrics.Peak)
	}
	b, err := onnxout.Encode(c.Program, c.Model)
	if err != nil || len(b) > 1<<16 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	again := written(t, c)
	if len(again.Graph.Nodes) != 2 || len(again.Graph.Inits) != 1 {
		t.Fatalf("the emitted model is %s", ir.Print(again, ir.TextOptions{}))
	}
	if e := again.Graph.Inits[0].Init.External; e == nil || *e != (ir.External{Location: "w.bin", Offset: 4096, Length: 10_000_000_000}) {
		t.Errorf("the reference is %+v", e)
	}
	_, err = eval.Graph(c.Graph, map[string]ir.Datum{"x": ir.NewTensor(ir.Float, 1, 50000)}, eval.Options{})
	if err == nil || !strings.Contains(err.Error(), "W") {
		t.Errorf("bytes that are needed and absent: %v", err)
	}
}

// axesSince is the opset from which an operator takes its axes (or the sizes
// of a split) as an input instead of an attribute.
var axesSince = map[string]int{"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13, "Split": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18,
	"ReduceProd": 18, "ReduceL1": 18, "ReduceL2": 18, "ReduceLogSum": 18, "ReduceLogSumExp": 18, "ReduceSumSquare": 18}

// wrongForm says how a node contradicts the form its opset version gives it.
func wrongForm(n *ir.Node, opset int) string {
	attr := map[string]string{"Split": "split"}[n.Op]
	if attr == "" {
		attr = "axes"
	}
	if since, ok := axesSince[n.Op]; ok && n.Domain == ir.OnnxDomain {
		if opset < since && len(n.In) > 1 {
			return "takes an input that came with opset " + fmt.Sprint(since)
		}
		if opset >= since && n.Attr(attr) != nil {
			return "has the attribute " + attr + ", an input since opset " + fmt.Sprint(since)
		}
	}
	if n.Op == "Dropout" && opset >= 12 && n.Attr("ratio") != nil || n.Op == "Clip" && opset >= 11 && n.Attr("min") != nil {
		return "has an attribute that became an input"
	}
	if d := ir.Lookup(n.Domain, n.Op); d != nil && n.Domain == ir.OnnxDomain && d.Since[0] > opset {
		return fmt.Sprintf("came with opset %d", d.Since[0])
	}
	return ""
}

func TestB38FormsOfTheOpset(t *testing.T) {
	for _, opset := range []int{11, 12, 13, 14, 16, 17, 18, 20, 21, 23} {
		norm := ""
		if opset >= 17 {
			norm = "n = LayerNormalization (h, s, b)"
		} else {
			norm = "n1 = Mul (h, s) n = Add (n1, b)"
		}
		mean := "m = ReduceMean <axes = [1], keepdims = 1> (n)"
		if opset >= 18 {
			mean = "m = ReduceMean <keepdims = 1> (n, one)"
		}
		m := textAt(t, opset, `g (float[4,6] x) => (float l) <float[6,6] W = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,0,1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,0}, float[6] s = {1,2,1,2,1,2}, float[6] b = {0,1,0,1,0,1},
			int64[1] one = {1}, float lo = {-3}, float hi = {300}> {
			h = MatMul (x, W) `+norm+" "+mean+` d = Sub (n, m) k = Clip (d, lo, hi) q = Mul (k, k) p = Softmax <axis = -1> (q) c = Concat <axis = 1> (p, q) r = Max (c, lo) z = Mul (r, r) l = ReduceMean <keepdims = 0> (z) }`)
		c := mustCompile(t, m, setup{train: "l"})
		in := map[string]ir.Datum{"x": tensor(ir.Float, []float64{1, -1, 2, -2, 3, -3, 1, 2, 3, 4, 5, 6, -1, -1, 2, 2, 3, 3, 0, 1, 0, 1, 0, 1}, 4, 6)}
		want := run(t, c.Graph, in)
		again := written(t, c)
		if again.Opsets[""] != opset {
			t.Errorf("opset %d became %d", opset, again.Opsets[""])
		}
		for _, f := range again.Functions {
			f.Body.Walk(func(n *ir.Node) {
				if how := wrongForm(n, f.Opsets[n.Domain]); how != "" {
					t.Errorf("opset %d, function %s: %s %s", opset, f.Name, n, how)
				}
			})
		}
		again.Graph.Walk(func(n *ir.Node) {
			if how := wrongForm(n, again.Opsets[n.Domain]); how != "" {
				t.Errorf("opset %d: %s %s", opset, n, how)
			}
		})
		got := runWritten(t, again, in)
		for _, v := range c.Graph.Outputs {
			near(t, fmt.Sprintf("opset %d, %s", opset, v.Name), floats(t, got[v.Name]), floats(t, want[v.Name]), 1e-5)
		}
	}
	// The attribute of an older form is read, with a warning that names it; strict
	// reading refuses it.
	old := `g (float[2,1] x) => (float[2] y) { ["old form"] y = Squeeze <axes = [1]> (x) }`
	for _, strict := range []bool{false, true} {
		types, warnings, err := inferred(t, textAt(t, 13, old), setup{strict: strict})
		said := fmt.Sprint(warnings, err)
		if (err != nil) != strict || !strings.Contains(said, "old form") || !strings.Contains(said, "axes") || !strict && types["y"].String() != "float[2]" {
			t.Errorf("axes as an attribute at opset 13, strict %v: %s, %s", strict, types["y"], said)
		}
	}
}

func TestB39ImportedDomains(t *testing.T) {
	parse := func(irv int) *ir.Model {
		m, err := ir.Parse("case", fmt.Sprintf("<ir_version: %d, opset_import: [\"\" : 17, \"local\" : 1]>\n%s\n<domain: \"local\", opset_import: [\"\" : 17]> Twice (a) => (b) { c = Add (a, a) b = Tanh (c) }",
			irv, strings.Replace(waits(1<<24, 1<<22), "sum = ReduceSum <keepdims = 0> (m24)", "m25 = local.Twice (m24) sum = ReduceSum <keepdims = 0> (m25)", 1)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	c := tightest(t, func() *ir.Model { return parse(8) }, setup{asIs: true})
	if len(movedOut(c.Program)) == 0 {
		t.Fatal("nothing is moved: the case shows too little")
	}
	again := written(t, c)
	if again.Opsets[ir.MemocDomain] == 0 {
		t.Error("ai.memoc is used and not imported")
	}
	bodies := 0
	for _, f := range again.Functions {
		f.Body.Walk(func(n *ir.Node) {
			if f.Opsets[n.Domain] == 0 && again.Opsets[n.Domain] == 0 {
				t.Errorf("function %s uses domain %q without importing it", f.Name, n.Domain)
			}
			if _, ok := f.Opsets[n.Domain]; !ok {
				t.Errorf("function %s does not import %q itself", f.Name, n.Domain)
			}
		})
		if f.Domain == ir.MemocDomain {
			bodies++
		}
	}
	if bodies < 2 {
		t.Errorf("%d bodies for SwapOut and SwapIn", bodies)
	}
	// Without a budget nothing of memoc's is in the file, and it is no younger.
	for _, irv := range []int64{6, 8} {
		m := text(t, `g (float[4] x) => (float[4] y) { h = Relu (x) y = Neg (h) }`)
		m.IRVersion = irv
		b, err := onnx.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if m, _, err = onnx.Decode(b, "", onnx.Options{}); err != nil {
			t.Fatal(err)
		}
		again = written(t, mustCompile(t, m, setup{}))
		if _, ok := again.Opsets[ir.MemocDomain]; ok || len(again.Functions) > 0 || again.IRVersion != irv {
			t.Errorf("nothing was inserted, but the file imports %v, has %d functions and IR version %d of %d", again.Opsets, len(again.Functions), again.IRVersion, irv)
		}
	}
}

func TestB40AbsentValues(t *testing.T) {
	make := func() *ir.Model {
		return text(t, `g (float[2,4] x, float[2,4] k) => (float l, float[2,1] inv, float[2,4] last) <float[4] s = {1,2,3,4}, float mx = {0.5}> {
			["clip"] y = Clip (x, "", mx) ["norm"] n, "", inv = LayerNormalization (y, s) ["other"] o, "", "" = LayerNormalization (k, s, "")
			p = Mul (n, o) l = ReduceSum <keepdims = 0> (p) last = Neg (o) }`)
	}
	plannedEqualsPlain(t, make, setup{})
	c := mustCompile(t, make(), setup{train: "l"})
	for _, b := range c.Program.Buffers {
		if b.Name == "" && b.Class != ir.Scratch {
			t.Errorf("buffer %+v of no value", b)
		}
	}
	c = mustCompile(t, make(), setup{})
	again := written(t, c)
	clip, norm := node(again.Graph, "clip"), node(again.Graph, "norm")
	if clip == nil || len(clip.In) != 3 || clip.In[1] != nil || clip.In[2].Name != "mx" {
		t.Errorf("clip is %+v", clip)
	}
	if norm == nil || len(norm.Out) != 3 || norm.Out[1] != nil || norm.Out[2].Name != "inv" {
		t.Errorf("norm is %+v", norm)
	}
}

// artifactsOf renders everything a compilation writes, by path.
func artifactsOf(t testing.TB, c *passes.Context) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	var err error
	if out["model.onnx"], err = onnxout.Encode(c.Program, c.Model); err != nil {
		t.Fatal(err)
	}
	if out["plan.json"], err = planfile.FromProgram(c.Program).Encode(); err != nil {
		t.Fatal(err)
	}
	out["graph.dot"] = dot.Render(c.Program)
	files, err := cuda.Emit(c.Program)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var b bytes.Buffer
		if err := f.Write(&b); err != nil {
			t.Fatal(err)
		}
		out[f.Path] = b.Bytes()
	}
	return out
}

func differentArtifact(a, b map[string][]byte) string {
	if len(a) != len(b) {
		return "the list of files"
	}
	for path := range a {
		if !bytes.Equal(a[path], b[path]) {
			return path
		}
	}
	return ""
}

// thirty is a graph of equal tensors, in which every choice is a tie.
func thirty() string {
	var nodes strings.Builder
	var outs []string
	for i := range 30 {
		fmt.Fprintf(&nodes, "a%d = Tanh (x) b%d = Softmax (a%d)\n", i, i, i)
	}
	for i := range 30 {
		fmt.Fprintf(&nodes, "c%d = Mul (a%d, b%d) d%d = ReduceSum <keepdims = 0> (c%d)\n", i, i, i, i, i)
		outs = append(outs, fmt.Sprintf("float d%d", i))
	}
	return fmt.Sprintf("g (float[64,64] x) => (%s) { %s }", strings.Join(outs, ", "), nodes.String())
}

// TestB43SameBytesEveryTime compiles again and again, on one processor and on
// several: every file and every error is the same.
func TestB43SameBytesEveryTime(t *testing.T) {
	for _, s := range []struct {
		name  string
		times int
		make  func() *ir.Model
		setup setup
	}{
		{"thirty equal tensors", 20, func() *ir.Model { return text(t, thirty()) }, setup{budget: "45%"}},
		{"gpt-tiny", 5, func() *ir.Model { return load(t, "../testdata/models/gpt-tiny.onnx") }, setup{train: "loss", budget: "60%"}},
		{"gpt-tiny, recomputed", 2, func() *ir.Model { return load(t, "../testdata/models/gpt-tiny.onnx") }, setup{train: "loss", budget: "25%", host: noHost}},
	} {
		first := artifactsOf(t, mustCompile(t, s.make(), s.setup))
		_, _, firstErr := compile(t, s.make(), setup{train: s.setup.train, budget: "1"})
		for i := range s.times {
			before := runtime.GOMAXPROCS([]int{1, 8}[i%2])
			c := mustCompile(t, s.make(), s.setup)
			if path := differentArtifact(first, artifactsOf(t, c)); path != "" {
				t.Errorf("%s: %s differs in compilation %d", s.name, path, i+2)
			}
			_, _, err := compile(t, s.make(), setup{train: s.setup.train, budget: "1"})
			if err == nil || err.Error() != firstErr.Error() {
				t.Errorf("%s: the error was\n%v\nand is\n%v", s.name, firstErr, err)
			}
			runtime.GOMAXPROCS(before)
		}
	}
	// Of several faults the same one is reported first, with the same words.
	broken := `g (float[2,3] x, float[4,5] y) => (a, b, c, d) { a = MatMul (x, y) b = Add (x, y) c = Concat <axis = 9> (x, y) d = Reshape (x, y) }`
	_, _, want := compile(t, text(t, broken), setup{})
	for range 10 {
		if _, _, err := compile(t, text(t, broken), setup{}); err == nil || err.Error() != want.Error() {
			t.Errorf("the error was %v and is %v", want, err)
		}
	}
}

func TestB43NamesInDrawings(t *testing.T) {
	names := []string{"/model/layers.0/attn\"q\"\n{x}|<y>", "aten::mm", "example ż 大", `back\slash\n`, "<b>bold</b>"}
	m := text(t, `g (float[4] x) => (float[4] y) { y = Relu (x) }`)
	g := ir.NewGraph("names", m.Opsets)
	v := g.AddInput("in \"put\"", ir.TensorOf(ir.Float, ir.Ints64(4)))
	for i, name := range names {
		n := g.Append(ir.NodeSpec{Name: name, Op: "Relu", In: []*ir.Value{v}, Out: []string{fmt.Sprintf("%s:%d", name, i)}})
		v = n.Out[0]
	}
	g.Outputs = []*ir.Value{v}
	m.Graph = g
	c := mustCompile(t, m, setup{})
	drawing := dot.Render(c.Program)
	for _, name := range names {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name)
		if !bytes.Contains(drawing, []byte(`label="`+escaped+`\n`)) {
			t.Errorf("no label reads %q", name)
		}
	}
	tool, err := exec.LookPath("dot")
	if err != nil {
		t.Skip("no dot to draw with")
	}
	cmd := exec.Command(tool, "-Tsvg")
	cmd.Stdin = bytes.NewReader(drawing)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	svg, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("dot: %v\n%s", err, stderr.String())
	}
	for _, part := range []string{"{x}|&lt;y&gt;", "aten::mm", "example ż 大", `back\slash\n`, "&lt;b&gt;bold&lt;/b&gt;"} {
		if !bytes.Contains(svg, []byte(part)) {
			t.Errorf("the drawing does not read %q", part)
		}
	}
}

// The budget that the refusal names works, and one byte less does not.
func TestSmallestBudget(t *testing.T) {
	for name, make := range map[string]func() *ir.Model{
		"gpt-tiny": func() *ir.Model { return load(t, "../testdata/models/gpt-tiny.onnx") },
		"thirty":   func() *ir.Model { return text(t, strings.Replace(thirty(), "float d0,", "float d0,", 1)) },
	} {
		for _, host := range []int64{0, noHost, 20000} {
			s := setup{budget: "1", host: host}
			if name == "gpt-tiny" {
				s.train = "loss"
			}
			_, _, err := compile(t, make(), s)
			var inf *passes.Infeasible
			if !errors.As(err, &inf) {
				t.Fatalf("%s: %v", name, err)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("--budget %d", inf.Smallest)) || len(inf.Alive) == 0 {
				t.Errorf("%s: the refusal does not say what works: %v", name, err)
			}
			s.budget = fmt.Sprint(inf.Smallest)
			c := mustCompile(t, make(), s)
			if c.Metrics.Peak > inf.Smallest {
				t.Errorf("%s: peak %d of a budget of %d", name, c.Metrics.Peak, inf.Smallest)
			}
			s.budget = fmt.Sprint(inf.Smallest - 1)
			_, _, err = compile(t, make(), s)
			var again *passes.Infeasible
			if !errors.As(err, &again) || again.Smallest != inf.Smallest {
				t.Errorf("%s: one byte less than the smallest: %v", name, err)
			}
		}
	}
}

// The pinned allocation of the program is the one of the report, made once; a
// failed one leaves no error behind for the next launch and names host memory.
func TestB25PinnedMemoryInTheProgram(t *testing.T) {
	const MiB = 1 << 20
	c := tightest(t, func() *ir.Model { return text(t, waits(96*MiB/4, 36*MiB/4, 9*MiB/4)) }, setup{asIs: true})
	files := artifactsOf(t, c)
	plan, err := planfile.Decode(files["plan.json"])
	if err != nil {
		t.Fatal(err)
	}
	if c.Metrics.HostPeak != 141*MiB || plan.Metrics.HostPeak != 141*MiB || plan.Arenas[ir.HostArena].Size != 141*MiB {
		t.Errorf("host memory %d, in the plan %d and %d", c.Metrics.HostPeak, plan.Metrics.HostPeak, plan.Arenas[ir.HostArena].Size)
	}
	if !bytes.Contains(files["step.cu"], []byte(fmt.Sprint(141*MiB))) {
		t.Error("the program does not allocate what the report says")
	}
	src := string(files["memoc/runtime_cuda.cu"])
	if strings.Count(src, "cudaHostAlloc(") != 1 {
		t.Errorf("%d calls of cudaHostAlloc", strings.Count(src, "cudaHostAlloc("))
	}
	_, after, _ := strings.Cut(src, "cudaHostAlloc(")
	failure, _, _ := strings.Cut(after, "\n}\n")
	if !strings.Contains(failure, "cudaGetLastError()") || !strings.Contains(failure, "host") {
		t.Errorf("after a failed allocation:\n%s", failure)
	}
}

package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx/internal/onnxpb"
)

func TestUnsortedNodes(t *testing.T) {
	unsorted := []*onnxpb.NodeProto{node("Add", "a b", "c"), node("Relu", "x", "a"), node("Sigmoid", "x", "b")}
	g := &pb{Node: unsorted, Input: infos(info("x", 2)), Output: infos(info("c", 2))}
	m, warnings := load(t, model(g))
	if got := order(m.Graph); got != "Relu(x)->a Sigmoid(x)->b Add(a,b)->c" {
		t.Error(got)
	}
	if ids(warnings) != "unsorted" {
		t.Errorf("warnings %q", ids(warnings))
	}
	// The same inside a subgraph, and a node that waits for a capture.
	sub := &pb{Node: unsorted, Output: infos(info("c", 2))}
	g = &pb{Node: []*onnxpb.NodeProto{node("If", "k", "y", graphAttr("then_branch", sub), graphAttr("else_branch", sub)), node("Relu", "z", "x")},
		Input: infos(info("k"), info("z", 2)), Output: infos(info("y", 2))}
	m, warnings = load(t, model(g))
	if got := order(m.Graph); got != "Relu(z)->x If(k)->y" || ids(warnings) != "unsorted" {
		t.Errorf("%s, warnings %q", got, ids(warnings))
	}
	if got := order(m.Graph.Nodes[1].Attrs[0].G); got != "Relu(x)->a Sigmoid(x)->b Add(a,b)->c" {
		t.Error(got)
	}
}

func TestCycle(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "s"), named("first", node("Add", "s b", "a")), named("second", node("Relu", "a", "b"))},
		Input: infos(info("x", 2)), Output: infos(info("a", 2))}
	wantError(t, model(g), "", "cycle", `"first"`, `"second"`)
	// A node whose subgraph reads what the node makes.
	sub := &pb{Node: []*onnxpb.NodeProto{node("Relu", "y", "o")}, Output: infos(info("o", 2))}
	g = &pb{Node: []*onnxpb.NodeProto{named("loop", node("If", "x", "y", graphAttr("then_branch", sub)))}, Input: infos(info("x")), Output: infos(info("y", 2))}
	wantError(t, model(g), "", "cycle", `"loop"`)
}

func TestUndefinedAndDuplicateNames(t *testing.T) {
	x, y := infos(info("x", 2)), infos(info("y", 2))
	g := &pb{Node: []*onnxpb.NodeProto{named("bad", node("Add", "x nothing", "y"))}, Input: x, Output: y}
	wantError(t, model(g), "", "undefined-input", `"bad"`, `"nothing"`)
	g = &pb{Node: []*onnxpb.NodeProto{named("n1", node("Constant", "", "284")), named("n2", node("Constant", "", "284"))}, Output: infos(info("284"))}
	wantError(t, model(g), "", "duplicate-output", `"n1"`, `"n2"`, `"284"`)
	g = &pb{Node: []*onnxpb.NodeProto{named("n1", node("Relu", "x", "x"))}, Input: x, Output: x}
	wantError(t, model(g), "", "duplicate-output", `"n1"`, `"x"`)
	g = &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "z")}, Input: x, Output: y}
	wantError(t, model(g), "", "undefined-output", `"y"`)
	g = &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "y")}, Input: infos(info("x", 2), info("x", 2)), Output: y}
	wantError(t, model(g), "", "duplicate-name", `"x"`)
	g = &pb{Node: []*onnxpb.NodeProto{named("n1", node("Elu", "x", "y", floatAttr("alpha", 1), floatAttr("alpha", 2)))}, Input: x, Output: y}
	wantError(t, model(g), "", "duplicate-attribute", `"n1"`, `"alpha"`)
}

func TestDuplicateFunction(t *testing.T) {
	var p onnxpb.ModelProto
	must(t, proto.Unmarshal(seedModel(), &p))
	p.Functions = append(p.Functions, p.Functions[0])
	b, err := proto.Marshal(&p)
	must(t, err)
	wantError(t, b, "", "duplicate-function", "local::F")
}

// TestShadowing: a subgraph's input named as an outer value is another value;
// what two branches call alike are two.
func TestShadowing(t *testing.T) {
	body := &pb{Input: infos(info("i"), info("c"), info("x", 2)), Output: infos(info("c2"), info("t", 2)),
		Node: []*onnxpb.NodeProto{node("Identity", "c", "c2"), node("Relu", "x", "t")}}
	g := &pb{Node: []*onnxpb.NodeProto{node("Sigmoid", "in", "x"), node("Loop", "n _ x", "t", graphAttr("body", body))},
		Input: infos(info("in", 2), info("n")), Output: infos(info("t", 2))}
	m, _ := load(t, model(g))
	loop := m.Graph.Nodes[1]
	if len(loop.Captures) != 0 {
		t.Errorf("captures %q: the body reads its own x", loop.Captures[0].Name)
	}
	sub := loop.Attrs[0].G
	relu := sub.Nodes[1]
	if relu.In[0] != sub.Inputs[2] || relu.In[0].Name == "x" || relu.Out[0].Name == "t" {
		t.Errorf("%s reads %q", relu, relu.In[0].Name)
	}
	roundTrips(t, m)
}

func TestCapturesPropagate(t *testing.T) {
	inner := &pb{Node: []*onnxpb.NodeProto{node("Add", "x a", "o2")}, Output: infos(info("o2", 2))}
	outer := &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "a"), node("If", "k", "o1", graphAttr("then_branch", inner))}, Output: infos(info("o1", 2))}
	g := &pb{Node: []*onnxpb.NodeProto{node("If", "k", "y", graphAttr("then_branch", outer))},
		Input: infos(info("k"), info("x", 2)), Output: infos(info("y", 2))}
	m, _ := load(t, model(g))
	n := m.Graph.Nodes[0]
	nested := n.Attrs[0].G.Nodes[1]
	show := func(vs []*ir.Value) string {
		var out []string
		for _, v := range vs {
			out = append(out, v.Name)
		}
		return strings.Join(out, " ")
	}
	if show(n.Captures) != "x k" || show(nested.Captures) != "x a" {
		t.Errorf("captures %q and %q", show(n.Captures), show(nested.Captures))
	}
	if got := len(m.Graph.Inputs[1].Uses()); got != 4 { // Relu, Add, and both Ifs
		t.Errorf("x has %d uses", got)
	}
}

func TestDomains(t *testing.T) {
	ms := node("BeamSearch", "x", "y")
	ms.Domain = proto.String("com.microsoft")
	own := node("Foo", "y", "z")
	own.Domain = proto.String("my.own")
	standard := node("Relu", "z", "w")
	standard.Domain = proto.String("ai.onnx")
	g := &pb{Node: []*onnxpb.NodeProto{ms, own, standard}, Input: infos(info("x", 2)), Output: infos(info("w", 2))}
	m, warnings := load(t, model(g))
	if ids(warnings) != "domain-not-imported domain-not-imported" {
		t.Errorf("warnings %q", ids(warnings))
	}
	for i, want := range []string{"com.microsoft::BeamSearch 1", "my.own::Foo 0", "Relu 17"} {
		n := m.Graph.Nodes[i]
		if got := fmt.Sprint(n.FullOp(), " ", n.Version); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if _, err := decodeStrict(model(g)); err == nil || !strings.Contains(err.Error(), "com.microsoft") {
		t.Errorf("strict: %v", err)
	}
	g = &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "y")}, Input: infos(info("x", 2)), Output: infos(info("y", 2))}
	m, warnings = load(t, model(g, func(m *onnxpb.ModelProto) { m.OpsetImport = nil; m.IrVersion = proto.Int64(7) }))
	if m.Graph.Nodes[0].Version != 14 || ids(warnings) != "domain-not-imported" {
		t.Errorf("version %d, warnings %q", m.Graph.Nodes[0].Version, ids(warnings))
	}
	roundTrips(t, m)
	m, warnings = load(t, model(g, func(m *onnxpb.ModelProto) {
		m.OpsetImport = append(m.OpsetImport, opset("ai.onnx", 21), opset("", 17), opset("", 13))
	}))
	if m.Opsets[""] != 13 || len(warnings) == 0 || warnings[0].ID != "opset-conflict" {
		t.Errorf("%v, warnings %q", m.Opsets, ids(warnings))
	}
}

func decodeStrict(b []byte) (*ir.Model, error) {
	m, _, err := Decode(b, "", Options{Strict: true})
	return m, err
}

// TestAbsentValues: "" is no value, wherever it stands.
func TestAbsentValues(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{
		node("Clip", "x _ mx", "y"), node("LayerNormalization", "y s _ _", "n _ inv"), node("Dropout", "n _ _", "d _")},
		Input: infos(info("x", 2), info("mx"), info("s", 2)), Output: infos(info("d", 2), info("inv", 1))}
	m, _ := load(t, model(g))
	if got := order(m.Graph); got != "Clip(x,,mx)->y LayerNormalization(y,s,,)->n,,inv Dropout(n,,)->d," {
		t.Error(got)
	}
	roundTrips(t, m)
	e := ir.NewEdit(m.Graph)
	e.SetInput(m.Graph.Nodes[0], 0, m.Graph.Inputs[2])
	again, _ := load(t, mustEncode(t, m))
	if got := order(again.Graph); got != "Clip(s,,mx)->y LayerNormalization(y,s,,)->n,,inv Dropout(n,,)->d," {
		t.Error(got)
	}
}

// TestOutputs: an output may be an input, an initializer, listed twice, or
// read by nodes too.
func TestOutputs(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "v"), node("Relu", "v", "w")}, Initializer: []*onnxpb.TensorProto{floats("c", 1, 2)},
		Input: infos(info("x", 2)), Output: infos(info("v", 2), info("x", 2), info("c", 2), info("v", 2), info("w", 2))}
	m, _ := load(t, model(g))
	var got []string
	for _, v := range m.Graph.Outputs {
		got = append(got, v.Name)
	}
	if s := strings.Join(got, " "); s != "v x c v w" {
		t.Error(s)
	}
	roundTrips(t, m)
	ir.NewEdit(m.Graph).SetInput(m.Graph.Nodes[1], 0, m.Graph.Inputs[0])
	again, _ := load(t, mustEncode(t, m))
	if len(again.Graph.Outputs) != 5 || again.Graph.Outputs[0] != again.Graph.Outputs[3] {
		t.Errorf("%d outputs", len(again.Graph.Outputs))
	}
}

func TestNodeNames(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "Relu_1"), named("dup", node("Relu", "Relu_1", "b")), named("dup", node("Relu", "b", "c")), node("Relu", "c", "d")},
		Input: infos(info("x", 2)), Output: infos(info("d", 2))}
	m, _ := load(t, model(g))
	seen := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		if n.Name == "" || seen[n.Name] || n.Name == "Relu_1" {
			t.Errorf("node is called %q", n.Name)
		}
		seen[n.Name] = true
	}
	roundTrips(t, m)
}

// floats is a float initializer with typed data.
func floats(name string, vals ...float32) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: proto.Int32(1), Dims: []int64{int64(len(vals))}, FloatData: vals}
}

func external(name string, n int64, kv ...string) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, DataType: proto.Int32(1), Dims: []int64{n}, DataLocation: onnxpb.TensorProto_EXTERNAL.Enum()}
	for i := 0; i < len(kv); i += 2 {
		t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: &kv[i], Value: &kv[i+1]})
	}
	return t
}

func withInit(t *onnxpb.TensorProto) []byte {
	return model(&pb{Node: []*onnxpb.NodeProto{node("Add", "x "+t.GetName(), "y")}, Initializer: []*onnxpb.TensorProto{t},
		Input: infos(info("x", "N")), Output: infos(info("y", "N"))})
}

func TestExternalPaths(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "model")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(parent, "secret"), make([]byte, 64), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "w.bin"), []byte("abcd\x00\x00\x80\x3f"), 0o644))
	must(t, os.Symlink(filepath.Join(parent, "secret"), filepath.Join(dir, "link")))
	must(t, os.Symlink("../model/w.bin", filepath.Join(dir, "out-and-in")))
	for _, c := range []struct {
		id string
		kv []string
	}{
		{"external-path", []string{"location", "../secret"}},
		{"external-path", []string{"location", "sub/../../secret"}},
		{"external-path", []string{"location", `..\secret`}},
		{"external-path", []string{"location", `C:\secret`}},
		{"external-path", []string{"location", filepath.Join(parent, "secret")}},
		{"external-path", []string{"location", "link"}},
		{"external-path", []string{"location", "sub"}},
		{"malformed", []string{"offset", "0"}},
		{"malformed", []string{"location", "w.bin", "offset", "-4"}},
		{"malformed", []string{"location", "w.bin", "length", "x"}},
		{"external-range", []string{"location", "w.bin", "offset", "8"}},
		{"external-range", []string{"location", "w.bin", "offset", "9223372036854775807"}},
		{"external-range", []string{"location", "w.bin", "length", "2"}},
		{"external-range", []string{"location", "w.bin", "offset", "4", "length", "5"}},
	} {
		wantError(t, withInit(external("w", 1, c.kv...)), dir, c.id, `"w"`)
	}
	m, _, err := Decode(withInit(external("w", 1, "location", "w.bin", "offset", "4")), dir, Options{})
	must(t, err)
	x, err := m.Graph.Inits[0].Init.Tensor()
	if err != nil || x.Floats()[0] != 1 {
		t.Errorf("%v %v", x, err)
	}
}

// TestExternalAbsent: 10 GB of weights that are not there. The model is
// planned, written and stays small; only who needs the bytes is told.
func TestExternalAbsent(t *testing.T) {
	w := external("W", 0, "location", "w.bin", "offset", "4096", "length", "10000000000")
	w.Dims = []int64{50000, 50000}
	m, warnings, err := Decode(withInit(w), t.TempDir(), Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, ids(warnings))
	}
	must(t, ir.InferGraph(m.Graph, ir.InferOptions{}))
	want := ir.External{Location: "w.bin", Offset: 4096, Length: 10_000_000_000}
	if got := *m.Graph.Inits[0].Init.External; got != want {
		t.Errorf("%+v", got)
	}
	_, err = m.Graph.Inits[0].Init.Tensor()
	if d, ok := err.(*diag.Diagnostic); !ok || d.ID != "external-missing" {
		t.Errorf("got %v", err)
	}
	m.Graph.AddInit("new", ir.WeightOf(ir.FromInts(ir.Int64, []int64{1})))
	again, _ := load(t, mustEncode(t, m))
	if got := *again.Graph.Inits[0].Init.External; got != want {
		t.Errorf("written as %+v", got)
	}
}

func TestInputsThatAreInitializers(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Add", "x w", "y")}, Initializer: []*onnxpb.TensorProto{floats("w", 1)},
		Input: infos(info("x", 1), info("w", 1)), Output: infos(info("y", 1))}
	m, _ := load(t, model(g))
	if w := m.Graph.Inputs[1]; w.Init == nil || len(m.Graph.Inits) != 1 || m.Graph.Inits[0] != w {
		t.Error("w is an input with a default")
	}
	roundTrips(t, m)
	old := model(g, func(m *onnxpb.ModelProto) { m.IrVersion = proto.Int64(3) })
	m, _ = load(t, old)
	if len(m.Graph.Inputs) != 1 || m.Graph.Inits[0].IsInput() {
		t.Error("before IR version 4, w is listed as an input only because it had to be")
	}
	roundTrips(t, m)
	m.Graph.AddInit("v", ir.WeightOf(ir.FromFloats(ir.Float, []float64{1})))
	b := mustEncode(t, m)
	var p onnxpb.ModelProto
	must(t, proto.Unmarshal(b, &p))
	if p.GetIrVersion() != 3 || len(p.Graph.Input) != 3 || len(p.Graph.Initializer) != 2 {
		t.Errorf("IR version %d, %d inputs, %d initializers", p.GetIrVersion(), len(p.Graph.Input), len(p.Graph.Initializer))
	}
	// Where the version is raised, what was listed for that reason alone is not
	// an input any more: it would be one with a default.
	m, _ = load(t, old)
	m.Functions = append(m.Functions, &ir.Function{Domain: "d", Name: "f", Opsets: map[string]int{"": 17}, Body: ir.NewGraph("f", map[string]int{"": 17})})
	again, _, err := Decode(mustEncode(t, m), "", Options{})
	must(t, err)
	if again.IRVersion < 4 || len(again.Graph.Inputs) != 1 {
		t.Errorf("IR version %d, %d inputs", again.IRVersion, len(again.Graph.Inputs))
	}
}

func TestDeclaredTypes(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Unknown", "x", "h"), node("Relu", "h", "y")}, Input: infos(info("x", "batch", "2*seq+1")),
		ValueInfo: infos(info("h", 2, 3)), Output: infos(info("y", 2, 3))}
	open := &onnxpb.TensorShapeProto_Dimension{}
	g.Input = append(g.Input, info("q"))
	g.Input[1].Type.GetTensorType().Shape.Dim = []*onnxpb.TensorShapeProto_Dimension{open, open,
		{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "_u1"}}, {Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: -1}}}
	m, _ := load(t, model(g))
	if got := m.Graph.Nodes[0].Out[0].Type.String(); got != "float[2,3]" {
		t.Error(got)
	}
	x := m.Graph.Inputs[0].Type.Shape
	if got := x.Dims[1].Symbols(); !slices.Equal(got, []string{"seq"}) {
		t.Errorf("%s", x)
	}
	q := m.Graph.Inputs[1].Type.Shape.Dims
	for i := range q {
		for j := range i {
			if q[i].Equal(q[j]) {
				t.Errorf("dims %d and %d of q are both %s", i, j, q[i])
			}
		}
	}
	roundTrips(t, m)
}

func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	good := withInit(floats("w", 1))
	for _, c := range []struct {
		name, content, id, want string
	}{
		{"empty", "", "not-onnx", "empty"},
		{"text", "hello, world: this is text\n", "malformed", "text file"},
		{"lfs", "version https://git-lfs.github.com/spec/v1\n", "malformed", "git lfs pull"},
		{"zip", "PK\x03\x04aaaaaaaaaaaaaaaaaa", "malformed", "zip archive"},
		{"cut", string(good[:len(good)-30]), "malformed", "at byte "},
		{"no graph", "\x08\x08", "not-onnx", "no graph"},
	} {
		path := filepath.Join(dir, c.name)
		must(t, os.WriteFile(path, []byte(c.content), 0o644))
		_, _, err := Load(path, Options{})
		d, ok := err.(*diag.Diagnostic)
		if !ok || d.ID != c.id && c.id != "malformed" || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	if _, _, err := Load(filepath.Join(dir, "absent.onnx"), Options{}); err == nil || err.(*diag.Diagnostic).ID != "read" {
		t.Errorf("got %v", err)
	}
	if _, _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("got %v", err)
	}
}

// TestEveryPrefix cuts a model at every byte.
func TestEveryPrefix(t *testing.T) {
	b := seedModel()
	for n := range b {
		if m, _, err := Decode(b[:n], "", Options{}); err == nil && m == nil {
			t.Fatalf("%d bytes: neither a model nor an error", n)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

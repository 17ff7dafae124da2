package onnx

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx/internal/onnxpb"
)

func mustEncode(t *testing.T, m *ir.Model) []byte {
	t.Helper()
	b, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// roundTrips checks that an untouched model is written as it was read.
func roundTrips(t *testing.T, m *ir.Model) {
	t.Helper()
	if !bytes.Equal(mustEncode(t, m), m.Raw) {
		t.Errorf("the model is not written as it was read")
	}
}

func unmarshal(t *testing.T, b []byte) *onnxpb.ModelProto {
	t.Helper()
	var p onnxpb.ModelProto
	if err := proto.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// seedModel has one of everything: types of tensors, subgraphs, a function,
// annotations, metadata, an unknown field and a non-minimal varint.
func seedModel() []byte {
	sub := &pb{Name: proto.String("s"), Node: []*onnxpb.NodeProto{node("Add", "x w", "o")}, Output: infos(info("o", 2))}
	call := node("F", "y", "z", floatAttr("slope", 0.5))
	call.Domain = proto.String("local")
	g := &pb{
		Node:        []*onnxpb.NodeProto{named("n", node("If", "k", "y", graphAttr("then_branch", sub), graphAttr("else_branch", sub))), call},
		Initializer: []*onnxpb.TensorProto{floats("w", 1, 2)},
		SparseInitializer: []*onnxpb.SparseTensorProto{{Dims: []int64{4}, Values: floats("sp", 5),
			Indices: &onnxpb.TensorProto{DataType: proto.Int32(7), Dims: []int64{1}, Int64Data: []int64{2}}}},
		Input: infos(info("k"), info("x", "N")), Output: infos(info("z", "N")), ValueInfo: infos(info("y", "N")),
		QuantizationAnnotation: []*onnxpb.TensorAnnotation{{TensorName: proto.String("y")}},
		MetadataProps:          []*onnxpb.StringStringEntryProto{{Key: proto.String("a"), Value: proto.String("b")}},
	}
	body := node("LeakyRelu", "X", "Y", refAttr("alpha", "slope", ir.AttrFloat))
	b := model(g, func(m *onnxpb.ModelProto) {
		m.OpsetImport = append(m.OpsetImport, opset("local", 1))
		m.ProducerName = proto.String("test")
		m.Functions = []*onnxpb.FunctionProto{{Name: proto.String("F"), Domain: proto.String("local"), Input: names("X"), Output: names("Y"),
			Attribute: names("slope"), Node: []*onnxpb.NodeProto{body}, OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 17)}}}
	})
	b = append(b, 0x28, 0x81, 0x80, 0x00)     // model_version 1 in three bytes
	return append(b, 0xfa, 0x3f, 2, 'h', 'i') // field 1023
}

func TestSeedModel(t *testing.T) {
	m, warnings := load(t, seedModel())
	if len(warnings) > 0 || m.ModelVersion != 1 || len(m.Functions) != 1 {
		t.Errorf("warnings %q, model version %d, %d functions", ids(warnings), m.ModelVersion, len(m.Functions))
	}
	roundTrips(t, m)
	sp, err := m.Graph.Inits[1].Init.Tensor()
	if err != nil || sp.Floats()[2] != 5 || sp.Len() != 4 {
		t.Errorf("sparse initializer: %v %v", sp, err)
	}
}

// TestChangedModel inserts a node of a domain that is not imported and looks
// at what is written: unchanged nodes keep their bytes, new tensors have a
// type, the domain is imported once.
func TestChangedModel(t *testing.T) {
	m, _ := load(t, seedModel())
	g := m.Graph
	call := g.Nodes[1]
	e := ir.NewEdit(g)
	swap := e.InsertBefore(call, ir.NodeSpec{Name: "y.out", Domain: ir.MemocDomain, Op: "SwapOut", In: []*ir.Value{g.Nodes[0].Out[0]}, Out: []string{g.Fresh("y.host")}})
	swap.Out[0].Type = g.Nodes[0].Out[0].Type
	e.SetInput(call, 0, swap.Out[0])
	e.Done()
	m.Functions = append(m.Functions, swapFunction())
	m.Meta = append(m.Meta, ir.KV{Key: "memoc", Value: "{}"})
	b := mustEncode(t, m)
	p := unmarshal(t, b)
	if !bytes.Contains(b, g.Nodes[0].Raw) {
		t.Error("the unchanged node is not written as it was read")
	}
	if got := p.Graph.Node[1].GetOpType() + " " + p.Graph.Node[2].GetOpType() + " " + p.Graph.Node[2].Input[0]; got != "SwapOut F y.host" {
		t.Error(got)
	}
	var imports []string
	for _, o := range p.OpsetImport {
		imports = append(imports, o.GetDomain())
	}
	if got := strings.Join(imports, ","); got != ",local,ai.memoc" {
		t.Errorf("imports %q", got)
	}
	var typed []string
	for _, v := range p.Graph.ValueInfo {
		typed = append(typed, v.GetName())
	}
	if got := strings.Join(typed, " "); got != "y y.host" {
		t.Errorf("value_info of %q", got)
	}
	if len(p.Functions) != 2 || len(p.MetadataProps) != 1 || p.GetModelVersion() != 1 || len(p.ProtoReflect().GetUnknown()) == 0 ||
		len(p.Graph.QuantizationAnnotation) != 1 || p.GetIrVersion() != 8 {
		t.Errorf("something of the model was lost: %v", p)
	}
	again, _ := load(t, b)
	roundTrips(t, again)
}

func swapFunction() *ir.Function {
	body := ir.NewGraph("SwapOut", map[string]int{"": 17})
	x := body.AddInput("X", ir.Type{})
	n := body.Append(ir.NodeSpec{Name: "id", Op: "Identity", In: []*ir.Value{x}, Out: []string{"Y"}})
	body.Outputs = n.Out
	return &ir.Function{Domain: ir.MemocDomain, Name: "SwapOut", Inputs: []string{"X"}, Outputs: []string{"Y"}, Opsets: body.Opsets, Body: body}
}

func TestStaleValueInfo(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")}, Input: infos(info("x", 2, 3)),
		ValueInfo: infos(info("a", 2, 4), info("b", 2, 3), info("gone", 7)), Output: infos(info("y", 2, 3))}
	m, _ := load(t, model(g))
	var reports int
	must(t, ir.InferGraph(m.Graph, ir.InferOptions{Report: func(*diag.Diagnostic) { reports++ }}))
	roundTrips(t, m) // nothing changed
	m.Graph.Nodes[0].Out[0].Type = ir.TensorOf(ir.Float, ir.Ints64(2, 3))
	e := ir.NewEdit(m.Graph)
	e.SetInput(m.Graph.Nodes[2], 0, m.Graph.Nodes[0].Out[0])
	must(t, e.Remove(m.Graph.Nodes[1]))
	e.Done()
	p := unmarshal(t, mustEncode(t, m))
	if len(p.Graph.ValueInfo) != 1 || p.Graph.ValueInfo[0].GetName() != "a" ||
		p.Graph.ValueInfo[0].Type.GetTensorType().Shape.Dim[1].GetDimValue() != 3 {
		t.Errorf("%v", p.Graph.ValueInfo)
	}
}

// TestBoundDims: symbols that were bound are written bound.
func TestBoundDims(t *testing.T) {
	m, _ := load(t, withInit(floats("w", 1)))
	must(t, ir.InferGraph(m.Graph, ir.InferOptions{Dims: map[string]ir.Dim{"N": ir.N(8)}}))
	p := unmarshal(t, mustEncode(t, m))
	for _, v := range append(p.Graph.Input, p.Graph.Output...) {
		if n := v.Type.GetTensorType().Shape.Dim[0].GetDimValue(); n != 8 {
			t.Errorf("%s has dim %d", v.GetName(), n)
		}
	}
}

// TestChangedSubgraph: values of a subgraph that were renamed are written with
// their new names once something in it changed.
func TestChangedSubgraph(t *testing.T) {
	branch := func() *pb {
		return &pb{Name: proto.String("b"), Node: []*onnxpb.NodeProto{node("Relu", "x", "t"), node("Relu", "t", "o")}, Output: infos(info("o", 2))}
	}
	g := &pb{Node: []*onnxpb.NodeProto{node("If", "k", "y", graphAttr("then_branch", branch()), graphAttr("else_branch", branch()))},
		Input: infos(info("k"), info("x", 2)), Output: infos(info("y", 2))}
	m, _ := load(t, model(g))
	roundTrips(t, m)
	sub := m.Graph.Nodes[0].Attrs[1].G
	e := ir.NewEdit(sub)
	n := e.InsertBefore(sub.Nodes[1], ir.NodeSpec{Name: "new", Op: "Sigmoid", In: []*ir.Value{sub.Nodes[0].Out[0]}, Out: []string{sub.Fresh("t")}})
	e.SetInput(sub.Nodes[1], 0, n.Out[0])
	e.Done()
	again, _ := load(t, mustEncode(t, m))
	subs := again.Graph.Nodes[0].Subgraphs()
	if got := order(subs[0]); got != "Relu(x)->t Relu(t)->o" {
		t.Error(got)
	}
	if got := order(subs[1]); got != "Relu(x)->t_0 Sigmoid(t_0)->t_1 Relu(t_1)->o_0" {
		t.Error(got)
	}
}

// TestReorder: the records of nodes stand in the graph's order.
func TestReorder(t *testing.T) {
	g := &pb{Node: []*onnxpb.NodeProto{node("Add", "a b", "c"), node("Relu", "x", "a"), node("Sigmoid", "x", "b")}, Input: infos(info("x", 2)), Output: infos(info("c", 2))}
	m, _ := load(t, model(g))
	roundTrips(t, m)
	ns := m.Graph.Nodes
	ns[0], ns[1] = ns[1], ns[0]
	again, warnings := load(t, mustEncode(t, m))
	if got := order(again.Graph); got != "Sigmoid(x)->b Relu(x)->a Add(a,b)->c" || len(warnings) > 0 {
		t.Errorf("%s, warnings %q", got, ids(warnings))
	}
}

func TestFromScratch(t *testing.T) {
	g := ir.NewGraph("made", map[string]int{"": 18})
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Dims(ir.Sym("N").Mul(ir.N(2)), ir.N(4))))
	w := g.AddInit("w", ir.WeightOf(ir.FromFloats(ir.Float16, []float64{1, 2}, 2)))
	big := g.AddInit("big", &ir.Weight{Type: ir.TensorOf(ir.BFloat16, ir.Ints64(1<<20, 1<<20)), External: &ir.External{Location: "w.bin", Offset: 1 << 40, Length: 1 << 41}})
	s := g.AddInit("s", ir.WeightOf(&ir.Tensor{DType: ir.String, Dims: []int64{1}, Strings: []string{"é"}}))
	n := g.Append(ir.NodeSpec{Name: "n", Op: "Any", In: []*ir.Value{x, nil, w, big, s}, Out: []string{"y"}, Attrs: []ir.Attr{
		ir.IntAttr("i", -1), ir.FloatAttr("f", 0.5), ir.StringAttr("s", "t"), ir.IntsAttr("is", 1, 2), ir.FloatsAttr("fs", []float32{1}),
		ir.TensorAttr("t", ir.FromInts(ir.Int4, []int64{-8, 7, 1}, 3)), {Name: "ss", Kind: ir.AttrStrings, Strings: []string{"a"}},
		{Name: "ty", Kind: ir.AttrType, Type: ir.SequenceOf(x.Type)}}})
	g.Outputs = n.Out
	m := &ir.Model{IRVersion: 9, Opsets: g.Opsets, Graph: g, ProducerName: "memoc"}
	path := filepath.Join(t.TempDir(), "m.onnx")
	must(t, Save(path, m))
	again, _, err := Load(path, Options{})
	must(t, err)
	if a, b := ir.PrintGraph(g, ir.TextOptions{}), ir.PrintGraph(again.Graph, ir.TextOptions{}); a != b {
		t.Errorf("written\n%s\nread\n%s", a, b)
	}
	if got := *again.Graph.Inits[1].Init.External; got != *big.Init.External {
		t.Errorf("%+v", got)
	}
	if err := Save(path, again); err == nil || err.(*diag.Diagnostic).ID != "write-input" {
		t.Errorf("the input is overwritten: %v", err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("%d files are left", len(left))
	}
}

// TestForeignVersion: a node that came from a function with another version of
// its operator keeps its meaning when it is written.
func TestForeignVersion(t *testing.T) {
	m, _ := load(t, seedModel())
	m.Functions[0].Body.Nodes[0].Version = 6 // of LeakyRelu, in a model of opset 17
	must(t, ir.Inline(m))
	again, _ := load(t, mustEncode(t, m))
	if n := again.Graph.Nodes[1]; n.Domain != compatDomain || len(again.Functions) != 1 || again.Functions[0].Opsets[""] != 6 {
		t.Errorf("written as %s with %d functions", n, len(again.Functions))
	}
	must(t, ir.Inline(again))
	if n := again.Graph.Nodes[1]; n.Op != "LeakyRelu" || n.Version != 6 || n.Float("alpha", 0) != 0.5 || n.Out[0].Name != "z" {
		t.Errorf("read as %s %v", n, n.Attrs)
	}
	// Of the model's own version it is written as it is.
	m, _ = load(t, seedModel())
	must(t, ir.Inline(m))
	again, _ = load(t, mustEncode(t, m))
	if n := again.Graph.Nodes[1]; n.Op != "LeakyRelu" || len(again.Functions) != 0 {
		t.Errorf("written as %s with %d functions", n, len(again.Functions))
	}
}

// A model without imports is written back without them; once it changes, the
// set that was assumed is stated, since nobody else reads it otherwise.
func TestAssumedImportIsWritten(t *testing.T) {
	b := model(&pb{Node: []*onnxpb.NodeProto{node("Relu", "x", "y")}, Input: infos(info("x", 2)), Output: infos(info("y", 2))},
		func(m *onnxpb.ModelProto) { m.OpsetImport = nil })
	m, _, err := Decode(b, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	roundTrips(t, m)
	m.Graph.Append(ir.NodeSpec{Name: "n", Op: "Neg", In: []*ir.Value{m.Graph.Outputs[0]}, Out: []string{"z"}})
	got := unmarshal(t, mustEncode(t, m)).OpsetImport
	if len(got) != 1 || got[0].GetDomain() != "" || int(got[0].GetVersion()) != m.Opsets[""] {
		t.Errorf("imports %v, want version %d of the default domain", got, m.Opsets[""])
	}
}

// A node of another version than the model imports is written as a call, and
// read back as the node where that is asked for: a compiled folder holds the
// nodes that its plan speaks of.
func TestBridgesAreReadBack(t *testing.T) {
	g := ir.NewGraph("g", map[string]int{"": 17})
	x, axes := g.AddInput("x", ir.TensorOf(ir.Float, ir.Ints64(2, 3))), g.AddInput("axes", ir.TensorOf(ir.Int64, ir.Ints64(1)))
	n := g.Append(ir.NodeSpec{Name: "n", Op: "Clip", Version: 18, In: []*ir.Value{x, nil, axes}, Out: []string{"y"}, Attrs: []ir.Attr{ir.IntAttr("a", 3)}})
	g.Outputs = n.Out
	b := mustEncode(t, &ir.Model{IRVersion: 10, Opsets: g.Opsets, Graph: g})
	for _, unbridge := range []bool{false, true} {
		m, _, err := Decode(b, "", Options{Unbridge: unbridge})
		if err != nil {
			t.Fatal(err)
		}
		got := m.Graph.Nodes[0]
		if !unbridge {
			if got.Domain != compatDomain {
				t.Errorf("read as %s without being asked to", got)
			}
			continue
		}
		if got.Op != "Clip" || got.Domain != "" || got.Version != 18 || got.Name != "n" || got.Int("a", 0) != 3 ||
			len(got.In) != 3 || got.In[0].Name != "x" || got.In[1] != nil || got.In[2].Name != "axes" || got.Out[0] != m.Graph.Outputs[0] {
			t.Errorf("read as %s of %v", got, got.In)
		}
	}
}

package ir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir/diag"
)

// canonical is a text as Print writes it, with everything the syntax has.
const canonical = `<
   ir_version: 10,
   opset_import: ["" : 17, "com.foo" : 1],
   producer_name: "p\"q\\r",
   producer_version: "1",
   domain: "d",
   model_version: 3,
   doc_string: "two
lines",
   metadata_props: ["a": "b", "": ""]
>
"my graph!" (float[N,3] x, int64[] "s/0:1", float y, float["2*N+1",2,"é"] q, seq(float[2]) sq, optional(map(int64, string[])) o, #@ doc "an \"input\"\n"
 float[2] w, nothing) => (float["N",3] z, float[N,3] x)
   <float[2] w = {1,2.5},
    int64[2] k = {1,-2}, #@ ints [1, -2] doc "k"
    float16[2] h = {15872,16384},
    bool[2] b = {1,0},
    string[2] t = {"a\"\\b
é", ""},
    double v = {0.3333333333333333},
    int4[3] i4 = {33,15},
    complex64[1] c = {1,-0.0},
    float[4] nans = {nan,-nan,inf,-inf},
    uint64[1] u = {18446744073709551615},
    float[0,2] none = {},
    float[1000] big = ["elided": "1000 elements"],
    float[1000] ext = ["location": "w.bin", "offset": "16", "length": "4000", "checksum": "ff"],
    sparse_tensor(float[2,2]) sp = ["elided": "4 elements"],
    float[2,2] sp2 = ["elided": "4 elements"], #@ sparse
    float[N,3] a #@ ints [N, "N+1", 2]
    >
{ #@ doc "graph\ndoc" meta "k" "v"
   [n1] a = Add (x, y) #@ origin "n0" backward version 13 doc "d" meta "k" "v" meta "k2" "v2"
   ["node 2"] b2, "", c2 = com.foo.Bar <alpha: float = 1.5, b: ints = [1, 2, 3], s: string = "st\"r", st: strings = ["a", "b"], t: tensor = float[2] {1,2}, ty: type_proto = float[N], ei: ints = [], ff: floats = [1, 1e+20, -0.0], ts: tensors = [float[1] {1}, int64 {2}], "a b": int = -3> (x, "", a)
   [n3] z = If (b2) <then_branch: graph = the_n (float inner) => (float[N,3] a)
      <float[1] w0 = {1}>
   { #@ name "the-n"
      [n4] d = "we ird"."o p":ov1 (a, w0)
   }, else_branch: graph = g2 () => (float[N,3] e) {
      [n5] e = Identity (x)
   }>
   [n6] = Sink ()
}
<
   domain: "com.foo",
   overload: "o",
   opset_import: ["" : 17],
   doc_string: "fn"
>
f <p, q: int = 1> (x, y) => (z)
   <float[N] t>
{
   [Add] t = Add (x, y)
   [Foo] z = Foo <k: int = @p> (t)
}
`

func TestCanonicalText(t *testing.T) {
	text := strings.Replace(canonical, `float["N",3] z`, `float[N,3] z`, 1)
	m, err := Parse("c.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	if got := Print(m, TextOptions{}); got != text {
		t.Errorf("printed text differs:\n%s", firstDifference(got, text))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one text is the beginning of the other:\n" + got
}

// What Parse makes of the parts of a text.
func TestParse(t *testing.T) {
	m, err := Parse("c.txt", canonical)
	if err != nil {
		t.Fatal(err)
	}
	g := m.Graph
	if m.Path != "c.txt" || m.Opsets["com.foo"] != 1 || len(m.Functions) != 1 {
		t.Errorf("model is %+v", m)
	}
	add, bar, cond := g.Nodes[0], g.Nodes[1], g.Nodes[2]
	if add.Origin != "n0" || !add.Backward || add.Version != 13 || add.Loc.String() != "c.txt:graph:node 0" {
		t.Errorf("node is %+v", add)
	}
	if bar.Domain != "com.foo" || bar.Version != 1 || bar.Out[1] != nil || bar.In[1] != nil || bar.In[2] != add.Out[0] {
		t.Errorf("node is %+v", bar)
	}
	if len(cond.Captures) != 2 || cond.Captures[0] != add.Out[0] || cond.Captures[1] != g.Inputs[0] {
		t.Errorf("captures are %v", cond.Captures)
	}
	then := cond.Attr("then_branch").G
	if then.Owner != cond || then.Outputs[0] != add.Out[0] || then.Nodes[0].Domain != "we ird" || then.Nodes[0].Loc.Path != "graph/the_n" {
		t.Errorf("branch is %+v", then)
	}
	if w := g.Inputs[6]; w.Init == nil || g.Inits[0] != w || !w.IsInput() {
		t.Error("an initializer that is an input is one value")
	}
	if two := g.Inputs[3].Type.Shape.Dims[0]; !two.Equal(Sym("N").Mul(N(2)).Add(N(1))) {
		t.Errorf("dim is %s", two)
	}
	if x := g.Inits[6]; x.Name != "i4" || len(x.Type.Shape.Dims) != 1 {
		t.Errorf("initializer is %s", x.Name)
	} else if d, err := x.Init.Tensor(); err != nil || d.Ints()[0] != 1 || d.Ints()[1] != 2 || d.Ints()[2] != -1 {
		t.Errorf("int4 is %v, %v", d, err)
	}
	if _, err := g.Inits[11].Init.Tensor(); err == nil {
		t.Error("elided data must not load")
	}
}

// Forms that people and other printers write are read too.
func TestParseIsLenient(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`g (float[2] x = {1,2}) => (z) { z = Neg(x,) }`,
			"g (float[2] x) => (z)\n   <float[2] x = {1,2}>\n{\n   [Neg] z = Neg (x)\n}\n"},
		{`g (x) => () { a, , c, = Op (, x) b, = Op (, ) = Op () }`,
			"g (x) => () {\n   [Op] a, \"\", c = Op (\"\", x)\n   [Op_0] b = Op (\"\")\n   [Op_1] = Op ()\n}\n"},
		{`g (x) => () { # nothing
			a = Op <f = 1.0, i = 1, fs = [1, 2.5], is = [1,2], s = "x", ss = ["x"], t = float[1] name = {1}, ty = float, g = h () => () {}, n = nan, r: ints = @q, l : floats = [1]> (x) }`,
			"g (x) => () {\n   [Op] a = Op (x) <f: float = 1, i: int = 1, fs: floats = [1, 2.5], is: ints = [1, 2], s: string = \"x\", ss: strings = [\"x\"], t: tensor = float[1] {1}, ty: type_proto = float, g: graph = h () => () {\n   }, n: float = nan, r: ints = @q, l: floats = [1]>\n}\n"},
		{`g (int4[3] x = {1,-2,3}) => () {}`, "g (int4[3] x) => ()\n   <int4[3] x = {225,3}>\n{\n}\n"},
		{`g (float[?,_u1] x) => () {}`, "g (float[_u2,_u1] x) => () {\n}\n"},
		// The second branch's t is renamed, and the outer y keeps its name.
		{`g (x) => (y) { y = If (x) <a = b1 () => (t) { y = N(x) t = N(y) }, b = b2 () => (t) { t = N(x) }> }`,
			"g (x) => (y) {\n   [If] y = If (x) <a: graph = b1 () => (t) {\n      [N] y_0 = N (x)\n      [N_0] t = N (y_0)\n   }, b: graph = b2 () => (t_0) {\n      [N_1] t_0 = N (x)\n   }>\n}\n"},
		{`g (x) => () { [n] a = N(x) [n] b = N(x) [x] c = N(x) }`,
			"g (x) => () {\n   [n] a = N (x)\n   [n_0] b = N (x)\n   [x] c = N (x)\n}\n"},
	} {
		g, err := ParseGraph("", c.in, nil)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		got := PrintGraph(g, TextOptions{})
		if got != c.want && !strings.Contains(c.in, "_u1") {
			t.Errorf("%s gives\n%s\nwant\n%s", c.in, got, c.want)
		}
		if again, err := ParseGraph("", got, nil); err != nil || PrintGraph(again, TextOptions{}) != got {
			t.Errorf("%s is not canonical: %v", got, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", `e.txt:1:1: expected a graph's name, found the end of the text`},
		{"<foo: 1> g () => () {}", `e.txt:1:2: unknown field "foo"`},
		{"<ir_version: x> g () => () {}", `e.txt:1:14: expected a number, found "x"`},
		{"g () => () {\n  y = Neg (x) }", `e.txt:2:12: tensor "x" is read before it is defined`},
		{"g (x) => (z) { y = Neg (x) }", `e.txt:1:11: output "z" is never defined`},
		{"g (x) => (float[2] z) { y = Neg (x) }", `e.txt:1:11: output "z" is never defined`},
		{"g (x) => () {\n y = N (x)\n y = N (x) }", `e.txt:3:2: tensor "y" is defined twice in this graph`},
		{"g (x) => () <float q> { }", `e.txt:1:14: a type is given for "q", which nothing in this graph defines`},
		{"g (float[2] x = {1}) => () {}", `e.txt:1:4: float[2] needs 2 numbers, found 1`},
		{"g (float[N] x = {1}) => () {}", `e.txt:1:4: a tensor literal needs an element type and integer dims, not float[N]`},
		{"g (int8[1] x = {200}) => () {}", `e.txt:1:17: 200 is outside of [-128, 127]`},
		{"g (float[1] x = {1e99}) => () {}", `e.txt:1:18: 1e99 is no float`},
		{`g (x) => () { y = N <a = "b> (x) }`, `e.txt:1:26: the quoted text does not end`},
		{"g (x) => () { y = N <a: foo = 1> (x) }", `e.txt:1:25: "foo" is no kind of attribute`},
		{"g (x) => () { y = N <a = []> (x) }", "e.txt:1:26: an empty list needs a kind, such as `: ints`"},
		{"g (x) => () { y = N <a = 1, a = 2> (x) }", `e.txt:1:29: attribute "a" is given twice`},
		{"g (x) => () { y = N <a = @b> (x) }", "e.txt:1:26: the reference needs a kind: a: int = @…"},
		{"g (x) => () { y = N (x) #@ foo\n }", `e.txt:1:25: "foo" is no word of a node's comment`},
		{"g ( #@ doc \"d\"\n x) => () {}", `e.txt:1:5: this comment belongs to nothing`},
		{"g (x) => () {} h", `e.txt:1:17: expected "=", found the end of the text`},
		{"g (float[2 x) => () {}", `e.txt:1:12: expected ",", found "x"`},
		{"g (x) => () { y = N <a = " + strings.Repeat("seq(", 300) + "> (x) }", `nested more than 200 levels deep`},
		{"g (float[99999999999,99999999999] x = {1}) => () {}", `no tensor can have the dims`},
	} {
		_, err := Parse("e.txt", c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngives %v\nwant  %s", c.in, err, c.want)
		}
		var d *diag.Diagnostic
		if err != nil && (!errors.As(err, &d) || d.ID != "text") {
			t.Errorf("%v is no located diagnostic", err)
		}
	}
}

func TestBrief(t *testing.T) {
	g, err := ParseGraph("", `g (float[2] x) => (float[2] z) <float[2] y> {
		[a] y = Neg <t = float[5] {1,2,3,4,5}> (x) #@ origin "n"
		[b] z = Neg (y) }`, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "g (float[2] x) => (float[2] z) {\n   [a] y = Neg <t: tensor = float[5] {…}> (x)\n   [b] z = Neg (y)\n}\n"
	if got := PrintGraph(g, TextOptions{Brief: true, MaxElems: 4}); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestParseDim(t *testing.T) {
	n, m := Sym("N"), Sym("M")
	for s, want := range map[string]Dim{
		"8": N(8), "N": n, "-N": n.Neg(), "N + 1": n.Add(N(1)), "2*N*M-3*N": n.Mul(m).Mul(N(2)).Sub(n.Mul(N(3))),
		"'a b'*2": Sym("a b").Mul(N(2)), "''''": Sym("'"), "''": Sym(""),
	} {
		if d, ok := ParseDim(s); !ok || !d.Equal(want) {
			t.Errorf("ParseDim(%q) = %s, %v", s, d, ok)
		}
		if got := dimOf(dimName(want)); !got.Equal(want) {
			t.Errorf("%q prints as %q, which reads as %s", want, dimName(want), got)
		}
	}
	for _, s := range []string{"", "floor(N/2)", "N+", "N 2", "2 N", "input.1", "99999999999999999999", "'a"} {
		if d, ok := ParseDim(s); ok {
			t.Errorf("ParseDim(%q) = %s", s, d)
		}
		if d := dimOf(s); !d.Equal(Sym(s)) || !dimOf(dimName(d)).Equal(d) {
			t.Errorf("%q is not a symbol as a whole", s)
		}
	}
}

// What we print, Python's parser reads; what Python prints, we read; and both
// agree on the model.
func TestPythonReadsIt(t *testing.T) {
	python := os.Getenv("MEMOC_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import onnx.parser, onnx.printer").Run() != nil {
		t.Skip("no Python with onnx (set MEMOC_PYTHON)")
	}
	text := `<ir_version: 8, opset_import: ["" : 17, "com.foo" : 1], doc_string: "a \"doc\"", metadata_props: ["a" : "b"]>
"my graph" (float["N+1",?,M] "x/0", int64[] s, seq(float) q, float16[2] h = {1,65535}, float[2] w) => (float z)
<float[2] w = {1.5, -0.0}, double[3] d = {0.1, nan, -inf}, string[1] st = {"a\"b"}, float[9] e = ["location" : "f", "offset" : "4"], int64[70] long = {` +
		strings.Repeat("7,", 69) + `7}, float[M] a> {
 [first] a, "", b = com.foo.Op <f = 0.1, i = -5, s = "q\\\"", fs = [1.5, 2.0], is = [1, 2], e : ints = [], t = int8[2] {-1, 3}, ty = float[N], inf = inf> ("x/0", "", s)
 [second] z = If (b) <then_branch = th () => (float y1) { y1 = Identity (a) }, else_branch = el () => (float y2) <float[1] one = {1}> { y2 = Identity (one) }>
}
<domain : "com.foo", overload : "ov", opset_import : ["" : 17]>
f <k, l : int = 3> (u) => (v) { v = Op <k : int = @k> (u) }
`
	m, err := Parse("m", text)
	if err != nil {
		t.Fatal(err)
	}
	ours := Print(m, TextOptions{MaxElems: -1})
	dir := t.TempDir()
	write := func(name, s string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script := `
import sys, onnx.parser, onnx.printer
a, b = (onnx.parser.parse_model(open(f).read()) for f in sys.argv[1:])
for m in a, b:
    del m.graph.value_info[:]  # memoc numbers unknown dims
    for i in m.graph.input:
        if i.type.tensor_type.shape.dim and i.name == "x/0": i.type.tensor_type.shape.dim[1].Clear()
    for ns in [m.graph.node] + [f.node for f in m.functions] + [at.g.node for n in m.graph.node for at in n.attribute]:
        for n in ns: n.ClearField("name")
    a_inits = sorted(m.graph.initializer, key=lambda t: t.name)
    del m.graph.initializer[:]
    m.graph.initializer.extend(a_inits)
assert a == b, "models differ:\n%s\n---\n%s" % (a, b)
sys.stdout.write(onnx.printer.to_text(a))`
	cmd := exec.Command(python, "-c", script, write("text", text), write("ours", ours))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	theirs, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr.String(), ours)
	}
	again, err := Parse("theirs", string(theirs))
	if err != nil {
		t.Fatalf("Python's text: %v\n%s", err, theirs)
	}
	if len(again.Graph.Nodes) != 2 || len(again.Graph.Inits) != len(m.Graph.Inits) {
		t.Errorf("Python's text reads as another model:\n%s", theirs)
	}
}

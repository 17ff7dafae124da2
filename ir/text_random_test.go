package ir

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"memoc/ir/mutate"
)

// Property: printing a random model and parsing the text gives an equal model
// that prints the same.
func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := (&modelMaker{t: t}).model()
		text := Print(m, TextOptions{MaxElems: -1})
		again, err := Parse("t", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := modelDiff(m, again); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
		if second := Print(again, TextOptions{MaxElems: -1}); second != text {
			t.Fatalf("the second print differs:\n%s", firstDifference(second, text))
		}
	})
}

func FuzzParse(f *testing.F) { mutate.Explore(f, texts(f), readsAsPrinted) }

func TestParseMutated(t *testing.T) { mutate.Test(t, "FuzzParse", texts(t), 500, readsAsPrinted) }

func texts(t testing.TB) [][]byte {
	seeds := [][]byte{[]byte(canonical),
		[]byte("g (float[2] x = {nan #@ bits 7fc00001\n, 1}) => (z) { z = Neg <a = [1.0, 2]> (x) }"),
		[]byte("g (float[?, \"'a b'*2\"] x) => () { y = If (x) <b = h () => (y) { y = a.b.C:d () }> }")}
	files, _ := filepath.Glob("../testdata/text/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, data)
	}
	return seeds
}

// readsAsPrinted: no input makes the parser panic, and what it reads survives
// a round trip.
func readsAsPrinted(b []byte) (accepted bool, wrong error) {
	m, err := Parse("f", string(b))
	if err != nil {
		return false, nil
	}
	text := Print(m, TextOptions{MaxElems: -1})
	again, err := Parse("f", text)
	if err != nil {
		return true, fmt.Errorf("%w\n%s", err, text)
	}
	if diff := modelDiff(m, again); diff != "" {
		return true, fmt.Errorf("%s\n%s", diff, text)
	}
	if second := Print(again, TextOptions{MaxElems: -1}); second != text {
		return true, fmt.Errorf("the second print differs:\n%s", firstDifference(second, text))
	}
	return true, nil
}

// modelMaker makes random models that use every part of the IR.
type modelMaker struct {
	t    *rapid.T
	root *Graph
	n    int
}

func (k *modelMaker) int(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(k.t, "int") }
func (k *modelMaker) bool() bool         { return rapid.Bool().Draw(k.t, "bool") }

// text is any bytes, often awkward ones.
func (k *modelMaker) text() string {
	return rapid.OneOf(rapid.SampledFrom([]string{"", "a", "float", "nan", "-", "a b", "é", "\"\\", "#@ x", "\n", "'", "N+1", "\xff\x00"}),
		rapid.StringN(0, 6, -1)).Draw(k.t, "text")
}

// name is a text that no other value or node has.
func (k *modelMaker) name() string {
	k.n++
	return k.root.Fresh(fmt.Sprint(k.text(), k.n))
}

func (k *modelMaker) model() *Model {
	m := &Model{IRVersion: int64(k.int(0, 13)), ProducerName: k.text(), ProducerVersion: k.text(), Domain: k.text(),
		ModelVersion: int64(k.int(-1, 3)), Doc: k.text(), Opsets: map[string]int{"": k.int(0, 25), "com.foo": 1, k.domain(): 2}, Meta: k.meta()}
	m.Graph = k.rootGraph(m.Opsets, k.text())
	for range k.int(0, 2) {
		f := &Function{Domain: k.text(), Name: k.text(), Overload: k.text(), Doc: k.text(), Opsets: map[string]int{"": 17}}
		for i := range k.int(0, 2) {
			f.Attrs = append(f.Attrs, fmt.Sprint(k.text(), i))
		}
		if k.bool() {
			f.AttrDefaults = append(f.AttrDefaults, Attr{Name: "d", Kind: AttrInts, Ints: []int64{1}})
		}
		f.Body = k.rootGraph(f.Opsets, k.text())
		for _, v := range f.Body.Inputs {
			f.Inputs = append(f.Inputs, v.Name)
		}
		for _, v := range f.Body.Outputs {
			f.Outputs = append(f.Outputs, v.Name)
		}
		m.Functions = append(m.Functions, f)
	}
	return m
}

func (k *modelMaker) meta() (kvs []KV) {
	for range k.int(0, 2) {
		kvs = append(kvs, KV{k.text(), k.text()})
	}
	return kvs
}

func (k *modelMaker) domain() string {
	return rapid.SampledFrom([]string{"", "com.foo", "a b", "x..y", "x.", "\""}).Draw(k.t, "domain")
}

func (k *modelMaker) dim() Dim {
	sym := func() Dim {
		return Sym(rapid.SampledFrom([]string{"N", "M", "a b", "N+1", "'", "'N'", "", "8", "floor(N/2)", "é", "_u1"}).Draw(k.t, "sym"))
	}
	switch k.int(0, 3) {
	case 0:
		return sym()
	case 1:
		return sym().Mul(sym()).Mul(N(int64(k.int(-3, 3)))).Add(sym()).Add(N(int64(k.int(-2, 2))))
	}
	return N(int64(k.int(0, 9)))
}

func (k *modelMaker) typ(depth int) Type {
	shape := Shape{}
	if k.bool() {
		shape = Dims()
		for range k.int(0, 3) {
			shape.Dims = append(shape.Dims, k.dim())
		}
	}
	d := DType(k.int(0, 26))
	switch c := k.int(0, 9); {
	case c == 0:
		return Type{}
	case c == 1 && depth < 3:
		return SequenceOf(k.typ(depth + 1))
	case c == 2 && depth < 3:
		return OptionalOf(k.typ(depth + 1))
	case c == 3 && depth < 3:
		e := k.typ(depth + 1)
		return Type{Kind: MapKind, DType: d, Elem: &e}
	case c == 4:
		return Type{Kind: SparseKind, DType: d, Shape: shape}
	}
	return TensorOf(d, shape)
}

func (k *modelMaker) tensor() *Tensor {
	dims := []int64{}
	for range k.int(0, 2) {
		dims = append(dims, int64(k.int(0, 3)))
	}
	t := NewTensor(DType(k.int(1, 26)), dims...)
	for i := range t.Strings {
		t.Strings[i] = k.text()
	}
	for i := range t.Data {
		t.Data[i] = rapid.SampledFrom([]byte{0, 1, 0x7f, 0x80, 0xc0, 0xff, 0xf8}).Draw(k.t, "byte")
	}
	return t
}

func (k *modelMaker) weight() *Weight {
	switch k.int(0, 5) {
	case 0:
		return &Weight{Type: TensorOf(Float, Ints64(int64(k.int(0, 5)))), External: &External{Location: k.text(), Offset: int64(k.int(0, 2)),
			Length: int64(k.int(0, 2)), Checksum: k.text()}}
	case 1:
		return &Weight{Type: TensorOf(Float, Ints64(1000)), Sparse: k.bool()}
	case 2:
		return &Weight{Type: Type{Kind: SparseKind, DType: Float, Shape: Ints64(2, 2)}, Sparse: true}
	}
	return WeightOf(k.tensor())
}

func (k *modelMaker) note(v *Value) {
	if k.int(0, 3) == 0 {
		v.Doc = k.text()
	}
	if k.int(0, 3) == 0 {
		v.Ints = []Dim{}
		for range k.int(0, 3) {
			v.Ints = append(v.Ints, k.dim())
		}
	}
}

func (k *modelMaker) rootGraph(opsets map[string]int, name string) *Graph {
	k.root = NewGraph(name, opsets)
	k.graph(k.root, nil, 0)
	return k.root
}

// graph fills g; outer are the values of enclosing graphs.
func (k *modelMaker) graph(g *Graph, outer []*Value, depth int) {
	g.Doc, g.Meta = k.text(), k.meta()
	seen := slices.Clone(outer)
	for range k.int(0, 2) {
		v := g.AddInput(k.name(), k.typ(0))
		k.note(v)
		seen = append(seen, v)
	}
	for range k.int(0, 3) {
		v := g.AddInit(k.name(), k.weight())
		k.note(v)
		if k.int(0, 3) == 0 {
			g.Inputs = append(g.Inputs, v)
			v.Type = k.typ(0)
		}
		seen = append(seen, v)
	}
	for range k.int(0, 3) {
		seen = append(seen, k.node(g, seen, depth)...)
	}
	for range k.int(0, min(3, len(seen))) {
		g.Outputs = append(g.Outputs, seen[k.int(0, len(seen)-1)])
	}
	for _, v := range g.Outputs {
		if v.Graph != g && v.Type.Kind == NoType && v.Def != nil {
			v.Type = TensorOf(Float, Shape{})
		}
	}
}

func (k *modelMaker) node(g *Graph, seen []*Value, depth int) (made []*Value) {
	s := NodeSpec{Name: k.name(), Domain: k.domain(), Op: k.text(), Backward: k.bool(), Origin: k.text(), Meta: k.meta()}
	for range k.int(0, 3) {
		var v *Value
		if len(seen) > 0 && k.bool() {
			v = seen[k.int(0, len(seen)-1)]
		}
		s.In = append(s.In, v)
	}
	for range k.int(0, 3) {
		out := ""
		if k.bool() {
			out = k.name()
		}
		s.Out = append(s.Out, out)
	}
	for i := range k.int(0, 3) {
		s.Attrs = append(s.Attrs, k.attr(fmt.Sprint(k.text(), i), g, seen, depth))
	}
	n := g.Append(s)
	n.Doc, n.Overload = k.text(), k.text()
	if k.int(0, 3) == 0 {
		n.Version = k.int(0, 30)
	}
	if outer := n.OuterValues(); len(outer) > 0 {
		n.SetCaptures(outer)
	}
	for _, v := range n.Out {
		if v != nil {
			v.Type = k.typ(0)
			k.note(v)
			made = append(made, v)
		}
	}
	return made
}

func (k *modelMaker) attr(name string, g *Graph, seen []*Value, depth int) Attr {
	a := Attr{Name: name, Kind: AttrKind(k.int(1, 14))}
	sub := func() *Graph {
		h := g.NewSubgraph(k.text())
		k.graph(h, seen, depth+1)
		return h
	}
	if (a.Kind == AttrGraph || a.Kind == AttrGraphs) && depth > 1 {
		a.Kind = AttrInt
	}
	if k.int(0, 5) == 0 {
		a.Ref = "r" + k.text()
		return a
	}
	float := func() float32 {
		return rapid.OneOf(rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), math.Float32frombits(0xffc00001),
			float32(math.Inf(-1)), math.SmallestNonzeroFloat32, math.MaxFloat32}), rapid.Float32()).Draw(k.t, "float")
	}
	switch a.Kind {
	case AttrFloat:
		a.F = float()
	case AttrInt:
		a.I = rapid.Int64().Draw(k.t, "i")
	case AttrString:
		a.S = k.text()
	case AttrTensor:
		a.T = k.tensor()
	case AttrGraph:
		a.G = sub()
	case AttrFloats:
		a.Floats = []float32{float(), float()}[:k.int(0, 2)]
	case AttrInts:
		a.Ints = []int64{math.MinInt64, math.MaxInt64}[:k.int(0, 2)]
	case AttrStrings:
		a.Strings = []string{k.text(), k.text()}[:k.int(0, 2)]
	case AttrTensors:
		a.Tensors = []*Tensor{k.tensor()}[:k.int(0, 1)]
	case AttrGraphs:
		for range k.int(0, 2) {
			a.Graphs = append(a.Graphs, sub())
		}
	case AttrType:
		a.Type = k.typ(0)
	default:
		a.Raw = []byte(k.text())
	}
	return a
}

// modelDiff says where two models differ, "" if they are equal but for where
// they were read from.
func modelDiff(a, b *Model) string {
	if a.IRVersion != b.IRVersion || a.ProducerName != b.ProducerName || a.ProducerVersion != b.ProducerVersion ||
		a.Domain != b.Domain || a.ModelVersion != b.ModelVersion || a.Doc != b.Doc || !maps.Equal(a.Opsets, b.Opsets) ||
		!slices.Equal(a.Meta, b.Meta) || len(a.Functions) != len(b.Functions) {
		return "the models' fields differ"
	}
	for i, f := range a.Functions {
		h := b.Functions[i]
		if f.Domain != h.Domain || f.Name != h.Name || f.Overload != h.Overload || f.Doc != h.Doc || !maps.Equal(f.Opsets, h.Opsets) ||
			!slices.Equal(f.Inputs, h.Inputs) || !slices.Equal(f.Outputs, h.Outputs) || !slices.Equal(f.Attrs, h.Attrs) ||
			!slices.EqualFunc(f.AttrDefaults, h.AttrDefaults, func(x, y Attr) bool { return attrDiff(x, y) == "" }) {
			return fmt.Sprintf("function %d differs", i)
		}
		if d := graphDiff(f.Body, h.Body); d != "" {
			return fmt.Sprintf("function %d: %s", i, d)
		}
	}
	return graphDiff(a.Graph, b.Graph)
}

func graphDiff(a, b *Graph) string {
	if a.Name != b.Name || a.Doc != b.Doc || !slices.Equal(a.Meta, b.Meta) || len(a.Nodes) != len(b.Nodes) || !maps.Equal(a.Opsets, b.Opsets) {
		return fmt.Sprintf("graph %q differs from %q", a.Name, b.Name)
	}
	for what, vs := range map[string][2][]*Value{"inputs": {a.Inputs, b.Inputs}, "initializers": {a.Inits, b.Inits}, "outputs": {a.Outputs, b.Outputs}} {
		if d := valuesDiff(vs[0], vs[1]); d != "" {
			return what + ": " + d
		}
	}
	for i, n := range a.Nodes {
		if d := nodeDiff(n, b.Nodes[i]); d != "" {
			return n.String() + ": " + d
		}
	}
	return ""
}

func nodeDiff(a, b *Node) string {
	if a.Name != b.Name || a.Domain != b.Domain || a.Op != b.Op || a.Overload != b.Overload || a.Version != b.Version ||
		a.Origin != b.Origin || a.Backward != b.Backward || a.Doc != b.Doc || !slices.Equal(a.Meta, b.Meta) || len(a.Attrs) != len(b.Attrs) {
		return "fields differ from " + b.String()
	}
	for what, vs := range map[string][2][]*Value{"inputs": {a.In, b.In}, "outputs": {a.Out, b.Out}, "captures": {a.Captures, b.Captures}} {
		if d := valuesDiff(vs[0], vs[1]); d != "" {
			return what + ": " + d
		}
	}
	for i := range a.Attrs {
		if d := attrDiff(a.Attrs[i], b.Attrs[i]); d != "" {
			return fmt.Sprintf("attribute %q: %s", a.Attrs[i].Name, d)
		}
	}
	return ""
}

func valuesDiff(a, b []*Value) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d values, not %d", len(b), len(a))
	}
	for i, v := range a {
		w := b[i]
		if v == nil || w == nil {
			if v != nil || w != nil {
				return fmt.Sprintf("one %d is absent", i)
			}
			continue
		}
		if v.Name != w.Name || v.Port != w.Port || v.Doc != w.Doc || !v.Type.Equal(w.Type) || len(v.Uses()) != len(w.Uses()) ||
			(v.Def == nil) != (w.Def == nil) || (v.Ints == nil) != (w.Ints == nil) || !slices.EqualFunc(v.Ints, w.Ints, Dim.Equal) {
			return fmt.Sprintf("%q of %s %v %q is %q of %s %v %q", v.Name, v.Type, v.Ints, v.Doc, w.Name, w.Type, w.Ints, w.Doc)
		}
		if d := weightDiff(v.Init, w.Init); d != "" {
			return fmt.Sprintf("%q: %s", v.Name, d)
		}
	}
	return ""
}

func weightDiff(a, b *Weight) string {
	if a == nil || b == nil {
		if a != b {
			return "one is no initializer"
		}
		return ""
	}
	if !a.Type.Equal(b.Type) || a.Sparse != b.Sparse || (a.External == nil) != (b.External == nil) {
		return "initializers differ"
	}
	if a.External != nil {
		if *a.External != *b.External {
			return fmt.Sprintf("%+v is %+v", *a.External, *b.External)
		}
		return ""
	}
	x, errX := a.Tensor()
	y, errY := b.Tensor()
	if errX != nil || errY != nil {
		if (errX == nil) != (errY == nil) {
			return "data is lost"
		}
		return ""
	}
	return tensorDiff(x, y)
}

func tensorDiff(a, b *Tensor) string {
	if a.DType != b.DType || !slices.Equal(a.Dims, b.Dims) || !bytes.Equal(a.Data, b.Data) || !slices.Equal(a.Strings, b.Strings) {
		return fmt.Sprintf("%+v is %+v", a, b)
	}
	return ""
}

func attrDiff(a, b Attr) string {
	sameFloats := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	if a.Name != b.Name || a.Kind != b.Kind || !sameFloats(a.F, b.F) || a.I != b.I || a.S != b.S || a.Ref != b.Ref ||
		!slices.EqualFunc(a.Floats, b.Floats, sameFloats) || !slices.Equal(a.Ints, b.Ints) || !slices.Equal(a.Strings, b.Strings) ||
		!a.Type.Equal(b.Type) || !bytes.Equal(a.Raw, b.Raw) || len(a.Tensors) != len(b.Tensors) || len(a.Graphs) != len(b.Graphs) ||
		(a.T == nil) != (b.T == nil) || (a.G == nil) != (b.G == nil) {
		return fmt.Sprintf("%+v is %+v", a, b)
	}
	for i := range a.Tensors {
		if d := tensorDiff(a.Tensors[i], b.Tensors[i]); d != "" {
			return d
		}
	}
	for i := range a.Graphs {
		if d := graphDiff(a.Graphs[i], b.Graphs[i]); d != "" {
			return d
		}
	}
	if a.T != nil {
		return tensorDiff(a.T, b.T)
	}
	if a.G != nil {
		return graphDiff(a.G, b.G)
	}
	return ""
}

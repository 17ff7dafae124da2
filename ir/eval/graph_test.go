package eval

import (
	"errors"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	_ "memoc/ir/ops"
)

const testDomain = "test.eval"

// Operators of the tests alone, so that a fault can be planted in them.
func init() {
	register := func(name string, in, out string, infer func(*ir.InferCtx) error, eval func(*ir.EvalCtx) error) {
		ir.Register(ir.Op{Domain: testDomain, Name: name, Doc: "test", Since: []int{1}, In: ir.Ports(in), Out: ir.Ports(out),
			Infer: infer, Axes: ir.NoAxes, Cost: ir.ViewCost, Grad: ir.NoGrad("test"), Recompute: ir.Pure,
			Eval: eval, Kernel: ir.NoKernel("test"), Samples: func() []ir.Sample { return nil }})
	}
	same := func(c *ir.InferCtx) error { c.Set(0, c.In(0)); return nil }
	register("Repeat", "n:tensor(int64), x:T", "y:T", func(c *ir.InferCtx) error { c.Set(0, c.In(1)); return nil }, func(c *ir.EvalCtx) error {
		x := c.InDatum(1)
		for range c.In(0).Ints()[0] {
			out, err := c.Subgraph(c.Node.Attr("body").G, []ir.Datum{x})
			if err != nil {
				return err
			}
			x = out[0]
		}
		c.Set(0, x)
		return nil
	})
	register("Uniform", "x:T", "y:T", same, func(c *ir.EvalCtx) error {
		t := ir.NewTensor(ir.Float, c.In(0).Dims...)
		for i, d := 0, ir.View[float32](t); i < len(d); i++ {
			d[i] = c.Random.Uniform(uint64(i))
		}
		c.Set(0, t)
		return nil
	})
	register("Lie", "x:T", "y:T", same, func(c *ir.EvalCtx) error { c.Set(0, ir.NewTensor(ir.Float, 7)); return nil })
	register("Forget", "x:T", "y:T", same, func(c *ir.EvalCtx) error { return nil })
	register("Panic", "x:T", "y:T", same, func(c *ir.EvalCtx) error { _ = c.In(0).Dims[99]; return nil })
	register("Refuse", "x:T", "y:T", same, func(c *ir.EvalCtx) error { return errors.New("no") })
}

func newGraph() *ir.Graph {
	return ir.NewGraph("g", map[string]int{"": 17, testDomain: 1})
}

func add(t *testing.T, g *ir.Graph, domain, op, out string, in []*ir.Value, attrs ...ir.Attr) *ir.Value {
	t.Helper()
	n := g.Append(ir.NodeSpec{Name: "n_" + out, Domain: domain, Op: op, In: in, Out: []string{out}, Attrs: attrs})
	if err := ir.InferNode(g, n); err != nil {
		t.Fatal(err)
	}
	return n.Out[0]
}

func vec(vals ...float64) *ir.Tensor { return ir.FromFloats(ir.Float, vals, int64(len(vals))) }

var float3 = ir.TensorOf(ir.Float, ir.Ints64(3))

func wantFloats(t *testing.T, d ir.Datum, want ...float64) {
	t.Helper()
	got := d.(*ir.Tensor).Floats()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestGraph(t *testing.T) {
	g := newGraph()
	x := g.AddInput("x", float3)
	w := g.AddInit("w", ir.WeightOf(vec(10, 20, 30)))
	a := add(t, g, "", "Add", "a", []*ir.Value{x, w})
	b := add(t, g, "", "Add", "b", []*ir.Value{a, a})
	g.Outputs = []*ir.Value{b, x, w, b}
	var seen []string
	out, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2, 3)}, Options{
		Keep:    func(v *ir.Value) bool { return v == a },
		Observe: func(n *ir.Node, _ []ir.Datum) { seen = append(seen, n.Name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, out["b"], 22, 44, 66)
	wantFloats(t, out["a"], 11, 22, 33)
	wantFloats(t, out["x"], 1, 2, 3)
	wantFloats(t, out["w"], 10, 20, 30)
	if got := strings.Join(seen, " "); got != "n_a n_b" {
		t.Errorf("observed %s", got)
	}
}

// A weight that is never read is never loaded; one whose file is absent fails
// where it is read.
func TestWeightsAreLazy(t *testing.T) {
	g := newGraph()
	x := g.AddInput("x", float3)
	absent := &ir.Weight{Type: float3, Load: func() (*ir.Tensor, error) { return nil, errors.New("w.bin is absent") }}
	w := g.AddInit("w", absent)
	g.Outputs = []*ir.Value{add(t, g, "", "Add", "y", []*ir.Value{x, x})}
	if _, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2, 3)}, Options{}); err != nil {
		t.Fatal(err)
	}
	g.Outputs = []*ir.Value{add(t, g, "", "Add", "z", []*ir.Value{x, w})}
	_, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2, 3)}, Options{})
	wantError(t, err, `node "n_z"`, `"w"`, "w.bin is absent")
}

// An initializer that is an input gives its value where none is passed.
func TestDefaultInput(t *testing.T) {
	g := newGraph()
	w := g.AddInit("w", ir.WeightOf(vec(1, 2, 3)))
	g.Inputs = append(g.Inputs, w)
	g.Outputs = []*ir.Value{add(t, g, "", "Add", "y", []*ir.Value{w, w})}
	out, err := Graph(g, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, out["y"], 2, 4, 6)
	if out, err = Graph(g, map[string]ir.Datum{"w": vec(5, 5, 5)}, Options{}); err != nil {
		t.Fatal(err)
	}
	wantFloats(t, out["y"], 10, 10, 10)
}

// A body that reads an outer value, is run several times and holds a weight.
func TestSubgraph(t *testing.T) {
	g := newGraph()
	x := g.AddInput("x", float3)
	n := g.AddInit("n", ir.WeightOf(ir.FromInts(ir.Int64, []int64{3})))
	outer := add(t, g, "", "Add", "outer", []*ir.Value{x, x})
	body := g.NewSubgraph("body")
	c := body.AddInput("c", float3)
	one := body.AddInit("one", ir.WeightOf(vec(1, 1, 1)))
	d := add(t, body, "", "Add", "d", []*ir.Value{c, outer})
	body.Outputs = []*ir.Value{add(t, body, "", "Add", "e", []*ir.Value{d, one})}
	y := add(t, g, testDomain, "Repeat", "y", []*ir.Value{n, x}, ir.Attr{Name: "body", Kind: ir.AttrGraph, G: body})
	y.Def.SetCaptures([]*ir.Value{outer})
	g.Outputs = []*ir.Value{y}
	out, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2, 3)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantFloats(t, out["y"], 1+3*2+3, 2+3*4+3, 3+3*6+3)
}

func TestRandomOperators(t *testing.T) {
	run := func(name, origin string, opt Options) []float64 {
		g := newGraph()
		x := g.AddInput("x", float3)
		n := g.Append(ir.NodeSpec{Name: name, Origin: origin, Domain: testDomain, Op: "Uniform", In: []*ir.Value{x}, Out: []string{"y"}})
		g.Outputs = n.Out
		out, err := Graph(g, map[string]ir.Datum{"x": vec(0, 0, 0)}, opt)
		if err != nil {
			t.Fatal(err)
		}
		return out["y"].(*ir.Tensor).Floats()
	}
	base := run("drop", "", Options{Seed: 1})
	if got := run("drop.remat", "drop", Options{Seed: 1}); got[0] != base[0] {
		t.Error("a clone draws other numbers than its original")
	}
	for _, other := range [][]float64{
		run("drop", "", Options{Seed: 2}), run("drop", "", Options{Seed: 1, Step: 1}), run("other", "", Options{Seed: 1}),
	} {
		if other[0] == base[0] {
			t.Error("seed, step and name must each change the numbers")
		}
	}
}

func TestFaultsAreLocated(t *testing.T) {
	for _, c := range []struct {
		op   string
		want []string
	}{
		{"Lie", []string{"BUG", `"y"`, "float[3]", "float[7]"}},
		{"Forget", []string{"BUG", `"y"`, "absent"}},
		{"Panic", []string{"BUG", "panicked", "float[3]", "index out of range"}},
		{"Refuse", []string{"no"}},
		{"Unheard", []string{"not known"}},
	} {
		g := newGraph()
		x := g.AddInput("x", float3)
		g.Outputs = []*ir.Value{add(t, g, testDomain, c.op, "y", []*ir.Value{x})}
		_, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2, 3)}, Options{})
		wantError(t, err, append(c.want, `node "n_y"`)...)
	}
}

// Symbols are bound by the inputs, and derived dims are held against them.
func TestSymbols(t *testing.T) {
	g := newGraph()
	n := ir.Sym("N")
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Dims(n)))
	y := g.AddInput("y", ir.TensorOf(ir.Float, ir.Dims(n)))
	z := add(t, g, "", "Add", "z", []*ir.Value{x, y})
	g.Outputs = []*ir.Value{z}
	if _, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2), "y": vec(1, 2)}, Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2), "y": vec(1, 2, 3)}, Options{})
	wantError(t, err, `"y"`, "dim N is 3", "and 2")
	z.Type = ir.TensorOf(ir.Float, ir.Dims(n.Mul(ir.N(2))))
	_, err = Graph(g, map[string]ir.Datum{"x": vec(1, 2), "y": vec(1, 2)}, Options{})
	wantError(t, err, "BUG", "float[2*N]", "float[2]")
}

// What the file declares and the shape rule leaves open is the file's claim.
func TestWrongDeclaration(t *testing.T) {
	g := newGraph()
	x := g.AddInput("x", ir.TensorOf(ir.Float, ir.Shape{}))
	y := add(t, g, "", "Add", "y", []*ir.Value{x, x})
	y.Type = float3
	y.Def.Loc = ir.Loc{File: "m.onnx", Path: "graph"}
	g.Outputs = []*ir.Value{y}
	_, err := Graph(g, map[string]ir.Datum{"x": vec(1, 2)}, Options{})
	wantError(t, err, `node "n_y"`, "the model declares", "float[3]", "float[2]")
	if strings.Contains(err.Error(), "BUG") {
		t.Error("that is not our fault")
	}
}

func TestInputErrors(t *testing.T) {
	g := newGraph()
	x := g.AddInput("x", float3)
	g.Outputs = []*ir.Value{x}
	for _, c := range []struct {
		in   map[string]ir.Datum
		want string
	}{
		{nil, "no value is given"},
		{map[string]ir.Datum{"x": vec(1)}, "float[1]"},
		{map[string]ir.Datum{"x": ir.FromInts(ir.Int64, []int64{1, 2, 3}, 3)}, "int64[3]"},
		{map[string]ir.Datum{"x": vec(1, 2, 3), "w": vec(1)}, "no input"},
		{map[string]ir.Datum{"x": &ir.Tensor{DType: ir.Float, Dims: []int64{3}, Data: make([]byte, 5)}}, "5 bytes"},
		{map[string]ir.Datum{"x": nil}, "absent"},
	} {
		_, err := Graph(g, c.in, Options{})
		wantError(t, err, c.want)
		var d *diag.Diagnostic
		if !errors.As(err, &d) || d.ID == "" {
			t.Errorf("%v is no diagnostic", err)
		}
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
}

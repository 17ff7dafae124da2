package ops

import (
	"slices"
	"strings"
	"testing"

	"memoc/ir"
)

// inferredText infers a graph in text form and returns the type of every
// value.
func inferredText(t *testing.T, opset int, text string) (map[string]ir.Type, error) {
	t.Helper()
	g, err := ir.ParseGraph("t", text, map[string]int{"": opset})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]ir.Type{}
	err = ir.InferGraph(g, ir.InferOptions{})
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			types[v.Name] = v.Type
		}
	}
	return types, err
}

// TestValuesThatAreShapes: exported graphs compute every shape from extents;
// what Reshape, ConstantOfShape and the like get must stay symbolic.
func TestValuesThatAreShapes(t *testing.T) {
	for _, tc := range []struct{ name, text, value, want string }{
		{"heads", `g (float[B,T,64] x) => (float[?,?,?,?] z) <int64[1] i0 = {0}, int64[1] i1 = {1}, int64[2] hd = {8,8}> {
			s = Shape(x)
			b = Gather(s, i0)
			t = Gather(s, i1)
			n = Concat<axis = 0>(b, t, hd)
			y = Reshape(x, n)
			z = Transpose<perm = [0,2,1,3]>(y)
		}`, "z", "float[B,8,T,8]"},
		{"scalars", `g (float[B,T,64] x) => (float[?,?] y) <int64 i0 = {0}, int64 i1 = {1}, int64[1] ax = {0}, int64[1] m1 = {-1}> {
			s = Shape(x)
			b = Gather(s, i0)
			t = Gather(s, i1)
			p = Mul(b, t)
			u = Unsqueeze(p, ax)
			n = Concat<axis = 0>(u, m1)
			y = Reshape(x, n)
		}`, "y", "float[B*T,64]"},
		{"slice of a shape", `g (float[B,T,64] x) => (float[?] y) <int64[1] st = {0}, int64[1] en = {2}, int64[1] m1 = {-1}> {
			s = Shape(x)
			lead = Slice(s, st, en)
			n = Concat<axis = 0>(lead, m1)
			y = Reshape(x, n)
		}`, "y", "float[B,T,64]"},
		{"zeros like", `g (float[3,4] x) => (float[?] z) {
			s = Shape(x)
			z = ConstantOfShape(s)
		}`, "z", "float[3,4]"},
		{"positions", `g (float[B,T,64] x) => (int64[?] p) <int64 zero = {0}, int64 one = {1}, int64 i1 = {1}> {
			s = Shape(x)
			t = Gather(s, i1)
			p = Range(zero, t, one)
		}`, "p", "int64[T]"},
		{"shifted", `g (float[B,T,8] x) => (float[?] y) <int64[1] st = {0}, int64[1] en = {-1}, int64[1] ax = {1}, int64[2] n = {-1,8}> {
			c = Slice(x, st, en, ax)
			y = Reshape(c, n)
		}`, "y", "float[B*T-B,8]"},
		{"concat of symbols", `g (float[N,4] a, float[M,4] b) => (float[?,4] d) { d = Concat<axis = 0>(a, b) }`, "d", "float[M+N,4]"},
	} {
		types, err := inferredText(t, 17, tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got := types[tc.value].String(); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestUnknownShapeKeepsRank: of a shape that is computed from data, the number
// of extents is known.
func TestUnknownShapeKeepsRank(t *testing.T) {
	types, err := inferredText(t, 17, `g (float[2,12] x, int64[3] n) => (float[?,?,?] y) { y = Reshape(x, n) }`)
	if err != nil {
		t.Fatal(err)
	}
	dims := types["y"].Shape.Dims
	if len(dims) != 3 || dims[0].Equal(dims[1]) || dims[1].Equal(dims[2]) {
		t.Errorf("got %s, want three symbols that differ", types["y"])
	}
}

// TestSliceBounds: the ends of int64 as bounds, on extents that are numbers
// and on one that is a symbol.
func TestSliceBounds(t *testing.T) {
	const lo, hi = "-9223372036854775808", "9223372036854775807"
	for _, tc := range []struct{ start, end, step, eight, symbol string }{
		{"0", hi, "1", "8", "N"},
		{"7", lo, "-1", "8", ""}, // of N it depends on whether N is above 7
		{"-1", lo, "-1", "8", "N"},
		{"-1", hi, "-1", "0", "0"},
		{"0", hi, "1000000000", "1", ""},
		{"1", hi, "1", "7", "N-1"},
		{"-3", hi, "1", "3", "3"},
		{"0", "-2", "1", "6", "N-2"},
		{"0", "5", "1", "5", ""},
	} {
		for extent, want := range map[string]string{"8": tc.eight, "N": tc.symbol} {
			text := strings.NewReplacer("EXTENT", extent, "START", tc.start, "END", tc.end, "STEP", tc.step).Replace(
				`g (float[EXTENT,4] x) => (float[?,4] y) <int64[1] s = {START}, int64[1] e = {END}, int64[1] a = {0}, int64[1] k = {STEP}> {
					y = Slice(x, s, e, a, k)
				}`)
			types, err := inferredText(t, 17, text)
			if err != nil {
				t.Errorf("[%s:%s:%s] of %s: %v", tc.start, tc.end, tc.step, extent, err)
				continue
			}
			got := types["y"].Shape.Dims[0]
			name, isSym := got.IsSym()
			if open := isSym && strings.HasPrefix(name, "_u"); got.String() != want && !(want == "" && open) {
				t.Errorf("[%s:%s:%s] of %s: got %s, want %q", tc.start, tc.end, tc.step, extent, got, want)
			}
		}
	}
	if _, err := inferredText(t, 17, `g (float[8] x) => (float[?] y) <int64[1] s = {0}, int64[1] e = {8}, int64[1] a = {0}, int64[1] k = {0}> {
		y = Slice(x, s, e, a, k)
	}`); err == nil {
		t.Error("a step of 0 is accepted")
	}
}

// TestGatherGradSums: an embedding row that is looked up twice gets both
// gradients, and a negative index names the row it counts from the end, in the
// opsets whose ScatterND can add and in those that need a matrix product.
func TestGatherGradSums(t *testing.T) {
	s := ir.Sample{In: []*ir.Tensor{floats([]int64{4, 2}, make([]float64, 8)...), ir.FromInts(ir.Int64, []int64{0, 0, -1}, 3)}}
	for _, opset := range []int{9, 11, 13, 15, 16, 18, 24} {
		s.Version = opset
		g, err := differentiate(ir.Lookup("", "Gather"), s, asConstants, all, all)
		if err != nil {
			t.Errorf("opset %d: %v", opset, err)
			continue
		}
		up := g.up[0].Floats()
		want := []float64{up[0] + up[2], up[1] + up[3], 0, 0, 0, 0, up[4], up[5]}
		if got := g.in[0].Floats(); !slices.Equal(got, want) {
			t.Errorf("opset %d: got %v, want %v", opset, got, want)
		}
		for _, n := range g.b.graph.Nodes {
			if n.Op == "ScatterND" && n.Str("reduction", "none") != "add" {
				t.Errorf("opset %d: %s may meet one row twice and does not add", opset, n)
			}
		}
	}
}

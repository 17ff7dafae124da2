package passes_test

import (
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes"
)

// inferred runs the passes up to inference and returns the types of values.
func inferred(t testing.TB, m *ir.Model, s setup) (map[string]ir.Type, []*diag.Diagnostic, error) {
	t.Helper()
	c, warnings, err := compileUntil(t, m, s, passes.Simplify)
	types := map[string]ir.Type{}
	for _, n := range c.Graph.Nodes {
		for _, v := range n.Out {
			if v != nil {
				types[v.Name] = v.Type
			}
		}
	}
	return types, warnings, err
}

func TestB28ValuesThatAreShapes(t *testing.T) {
	types, _, err := inferred(t, text(t, `g (float[B,T,64] x, float[3,4] k, int64[3] unknown) => (z, c, u) <int64[1] zero = {0}, int64[1] one = {1}, int64[2] heads = {8,8}> {
		s = Shape (x) b = Gather (s, zero) n = Gather (s, one) dims = Concat <axis = 0> (b, n, heads)
		r = Reshape (x, dims) z = Transpose <perm = [0,2,1,3]> (r)
		sk = Shape (k) c = ConstantOfShape (sk) u = Reshape (k, unknown) }`), setup{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"z": "float[B,8,T,8]", "c": "float[3,4]"} {
		if got := types[name].String(); got != want {
			t.Errorf("%s is of type %s, want %s", name, got, want)
		}
	}
	u := types["u"].Shape
	if u.Rank() != 3 || u.Dims[0].Equal(u.Dims[1]) || u.Dims[1].Equal(u.Dims[2]) || u.Dims[0].Equal(u.Dims[2]) {
		t.Errorf("u has the shape %s, want three dims that nothing is known of", u)
	}
}

func TestB29SymbolsStayApart(t *testing.T) {
	make := func() *ir.Model {
		return text(t, `g (float[N,4] a, float[M,4] b) => (c, d, e, f) { ["the sum"] c = Add (a, b) d = Concat <axis = 0> (a, b) e = Relu (a) f = Relu (b) }`)
	}
	types, _, err := inferred(t, make(), setup{})
	if err != nil {
		t.Fatal(err)
	}
	c := types["c"].Shape.Dims[0]
	if c.Equal(ir.Sym("N")) || c.Equal(ir.Sym("M")) {
		t.Errorf("the sum has the first dim %s, which N and M need not be", c)
	}
	if want := ir.Sym("N").Add(ir.Sym("M")); !types["d"].Shape.Dims[0].Equal(want) {
		t.Errorf("the concatenation has the first dim %s", types["d"].Shape.Dims[0])
	}
	if !types["e"].Shape.Dims[0].Equal(ir.Sym("N")) || !types["f"].Shape.Dims[0].Equal(ir.Sym("M")) {
		t.Errorf("e and f are of types %s and %s", types["e"], types["f"])
	}
	_, _, err = inferred(t, make(), setup{dims: map[string]ir.Dim{"N": ir.N(3), "M": ir.N(2)}})
	if err == nil || !strings.Contains(err.Error(), "the sum") || !strings.Contains(err.Error(), "3") || !strings.Contains(err.Error(), "2") {
		t.Errorf("3 against 2: %v", err)
	}
}

func TestB30DeclaredAgainstInferred(t *testing.T) {
	make := func() *ir.Model {
		return text(t, `g (float[2,3] x) => (float[2,4] z) <float[2,4] y> { ["the relu"] y = Relu (x) z = Neg (y) }`)
	}
	_, _, err := inferred(t, make(), setup{strict: true})
	if err == nil || !strings.Contains(err.Error(), "the relu") || !strings.Contains(err.Error(), `"y"`) || !strings.Contains(err.Error(), "[2,4]") || !strings.Contains(err.Error(), "[2,3]") {
		t.Errorf("strict: %v", err)
	}
	types, warnings, err := inferred(t, make(), setup{})
	if err != nil || types["y"].String() != "float[2,3]" || len(warnings) == 0 {
		t.Errorf("lenient: type %s, %d warnings, %v", types["y"], len(warnings), err)
	}
	// A declaration smaller than what is computed never sizes a buffer.
	c := mustCompile(t, text(t, `g (float[10] x) => (float[10] z) <float[2] y> { y = Relu (x) z = Concat <axis = 0> (y) }`), setup{})
	if b, _ := bufferOf(t, c, "y"); b.Size != 40 {
		t.Errorf("y takes %d bytes, want 40", b.Size)
	}
}

func TestB31SliceSentinels(t *testing.T) {
	const maxInt, minInt = "9223372036854775807", "-9223372036854775808"
	for _, c := range []struct{ start, end, step, want, symbolic string }{
		{"0", maxInt, "1", "float[8,4]", "float[N,4]"},
		{"7", minInt, "-1", "float[8,4]", ""},
		{"-1", maxInt, "-1", "float[0,4]", ""},
		{"-1", minInt, "-1", "float[8,4]", "float[N,4]"},
		{minInt, maxInt, "1000000000", "float[1,4]", ""},
		{"0", maxInt, maxInt, "float[1,4]", ""},
		{maxInt, minInt, minInt, "float[1,4]", ""},
	} {
		src := fmt.Sprintf(`=> (y) <int64[1] s = {%s}, int64[1] e = {%s}, int64[1] a = {0}, int64[1] k = {%s}> { ["the slice"] y = Slice (x, s, e, a, k) }`, c.start, c.end, c.step)
		types, _, err := inferred(t, text(t, `g (float[8,4] x) `+src), setup{})
		if err != nil || types["y"].String() != c.want {
			t.Errorf("(%s, %s, %s): %s, %v, want %s", c.start, c.end, c.step, types["y"], err, c.want)
		}
		types, _, err = inferred(t, text(t, `g (float[N,4] x) `+src), setup{})
		if err != nil || types["y"].Shape.Rank() != 2 || c.symbolic != "" && types["y"].String() != c.symbolic {
			t.Errorf("(%s, %s, %s) of a symbol: %s, %v, want %s", c.start, c.end, c.step, types["y"], err, c.symbolic)
		}
	}
	_, _, err := inferred(t, text(t, `g (float[8,4] x) => (y) <int64[1] s = {0}, int64[1] e = {3}, int64[1] a = {0}, int64[1] k = {0}> { ["the slice"] y = Slice (x, s, e, a, k) }`), setup{})
	if err == nil || !strings.Contains(err.Error(), "the slice") {
		t.Errorf("a step of zero: %v", err)
	}
}

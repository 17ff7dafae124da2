package tokens_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/passes/tokens"
)

// parse is a graph of text with types inferred.
func parse(t testing.TB, text string) *ir.Graph {
	t.Helper()
	m, err := ir.Parse("case", "<ir_version: 8, opset_import: [\"\" : 18, \"ai.memoc\" : 1]>\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	return m.Graph
}

// TestAxes follows the second dimension of x through small graphs. A line of
// want is "value dim outer inner", "value -" where there is no token axis,
// "node: inputs at the range" (as 0 and 1), or "node! a part of the reason why
// it does not run by token".
func TestAxes(t *testing.T) {
	for _, tc := range []struct{ name, graph, want string }{
		{"merged with the batch and back", `g (float[2,6,4] x) => (float[2,6,4] y) <int64[2] flat = {-1,4}, int64[3] back = {2,6,4}> {
			[a] m = Reshape (x, flat)
			[b] y = Reshape (m, back)
		}`, "m 0 2 1; y 1 1 1; a: 10; b: 10"},
		{"merged with what lies inside", `g (float[2,6,4] x) => (float[2,24] y) <int64[2] flat = {2,24}> {
			[a] y = Reshape (x, flat)
		}`, "y 1 1 4; a: 10"},
		{"all in one", `g (float[2,6,4] x) => (float[48] z) <int64[1] flat = {-1}> {
			[a] y = Reshape (x, flat)
			[b] z = Exp (y)
		}`, "y 0 2 4; a: 10; b: 1"},
		{"heads and a transpose", `g (float[2,6,4] x) => (float[2,2,6,2] z) <int64[4] heads = {0,0,2,2}> {
			[a] y = Reshape (x, heads)
			[b] z = Transpose <perm = [0,2,1,3]> (y)
		}`, "y 1 1 1; z 2 1 1; a: 10; b: 1"},
		{"heads of a shape with extents", `g (float[2,6,4] x) => (float[2,6,2,2] y) <int64[4] heads = {2,6,2,2}> {
			[a] y = Reshape (x, heads)
		}`, "y 1 1 1; a: 10"},
		{"batch and heads merged, tokens outermost", `g (float[2,6,4] x) => (float[6,8] z) <int64[2] flat = {6,8}> {
			[a] y = Transpose <perm = [1,0,2]> (x)
			[b] z = Reshape (y, flat)
		}`, "y 0 1 1; z 0 1 1; a: 1; b: 10"},
		{"groups that cut the tokens", `g (float[2,6,4] x) => (float[2,3,8] y) <int64[3] other = {2,3,8}> {
			[a] y = Reshape (x, other)
		}`, "y -; a! no token axis"},
		{"groups across tokens and channels", `g (float[2,6,4] x) => (float[2,4,6] z) <int64[3] other = {2,4,6}> {
			[a] y = Reshape (x, other)
			[b] z = Exp (y)
		}`, "y -; a! no token axis; b! no token axis"},
		{"blocks of tokens", `g (float[2,6,4] x, float[2,6,4] w) => (float[2,6,4] z) <int64[4] blocks = {2,3,2,4}, int64[3] flat = {2,6,4}> {
			[a] y = Reshape (x, blocks)
			[b] e = Exp (y)
			[c] r = Reshape (e, flat)
			[d] z = Add (r, w)
		}`, "y -; r 1 1 1; w 1 1 1; a! not along one dimension; d: 11"},
		{"its own transpose is added", `g (float[2,6,6] x) => (float[2,6,6] z) {
			[a] y = Transpose <perm = [0,2,1]> (x)
			[b] z = Add (x, y)
		}`, "x -; y -; z -; a! not along one dimension; b! not along one dimension"},
		{"in another order inside one dimension", `g (float[2,6,4] x) => (float[2,24] z) <int64[2] flat = {2,24}> {
			[t] y = Transpose <perm = [0,2,1]> (x)
			[a] u = Reshape (x, flat)
			[b] v = Reshape (y, flat)
			[c] z = Add (u, v)
		}`, "u 1 1 4; v 1 4 1; z 1 1 4; a: 10; b: 10; c! at different places of one axis"},
		{"scores", `g (float[2,6,4] x) => (float[2,6,4] y) {
			[t] k = Transpose <perm = [0,2,1]> (x)
			[a] s = MatMul (x, k)
			[b] p = Softmax <axis = -1> (s)
			[c] y = MatMul (p, x)
		}`, "k 2 1 1; s -; p -; y 1 1 1; t: 1; a! not along one dimension; b! not along one dimension; c! not along one dimension"},
		{"a weight on the left", `g (float[2,6,4] x, float[6,6] w) => (float[2,6,4] z) {
			[a] y = MatMul (w, x)
			[b] z = Exp (y)
		}`, "y -; a! no token axis; b! no token axis"},
		{"mixed tokens beside themselves", `g (float[2,6,4] x, float[6,6] w) => (float[2,6,4] z) {
			[a] y = MatMul (w, x)
			[b] z = Add (x, y)
		}`, "y 1 1 1; z 1 1 1; w 0 1 1; a! needs other tokens of \"x\"; b: 11"},
		{"a projection", `g (float[2,6,4] x, float[4,6] w, float[6] b) => (float[2,6,6] z) {
			[a] y = MatMul (x, w)
			[b] z = Add (y, b)
		}`, "y 1 1 1; z 1 1 1; w -; a: 10; b: 10"},
		{"a weight's gradient", `g (float[2,6,4] x, float[2,6,3] d) => (float[4,3] y) <int64[2] four = {-1,4}, int64[2] three = {-1,3}> {
			[a] f = Reshape (x, four)
			[b] e = Reshape (d, three)
			[c] y = Gemm <transA = 1> (f, e)
		}`, "f 0 2 1; y -; a: 10; c! no token axis"},
		{"a shift", `g (float[2,6,4] x) => (float[2,6,4] z) <int64[1] one = {1}, int64[1] end = {6}, int64[1] axis = {1}, int64[6] pads = {0,0,0,0,1,0}> {
			[a] y = Slice (x, one, end, axis)
			[b] p = Pad (y, pads)
			[c] z = Add (x, p)
		}`, "y -; p 1 1 1; a! no token axis; b! needs other tokens of \"y\"; c: 11"},
		{"a prefix of the tokens", `g (float[2,6,4] x) => (float[2,5,4] z) <int64[1] zero = {0}, int64[1] end = {5}, int64[1] axis = {1}> {
			[a] y = Slice (x, zero, end, axis)
			[b] z = Exp (y)
		}`, "y -; a! no token axis; b! no token axis"},
		{"all of them, said as a slice", `g (float[2,6,4] x) => (float[2,6,2] y) <int64[2] zero = {0,0}, int64[2] end = {6,2}, int64[2] axis = {1,2}> {
			[a] y = Slice (x, zero, end, axis)
		}`, "y 1 1 1; a: 1000"},
		{"a running sum", `g (float[2,6,4] x) => (float[2,6,4] z) <int64 axis = {1}> {
			[a] y = CumSum (x, axis)
			[b] z = Mul (x, y)
		}`, "y 1 1 1; a! needs other tokens of \"x\"; b: 11"},
		{"softmax over tokens", `g (float[2,6,4] x) => (float[2,6,4] z) {
			[a] y = Softmax <axis = 1> (x)
			[b] z = Mul (x, y)
		}`, "y 1 1 1; a! needs other tokens of \"x\""},
		{"a mean over tokens", `g (float[2,6,4] x) => (float[2,6,4] z) {
			[a] y = ReduceMean <axes = [1]> (x)
			[b] z = Sub (x, y)
		}`, "y -; z 1 1 1; a! no token axis; b: 10"},
		{"joined along the tokens", `g (float[2,6,4] x, float[2,3,4] w) => (float[2,9,4] y) {
			[a] y = Concat <axis = 1> (x, w)
		}`, "y -; a! no token axis"},
		{"halves of the channels", `g (float[2,6,4] x) => (float[2,6,4] y) {
			[a] u, v = Split <axis = 2, num_outputs = 2> (x)
			[b] y = Concat <axis = 2> (v, u)
		}`, "u 1 1 1; v 1 1 1; a: 1; b: 11"},
		{"a table of positions", `g (float[2,6,4] x, float[6,4] table) => (float[2,6,4] y) {
			[a] y = Add (x, table)
		}`, "table 0 1 1; y 1 1 1; a: 11"},
		{"queries, keys and values in one product", `g (float[2,6,12] x) => (float[2,2,6,2] q) <int64[5] parts = {0,0,3,2,2}, int64 first = {0}> {
			[a] y = Reshape (x, parts)
			[b] z = Transpose <perm = [2,0,3,1,4]> (y)
			[c] q = Gather <axis = 0> (z, first)
		}`, "z 3 1 1; q 2 1 1; a: 10; b: 1; c: 10"},
		{"a scalar spread over all", `g (float[2,6,4] x, float s) => (float[2,6,4] y) <int64[3] shape = {2,6,4}> {
			[a] e = Expand (s, shape)
			[b] y = Mul (e, x)
		}`, "e 1 1 1; a: 00; b: 11"},
		{"random numbers", `g (float[2,6,4] x, float r, bool on) => (float[2,6,4] y) {
			[a] d = Dropout (x, r, on)
			[b] y = Add (d, x)
		}`, "d 1 1 1; a! random; b: 11"},
		{"elements of four bits", `g (float[2,6,4] x) => (float[2,6,4] y) {
			[a] c = Cast <to = 22> (x)
			[b] y = Cast <to = 1> (c)
		}`, "c 1 1 1; a! whole number of bytes; b! whole number of bytes"},
		{"causal attention", `g (float[2,6,4] x) => (float[2,1,6,4] y) <int64[1] one = {1}> {
			[u] q = Unsqueeze (x, one)
			[a] y = ai.memoc.FlashAttention <is_causal = 1> (q, q, q)
		}`, "q 2 1 1; y 2 1 1; u: 10; a! needs other tokens of \"q\""},
		{"attention to something else", `g (float[2,6,4] x, float[2,1,6,4] k) => (float[2,1,6,4] y) <int64[1] one = {1}> {
			[u] q = Unsqueeze (x, one)
			[a] y = ai.memoc.FlashAttention (q, k, k)
		}`, "q 2 1 1; y 2 1 1; k -; a: 100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := parse(t, tc.graph)
			i := tokens.Along(g, g.Inputs[0], 1)
			vals := values{}
			if !strings.Contains(tc.name, "random") {
				vals = runAll(t, g, 3)
				checkRanges(t, i, g, vals, cutsOf(i.Tokens()))
			}
			for _, line := range strings.Split(tc.want, "; ") {
				if got := describe(g, i, line); got != line {
					t.Errorf("%q, want %q", got, line)
				}
			}
		})
	}
}

// describe says of the value or node that a line of TestAxes speaks of what
// the line should say.
func describe(g *ir.Graph, i *tokens.Info, line string) string {
	subject, rest, _ := strings.Cut(line, " ")
	for _, n := range g.Nodes {
		in, ok := i.Range(n)
		switch name, kind := subject[:len(subject)-1], subject[len(subject)-1]; {
		case n.Name != name:
		case kind == '!' && !ok && strings.Contains(i.Why(n), rest):
			return line
		case kind == '!' || kind == ':' && !ok:
			return fmt.Sprintf("%s! %s", name, i.Why(n))
		case kind == ':':
			bits := ""
			for _, b := range in {
				bits += map[bool]string{true: "1", false: "0"}[b]
			}
			return name + ": " + bits
		}
	}
	for _, v := range allValues(g) {
		if v.Name != subject {
			continue
		}
		a, ok := i.Axis(v)
		if !ok {
			return subject + " -"
		}
		return fmt.Sprintf("%s %d %d %d", subject, a.Dim, a.Outer, a.Inner)
	}
	return "nothing is called " + subject
}

func allValues(g *ir.Graph) []*ir.Value {
	out := slices.Concat(g.Inputs, g.Inits)
	for _, n := range g.Nodes {
		out = append(out, n.Out...)
	}
	return out
}

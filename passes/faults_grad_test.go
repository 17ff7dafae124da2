package passes_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/passes"
)

// The tests named TestB.. hold the faults of docs/known-faults.md.

// trained builds the backward pass of a model and returns graph and warnings.
func trained(t testing.TB, m *ir.Model, s setup) (*ir.Graph, []*diag.Diagnostic) {
	t.Helper()
	if s.train == "" {
		s.train = "l"
	}
	c, warnings, err := compileUntil(t, m, s, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	return c.Graph, warnings
}

// refused builds the backward pass of a model that has none, and wants the
// error to say all parts.
func refused(t testing.TB, m *ir.Model, parts ...string) {
	t.Helper()
	_, _, err := compileUntil(t, m, setup{train: "l"}, passes.Analyze)
	if err == nil {
		t.Fatal("no error")
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q: %v", p, err)
		}
	}
}

func floats(t testing.TB, d ir.Datum) []float64 {
	t.Helper()
	x, ok := d.(*ir.Tensor)
	if !ok {
		t.Fatalf("no tensor: %v", d)
	}
	return x.Floats()
}

func near(t testing.TB, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d elements, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s is %v, want %v", what, got, want)
			return
		}
	}
}

func tensor(d ir.DType, vals []float64, dims ...int64) *ir.Tensor {
	return ir.FromFloats(d, vals, dims...)
}

func TestB01OperatorWithoutGradient(t *testing.T) {
	// The true gradient: one where the minimum of a row is.
	g, _ := trained(t, text(t, `g (float[2,3] inp) => (float l) <float[2,3] W = {5,1,3, 2,9,-4}> {
		c = Add (inp, W) m = ReduceMin <axes = [1], keepdims = 0> (c) l = ReduceSum <keepdims = 0> (m) }`), setup{})
	out := run(t, g, map[string]ir.Datum{"inp": tensor(ir.Float, make([]float64, 6), 2, 3)})
	near(t, "W_grad", floats(t, out["W_grad"]), []float64{0, 1, 0, 0, 0, 1}, 0)
	// Off the path it does not matter.
	unknown := func(on string) *ir.Model {
		m, err := ir.Parse("case", fmt.Sprintf(`<ir_version: 8, opset_import: ["" : 17, "com.other" : 3]>
		g (float[2,3] inp) => (float l) <float[2,3] W = {5,1,3, 2,9,-4}, float[2,3] m> {
		c = Add (inp, W) ["the odd one"] m = com.other.Odd (%s) k = Mul (c, m) l = ReduceSum <keepdims = 0> (k) }`, on))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	trained(t, unknown("inp"), setup{})
	refused(t, unknown("c"), "com.other::Odd", "the odd one", `"W"`, "3")
	// A local function is inlined before it is differentiated.
	m, err := ir.Parse("case", `<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
		g (float[2] x) => (float l) <float[2] W = {3,4}> { c = local.Twice (W) d = Mul (c, x) l = ReduceSum <keepdims = 0> (d) }
		<domain: "local", opset_import: ["" : 17]> Twice (a) => (b) { b = Add (a, a) }`)
	if err != nil {
		t.Fatal(err)
	}
	g, _ = trained(t, m, setup{})
	out = run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, []float64{10, 20}, 2)})
	near(t, "W_grad", floats(t, out["W_grad"]), []float64{20, 40}, 0)
}

func TestB02OptionalForwardOutputAbsent(t *testing.T) {
	x := []float64{1, -2, 0.5, 3, 2, 2.5, -1, 0}
	s, b := []float64{1.5, 0.5, -1, 2}, []float64{0.1, 0.2, 0.3, -0.4}
	g, _ := trained(t, text(t, `g (float[2,4] x) => (float l) <float[4] s = {1.5,0.5,-1,2}, float[4] b = {0.1,0.2,0.3,-0.4}> {
		y = LayerNormalization (x, s, b) z = Mul (y, y) l = ReduceMean <keepdims = 0> (z) }`), setup{})
	ds, db := make([]float64, 4), make([]float64, 4)
	for r := range 2 {
		row := x[4*r : 4*r+4]
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v / 4
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / 4
		}
		for j, v := range row {
			hat := (v - mean) / math.Sqrt(variance+1e-5)
			y := hat*s[j] + b[j]
			ds[j] += 2 * y * hat / 8
			db[j] += 2 * y / 8
		}
	}
	out := run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, x, 2, 4)})
	near(t, "s_grad", floats(t, out["s_grad"]), ds, 1e-5)
	near(t, "b_grad", floats(t, out["b_grad"]), db, 1e-5)

	// Dropout without a mask output: the gradient is the mask that was drawn,
	// scaled, in the same step.
	g, _ = trained(t, text(t, `g (float[64] x) => (float l, float[64] d) <float[64] W = ["elided": ""], float ratio = {0.5}, bool tm = {1}> {
		h = Add (x, W) d = Dropout (h, ratio, tm) l = ReduceSum <keepdims = 0> (d) }`), setup{})
	w := ir.NewTensor(ir.Float, 64)
	for _, v := range g.Inits {
		if v.Name == "W" {
			v.Init = ir.WeightOf(w)
		}
	}
	d := g.Nodes[slices.IndexFunc(g.Nodes, func(n *ir.Node) bool { return n.Op == "Dropout" })].Out[0]
	ones := make([]float64, 64)
	for i := range ones {
		ones[i] = 1
	}
	kept, err := eval.Graph(g, map[string]ir.Datum{"x": tensor(ir.Float, ones, 64)}, eval.Options{Keep: func(v *ir.Value) bool { return v == d }})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "W_grad", floats(t, kept["W_grad"]), floats(t, kept[d.Name]), 0)
}

func TestB03WhatIsTrainable(t *testing.T) {
	g, warnings := trained(t, text(t, `g (float[2,3] x) => (float l, float[4] rm, float[4] rv)
	<float[3,4] W = ["elided": ""], int64[2] shape = {2,4}, float[5] U = {1,2,3,4,5}, float[4] V = {1,2,3,4}, float[4] s = {1,1,1,1}, float[4] b = {0,0,0,0},
	 float[4] mean = {0,0,0,0}, float[4] var = {1,1,1,1}> {
		y = MatMul (x, W) r = Reshape (y, shape)
		n, rm, rv = BatchNormalization <training_mode = 1> (r, s, b, mean, var)
		["to integers"] i = Cast <to = 7> (V) ["and back"] f = Cast <to = 1> (i)
		p = Mul (n, f) l = ReduceSum <keepdims = 0> (p) }`), setup{})
	var grads []string
	for _, v := range g.Outputs {
		if strings.HasSuffix(v.Name, "_grad") {
			grads = append(grads, v.Name)
		}
	}
	if want := []string{"W_grad", "s_grad", "b_grad"}; !slices.Equal(grads, want) {
		t.Errorf("gradients of %v, want %v", grads, want)
	}
	said := ""
	for _, w := range warnings {
		said += w.Error() + "\n"
	}
	for _, part := range []string{`"U"`, "nothing reads it", `"V"`, "to integers"} {
		if !strings.Contains(said, part) {
			t.Errorf("the warnings do not say %s: %s", part, said)
		}
	}
	for _, silent := range []string{`"mean"`, `"var"`, `"shape"`} {
		if strings.Contains(said, silent) {
			t.Errorf("%s is no parameter, but is warned of: %s", silent, said)
		}
	}
	refused(t, text(t, `g (float[2] x) => (float l) { y = Mul (x, x) l = ReduceSum <keepdims = 0> (y) }`), "trainable")
}

func TestB04ControlFlowOnThePath(t *testing.T) {
	onPath := text(t, `g (float[2] x, bool cond) => (float l) <float[2] W = {1,2}> {
		["the if"] y = If (cond) <then_branch = t () => (float[2] a) { a = Mul (x, W) }, else_branch = e () => (float[2] b) { b = Identity (x) }>
		l = ReduceSum <keepdims = 0> (y) }`)
	if c, _, err := compileUntil(t, onPath, setup{train: "l"}, passes.Analyze); err == nil {
		for cond, want := range map[float64][]float64{1: {3, 5}, 0: {0, 0}} {
			out := run(t, c.Graph, map[string]ir.Datum{"x": tensor(ir.Float, []float64{3, 5}, 2), "cond": ir.FromFloats(ir.Bool, []float64{cond})})
			near(t, "W_grad", floats(t, out["W_grad"]), want, 0)
		}
	} else if !strings.Contains(err.Error(), "the if") || !strings.Contains(err.Error(), "If") {
		t.Errorf("the refusal does not name the If: %v", err)
	}
	// The usual export of a squeeze whose need is found out at run time.
	g, _ := trained(t, text(t, `g (float[1,2] x) => (float l) <float[2] W = {1,2}, int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}> {
		s = Shape (x) d = Gather (s, zero) c = Equal (d, one)
		y = If (c) <then_branch = t () => (a) { a = Squeeze (x, axis) }, else_branch = e () => (b) { b = Identity (x) }>
		p = Mul (y, W) l = ReduceSum <keepdims = 0> (p) }`), setup{})
	out := run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, []float64{3, 5}, 1, 2)})
	near(t, "W_grad", floats(t, out["W_grad"]), []float64{3, 5}, 0)
}

func TestB06GatherGradient(t *testing.T) {
	const src = `g (int64[3] ids) => (float l) <float[4,2] E = {1,2,3,4,5,6,7,8}> { r = Gather (E, ids) l = ReduceSum <keepdims = 0> (r) }`
	for _, opset := range []int{11, 13, 16, 17, 18, 20} {
		m := textAt(t, opset, src)
		if opset < 13 {
			m = textAt(t, opset, strings.Replace(src, "ReduceSum", "ReduceSum", 1))
		}
		g, _ := trained(t, m, setup{})
		out := run(t, g, map[string]ir.Datum{"ids": ir.FromInts(ir.Int64, []int64{0, 0, -1}, 3)})
		near(t, fmt.Sprintf("E_grad at opset %d", opset), floats(t, out["E_grad"]), []float64{2, 2, 0, 0, 0, 0, 1, 1}, 0)
		for _, n := range g.Nodes {
			if (n.Op == "ScatterND" || n.Op == "ScatterElements") && (n.Str("reduction", "none") != "add" || n.Version < 16) {
				t.Errorf("opset %d: %s does not add", opset, n)
			}
		}
	}
}

func TestB07BroadcastAndSymbols(t *testing.T) {
	g, _ := trained(t, text(t, `g (float[B,T,8] x) => (float l) <float[1,4,1] s = {1,2,3,4}, float[8] bias = {1,2,3,4,5,6,7,8}> {
		a = Mul (x, s) c = Add (a, bias) l = ReduceSum <keepdims = 0> (c) }`), setup{})
	if got := output(t, g, "s_grad").Type.String(); got != "float[1,4,1]" {
		t.Errorf("the gradient of s is of type %s", got)
	}
	if got := output(t, g, "bias_grad").Type.String(); got != "float[8]" {
		t.Errorf("the gradient of bias is of type %s", got)
	}
	x := make([]float64, 3*4*8)
	ds, db := make([]float64, 4), make([]float64, 8)
	for i := range x {
		x[i] = float64(i%7) - 2
		ds[i/8%4] += x[i]
		db[i%8]++
	}
	out := run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, x, 3, 4, 8)})
	near(t, "s_grad", floats(t, out["s_grad"]), ds, 0)
	near(t, "bias_grad", floats(t, out["bias_grad"]), db, 0)

	// Of two symbols either may be one, so that what is summed is known at run
	// time only. A refusal names both.
	m := text(t, `g (float[N,2] y, float[M,2] z) => (float l) <float[2] w = {1,2}> {
		a = Mul (y, w) b = Mul (z, w) c = Add (a, b) d = Mul (c, c) l = ReduceSum <keepdims = 0> (d) }`)
	c, _, err := compileUntil(t, m, setup{train: "l"}, passes.Analyze)
	if err != nil {
		if !strings.Contains(err.Error(), "N") || !strings.Contains(err.Error(), "M") {
			t.Errorf("the refusal names neither symbol: %v", err)
		}
	} else {
		for _, n := range [][2]int64{{3, 1}, {1, 3}, {3, 3}} {
			y, z := make([]float64, 2*n[0]), make([]float64, 2*n[1])
			want := make([]float64, 2)
			for i := range y {
				y[i] = float64(i + 1)
			}
			for i := range z {
				z[i] = float64(2*i - 3)
			}
			for r := range max(n[0], n[1]) {
				for j := range int64(2) {
					w := float64(j + 1)
					a, b := y[r%n[0]*2+j], z[r%n[1]*2+j]
					want[j] += 2 * (a*w + b*w) * (a + b)
				}
			}
			out := run(t, c.Graph, map[string]ir.Datum{"y": tensor(ir.Float, y, n[0], 2), "z": tensor(ir.Float, z, n[1], 2)})
			near(t, fmt.Sprint("w_grad for ", n), floats(t, out["w_grad"]), want, 1e-3)
		}
	}

	// Negative axes, dropped dims.
	g, _ = trained(t, text(t, `g (float[2,3] x) => (float l) <float[2,3] W = {1,2,3,4,5,6}, float[2] k = {10,20}> {
		y = Mul (x, W) m = ReduceMean <axes = [-1], keepdims = 0> (y) p = Mul (m, k) l = ReduceSum <keepdims = 0> (p) }`), setup{})
	out = run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, []float64{3, 6, 9, 12, 15, 18}, 2, 3)})
	near(t, "W_grad", floats(t, out["W_grad"]), []float64{10, 20, 30, 80, 100, 120}, 1e-4)
}

func TestB08WeightBehindTranspose(t *testing.T) {
	g, _ := trained(t, text(t, `g (float[2,3] x) => (float l) <float[4,3] W = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] old = {1,1,1}> {
		wt = Transpose <perm = [1,0]> (W) y = MatMul (x, wt) l = ReduceSum <keepdims = 0> (y) }`), setup{})
	if v := output(t, g, "W_grad"); v.Type.String() != "float[4,3]" {
		t.Errorf("the gradient of W is of type %s", v.Type)
	}
	out := run(t, g, map[string]ir.Datum{"x": tensor(ir.Float, []float64{1, 2, 3, 10, 20, 30}, 2, 3)})
	near(t, "W_grad", floats(t, out["W_grad"]), []float64{11, 22, 33, 11, 22, 33, 11, 22, 33, 11, 22, 33}, 0)
	if !slices.ContainsFunc(g.Nodes, func(n *ir.Node) bool { return n.Op == "Transpose" && n.In[0] == g.Inits[0] }) {
		t.Error("what follows from a trainable weight was folded")
	}
	// The exporter renamed the weight: the nearest names are listed.
	_, _, err := compileUntil(t, text(t, `g (float[2,4] x) => (float l) <float[4,3] "onnx::MatMul_12" = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] "fc.bias" = {1,2,3}> {
		y = MatMul (x, "onnx::MatMul_12") z = Add (y, "fc.bias") l = ReduceSum <keepdims = 0> (z) }`), setup{train: "l", wrt: []string{"fc.weight"}}, passes.Analyze)
	if err == nil || !strings.Contains(err.Error(), `"fc.weight"`) || !strings.Contains(err.Error(), "fc.bias") {
		t.Errorf("a weight that was renamed: %v", err)
	}
	// A name that is not there is answered with the nearest.
	_, _, err = compileUntil(t, text(t, `g (float[2] x) => (float losses) <float[2] W = {1,2}> { y = Mul (x, W) losses = ReduceSum <keepdims = 0> (y) }`), setup{train: "loses"}, passes.Analyze)
	var d *diag.Diagnostic
	if !errors.As(err, &d) || !strings.Contains(err.Error(), `did you mean "losses"`) {
		t.Errorf("error %v", err)
	}
}

// The name of a gradient output is a contract; where the model has taken it,
// the one given instead is said.
func TestGradientNameTaken(t *testing.T) {
	m := text(t, `g (float[2,3] x, float[3,4] w_grad) => (float l) <float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
		a = MatMul (x, w)
		b = MatMul (x, w_grad)
		c = Add (a, b)
		l = ReduceSum <keepdims = 0> (c)
	}`)
	g, said := trained(t, m, setup{train: "l"})
	if !strings.Contains(fmt.Sprint(said), `"w_grad" is taken`) {
		t.Errorf("nothing is said of the name: %v", said)
	}
	if out := g.Outputs[len(g.Outputs)-1].Name; out == "w_grad" || !strings.Contains(fmt.Sprint(said), fmt.Sprintf("%q", out)) {
		t.Errorf("the gradient is called %q, the warning says %v", out, said)
	}
}

package passes_test

import (
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// tracedHead is a head with its gradient as PyTorch's tracer writes it. All
// extents are 4, so that no wrong operand shows by its size.
const tracedHead = `wt = Transpose<perm=[1,0]> (W) s = MatMul (x, wt) lp = LogSoftmax<axis=1> (s)
	eq = Equal (lab, hundred) ne = Not (eq) safe = Where (ne, lab, izero) i = Unsqueeze (safe, one) g = GatherElements<axis=1> (lp, i) e = Squeeze (g, one) n = Neg (e) w = Where (ne, n, zero)
	k = Cast<to=7> (ne) c = ReduceSum<keepdims=0> (k) d = Cast<to=1> (c) z = ReduceSum<keepdims=0> (w) loss = Div (z, d)
	r = Div (fone, d) u = Unsqueeze (lab, one) eq2 = Equal (u, hundred) ne2 = Not (eq2) safe2 = Where (ne2, u, izero) sc = ScatterElements<axis=1> (zeros, safe2, minus) w2 = Where (ne2, r, zero) G = Mul (sc, w2)
	lq = Identity (lp) p = Exp (lq) rs = ReduceSum<keepdims=1> (G, one) pr = Mul (p, rs) ds = Sub (G, pr)
	dst = Transpose<perm=[1,0]> (ds) dW = MatMul (dst, x) wn = Transpose<perm=[1,0]> (wt) dX = MatMul (ds, wn)`

var tracedHeads = []struct {
	name     string
	old, new string // what is written in another way
	why      string // part of the warning where it is not taken
}{
	{"as traced", "", "", ""},
	{"the weight's gradient the other way round", "dW = MatMul (dst, x)", "xt = Transpose<perm=[1,0]> (x) dV = MatMul (xt, ds) dW = Transpose<perm=[1,0]> (dV)", ""},
	{"no gradient of the input", "dX = MatMul (ds, wn)", "dX = Identity (x)", ""},
	{"the sum", "loss = Div (z, d)", "loss = Identity (z)", "another multiple"},
	{"a sum with its gradient", "loss = Div (z, d) r = Div (fone, d)", "loss = Identity (z) r = Identity (fone)", ""},
	{"twice the gradient", "r = Div (fone, d)", "r = Div (ftwo, d)", "another multiple"},
	{"half a label", "(zeros, safe2, minus)", "(zeros, safe2, ones)", "another form"},
	{"not onto zeros", "(zeros, safe2, minus)", "(x, safe2, minus)", "another form"},
	{"scattered along the tokens", "sc = ScatterElements<axis=1>", "sc = ScatterElements<axis=0>", "another form"},
	{"another label that is replaced", "safe2 = Where (ne2, u, izero)", "eq4 = Equal (u, ithree) safe3 = Where (eq4, izero, u) safe2 = Where (ne2, safe3, izero)", "another form"},
	{"another mask", "w2 = Where (ne2, r, zero)", "eq3 = Equal (u, ithree) w2 = Where (eq3, r, zero)", "another mask"},
	{"ignored tokens that pull", "w2 = Where (ne2, r, zero)", "w2 = Where (ne2, r, fone)", "another form"},
	{"other labels", "u = Unsqueeze (lab, one)", "u = Unsqueeze (more, one)", "another form"},
	{"another softmax", "p = Exp (lq)", "p = Softmax<axis=0> (s)", "other readers"},
	{"subtracted the other way", "ds = Sub (G, pr)", "ds = Sub (pr, G)", "another form"},
	{"summed over the tokens", "rs = ReduceSum<keepdims=1> (G, one)", "rs = ReduceSum<keepdims=1> (G, izero1)", "another form"},
	{"summed from something else", "rs = ReduceSum<keepdims=1> (G, one)", "rs = ReduceSum<keepdims=1> (sc, one)", "another form"},
	{"the weight as it stands", "dX = MatMul (ds, wn)", "dX = MatMul (ds, wt)", "multiplied with something else"},
	{"a gradient that is not turned", "dW = MatMul (dst, x)", "dW = MatMul (ds, x)", "multiplied with something else"},
	{"another input", "dW = MatMul (dst, x)", "dW = MatMul (dst, y)", "multiplied with something else"},
	{"a gradient that is read", "dX = MatMul (ds, wn)", "dX = Relu (ds)", "goes through Relu"},
	{"log-probabilities that are read", "dX = MatMul (ds, wn)", "dX = Relu (lp)", "used as well"},
	{"scores that are read", "dX = MatMul (ds, wn)", "dX = Relu (s)", "other readers"},
}

// builtHead is a head with the gradient that ONNX Runtime builds.
const builtHead = `wt = Transpose<perm=[1,0]> (W) s = MatMul (x, wt) t = Reshape (s, square) loss, lp = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, lab)
	dt = com.microsoft.SoftmaxCrossEntropyLossGrad<ignore_index=-100> (fone, lp, lab) sh = Shape (s) ds = Reshape (dt, sh) dX = com.microsoft.FusedMatMul<transB=1> (ds, wt)
	d2 = Reshape (ds, square) dV = Gemm<transA=1, beta=0.0> (x, d2) dW = Transpose<perm=[1,0]> (dV)`

var builtHeads = []struct{ name, old, new, why string }{
	{"as built", "", "", ""},
	{"the sum", "SoftmaxCrossEntropyLoss<ignore_index=-100> (t, lab) dt = com.microsoft.SoftmaxCrossEntropyLossGrad<ignore_index=-100>", `SoftmaxCrossEntropyLoss<ignore_index=-100, reduction="sum"> (t, lab) dt = com.microsoft.SoftmaxCrossEntropyLossGrad<ignore_index=-100, reduction="sum">`, ""},
	{"with products of the standard", "dX = com.microsoft.FusedMatMul<transB=1> (ds, wt)", "dX = Gemm<transB=1> (ds, wt)", ""},
	{"the gradient of the sum", "LossGrad<ignore_index=-100>", `LossGrad<ignore_index=-100, reduction="sum">`, "another loss"},
	{"another label to ignore", "LossGrad<ignore_index=-100>", "LossGrad<ignore_index=3>", "ignores another label"},
	{"no label to ignore", "SoftmaxCrossEntropyLoss<ignore_index=-100>", "SoftmaxCrossEntropyLoss<ignore_index=3>", "ignores another label"},
	{"twice the gradient", "(fone, lp, lab)", "(ftwo, lp, lab)", "another multiple"},
	{"other labels", "(fone, lp, lab)", "(fone, lp, more)", "other labels"},
	{"a weight that is not turned", "FusedMatMul<transB=1> (ds, wt)", "FusedMatMul<transB=0> (ds, wt)", "multiplied with something else"},
	{"a gradient that is turned", "FusedMatMul<transB=1> (ds, wt)", "FusedMatMul<transA=1, transB=1> (ds, wt)", "multiplied with something else"},
	{"a product with a factor", "FusedMatMul<transB=1> (ds, wt)", "FusedMatMul<alpha=2.0, transB=1> (ds, wt)", "goes through"},
	{"a product with a summand", "Gemm<transA=1, beta=0.0> (x, d2)", "Gemm<transA=1> (x, d2, y)", "goes through Gemm"},
	{"an input that is not turned", "Gemm<transA=1, beta=0.0>", "Gemm<beta=0.0>", "multiplied with something else"},
	{"log-probabilities that are read", "dX = com.microsoft.FusedMatMul<transB=1> (ds, wt)", "dX = Relu (lp)", "used as well"},
}

func tracedRun(t *testing.T, nodes string, s setup) (*passes.Context, map[string]ir.Datum, string) {
	t.Helper()
	m, err := ir.Parse("traced", fmt.Sprintf(`<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
		traced (float[4,4] x, float[4,4] y, float[4,4] W, int64[4] lab, int64[4] more) => (loss, dW, dX)
		<int64 hundred = {-100}, int64 ithree = {3}, int64 izero = {0}, int64[1] izero1 = {0}, int64[1] one = {1}, int64[2] square = {4, 4}, float zero = {0}, float fone = {1}, float ftwo = {2},
		 float[4,1] minus = {-1, -1, -1, -1}, float[4,1] ones = {1, 1, 1, 1}, float[4,4] zeros = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}>
		{ %s }`, nodes))
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := compile(t, m, s)
	if err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(c.Graph, 5)
	if err != nil {
		t.Fatal(err)
	}
	in["lab"] = ir.FromInts(ir.Int64, []int64{3, -100, 0, 1}, 4)
	if strings.Contains(nodes, "ignore_index=3") {
		in["lab"] = ir.FromInts(ir.Int64, []int64{3, 2, 0, 1}, 4)
	}
	in["more"] = ir.FromInts(ir.Int64, []int64{2, -100, 1, 0}, 4)
	out, err := eval.Graph(c.Graph, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, out, headWarning(warnings)
}

// meanHead is a traced head whose loss is the mean over all tokens, and its
// gradient over those that count.
var meanHead = strings.NewReplacer("w = Where (ne, n, zero)", "", "z = ReduceSum<keepdims=0> (w) loss = Div (z, d)", "loss = ReduceMean<keepdims=0> (n)",
	"w2 = Where (ne2, r, zero) G = Mul (sc, w2)", "G = Mul (sc, r)").Replace(tracedHead)

// A traced head becomes chunks with the loss and the gradients that the graph
// had; what differs from the gradient of its loss in one node stays.
func TestLossHeadTraced(t *testing.T) {
	for _, h := range tracedHeads {
		t.Run(h.name, func(t *testing.T) { tracedHolds(t, tracedHead, h.old, h.new, h.why) })
	}
	t.Run("the mean of all tokens", func(t *testing.T) { tracedHolds(t, meanHead, "", "", "another multiple") })
	for _, h := range builtHeads {
		t.Run("built/"+h.name, func(t *testing.T) { tracedHolds(t, builtHead, h.old, h.new, h.why) })
	}
}

func tracedHolds(t *testing.T, nodes, old, new, why string) {
	t.Helper()
	nodes = strings.ReplaceAll(nodes, "\n\t", " ")
	changed := strings.Replace(nodes, old, new, 1)
	if old != "" && changed == nodes {
		t.Fatal("there is nothing to change")
	}
	nodes = changed
	_, want, _ := tracedRun(t, nodes, setup{whole: true})
	c, got, warning := tracedRun(t, nodes, setup{chunks: true})
	if fused := hasOp(c.Graph, "LinearCrossEntropy"); fused != (why == "") || fused && (hasOp(c.Graph, "LogSoftmax") || hasOp(c.Graph, "SoftmaxCrossEntropyLoss")) {
		t.Errorf("fused %v (%s)", fused, warning)
	}
	if !strings.Contains(warning, why) {
		t.Errorf("the warning is %q, want %q", warning, why)
	}
	for _, name := range []string{"loss", "dW", "dX"} {
		compareTensors(t, name, got[name], want[name], 1e-5)
	}
}

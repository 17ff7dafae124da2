package passes_test

import (
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/passes"
)

// headCase is one way to write a loss head: nodes that make loss from the
// scores of x [2,3,4] and W [4,5] or V [5,4], with the bias b, and labels lab
// [2,3], one of which is -100; safe has 0 there, and keep is false there.
type headCase struct {
	name, nodes string
	why         string // part of the warning where it must not be taken for a head
	has         string // attributes and inputs of the operator
}

const (
	headScores = `s = MatMul (x, W) t = Reshape (s, rows) l = Reshape (lab, all) `
	headLookUp = `s = MatMul (x, W) lp = LogSoftmax<axis=-1> (s) i = Unsqueeze (safe, last) g = GatherElements<axis=2> (lp, i) e = Squeeze (g, last) `
	headLoss   = `loss = SoftmaxCrossEntropyLoss<reduction="mean", ignore_index=-100> (t, l)`
)

var headCases = []headCase{
	{"plain", headScores + headLoss, "", "mean"},
	{"sum", headScores + `loss = SoftmaxCrossEntropyLoss<reduction="sum", ignore_index=-100> (t, l)`, "", "sum"},
	{"bias", `s = MatMul (x, W) a = Add (s, b) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss, "", "bias mean"},
	{"bias first", `s = MatMul (x, W) a = Add (b, s) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss, "", "bias mean"},
	{"bias after rows are merged", headScores[:len(headScores)-len(`l = Reshape (lab, all) `)] + `u = Add (t, b) l = Reshape (lab, all) loss = SoftmaxCrossEntropyLoss<ignore_index=-100> (u, l)`, "", "bias mean"},
	{"Gemm with a bias", `y = Reshape (x, hid) t = Gemm<transB=1> (y, V, b) l = Reshape (lab, all) ` + headLoss, "", "bias mean transW"},
	{"Gemm with a factor", `y = Reshape (x, hid) t = Gemm<transB=1, alpha=0.5> (y, V) l = Reshape (lab, all) ` + headLoss, "", "mean scale=0.5 transW"},
	{"Gemm with a share of the bias", `y = Reshape (x, hid) t = Gemm<transB=1, beta=0.5> (y, V, b) l = Reshape (lab, all) ` + headLoss, "no vector of classes", ""},
	{"Gemm with a transposed input", `y = Reshape (x, hid) z = Transpose (y) t = Gemm<transA=1> (z, W) l = Reshape (lab, all) ` + headLoss, "input is transposed", ""},
	{"a weight that is transposed", `U = Transpose<perm=[1,0]> (V) s = MatMul (x, U) t = Reshape (s, rows) l = Reshape (lab, all) ` + headLoss, "", "mean transW"},
	{"factor", `s = MatMul (x, W) a = Mul (s, half) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss, "", "mean scale=0.5"},
	{"divisor", `s = MatMul (x, W) a = Div (s, half) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss, "", "mean scale=2"},
	{"cap", `s = MatMul (x, W) a = Div (s, two) h = Tanh (a) c = Mul (h, two) t = Reshape (c, rows) l = Reshape (lab, all) ` + headLoss, "", "mean softcap=2"},
	{"bias, factor and cap", `s = MatMul (x, W) u = Add (s, b) a = Mul (u, half) h = Tanh (a) c = Mul (two, h) t = Reshape (c, rows) l = Reshape (lab, all) ` + headLoss, "", "bias mean softcap=2"},
	{"a factor before the bias", `s = MatMul (x, W) a = Mul (s, half) u = Add (a, b) t = Reshape (u, rows) l = Reshape (lab, all) ` + headLoss, "before the bias", ""},
	{"a factor of classes", `s = MatMul (x, W) a = Mul (s, b) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss, "no constant", ""},
	{"two caps", `s = MatMul (x, W) h = Tanh (s) c = Tanh (h) t = Reshape (c, rows) l = Reshape (lab, all) ` + headLoss, "no cap", ""},
	{"a bias of tokens", `s = MatMul (x, W) u = Add (s, x5) t = Reshape (u, rows) l = Reshape (lab, all) ` + headLoss, "no bias", ""},
	{"another function", `s = MatMul (x, W) u = Relu (s) t = Reshape (u, rows) l = Reshape (lab, all) ` + headLoss, "come from Relu", ""},
	{"shifted scores", `s = MatMul (x, W) p = Slice (s, zero, minus, one) t = Reshape (p, rows) q = Slice (lab, one, many, one) l = Reshape (q, all) ` + headLoss, "", "mean"},
	{"shifted after rows are merged", headScores[:len(headScores)-len(`l = Reshape (lab, all) `)] + `p = Slice (t, one, many, zero) m = Reshape (lab, all) l = Slice (m, one, many, zero) loss = SoftmaxCrossEntropyLoss<ignore_index=-100> (p, l)`, "", "mean"},
	{"classes that are sliced", `s = MatMul (x, W) p = Slice (s, one, many, two1) f = Reshape (lab, all) l = Where (keep6, zero6, f) t = Reshape (p, rows4) ` + headLoss, "come from Slice", ""},
	{"padded labels", headScores[:len(headScores)-len(`l = Reshape (lab, all) `)] + `pd = Pad (lab, pads, hundred) q = Slice (pd, one, many, one) l = Reshape (q, all) ` + headLoss, "", "mean"},
	{"labels with a column to ignore", `s = MatMul (x, W) t = Reshape (s, rows) q = Slice (lab, one, many, one) r = Concat<axis=1> (q, column) l = Reshape (r, all) ` + headLoss, "", "mean"},
	{"labels by a choice", `s = MatMul (x, W) t = Reshape (s, rows) r = Where (keep, safe, hundred) l = Reshape (r, all) ` + headLoss, "", "mean"},
	{"labels that are cast", `s = MatMul (x, W) t = Reshape (s, rows) f = Cast<to=6> (lab) l = Reshape (f, all) ` + headLoss, "", "mean"},
	{"tokens that are picked", `s = MatMul (x, W) p = Gather<axis=1> (s, pick) t = Reshape (p, rows) q = Gather<axis=1> (lab, pick) l = Reshape (q, all) ` + headLoss, "", "mean"},
	{"tokens that are picked before", `h = Gather<axis=1> (x, pick) s = MatMul (h, W) t = Reshape (s, rows) q = Gather<axis=1> (lab, pick) l = Reshape (q, all) ` + headLoss, "", "mean"},
	{"classes that are picked", `s = MatMul (x, W) p = Gather<axis=2> (s, five) t = Reshape (p, rows) l = Reshape (lab, all) ` + headLoss, "come from Gather", ""},
	{"classes second", `s = MatMul (x, W) t = Transpose<perm=[0,2,1]> (s) loss = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, lab)`, "", "mean"},
	{"tokens first, then turned", `s = MatMul (x, W) t = Transpose<perm=[1,2,0]> (s) l = Transpose (lab) loss = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, l)`, "not the scores' last axis", ""},
	{"turned", `s = MatMul (x, W) p = Transpose<perm=[1,0,2]> (s) t = Reshape (p, rows) q = Transpose (lab) l = Reshape (q, all) ` + headLoss, "", "mean"},
	{"losses that are averaged", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) loss = ReduceMean<keepdims=0> (e)`, "", "sum"},
	{"losses that are summed and divided", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) z = ReduceSum<keepdims=0> (e) loss = Div (z, half)`, "", "sum"},
	{"losses with a mask", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) f = Cast<to=1> (mask6) w = Mul (e, f) z = ReduceSum<keepdims=0> (w) n = ReduceSum<keepdims=0> (f) loss = Div (z, n)`, "", "sum"},
	{"losses with weights", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) w = Mul (e, six) loss = ReduceSum<keepdims=0> (w)`, "have weights", ""},
	{"losses that are squared", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) w = Sqrt (e) loss = ReduceSum<keepdims=0> (w)`, "go through Sqrt", ""},
	{"losses that are used twice", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) w = Mul (e, e) loss = ReduceSum<keepdims=0> (w)`, "one by one", ""},
	{"losses that are summed by row", headScores + `e = SoftmaxCrossEntropyLoss<reduction="none", ignore_index=-100> (t, l) r = Reshape (e, grid) z = ReduceSum<keepdims=0> (r, one) loss = ReduceMax<keepdims=0> (z)`, "go through ReduceSum", ""},
	{"class weights", headScores + `loss = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, l, b)`, "class weights", ""},
	{"log-probabilities that are an output", headScores + `loss, lp = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, l)`, "used as well", ""},
	{"scores that are used as well", headScores + `p = SoftmaxCrossEntropyLoss<ignore_index=-100> (t, l) q = ReduceSum<keepdims=0> (t) loss = Add (p, q)`, "other readers", ""},
	{"another operator's name", headScores + `loss = com.microsoft.SoftmaxCrossEntropyLossInternal<reduction="mean"> (t, l, , hundred)`, "", "mean"},
	{"two operators", headScores + `lp = LogSoftmax<axis=1> (t) loss = NegativeLogLikelihoodLoss<ignore_index=-100> (lp, l)`, "", "mean"},
	{"two operators, classes second", `s = MatMul (x, W) t = Transpose<perm=[0,2,1]> (s) lp = LogSoftmax<axis=1> (t) loss = NegativeLogLikelihoodLoss<ignore_index=-100, reduction="sum"> (lp, lab)`, "", "sum"},
	{"softmax of another axis", `s = MatMul (x, W) lp = LogSoftmax<axis=1> (s) t = Reshape (lp, rows) l = Reshape (lab, all) loss = NegativeLogLikelihoodLoss<ignore_index=-100> (t, l)`, "nothing looks up", ""},
	{"looked up", headLookUp + `n = Neg (e) w = Where (keep, n, fzero) z = ReduceSum<keepdims=0> (w) k = Cast<to=7> (keep) c = ReduceSum<keepdims=0> (k) d = Cast<to=1> (c) loss = Div (z, d)`, "", "mean"},
	{"looked up, divided by another number", headLookUp + `n = Neg (e) w = Where (keep, n, fzero) z = ReduceSum<keepdims=0> (w) k = Cast<to=7> (maskg) c = ReduceSum<keepdims=0> (k) d = Cast<to=1> (c) loss = Div (z, d)`, "", "sum"},
	{"looked up and filled", headLookUp + `drop = Not (keep) w = Where (drop, fzero, e) z = ReduceSum<keepdims=0> (w) loss = Neg (z)`, "", "sum"},
	{"looked up, all of them", headLookUp + `m = ReduceMean<keepdims=0> (e) loss = Neg (m)`, "", "mean"},
	{"looked up from the end", `s = MatMul (x, W) lp = LogSoftmax<axis=-1> (s) i = Unsqueeze (back, last) g = GatherElements<axis=2> (lp, i) n = Neg (g) loss = ReduceSum<keepdims=0> (n)`, "", "sum"},
	{"what counts is filled with 1", headLookUp + `n = Neg (e) w = Where (keep, n, half) loss = ReduceSum<keepdims=0> (w)`, "chosen from two", ""},
	{"smoothed labels", headLookUp + `n = Neg (e) z = ReduceMean<keepdims=0> (n) r = ReduceMean<keepdims=0> (lp) v = Mul (r, half) loss = Sub (z, v)`, "used as well", ""},
	{"two of each token", `s = MatMul (x, W) lp = LogSoftmax<axis=-1> (s) g = GatherElements<axis=2> (lp, pairs) n = Neg (g) loss = ReduceSum<keepdims=0> (n)`, "not one", ""},
	{"looked up along the tokens", `s = MatMul (x, W) lp = LogSoftmax<axis=-1> (s) g = GatherElements<axis=1> (lp, pairs1) n = Neg (g) loss = ReduceSum<keepdims=0> (n)`, "along the classes", ""},
}

func headModel(t *testing.T, nodes string) *ir.Model {
	t.Helper()
	m, err := ir.Parse("head", fmt.Sprintf(`<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
		head (float[2,3,4] x0, float[2,3,5] x5, float[6] six, int64[2,3] lab, int64[2,3] safe, int64[2,3] back) => (float loss)
		<float[4,4] W0 = {0.3, -0.8, 0.5, 0.9, -0.4, 0.7, 0.2, -0.6, 0.1, 0.8, -0.9, 0.4, 0.6, -0.2, 0.3, 0.5},
		 float[4,5] W = {0.5, -0.3, 0.8, 0.1, -0.7, 0.9, 0.4, -0.2, 0.6, 0.3, -0.5, 0.7, 0.2, -0.9, 0.8, 0.1, -0.6, 0.4, 0.3, -0.8},
		 float[5,4] V = {0.4, -0.5, 0.7, 0.2, 0.8, -0.1, 0.3, -0.6, 0.5, 0.9, -0.4, 0.6, -0.7, 0.2, 0.1, 0.8, -0.3, 0.6, -0.9, 0.5},
		 float[5] b = {0.3, -0.4, 0.2, 0.7, -0.1}, float half = {0.5}, float two = {2}, float fzero = {0},
		 int64[2,1] column = {-100, -100}, int64[2,3,2] pairs = {1, 0, 4, 0, 3, 2, 1, 1, 0, 0, 3, 4},
		 int64[2,1,5] pairs1 = {1, 0, 2, 0, 1, 2, 1, 1, 0, 0}, int64[6] zero6 = {0, 0, 0, 0, 0, 0},
		 int64[2] rows = {-1, 5}, int64[2] rows4 = {-1, 4}, int64[2] hid = {-1, 4}, int64[2] grid = {2, 3}, int64[1] all = {-1}, int64[1] last = {-1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two1 = {2}, int64[1] minus = {-1},
		 int64[1] many = {9223372036854775807}, int64[4] pads = {0, 0, 0, 1}, int64 hundred = {-100}, int64 two64 = {2}, int64[2] pick = {2, 0}, int64[5] five = {4, 3, 2, 1, 0}>
		{ x = MatMul (x0, W0) keep = Equal (lab, safe) keep6 = Reshape (keep, all) drop1 = Equal (lab, column) mask2 = Less (lab, two64) maskg = And (keep, mask2) mask6 = Reshape (mask2, all) %s }`,
		strings.TrimSpace(nodes)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// headRun compiles a case for training and executes it.
func headRun(t *testing.T, nodes string, s setup) (*passes.Context, map[string]ir.Datum, string) {
	t.Helper()
	m := headModel(t, nodes)
	for _, n := range m.Graph.Nodes {
		if n.Op == "SoftmaxCrossEntropyLoss" && len(n.Out) > 1 {
			m.Graph.Outputs = append(m.Graph.Outputs, n.Out[1])
		}
	}
	s.train = "loss"
	c, warnings, err := compile(t, m, s)
	if err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(c.Graph, 3)
	if err != nil {
		t.Fatal(err)
	}
	in["lab"] = ir.FromInts(ir.Int64, []int64{1, -100, 4, 0, 3, 2}, 2, 3)
	in["safe"] = ir.FromInts(ir.Int64, []int64{1, 0, 4, 0, 3, 2}, 2, 3)
	in["back"] = ir.FromInts(ir.Int64, []int64{1, -1, 4, 0, -5, 2}, 2, 3)
	out, err := eval.Graph(c.Graph, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, out, headWarning(warnings)
}

func headWarning(ds []*diag.Diagnostic) string {
	for _, d := range ds {
		if d.ID == "losshead" {
			return d.Message
		}
	}
	return ""
}

// headAttrs lists what the chunked head has.
func headAttrs(g *ir.Graph) (out string) {
	for _, n := range g.Nodes {
		if n.Op != "LinearCrossEntropy" {
			continue
		}
		var parts []string
		if len(n.In) > 3 {
			parts = append(parts, "bias")
		}
		parts = append(parts, n.Str("reduction", ""))
		for _, name := range []string{"scale", "softcap"} {
			if n.Attr(name) != nil {
				parts = append(parts, fmt.Sprintf("%s=%g", name, n.Float(name, 0)))
			}
		}
		if n.Int("transW", 0) != 0 {
			parts = append(parts, "transW")
		}
		out += strings.Join(parts, " ")
	}
	return out
}

// Every form gives the loss and the gradients of the graph with whole scores;
// what is no head stays as it is, with the reason.
func TestLossHeadForms(t *testing.T) {
	for _, h := range headCases {
		t.Run(h.name, func(t *testing.T) {
			_, want, _ := headRun(t, h.nodes, setup{whole: true})
			c, got, warning := headRun(t, h.nodes, setup{chunks: true})
			has := headAttrs(c.Graph)
			if has != h.has {
				t.Errorf("the head has %q, want %q (%s)", has, h.has, warning)
			}
			if !strings.Contains(warning, h.why) || (h.why == "") != (warning == "") {
				t.Errorf("the warning is %q, want %q", warning, h.why)
			}
			if len(want) < 3 {
				t.Fatalf("outputs %v", want)
			}
			for name, w := range want {
				compareTensors(t, name, got[name], w, 1e-5)
			}
		})
	}
}

// A number that is trained by request is part of no head: its gradient comes
// from the graph.
func TestLossHeadTrainedNumbers(t *testing.T) {
	for name, nodes := range map[string]string{
		"fzero": headLookUp + `n = Neg (e) w = Where (keep, n, fzero) loss = ReduceSum<keepdims=0> (w)`,
		"half":  `s = MatMul (x, W) a = Mul (s, half) t = Reshape (a, rows) l = Reshape (lab, all) ` + headLoss,
		"two":   `s = MatMul (x, W) a = Div (s, two) h = Tanh (a) c = Mul (h, two) t = Reshape (c, rows) l = Reshape (lab, all) ` + headLoss,
	} {
		for _, trained := range []bool{true, false} {
			wrt := []string{"W"}
			if trained {
				wrt = append(wrt, name)
			}
			_, want, _ := headRun(t, nodes, setup{whole: true, wrt: wrt})
			c, got, warning := headRun(t, nodes, setup{chunks: true, wrt: wrt})
			if hasOp(c.Graph, "LinearCrossEntropy") == trained || (warning == "") == trained {
				t.Errorf("%s, trained %v: the head is %q (%s)", name, trained, headAttrs(c.Graph), warning)
			}
			if len(want) != 1+len(wrt) {
				t.Errorf("%s: outputs %v", name, want)
			}
			for out, w := range want {
				compareTensors(t, name+" "+out, got[out], w, 1e-5)
			}
		}
	}
}

// The heads of exported models are recognised, as docs/losshead.md says.
func TestLossHeadModels(t *testing.T) {
	for _, c := range []struct {
		path, loss string
		fused      bool
	}{
		{"models/gpt2_dynamo18/model.onnx", "loss", true},
		{"models/gpt2_script17/model.onnx", "loss", true},
		{"models/gpt2_dropout_script17/model.onnx", "loss", true},
		{"models/gpt2_sdpa_dynamo23/model.onnx", "loss", true},
		{"models/llama_dynamo18/model.onnx", "loss", true},
		{"models/llama_script17/model.onnx", "loss", true},
		{"models/llama_sdpa_dynamo23/model.onnx", "loss", true},
		{"models/llama_bf16_dynamo20/model.onnx", "loss", true},
		{"models/bert_mlm_dynamo20/model.onnx", "loss", true},
		{"models/t5_script17/model.onnx", "loss", true},
		{"models/vit_script14/model.onnx", "loss", true},
		{"models/conv_script17/model.onnx", "loss", true},
		{"models/step_torch_gpt2_dynamo18/model.onnx", "", true},
		{"models/step_torch_llama_dynamo18/model.onnx", "", true},
		{"models/full/llama2_7b_step_torch_opset18.onnx", "", true},
		{"models/full/llama3_8b_loss_opset23.onnx", "loss", true},
		{"models/full/gpt_7b_loss_dynamic_opset18.onnx", "loss", true},
		{"models/full/tinyllama_1b_loss_dynamic_opset23.onnx", "loss", true},
		{"corpus/ort/transformer/mlm_bert_e2e.onnx", "output-1", true},
		{"models/llama_dynamo18/ort_training_model.onnx", "", true},
		{"models/llama_script17/ort_training_model.onnx", "", true},
		{"models/t5_script17/ort_training_model.onnx", "", true},
		{"models/vit_script14/ort_training_model.onnx", "", true},
		{"corpus/ort/training/3layer_bloom_optimized_training.onnx", "", false},
	} {
		t.Run(c.path, func(t *testing.T) {
			path := shared(c.path)
			if path == "" {
				t.Skip("the shared models are not there")
			}
			dims := map[string]ir.Dim{}
			for _, v := range load(t, path).Graph.Inputs {
				for _, d := range v.Type.Shape.Dims {
					for _, s := range d.Symbols() {
						dims[s] = ir.N(16)
					}
				}
			}
			s := setup{train: c.loss, dims: dims, chunks: true}
			ctx, warnings, err := compileUntil(t, load(t, path), s, passes.Grad)
			if err != nil {
				t.Fatal(err)
			}
			warning := headWarning(warnings)
			if got := hasOp(ctx.Graph, "LinearCrossEntropy"); got != c.fused || got != (warning == "") {
				t.Errorf("recognised: %v (%s)", got, warning)
			}
			if strings.Contains(c.path, "ort_training_model") {
				sameInChunks(t, path, s)
			}
		})
	}
}

// sameInChunks holds a step with its head in chunks against the step as it is.
func sameInChunks(t *testing.T, path string, s setup) {
	t.Helper()
	var in, want map[string]ir.Datum
	for _, chunks := range []bool{false, true} {
		s.chunks = chunks
		c, _, err := compileUntil(t, load(t, path), s, passes.Analyze)
		if err != nil {
			t.Fatal(err)
		}
		if in == nil {
			if in, err = eval.RandomInputs(c.Graph, 1); err != nil {
				t.Fatal(err)
			}
		}
		got, err := eval.Graph(c.Graph, in, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
			continue
		}
		for name, w := range want {
			if x, ok := w.(*ir.Tensor); ok && x.DType.IsFloat() {
				compareTensors(t, name, got[name], w, 2e-5)
			}
		}
	}
}

package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/models"
	"memoc/passes"
	"memoc/passes/chunks"
	"memoc/passes/tokens"
)

// generated builds a small model; a hidden size of 16 and a width of four
// times that, or in llama of two and a half.
func generated(t testing.TB, arch string, d ir.DType, layers int, batch, seq int64) *ir.Model {
	t.Helper()
	c := models.Config{Arch: arch, Layers: layers, Hidden: 16, Heads: 2, FFN: 64, Vocab: 24, Seq: seq, Batch: batch, DType: d, InlineLimit: -1}
	if arch == "llama" {
		c.FFN = 40
	}
	m, err := models.Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The exports have as many feed-forward layers as their makers say; those that
// are not twice as wide as the model (llama, T5 and ViT in the shared data) are
// no matter. A step that was traced as a whole spells out its loss head, which
// widens tokens, too.
func TestChunksAreFoundInExports(t *testing.T) {
	for name, want := range map[string]int{
		"gpt2_dynamo18": 2, "gpt2_script17": 2, "gpt2_sdpa_dynamo23": 2, "gpt2_dropout_script17": 2, "bert_mlm_dynamo20": 2,
		"llama_dynamo18": 0, "llama_script17": 0, "t5_script17": 0, "vit_script14": 0, "conv_script17": 0, "zoo_dynamo20": 0,
		"step_torch_gpt2_dynamo18": 2 + 1, "step_torch_llama_dynamo18": 0 + 1,
	} {
		path := shared(filepath.Join("models", name, "model.onnx"))
		if path == "" {
			continue
		}
		s := setup{mlpChunks: 2}
		if !strings.HasPrefix(name, "step") {
			s.train = "loss"
		}
		m := load(t, path)
		if strings.Contains(ir.PrintGraph(m.Graph, ir.TextOptions{}), "[batch,seq]") {
			s.dims = batchSeq
		}
		c, _, err := compileUntil(t, m, s, passes.Analyze)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.Metrics.ChunkedLayers; got != want {
			t.Errorf("%s: %d layers run in chunks, want %d", name, got, want)
		}
	}
}

// mlpText is a feed-forward layer 8 to 32 to 8 wide around the nodes inner,
// which make b of a, behind products that leave no doubt what the tokens are.
func mlpText(inner, more string) string {
	return `g (float[1,6,8] x) => (float loss) <float[8,8] v = {` + waves(64) + `}, float[8,32] w = {` + waves(256) + `}, float[32,8] u = {` + waves(256) + `}` + more + `> {
		h0 = MatMul (x, v) h1 = Tanh (h0) h2 = MatMul (h1, v) h3 = Tanh (h2) h4 = MatMul (h3, v) h5 = Tanh (h4) h6 = MatMul (h5, v) h7 = Tanh (h6)
		h8 = MatMul (h7, v) h9 = Tanh (h8) h = MatMul (h9, v) a = MatMul (h, w) ` + inner + ` y = MatMul (b, u) z = Add (h, y) q = Mul (z, z) loss = ReduceSum <keepdims = 0> (q) }`
}

func waves(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%.2f", float64((i*7+3)%11)*0.1-0.5))
	}
	return strings.Join(out, ",")
}

// What may not run in chunks stays whole, with the reason; beside each such
// case stands the layer that differs in that alone and is found.
func TestChunksRefuse(t *testing.T) {
	for _, c := range []struct {
		name, inner, more string
		want              string // of the reason; "": the layer is found
	}{
		{"plain", "b = Tanh (a)", "", ""},
		{"bias", "c = Add (a, e) b = Relu (c)", ", float[32] e = {" + waves(32) + "}", ""},
		{"gate", "s = Sigmoid (a) b = Mul (a, s)", "", ""},
		{"softmax of a token", "b = Softmax <axis = 2> (a)", "", ""},
		{"softmax over tokens", "b = Softmax <axis = 1> (a)", "", "(Softmax@"},
		{"running sum", "b = CumSum (a, k)", ", int64 k = {1}", "(CumSum@"},
		{"shifted", "s = Slice (a, k0, k5, k1) p = Slice (a, k5, k6, k1) b = Concat <axis = 1> (p, s)",
			", int64[1] k0 = {0}, int64[1] k1 = {1}, int64[1] k5 = {5}, int64[1] k6 = {6}", "(Slice@"},
		{"dropout", "b, m = Dropout (a, r, k)", ", float r = {0.5}, bool k = {1}", "(Dropout@"},
		{"a part of it read outside", "b = Tanh (a) f = ReduceMean <axes = [2], keepdims = 1> (b) g = Add (h, f) i = Mul (g, g)", "", "2 results"},
		{"a maximum over tokens", "n = ReduceMax <axes = [1], keepdims = 1> (a) b = Sub (a, n)", "", "(ReduceMax@"},
		{"another product", "d = MatMul (a, o) b = Tanh (d)", ", float[32,32] o = {" + waves(1024) + "}", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := text(t, mlpText(c.inner, c.more))
			if c.name == "a part of it read outside" { // as far as the loss
				g = text(t, strings.Replace(mlpText(c.inner, c.more), "q = Mul (z, z)", "t = Mul (z, z) q = Add (t, i)", 1))
			}
			ctx, _, err := compileUntil(t, g, setup{train: "loss", mlpChunks: 1}, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			found, refused := chunks.Find(tokens.Find(ctx.Graph), ctx.Graph)
			if c.want == "" {
				if len(found) != 1 || len(refused) != 0 {
					t.Fatalf("%d regions, refused: %v", len(found), refused)
				}
				return
			}
			if len(found) != 0 || len(refused) == 0 || !strings.Contains(refused[0].Why, c.want) {
				t.Fatalf("%d regions, refused: %+v, want %q", len(found), refused, c.want)
			}
		})
	}
}

// What is summed over the tokens and read again is there once all chunks have
// been through.
func TestChunksReadTheirSums(t *testing.T) {
	for inner, more := range map[string]string{
		"s = ReduceSum <axes = [1], keepdims = 1> (a) b = Sub (a, s)":                                        "",
		"s = ReduceSum (a, k1) d = ReduceSum (s, k2) c = Sub (a, s) b = Mul (c, d)":                          ", int64[1] k1 = {1}, int64[1] k2 = {2}",
		"c = Tanh (a) s = ReduceSum (c, k1) d = Sub (c, s) e = ReduceSum (d, k1) f = Sin (e) b = Mul (d, f)": ", int64[1] k1 = {1}",
	} {
		g := mlpText(inner, more)
		whole, _, err := compileUntil(t, text(t, g), setup{train: "loss", mlpChunks: 1}, passes.Analyze)
		if err != nil {
			t.Fatal(err)
		}
		in, err := eval.RandomInputs(whole.Graph, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := run(t, whole.Graph, in)
		for _, count := range []int{2, 4} {
			c, _, err := compileUntil(t, text(t, g), setup{train: "loss", mlpChunks: count}, passes.Analyze)
			if err != nil {
				t.Errorf("%s in %d: %v", inner, count, err)
				continue
			}
			if c.Metrics.ChunkedLayers == 0 {
				t.Errorf("%s: the layer stays whole", inner)
			}
			got := run(t, c.Graph, in)
			for out, v := range want {
				compareTensors(t, fmt.Sprintf("%s in %d: %s", inner, count, out), got[out], v, 1e-5)
			}
		}
	}
}

// A wide tensor that the caller gets exists as a whole.
func TestChunksLeaveOutputs(t *testing.T) {
	for out, want := range map[string]int{"y": 1, "b": 0} {
		m := text(t, `g (float[2,6,8] x) => (float[2,6,8] y, float q, float other) <float[8,32] w = {`+waves(256)+`}, float[32,8] u = {`+waves(256)+`}> {
			a = MatMul (x, w) b = Tanh (a) y = MatMul (b, u) q = ReduceSum <keepdims = 0> (y) other = ReduceMax <keepdims = 0> (x) }`)
		if out == "b" {
			m.Graph.Outputs = append(m.Graph.Outputs, valueNamed(t, m.Graph, "b"))
		}
		c, _, err := compileUntil(t, m, setup{mlpChunks: 2}, passes.Analyze)
		if err != nil {
			t.Fatal(err)
		}
		if c.Metrics.ChunkedLayers != want {
			t.Errorf("with output %s %d layers run in chunks, want %d", out, c.Metrics.ChunkedLayers, want)
		}
		output(t, c.Graph, "y")
	}
}

// valueNamed is the value of a graph's node by name.
func valueNamed(t testing.TB, g *ir.Graph, name string) *ir.Value {
	t.Helper()
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Name == name {
				return v
			}
		}
	}
	t.Fatalf("no value %q", name)
	return nil
}

// Chunks give the loss bit for bit, since every token is computed as before,
// and the gradients up to the order of their sums; whatever the batch, the type
// and the number of chunks, which need not divide the tokens.
func TestChunksKeepValues(t *testing.T) {
	for _, c := range []struct {
		arch  string
		d     ir.DType
		batch int64
		tol   float64
	}{{"gpt", ir.Float, 1, 1e-5}, {"gpt", ir.Double, 2, 1e-12}, {"llama", ir.Float, 2, 1e-5}, {"gpt", ir.BFloat16, 2, 1.0 / 128}, {"llama", ir.Float16, 1, 1.0 / 1024}} {
		whole, _, err := compileUntil(t, generated(t, c.arch, c.d, 2, c.batch, 10), setup{train: "loss", mlpChunks: 1}, passes.Analyze)
		if err != nil {
			t.Fatal(err)
		}
		in, err := eval.RandomInputs(whole.Graph, 3)
		if err != nil {
			t.Fatal(err)
		}
		want := run(t, whole.Graph, in)
		for _, count := range []int{2, 3, 8} {
			name := fmt.Sprintf("%s %s batch %d in %d", c.arch, c.d, c.batch, count)
			chunked, _, err := compileUntil(t, generated(t, c.arch, c.d, 2, c.batch, 10), setup{train: "loss", mlpChunks: count}, passes.Analyze)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if chunked.Metrics.ChunkedLayers != 2 {
				t.Errorf("%s: %d layers of 2 run in chunks", name, chunked.Metrics.ChunkedLayers)
			}
			got := run(t, chunked.Graph, in)
			if !bytes.Equal(got["loss"].(*ir.Tensor).Data, want["loss"].(*ir.Tensor).Data) {
				t.Errorf("%s: the loss is %v, of whole layers %v", name, got["loss"], want["loss"])
			}
			for out, w := range want {
				compareTensors(t, name+" "+out, got[out], w, c.tol)
			}
		}
	}
}

// A gradient summed over chunks in a half type is as exact as that of one
// product: the sum over chunks is in float, and rounded once.
func TestChunksSumInFloat(t *testing.T) {
	exact, _, err := compileUntil(t, generated(t, "gpt", ir.Float, 1, 1, 64), setup{train: "loss", mlpChunks: 8}, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	half, _, err := compileUntil(t, generated(t, "gpt", ir.BFloat16, 1, 1, 64), setup{train: "loss", mlpChunks: 8}, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ctx  *passes.Context
		want ir.DType
	}{{exact, ir.Float}, {half, ir.Float}} {
		sums := 0
		for _, n := range c.ctx.Graph.Nodes {
			if n.Op != "MatMulAccumulate" {
				continue
			}
			sums++
			if d := n.Out[0].Type.DType; d != c.want {
				t.Errorf("%s sums in %s", n, d)
			}
		}
		if sums < 16 { // two weights in 8 chunks; of half types a bias as well
			t.Errorf("%d sums", sums)
		}
	}
}

// Planned chunks equal unplanned ones bit for bit, and a weight's gradient is
// summed in the bytes it is in.
func TestPlannedChunks(t *testing.T) {
	for _, c := range []struct {
		arch string
		d    ir.DType
		host int64
	}{{"gpt", ir.Float, 0}, {"gpt", ir.BFloat16, noHost}, {"llama", ir.Float, noHost}, {"llama", ir.BFloat16, 0}} {
		make := func() *ir.Model { return generated(t, c.arch, c.d, 2, 1, 32) }
		tight := plannedEqualsPlain(t, make, setup{train: "loss", mlpChunks: 3, budget: "60%", host: c.host})
		inPlace(t, tight.Program)
	}
}

func inPlace(t testing.TB, p *ir.Program) {
	t.Helper()
	sums := 0
	for i := range p.Steps {
		if n := p.Steps[i].Node; n.Op == "MatMulAccumulate" && len(n.In) == 3 {
			sums++
			if a, b := p.Places[n.In[2].ID], p.Places[n.Out[0].ID]; a.Buffer != b.Buffer {
				t.Errorf("%s writes another buffer than that of the sum before", n)
			}
		}
	}
	if sums == 0 {
		t.Error("no sum over chunks")
	}
}

// A layer 16 times as wide as the model peaks in the products and the
// activation of its backward pass, each of which touches two tensors of width
// W = 16 h at once: no plan of whole layers needs less. In 8 chunks there are
// an eighth of these, a float sum for each weight, and what is narrow: the
// attention's backward pass reads five tensors of width h and writes three, and
// the slices and the join of a layer are two each for two more.
func TestChunksLowerThePeak(t *testing.T) {
	const h, seq, f = 64, 4096, 16 * 64
	least := func(count int) (least, outputs int64) {
		m, err := models.Build(models.Config{Arch: "gpt", Layers: 2, Hidden: h, Heads: 1, FFN: f, Vocab: 32, Seq: seq, Batch: 1, DType: ir.BFloat16, InlineLimit: -1})
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := compile(t, m, setup{train: "loss", mlpChunks: count, budget: "1"})
		var inf *passes.Infeasible
		if !errors.As(err, &inf) {
			t.Fatalf("a budget of one byte: %v", err)
		}
		return inf.Smallest - inf.Persistent, c.Metrics.OutputBytes
	}
	wide, narrow, sums := int64(seq*f*2), int64(seq*h*2), int64(2*h*f*4)
	whole, _ := least(1)
	if whole < 2*wide {
		t.Errorf("whole layers run in %d bytes, fewer than two tensors of %d", whole, wide)
	}
	chunked, outputs := least(8)
	if most := 3*wide/8 + sums + 12*narrow + outputs; chunked > most {
		t.Errorf("8 chunks take %d bytes, more than %d", chunked, most)
	}
	if chunked >= whole {
		t.Errorf("8 chunks take %d bytes, whole layers %d", chunked, whole)
	}
}

// The plan chooses the number of chunks so that no other number that may be
// forced has a plan where it has none, more budget is never slower, and it is
// never slower than whole layers.
func TestChunkCountIsThePlans(t *testing.T) {
	model := func() *ir.Model {
		m, err := models.Build(models.Config{Arch: "llama", Layers: 1, Hidden: 64, Heads: 4, KVHeads: 1, FFN: 512, Vocab: 32, Seq: 2048, Batch: 1,
			DType: ir.BFloat16, InlineLimit: -1})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	smallest := func(s setup) int64 {
		s.budget = "1"
		_, _, err := compile(t, model(), s)
		var inf *passes.Infeasible
		if !errors.As(err, &inf) {
			t.Fatalf("a budget of one byte: %v", err)
		}
		return inf.Smallest
	}
	auto := setup{train: "loss", wide: 1}
	least, whole := smallest(auto), smallest(setup{train: "loss", mlpChunks: 1})
	if least >= whole {
		t.Fatalf("the smallest budget is %d, with whole layers %d", least, whole)
	}
	if all := mustCompile(t, model(), setup{train: "loss", wide: 1, budget: "100%"}); all.Metrics.Chunks != 0 {
		t.Errorf("in %d chunks where everything fits", all.Metrics.Chunks)
	}
	before, used := int64(-1), map[int]bool{}
	for i := range int64(6) {
		budget := fmt.Sprint(least + i*(2*whole-least)/5)
		auto.budget = budget
		c := mustCompile(t, model(), auto)
		used[c.Metrics.Chunks] = true
		if c.Metrics.Peak > c.Metrics.Budget {
			t.Errorf("budget %s: the plan needs %d", budget, c.Metrics.Peak)
		}
		if before >= 0 && c.Metrics.Time > before {
			t.Errorf("budget %s takes %d ns, a smaller one %d", budget, c.Metrics.Time, before)
		}
		before = c.Metrics.Time
		w, _, err := compile(t, model(), setup{train: "loss", mlpChunks: 1, budget: budget})
		if err == nil && w.Metrics.Time < c.Metrics.Time {
			t.Errorf("budget %s takes %d ns, with whole layers %d", budget, c.Metrics.Time, w.Metrics.Time)
		}
	}
	if len(used) < 2 {
		t.Errorf("numbers of chunks used: %v; the case shows too little", used)
	}
	auto.budget = fmt.Sprint(least - 1)
	if _, _, err := compile(t, model(), auto); err == nil {
		t.Errorf("%d is said to be the smallest budget; one byte less fits", least)
	}
}

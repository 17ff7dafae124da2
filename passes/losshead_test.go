package passes_test

import (
	"math"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/models"
	"memoc/passes"
	"memoc/passes/cost"
)

// stepOf builds the training step of a generated model; heads of at least
// headBytes work in chunks.
func stepOf(t *testing.T, cfg models.Config, headBytes int64) *passes.Context {
	t.Helper()
	m, err := models.Build(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	c := &passes.Context{Model: m, Graph: m.Graph, Options: passes.Options{Train: true, Loss: "loss", HostBudget: -1, Device: dev, HeadBytes: headBytes}}
	if err := (&passes.Runner{}).Run(c); err != nil {
		t.Fatal(err)
	}
	return c
}

func hasOp(g *ir.Graph, op string) bool {
	found := false
	g.Walk(func(n *ir.Node) { found = found || n.Op == op })
	return found
}

// The chunked head gives the loss and the gradients of the spelled-out one.
func TestLossHeadKeepsValues(t *testing.T) {
	for name, cfg := range map[string]models.Config{
		"gpt":   {Arch: "gpt", Layers: 1, Hidden: 16, Heads: 2, Vocab: 40, Seq: 10, Batch: 2, DType: ir.Float, InlineLimit: -1},
		"llama": {Arch: "llama", Layers: 1, Hidden: 16, Heads: 2, Vocab: 40, Seq: 10, Batch: 2, DType: ir.Float, InlineLimit: -1},
	} {
		whole, chunked := stepOf(t, cfg, math.MaxInt64), stepOf(t, cfg, 1)
		if hasOp(whole.Graph, "LinearCrossEntropy") || !hasOp(chunked.Graph, "LinearCrossEntropy") || hasOp(chunked.Graph, "SoftmaxCrossEntropyLoss") {
			t.Fatalf("%s: the head was not replaced where asked for, and only there", name)
		}
		in, err := eval.RandomInputs(whole.Graph, 3)
		if err != nil {
			t.Fatal(err)
		}
		want, err := eval.Graph(whole.Graph, in, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := eval.Program(chunked.Program, in, eval.Options{Steps: 2})
		if err != nil {
			t.Fatal(err)
		}
		for out, w := range want {
			compareTensors(t, name+" "+out, got[out], w, 1e-5)
		}
	}
}

func compareTensors(t *testing.T, what string, got, want ir.Datum, tol float64) {
	t.Helper()
	g, ok := got.(*ir.Tensor)
	if !ok {
		t.Errorf("%s is missing", what)
		return
	}
	x, y := g.Floats(), want.(*ir.Tensor).Floats()
	largest, worst := 0.0, 0.0
	for i := range y {
		largest, worst = max(largest, math.Abs(y[i])), max(worst, math.Abs(x[i]-y[i]))
	}
	if !(worst <= tol*largest+1e-7) {
		t.Errorf("%s differs by %g of %g", what, worst, largest)
	}
}

// A head of 128 K words over 32 K tokens needs under 1 GiB beside the weight
// and its gradient, which is summed in float; whole scores would be 7.8 GiB in
// bfloat16 and 15.7 GiB more in float.
func TestLossHeadOfALongSequence(t *testing.T) {
	c := stepOf(t, models.Config{Arch: "llama", Layers: 1, Hidden: 4096, Heads: 32, KVHeads: 8, Vocab: 128256, Seq: 32768, Batch: 1,
		DType: ir.BFloat16, InlineLimit: 1 << 20}, 0)
	seen := false
	for i := range c.Program.Steps {
		s := &c.Program.Steps[i]
		for _, a := range s.Writes {
			if a.Size >= 32768*128256*2 {
				t.Errorf("%s writes %d bytes: the scores exist as a whole", s.Node, a.Size)
			}
		}
		if s.Node.Op != "LinearCrossEntropy" {
			continue
		}
		seen = true
		gradient := int64(4096 * 128256 * 4)
		if beside := c.Program.Buffers[s.Workspace].Size - gradient; beside < 0 || beside > 1<<30 {
			t.Errorf("the head takes %d bytes beside its weight's gradient in float, want at most 1 GiB", beside)
		}
	}
	if !seen {
		t.Error("the head is not chunked")
	}
}

// A graph that is not trained keeps its head, and nothing is said of it.
func TestLossHeadOfAnInference(t *testing.T) {
	c, warnings, err := compile(t, headModel(t, headScores+headLoss), setup{chunks: true})
	if err != nil {
		t.Fatal(err)
	}
	if hasOp(c.Graph, "LinearCrossEntropy") || headWarning(warnings) != "" {
		t.Errorf("an inference's head is replaced, or %q", headWarning(warnings))
	}
}

// A small head is left alone.
func TestLossHeadRefuses(t *testing.T) {
	c := stepOf(t, models.Config{Arch: "gpt", Layers: 1, Hidden: 16, Heads: 2, Vocab: 40, Seq: 10, Batch: 2, DType: ir.Float, InlineLimit: -1}, 0)
	if hasOp(c.Graph, "LinearCrossEntropy") {
		t.Error("a head of a few KiB works in chunks")
	}
}

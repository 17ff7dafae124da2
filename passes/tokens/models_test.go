package tokens_test

import (
	"os"
	"path/filepath"
	"testing"

	"memoc/ir"
	"memoc/ir/onnx"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/tokens"
)

// step is the graph of a model's training step as the planner sees it.
func step(t testing.TB, m *ir.Model, train bool, dims map[string]ir.Dim) *ir.Graph {
	t.Helper()
	dev, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	c := &passes.Context{Model: m, Graph: m.Graph, Options: passes.Options{Dims: dims, Device: dev, HostBudget: -1}}
	if train {
		c.Options.Train, c.Options.Loss = true, "loss"
	}
	if err := (&passes.Runner{}).RunUntil(c, passes.Plan); err != nil {
		t.Fatal(err)
	}
	return c.Graph
}

func load(t testing.TB, path string) *ir.Model {
	t.Helper()
	m, _, err := onnx.Load(path, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// shared is a path below the folder of shared data, "" if it is not there.
func shared(path string) string {
	for _, root := range []string{os.Getenv("MEMOC_SHARED"), "../../../shared", "../../../../shared"} {
		if p := filepath.Join(root, path); root != "" {
			if _, err := os.Stat(p); err == nil {
				return p
			}
		}
	}
	return ""
}

// subject is a model that trains, or a step that was exported as such.
type subject struct {
	name, path string
	train      bool
	dims       map[string]ir.Dim
}

func subjects(t testing.TB) (out []subject) {
	own, err := filepath.Glob("../../testdata/models/*.onnx")
	if err != nil || len(own) == 0 {
		t.Fatalf("no testdata/models: %v", err)
	}
	for _, path := range own {
		out = append(out, subject{filepath.Base(path), path, true, nil})
	}
	batchSeq := map[string]ir.Dim{"batch": ir.N(2), "seq": ir.N(8)}
	for _, s := range []subject{
		{name: "gpt2_dynamo18", train: true, dims: batchSeq}, {name: "gpt2_script17", train: true, dims: batchSeq},
		{name: "gpt2_sdpa_dynamo23", train: true}, {name: "gpt2_dropout_script17", train: true, dims: batchSeq},
		{name: "llama_dynamo18", train: true, dims: batchSeq}, {name: "llama_script17", train: true},
		{name: "llama_sdpa_dynamo23", train: true}, {name: "llama_bf16_dynamo20", train: true},
		{name: "bert_mlm_dynamo20", train: true}, {name: "conv_script17", train: true}, {name: "t5_script17", train: true},
		{name: "unet_dynamo20", train: true}, {name: "vit_script14", train: true}, {name: "zoo_dynamo20", train: true},
		{name: "step_torch_gpt2_dynamo18"}, {name: "step_torch_llama_dynamo18"},
	} {
		if s.path = shared("models/" + s.name + "/model.onnx"); s.path != "" {
			out = append(out, s)
		}
	}
	for _, name := range []string{"simplemlp_train", "tinytransformer_train", "autoencoder_train", "cct_train"} {
		if path := shared("corpus/deeploy/" + name + "/network.onnx"); path != "" {
			out = append(out, subject{name: name, path: path})
		}
	}
	return out
}

// TestModels runs every node of whole training steps that may run by token on
// slices of what it gets there, for the token axis and, with fewer cuts, for
// every other axis of the step.
func TestModels(t *testing.T) {
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			g := step(t, load(t, s.path), s.train, s.dims)
			vals := runAll(t, g, 1)
			i := tokens.Find(g)
			if i.Tokens() == 0 {
				t.Fatal("no token axis")
			}
			n := checkRanges(t, i, g, vals, cutsOf(i.Tokens()))
			all := 0
			for _, i := range tokens.Each(g) {
				all += checkRanges(t, i, g, vals, [][2]int64{{i.Tokens() / 2, i.Tokens()}})
			}
			t.Logf("%d tokens: %d of %d nodes may run on a range of them; along any axis: %d", i.Tokens(), n, len(g.Nodes), all)
		})
	}
}

package tokens_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/passes/liveness"
	"memoc/passes/tokens"
)

// built is the training step of a generated model.
func built(t testing.TB, c models.Config) *ir.Graph {
	t.Helper()
	c.DType, c.InlineLimit = ir.Float, 0
	m, err := models.Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return step(t, m, true, nil)
}

// TestRoles names what has the token axis in a layer of GPT and of Llama, and
// what may be made by token.
func TestRoles(t *testing.T) {
	for arch, roles := range map[string]string{
		"gpt":   "attn_norm q k v o attn_residual ffn_norm up gelu down ffn_residual",
		"llama": "attn_norm q k v q_rot k_rot o attn_residual ffn_norm gate up silu gated down ffn_residual",
	} {
		g := built(t, models.Config{Arch: arch, Layers: 2, Hidden: 24, Heads: 3, FFN: 40, Vocab: 50, Seq: 16, Batch: 2})
		i := tokens.Find(g)
		if i.Tokens() != 16 {
			t.Fatalf("%s: %d tokens", arch, i.Tokens())
		}
		want := map[string]bool{}
		for _, r := range strings.Fields(roles) {
			want[r] = true
		}
		for _, n := range g.Nodes {
			in, ok := i.Range(n)
			for o, v := range n.Out {
				if v == nil {
					continue
				}
				role, layer := strings.CutPrefix(v.Name, "layer1.")
				a, has := i.Axis(v)
				switch {
				case layer && want[role]:
					delete(want, role)
					if !has || !ok || !in[0] || a.Tokens != 16 || a.Outer != 1 || a.Inner != 1 {
						t.Errorf("%s: %s: axis %+v, by token %v: %s", arch, v.Name, a, in, i.Why(n))
					}
				case n.Op == "FlashAttention":
					if !has || ok || !strings.Contains(i.Why(n), "needs other tokens") {
						t.Errorf("%s: %s: axis %v, by token %v: %q", arch, v.Name, has, ok, i.Why(n))
					}
				case n.Op == "FlashAttentionGrad" && o < 3:
					if !has || ok {
						t.Errorf("%s: %s: axis %v, by token %v", arch, v.Name, has, ok)
					}
				case strings.HasSuffix(v.Name, "_grad"):
					if has || ok {
						t.Errorf("%s: the gradient of a weight %s: axis %+v, by token %v", arch, v.Name, a, ok)
					}
				}
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: no tensors of the roles %v", arch, want)
		}
	}
}

// TestProvenance: what has the token axis, where, and what may run by token is
// the same when sequence, batch, hidden and feed-forward size and vocabulary
// are one number as when they are all different.
func TestProvenance(t *testing.T) {
	for _, arch := range []string{"gpt", "llama"} {
		alike := built(t, models.Config{Arch: arch, Layers: 2, Hidden: 16, Heads: 4, FFN: 16, Vocab: 16, Seq: 16, Batch: 16})
		unlike := built(t, models.Config{Arch: arch, Layers: 2, Hidden: 24, Heads: 3, FFN: 40, Vocab: 50, Seq: 14, Batch: 5})
		named := map[string]*ir.Node{}
		for _, n := range unlike.Nodes {
			named[n.Name] = n
		}
		a, b := tokens.Find(alike), tokens.Find(unlike)
		if a.Tokens() != 16 || b.Tokens() != 14 {
			t.Errorf("%s: %d and %d tokens", arch, a.Tokens(), b.Tokens())
		}
		compared := 0
		for _, n := range alike.Nodes {
			m := named[n.Name]
			if m == nil {
				continue // a constant that is stored at one size and computed at another
			}
			compared++
			inA, okA := a.Range(n)
			inB, okB := b.Range(m)
			if n.Op != m.Op || okA != okB || !slices.Equal(inA, inB) || a.Why(n) != b.Why(m) {
				t.Errorf("%s: %s %v %q, but %s %v %q", arch, n, inA, a.Why(n), m, inB, b.Why(m))
			}
			for o, v := range n.Out {
				if v == nil {
					continue
				}
				x, hasX := a.Axis(v)
				y, hasY := b.Axis(m.Out[o])
				if hasX != hasY || x.Dim != y.Dim || (x.Outer == 16) != (y.Outer == 5) || (x.Inner == 1) != (y.Inner == 1) {
					t.Errorf("%s: %q has %v %+v, but %q has %v %+v", arch, v.Name, hasX, x, m.Out[o].Name, hasY, y)
				}
			}
		}
		if compared < len(alike.Nodes)-2 || compared < len(unlike.Nodes)-2 {
			t.Errorf("%s: %d nodes are common to steps of %d and %d", arch, compared, len(alike.Nodes), len(unlike.Nodes))
		}
	}
}

// waitsWhole lists the operators whose tensors wait for the backward pass and
// do not run by token: attention reads all keys, the loss head makes the
// gradients of all tokens, random numbers are drawn once, and labels are
// shifted against the tokens.
var waitsWhole = []string{"FlashAttention", "LinearCrossEntropy", "Dropout"}

// TestCoverage: of what waits for the backward pass in language models, as
// exporters write them, everything lies along the token axis and can be made
// by token but for a list of operators, and for labels.
func TestCoverage(t *testing.T) {
	seq := map[string]ir.Dim{"seq": ir.N(4096)}
	all := []subject{
		{name: "full/llama2_7b_step_torch_opset18.onnx"},
		{name: "full/llama3_8b_loss_opset23.onnx", train: true},
		{name: "full/gpt_7b_loss_dynamic_opset18.onnx", train: true, dims: seq},
		{name: "full/tinyllama_1b_loss_dynamic_opset23.onnx", train: true, dims: map[string]ir.Dim{"seq": ir.N(4096), "batch": ir.N(2)}},
	}
	for k := range all {
		all[k].path = shared("models/" + all[k].name)
	}
	for _, s := range append(subjects(t), all...) {
		named := func(part string) bool { return strings.Contains(s.name, part) }
		if !named("gpt") && !named("llama") && !named("bert") || named("dropout") {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if s.path == "" {
				t.Skip("no shared data")
			}
			g := step(t, load(t, s.path), s.train, s.dims)
			t.Log(coverage(t, g, tokens.Find(g)))
		})
	}
}

func coverage(t *testing.T, g *ir.Graph, i *tokens.Info) string {
	r, err := liveness.Analyze(g, liveness.Strict)
	if err != nil {
		t.Fatal(err)
	}
	var bytes, byToken, storages int64
	for _, s := range r.Storages {
		if s.Class != ir.Skeletal || s.Derived {
			continue
		}
		storages++
		bytes += s.Bytes
		rows, tokenBytes, ok := i.Rows(s.Values...)
		if weight := s.Root.Def.Op == "LinearCrossEntropy" && s.Root.Port == 2; !ok && !weight && s.Root.Type.DType.IsFloat() && s.Bytes > 16 {
			t.Errorf("%q %s has no token axis", s.Root.Name, s.Root.Type)
		}
		if ok && (rows < 1 || tokenBytes*i.Tokens() != s.Bytes) {
			t.Errorf("%q %s: %d rows, %d bytes for each of %d tokens", s.Root.Name, s.Root.Type, rows, tokenBytes, i.Tokens())
		}
		_, by := i.Range(s.Root.Def)
		if by {
			byToken += s.Bytes
		}
		if !by && !slices.Contains(waitsWhole, s.Root.Def.Op) && s.Root.Type.DType.IsFloat() && s.Bytes > 16 {
			t.Errorf("%q %s: %s does not run by token: %s", s.Root.Name, s.Root.Type, s.Root.Def, i.Why(s.Root.Def))
		}
	}
	return fmt.Sprintf("%d tokens; %d storages wait, %d bytes, %.1f %% can be made by token", i.Tokens(), storages, bytes, 100*float64(byToken)/float64(bytes))
}

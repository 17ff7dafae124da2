package passes_test

import (
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/passes"
)

// layerRatios is the skeletal table of a model's forward layer: elements in
// units of the layer input's, without what is smaller than a tenth of it.
func layerRatios(t *testing.T, cfg models.Config) (count int, ratios []float64, names []string) {
	t.Helper()
	m, err := models.Build(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := compileUntil(t, m, setup{train: "loss"}, passes.Plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range passes.Layers(c.Live) {
		if l.Backward || l.Input == nil {
			continue
		}
		unit := l.Input.Type
		for i, s := range l.Skeletal {
			r := float64(elements(s.Root)) / float64(elements(l.Input))
			names = append(names, s.Root.Name)
			if r > 0.1 && l.SameAs[i] < 0 && s.Root.Type.DType == unit.DType {
				ratios = append(ratios, r)
			}
		}
		count += l.Count
	}
	return count, ratios, names
}

func elements(v *ir.Value) int64 {
	n, _ := v.Type.Shape.NumElements()
	i, _ := n.Int()
	return i
}

// The table of the MEMO paper, from the graph: input, norm, q, k, v, attention,
// residual, norm of h; the wide projection and its GELU of 4h; and the
// log-sum-exp of the attention beside them.
func TestLayersOfGPT(t *testing.T) {
	cfg := models.Presets["7b"]
	cfg.Arch, cfg.DType, cfg.Seq, cfg.Batch = "gpt", ir.BFloat16, 2048, 1
	count, ratios, names := layerRatios(t, cfg)
	if want := []float64{1, 1, 1, 1, 1, 1, 1, 1, 4, 4}; count != 32 || !slices.Equal(ratios, want) {
		t.Errorf("%d layers, ratios %v, want 32 and %v", count, ratios, want)
	}
	if !slices.ContainsFunc(names, func(s string) bool { return strings.HasSuffix(s, "LSE") }) {
		t.Errorf("no log-sum-exp among %q", names)
	}
}

// With grouped heads k and v shrink by the share of heads.
func TestLayersOfLlama(t *testing.T) {
	cfg := models.Config{Arch: "llama", Layers: 6, Hidden: 64, Heads: 8, KVHeads: 2, FFN: 256, Vocab: 256, Seq: 64, Batch: 1, DType: ir.Float}
	count, ratios, names := layerRatios(t, cfg)
	if count != 6 || !slices.Contains(ratios, 0.25) || slices.Max(ratios) != 4 {
		t.Errorf("%d layers, ratios %v of %q", count, ratios, names)
	}
}

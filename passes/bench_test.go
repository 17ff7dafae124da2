package passes_test

import (
	"fmt"
	"testing"

	"memoc/ir"
	"memoc/ir/models"
)

// BenchmarkCompile plans the training step of generated GPT models of growing
// depth: the whole pipeline, nothing written.
func BenchmarkCompile(b *testing.B) {
	for _, layers := range []int{4, 32, 126} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			nodes := 0
			for b.Loop() {
				b.StopTimer()
				m, err := models.Build(models.Config{Arch: "gpt", Layers: layers, Hidden: 4096, Heads: 32, Vocab: 50257,
					Seq: 16384, Batch: 1, DType: ir.BFloat16, InlineLimit: 1 << 20, Seed: 1})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				c := mustCompile(b, m, setup{train: "loss", budget: "60%"})
				nodes = len(c.Graph.Nodes)
			}
			b.ReportMetric(float64(nodes), "nodes")
		})
	}
}

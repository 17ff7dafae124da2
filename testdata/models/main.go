// Command models writes the models of this folder. They are the output of
// "memoc model" and nothing else, so that anyone can make them again.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/ir/onnx"
	_ "memoc/ir/ops"
)

// files are the models by file name.
var files = map[string]models.Config{
	"gpt-tiny.onnx":   {Arch: "gpt", Layers: 4, Hidden: 32, Heads: 4, Vocab: 128, Seq: 64, Batch: 2, DType: ir.Float, InlineLimit: 1 << 20, Seed: 1},
	"llama-tiny.onnx": {Arch: "llama", Layers: 3, Hidden: 32, Heads: 4, KVHeads: 2, FFN: 96, Vocab: 128, Seq: 48, Batch: 2, DType: ir.Float, InlineLimit: 1 << 20, Seed: 2},
	"llama-bf16.onnx": {Arch: "llama", Layers: 2, Hidden: 32, Heads: 2, KVHeads: 1, FFN: 64, Vocab: 96, Seq: 32, Batch: 1, DType: ir.BFloat16, InlineLimit: 1 << 20, Seed: 3},
}

func main() {
	dir := filepath.Join("testdata", "models") // from the repository's root
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	for name, cfg := range files {
		m, err := models.Build(cfg)
		if err == nil {
			err = onnx.Save(filepath.Join(dir, name), m)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
	}
}

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

// three is the worked example of docs/architecture.md: three operations and a
// loss, with a tensor that sits idle where memory peaks. Its weight is absent.
const three = `<ir_version: 10, opset_import: ["" : 21]>
three (float[1024,256] x, float[1024,2048] v) => (float loss)
   <float[256,1024] w = ["location": "three.weights", "length": "1048576"]>
{
   [in] h = MatMul (x, w)
   [exp] a = Exp (h)
   [out] b = MatMul (a, v)
   [mean] loss = ReduceMean <keepdims: int = 0> (b)
}
`

func main() {
	dir := filepath.Join("testdata", "models") // from the repository's root
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	m, err := ir.Parse("three", three)
	if err == nil {
		err = onnx.Save(filepath.Join(dir, "example", "three.onnx"), m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "three.onnx", err)
		os.Exit(1)
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

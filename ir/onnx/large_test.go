package onnx

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"memoc/ir"
)

// TestTwoGigabytes opens a model whose weight fills the format's limit. The
// file is a hole, the time and memory are those of a real one: nothing looks at
// the weight.
func TestTwoGigabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a sparse file of 2 GB")
	}
	const rows, cols = 1 << 19, 1000
	data := int64(rows) * cols * 4
	head := protowire.AppendTag(nil, 9, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(data))
	tensor := new(rope)
	tensor.varint(1, rows)
	tensor.varint(1, cols)
	tensor.varint(2, int64(ir.Float))
	tensor.string(8, "w")
	open := func(num protowire.Number, inner []byte, rest int64) []byte {
		b := protowire.AppendTag(nil, num, protowire.BytesType)
		return append(protowire.AppendVarint(b, uint64(int64(len(inner))+rest)), inner...)
	}
	prefix := open(7, open(5, append(tensor.flat(), head...), data), data)
	model := append([]byte{8, 8}, prefix...)

	path := filepath.Join(t.TempDir(), "big.onnx")
	f, err := os.Create(path)
	must(t, err)
	_, err = f.Write(model)
	must(t, err)
	if err := f.Truncate(int64(len(model)) + data); err != nil {
		t.Skip("the file system holds no file of 2 GB: ", err)
	}
	must(t, f.Close())

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	m, _, err := Load(path, Options{})
	must(t, err)
	x, err := m.Graph.Inits[0].Init.Tensor()
	must(t, err)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if int64(len(x.Data)) != data {
		t.Errorf("%d bytes", len(x.Data))
	}
	if took > time.Second || after.TotalAlloc-before.TotalAlloc > 8<<20 {
		t.Errorf("took %v and %d bytes", took, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("%v, %d bytes allocated", took, after.TotalAlloc-before.TotalAlloc)
}

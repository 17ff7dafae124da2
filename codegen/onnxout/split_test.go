package onnxout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"memoc/codegen/onnxout"
	"memoc/ir"
	"memoc/ir/handmade"
	"memoc/ir/onnx"
	_ "memoc/ir/ops"
)

// TestSplitMetadata: the file says where ranges lie, in bytes counted by hand
// from the buffer's start; a token of one row has 256. What moves nothing runs
// on no lane.
func TestSplitMetadata(t *testing.T) {
	for _, x := range []struct {
		batch int64
		node  string
		from  int64 // within its buffer
		lane  string
		rows  string
	}{
		{1, "h.head", 0, "", ""},
		{1, "h.range", 1280, "", ""},
		{1, "h.whole", 0, "", ""},
		{1, "h.tail", 1280, "compute", ""},
		{3, "h.head", 0, "", "3 of 1280 bytes, 2048 apart"},
		{3, "h.in", 0, "host-to-device", "3 of 1280 bytes, 2048 apart"},
		{3, "h.range", 0, "compute", ""},
		{3, "h.whole", 0, "compute", ""},
	} {
		c, err := handmade.Split(x.batch)
		if err != nil {
			t.Fatal(err)
		}
		p := c.Program
		data, err := onnxout.Encode(p, &ir.Model{IRVersion: 8, Opsets: map[string]int{"": 17, ir.MemocDomain: 1}, Graph: p.Graph})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		m, _, err := onnx.Load(path, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		meta, offset := map[string]string{}, ""
		for i, n := range m.Graph.Nodes {
			if n.Name != x.node {
				continue
			}
			for _, kv := range n.Meta {
				meta[kv.Key] = kv.Value
			}
			pl := p.Places[p.Graph.Nodes[i].Out[0].ID]
			offset = fmt.Sprintf("device:%d", p.Buffers[pl.Buffer].Offset+x.from)
		}
		if meta["memoc.offset"] != offset || meta["memoc.lane"] != x.lane || meta["memoc.rows"] != x.rows {
			t.Errorf("batch %d, %s: %v, want offset %s, lane %q, rows %q", x.batch, x.node, meta, offset, x.lane, x.rows)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"memoc/ir"
	"memoc/ir/onnx"
)

// A model of one's own is asked about by a symbolic dim of its inputs: the one
// named, the one with a usual name, or the only one that is free.
func TestFitFindsTheDim(t *testing.T) {
	dir := t.TempDir()
	file := func(name, dims string) string {
		m, err := ir.Parse("case", `<ir_version: 8, opset_import: ["" : 17]>
			g (float[`+dims+`] x) => (float loss) <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
				y = MatMul (x, w)
				loss = ReduceMean <keepdims = 0> (y)
			}`)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := onnx.Save(path, m); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two, usual := file("one.onnx", "n,4"), file("two.onnx", "rows,columns,4"), file("usual.onnx", "batch,sequence,4")
	for _, c := range []struct {
		args  []string
		fails string // what the message says; "": the answer is 7 rows
	}{
		{[]string{one}, ""},
		{[]string{one, "--vary", "batch"}, ""},
		{[]string{usual, "--dim", "batch=7"}, ""},
		{[]string{usual, "--dim", "sequence=7", "--vary", "batch"}, ""},
		{[]string{two, "--dim", "rows=7"}, ""},
		{[]string{two, "--dim", "rows=7", "--seq-dim", "columns"}, ""},
		{[]string{two}, `which dim is --vary seq\? The model's free ones are rows, columns; say --seq-dim NAME`},
		{[]string{two, "--seq-dim", "column"}, `no free dim of the model's inputs is called "column"; did you mean "columns"\?; they are rows, columns`},
		{[]string{two, "--seq-dim", "columns"}, `dim "rows" has no value: say --dim rows=N`},
		{[]string{usual}, `dim "batch" has no value: say --dim batch=N`},
		{[]string{two, "--batch-dim", "rows"}, "--batch-dim is for --vary batch"},
		{[]string{one, "--dim", "n=7"}, "no free dim: there is nothing to vary"},
	} {
		var out, messages bytes.Buffer
		code := run(append([]string{"fit", "--train", "--loss", "loss", "--at", "7", "--policy", "keep", "--json"}, c.args...), &out, &messages)
		if c.fails != "" {
			if code != exitUsage || !regexp.MustCompile(c.fails).MatchString(messages.String()) {
				t.Errorf("%q: code %d, %s", c.args, code, messages.String())
			}
			continue
		}
		var got struct{ Curves []fitCurve }
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || code != exitOK {
			t.Fatalf("%q: code %d, %v, %s", c.args, code, err, messages.String())
		}
		if p := got.Curves[0].Points[0]; p.Size != 7 || p.Tokens != 7 || !p.Fits || p.MFU <= 0 {
			t.Errorf("%q: %+v", c.args, p)
		}
	}
}

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/onnx"
)

// shapeCase is one line of the archive's expected.jsonl.
type shapeCase struct {
	File       string                  `json:"file"`
	Test       string                  `json:"test"`
	MustFail   bool                    `json:"must_fail"`
	Robustness bool                    `json:"robustness"`
	Expect     map[string]expectedType `json:"expect"`
}

type expectedType struct {
	Kind  string        `json:"kind"`
	Elem  int           `json:"elem"`
	Shape *[]any        `json:"shape"`
	Of    *expectedType `json:"of"`
}

// TestShapeInference runs the cases of ONNX's own shape-inference and
// data-propagation tests: 863 with expected types, 181 that must be refused
// and 13 that must merely not crash.
func TestShapeInference(t *testing.T) {
	files := unpack(t, "corpus/onnx/shape_inference_cases.tar.xz")
	verdicts := map[string]verdict{}
	for line := range bytes.Lines(files["expected.jsonl"]) {
		var c shapeCase
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber() // a dim of 2^63-1 is no float64
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		name := caseName(strings.TrimSuffix(c.File, ".onnx") + "_" + strings.TrimPrefix(c.Test, "test_"))
		verdicts[name] = guard(func() verdict { return c.run(files["out/"+c.File]) })
	}
	judge(t, "shape_pending.txt", verdicts)
}

func (c *shapeCase) run(b []byte) verdict {
	m, _, err := onnx.Decode(b, "", onnx.Options{Name: c.File, Strict: c.MustFail})
	if err == nil {
		err = ir.Inline(m)
	}
	if err == nil {
		err = ir.InferGraph(m.Graph, ir.InferOptions{Strict: c.MustFail, Report: func(*diag.Diagnostic) {}})
	}
	switch {
	case c.Robustness:
		return pass
	case c.MustFail && err != nil:
		return pass
	case c.MustFail:
		return pending("accepted"+unknownOps(m.Graph), "must be refused")
	case err != nil:
		return pending("refused", "%v", err)
	}
	values := map[string]*ir.Value{}
	note := func(vs []*ir.Value) {
		for _, v := range vs {
			if v != nil {
				values[v.Name] = v
			}
		}
	}
	note(m.Graph.Inputs)
	note(m.Graph.Inits)
	m.Graph.Walk(func(n *ir.Node) { note(n.Out) })
	worst := pass
	for name, want := range c.Expect {
		v := values[name]
		if v == nil {
			return verdict{class: "wrong", detail: fmt.Sprintf("no value %q", name), never: true}
		}
		got := want.compare(v.Type)
		if got.class == "" {
			continue
		}
		got.detail = fmt.Sprintf("%s is %s, want %s: %s", name, v.Type, want, got.detail)
		if got.never {
			return got
		}
		worst = got
	}
	if worst.class != "" {
		worst.class += unknownOps(m.Graph)
	}
	return worst
}

// unknownOps names the first operator that memoc does not know.
func unknownOps(g *ir.Graph) string {
	name := ""
	g.Walk(func(n *ir.Node) {
		if n.Decl == nil && name == "" {
			name = ":" + n.FullOp()
		}
	})
	return name
}

func (e expectedType) String() string {
	b, _ := json.Marshal(e)
	return string(b)
}

// compare holds a type against the expected one. "weak" is less known than
// expected; more is accepted, since dims that ONNX leaves open are open to
// anything. A contradiction is wrong.
func (e expectedType) compare(t ir.Type) verdict {
	wrong := func(what string) verdict { return verdict{class: "wrong", detail: what, never: true} }
	if t.Kind == ir.NoType {
		return pending("weak", "nothing is known")
	}
	kind := map[string]ir.Kind{"tensor": ir.TensorKind, "sequence": ir.SequenceKind, "optional": ir.OptionalKind,
		"map": ir.MapKind, "sparse": ir.SparseKind, "sparse_tensor": ir.SparseKind}[e.Kind]
	if kind != t.Kind {
		return wrong("kind")
	}
	if e.Of != nil {
		return e.Of.compare(*t.Elem)
	}
	if e.Elem != 0 && t.DType != ir.DType(e.Elem) {
		if t.DType == ir.Undefined {
			return pending("weak", "element type")
		}
		return wrong("element type")
	}
	switch {
	case e.Shape == nil:
		return pass
	case !t.Shape.Ranked:
		return pending("weak", "rank")
	case t.Shape.Rank() != len(*e.Shape):
		return wrong("rank")
	}
	weak := pass
	for i, want := range *e.Shape {
		d := t.Shape.Dims[i]
		n, known := d.Int()
		switch want := want.(type) {
		case json.Number:
			if known && fmt.Sprint(n) != want.String() {
				return wrong(fmt.Sprintf("dim %d", i))
			}
			if !known {
				weak = pending("weak", "dim %d", i)
			}
		case string:
			if known {
				return wrong(fmt.Sprintf("dim %d", i))
			}
			if !d.Equal(ir.DimOf(want)) {
				weak = pending("weak", "dim %d", i)
			}
		}
	}
	return weak
}

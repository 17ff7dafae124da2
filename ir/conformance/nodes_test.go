package conformance

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/ir/onnx"
)

// TestNodes runs the ONNX project's node cases.
func TestNodes(t *testing.T) {
	runCases(t, "node_pending.txt", "corpus/onnx/node_tests.tar.xz")
}

// TestPyTorchCases runs the ONNX project's exports of single PyTorch modules.
func TestPyTorchCases(t *testing.T) {
	runCases(t, "pytorch_pending.txt", "corpus/onnx/pytorch_operator_converted.tar.xz")
}

// TestSimpleCases runs the ONNX project's simple models.
func TestSimpleCases(t *testing.T) {
	runCases(t, "simple_pending.txt", "corpus/onnx/simple.tar.xz")
}

func runCases(t *testing.T, list, archive string) {
	files := unpack(t, archive)
	verdicts := map[string]verdict{}
	strict := 0
	for name, model := range files {
		if path.Base(name) != "model.onnx" {
			continue
		}
		dir := path.Dir(name)
		c := &nodeCase{files: files, dir: dir, strict: true}
		v := guard(func() verdict { return c.run(model) })
		verdicts[strings.TrimPrefix(path.Base(dir), "test_")] = v
		if v.class == "" && c.strict {
			strict++
		}
	}
	judge(t, list, verdicts)
	fmt.Printf("%s: %d within the strict tolerance of the element type\n", t.Name(), strict)
}

// nodeCase is a folder with a model and data sets.
type nodeCase struct {
	files  map[string][]byte
	dir    string
	strict bool // all outputs are within strictTolerance
}

func (c *nodeCase) run(b []byte) verdict {
	m, _, err := onnx.Decode(b, "", onnx.Options{Name: c.dir})
	if err == nil {
		err = ir.Inline(m)
	}
	if err != nil {
		return pending("load", "%v", err)
	}
	if op := unknownOps(m.Graph); op != "" {
		return pending("unknown-op"+op, "")
	}
	declared := map[*ir.Value]ir.Type{}
	for _, v := range m.Graph.Outputs {
		declared[v] = v.Type
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		return pending("infer", "%v", err)
	}
	for _, v := range m.Graph.Outputs {
		if why := contradicts(declared[v], v.Type); why != "" {
			return verdict{class: "wrong-shape", detail: fmt.Sprintf("%s is inferred %s, declared %s", v.Name, v.Type, declared[v]), never: true}
		}
	}
	for i := 0; ; i++ {
		set := fmt.Sprintf("%s/test_data_set_%d/", c.dir, i)
		if !c.has(set) {
			if i == 0 {
				return pending("no-data", "")
			}
			return pass
		}
		if v := c.dataSet(m.Graph, set); v.class != "" {
			return v
		}
	}
}

func contradicts(declared, inferred ir.Type) string {
	if declared.Kind == ir.TensorKind && inferred.Kind == ir.TensorKind && declared.DType != inferred.DType && declared.DType != 0 {
		return "element type"
	}
	a, ok1 := declared.Shape.Static()
	b, ok2 := inferred.Shape.Static()
	if ok1 && ok2 && !slices.Equal(a, b) {
		return "shape"
	}
	return ""
}

func (c *nodeCase) has(set string) bool {
	_, in := c.files[set+"input_0.pb"]
	_, out := c.files[set+"output_0.pb"]
	return in || out
}

func (c *nodeCase) dataSet(g *ir.Graph, set string) verdict {
	in := map[string]ir.Datum{}
	for i, v := range g.Inputs {
		b, ok := c.files[fmt.Sprintf("%sinput_%d.pb", set, i)]
		if !ok {
			if v.Init != nil {
				continue
			}
			return pending("no-data", "input %d", i)
		}
		d, err := onnx.DecodeDatum(b, v.Type)
		if err != nil {
			return pending("data", "%v", err)
		}
		in[v.Name] = d
	}
	out, err := eval.Graph(g, in, eval.Options{})
	if err != nil {
		class := "eval"
		if d := (*diag.Diagnostic)(nil); errors.As(err, &d) && d.ID != "eval" {
			class = "eval-" + d.ID
		}
		return pending(class, "%v", err)
	}
	for i, v := range g.Outputs {
		b, ok := c.files[fmt.Sprintf("%soutput_%d.pb", set, i)]
		if !ok {
			continue
		}
		want, err := onnx.DecodeDatum(b, v.Type)
		if err != nil {
			return pending("data", "%v", err)
		}
		if why := c.compare(out[v.Name], want); why != "" {
			class := "wrong-value"
			if draws(g) {
				class = "random" // NumPy's numbers, which nobody else draws
			}
			return pending(class, "%s: %s", v.Name, why)
		}
	}
	return pass
}

// draws reports whether the graph has a random operator.
func draws(g *ir.Graph) bool {
	found := false
	g.Walk(func(n *ir.Node) {
		found = found || n.Op == "Bernoulli" || n.Op == "Dropout" || strings.HasPrefix(n.Op, "Random")
	})
	return found
}

// compare is ONNX's own test of a result: relative 1e-3, absolute 1e-7 for
// floating-point types, equality for the rest.
func (c *nodeCase) compare(got, want ir.Datum) string {
	switch want := want.(type) {
	case nil:
		if got != nil {
			return "a value where none is expected"
		}
		return ""
	case ir.Sequence:
		seq, ok := got.(ir.Sequence)
		if !ok || len(seq) != len(want) {
			return fmt.Sprintf("got %T, want a sequence of %d", got, len(want))
		}
		for i := range want {
			if why := c.compare(seq[i], want[i]); why != "" {
				return fmt.Sprintf("element %d: %s", i, why)
			}
		}
		return ""
	case *ir.Tensor:
		x, ok := got.(*ir.Tensor)
		if !ok || x == nil {
			return fmt.Sprintf("got %T, want a tensor", got)
		}
		return c.tensors(x, want)
	}
	return fmt.Sprintf("unexpected %T", want)
}

func (c *nodeCase) tensors(got, want *ir.Tensor) string {
	if got.DType != want.DType || !slices.Equal(got.Dims, want.Dims) {
		return fmt.Sprintf("got %s, want %s", got.Type(), want.Type())
	}
	switch {
	case got.DType == ir.String:
		if !slices.Equal(got.Strings, want.Strings) {
			return fmt.Sprintf("got %q, want %q", got.Strings, want.Strings)
		}
		return ""
	case !got.DType.IsFloat():
		if !slices.Equal(got.Data, want.Data) {
			return "elements differ"
		}
		return ""
	}
	g, w := got.Floats(), want.Floats()
	tight := strictTolerance[got.DType]
	for i := range w {
		if !within(g[i], w[i], 1e-3, 1e-7) {
			return fmt.Sprintf("element %d is %v, want %v", i, g[i], w[i])
		}
		c.strict = c.strict && within(g[i], w[i], tight, tight*1e-2)
	}
	return ""
}

// strictTolerance is some units in the last place of each element type.
var strictTolerance = map[ir.DType]float64{ir.Double: 1e-12, ir.Float: 4e-6, ir.Float16: 1.0 / 1024, ir.BFloat16: 1.0 / 128}

func within(g, w, rtol, atol float64) bool {
	if g == w || math.IsNaN(g) && math.IsNaN(w) {
		return true
	}
	return math.Abs(g-w) <= atol+rtol*math.Abs(w)
}

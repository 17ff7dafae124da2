package passes_test

import (
	"testing"

	"memoc/ir"
	"memoc/ir/onnx"
	"memoc/passes"
)

// The halves of a Llama layer as AOT autograd split it: 37 values cross, in the
// bytes their types say, whatever of them a later pass makes needless.
func TestJoinOfASplitExport(t *testing.T) {
	forward, backward := shared("corpus/dort/llama_f32_forward.onnx"), shared("corpus/dort/llama_f32_backward.onnx")
	if forward == "" || backward == "" {
		t.Skip("the shared corpus is not there")
	}
	for name, debug := range map[string]passes.Debug{"fused": nil, "spelled out": {"attention": {Off: true, Limit: -1}}} {
		first, _, err := onnx.Load(forward, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		second, _, err := onnx.Load(backward, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, crossing, err := passes.Join(first, second, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := setup{budget: "60%"}.options(t)
		o.Debug = debug
		c := &passes.Context{Model: m, Graph: m.Graph, Options: o, Crossing: crossing}
		if err := (&passes.Runner{}).Run(c); err != nil {
			t.Fatal(err)
		}
		s := c.CrossingSummary()
		if s.Values != 37 || s.Bytes != 226545664 {
			t.Errorf("%s: %d values of %d bytes cross, want 37 of 226545664", name, s.Values, s.Bytes)
		}
		if s.Persistent == 0 || s.Derived == 0 || s.Skeletal == 0 || s.Skeletal+s.Persistent+s.Derived+s.Output+s.Unused != s.Values {
			t.Errorf("%s: the parts do not add up: %+v", name, s)
		}
		if name == "spelled out" && s.Unused != 0 {
			t.Errorf("without fusion %d values are not needed", s.Unused)
		}
	}
}

// Two inputs of one type that could each be the other's are refused, and --map
// decides.
func TestJoinRefusesWhatIsAmbiguous(t *testing.T) {
	halves := func() (*ir.Model, *ir.Model) {
		return text(t, `f (float[4] x) => (float[4] y) { y = Tanh (x) }`),
			text(t, `b (float[4] p, float[4] q) => (float[4] r) { r = Mul (p, q) }`)
	}
	f, b := halves()
	if _, _, err := passes.Join(f, b, nil); err == nil {
		t.Error("a stash that fits at two places was bound to one of them")
	}
	f, b = halves()
	m, crossing, err := passes.Join(f, b, map[string]string{"q": "y"})
	if err != nil {
		t.Fatal(err)
	}
	if len(crossing) != 1 || crossing[0].Name != "y" || len(m.Graph.Inputs) != 2 {
		t.Errorf("crossing %v, inputs %v", crossing, m.Graph.Inputs)
	}
}

package passes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"memoc/codegen/onnxout"
	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/onnx"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/check"
	"memoc/passes/plan"
)

// TestSplitsEmitted takes planned steps with splits through everything that is
// written of them: the program on the host runtime, bit for bit as the one that
// is emitted without a budget; and plan.json with the model, which alone are
// judged and executed, bit for bit as before planning.
func TestSplitsEmitted(t *testing.T) {
	for _, s := range splitSubjects(t) {
		t.Run(s.name, func(t *testing.T) {
			often := s.name == "gpt, one row" || s.name == "llama-tiny.onnx"
			if !often && !long() {
				t.Skip("set MEMOC_LONG=1")
			}
			base, _, err := compileUntil(t, s.make(t), s.setup, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(base.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			want, err := eval.Graph(base.Graph, in, eval.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m := s.make(t)
			o := s.setup.options(t)
			o.Choose = splitMixed(1)
			c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
			if err := (&passes.Runner{}).Run(c); err != nil {
				t.Fatal(err)
			}
			filesAlone(t, c, in, want)
			if _, err := exec.LookPath("g++"); err != nil {
				t.Skip("no g++")
			}
			if testing.Short() {
				t.Skip("builds programs")
			}
			whole, got := emitted(t, mustCompile(t, s.make(t), s.setup), in), emitted(t, c, in)
			for name, w := range whole {
				if !bytes.Equal(got[name].Data, w.Data) {
					t.Errorf("output %q of the emitted program differs from that without splits", name)
				}
			}
		})
	}
}

// filesAlone reads back what is written of c, has it judged, and executes it.
func filesAlone(t *testing.T, c *passes.Context, in, want map[string]ir.Datum) {
	t.Helper()
	model, err := onnxout.Encode(c.Program, c.Model)
	if err != nil {
		t.Fatal(err)
	}
	data, err := planfile.FromProgram(c.Program).Encode()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planfile.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, model, 0o644); err != nil {
		t.Fatal(err)
	}
	m, _, err := onnx.Load(path, onnx.Options{Unbridge: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := check.Model(plan, m.Graph); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Program(m.Graph)
	if err != nil {
		t.Fatal(err)
	}
	for order := range uint64(3) {
		got, err := eval.Program(p, in, eval.Options{Order: order})
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range want {
			if !bytes.Equal(got[name].(*ir.Tensor).Data, d.(*ir.Tensor).Data) {
				t.Errorf("order %d: output %q differs", order, name)
			}
		}
	}
}

// A tensor whose tokens lie in more rows than a place can have stays whole.
func TestTooManyRowsStayWhole(t *testing.T) {
	for _, x := range []struct {
		batch  int64
		splits bool
	}{{3, true}, {ir.MaxRows, true}, {ir.MaxRows + 1, false}} {
		// Softmax goes over the batch, so that the tokens are those of seq.
		m := text(t, `g (float[batch,seq,1] x) => (float loss) <float[1,1] w = {0.5}> {
			a = MatMul (x, w) s = Softmax <axis = 0> (a) b = Tanh (s) c = Exp (b) d = Tanh (c) loss = ReduceMean <keepdims = 0> (d) }`)
		splits := 0
		o := setup{train: "loss", dims: map[string]ir.Dim{"batch": ir.N(x.batch), "seq": ir.N(1 << 17)}}.options(t)
		o.Choose = func(p *plan.Problem) []plan.Choice {
			c := splitAll(4)(p)
			for _, k := range c {
				if k.Kind() == plan.Split {
					splits++
				}
			}
			return c
		}
		c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
		if err := (&passes.Runner{}).Run(c); err != nil {
			t.Errorf("%d rows: %v", x.batch, err)
		}
		if (splits > 0) != x.splits {
			t.Errorf("%d rows: %d tensors are split", x.batch, splits)
		}
	}
}

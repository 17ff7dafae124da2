package conformance

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	goonnx "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/testbackend"
	_ "github.com/owulveryck/onnx-go/backend/testbackend/onnx"
	"gorgonia.org/tensor"

	"memoc/ir/onnx"
	"memoc/ir/onnxgo"
)

// TestOnnxGo runs onnx-go's testbackend: its 348 cases, through memoc as a
// back end of onnx-go. Those that pass here run once more as onnx-go runs them.
func TestOnnxGo(t *testing.T) {
	verdicts := map[string]verdict{}
	for _, make := range testbackend.GetAllRegisteredTests() {
		tc := make()
		opset := opsetOf(tc.ModelB)
		name := caseName(strings.TrimPrefix(tc.Title, "Test"))
		v := guard(func() verdict { return runOnnxGo(tc, opset) })
		if v.never { // gorgonia panics on what it does not have
			v.never = !strings.Contains(v.detail, "memoc")
		}
		verdicts[name] = v
		if v.class == "" {
			t.Run(name, make().RunTest(onnxgo.New(opset), false))
		}
	}
	judge(t, "onnxgo_pending.txt", verdicts)
}

// opsetOf is what onnx-go does not pass on.
func opsetOf(model []byte) int {
	m, _, err := onnx.Decode(model, "", onnx.Options{})
	if err != nil {
		return 9
	}
	return m.Opsets[""]
}

func runOnnxGo(tc *testbackend.TestCase, opset int) verdict {
	b := onnxgo.New(opset)
	m := goonnx.NewModel(b)
	if err := m.UnmarshalBinary(tc.ModelB); err != nil {
		return pending("onnx-go", "%v", err)
	}
	for i, in := range tc.Input {
		if err := m.SetInput(i, in); err != nil {
			return pending("onnx-go", "%v", err)
		}
	}
	if err := b.Run(); err != nil {
		if ni := (*goonnx.ErrNotImplemented)(nil); errors.As(err, &ni) {
			return pending("unknown-op:"+ni.Operator, "%v", err)
		}
		return pending("run", "%v", err)
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		return pending("onnx-go", "%v", err)
	}
	if len(out) != len(tc.ExpectedOutput) {
		return pending("wrong-value", "%d outputs, want %d", len(out), len(tc.ExpectedOutput))
	}
	for i, want := range tc.ExpectedOutput {
		if why := differ(out[i], want); why != "" {
			return pending("wrong-value", "output %d: %s", i, why)
		}
	}
	return pass
}

// differ is onnx-go's own comparison: shapes equal, elements within 1e-6.
func differ(got, want tensor.Tensor) string {
	if got == nil {
		return "no value"
	}
	if !slices.Equal(got.Shape(), want.Shape()) {
		return fmt.Sprintf("shape %v, want %v", got.Shape(), want.Shape())
	}
	g, w := reflect.ValueOf(got.Data()), reflect.ValueOf(want.Data())
	if g.Kind() != reflect.Slice || w.Kind() != reflect.Slice || g.Len() != w.Len() {
		return fmt.Sprintf("%T of data, want %T of as many", got.Data(), want.Data())
	}
	for i := range w.Len() {
		x, ok1 := number(g.Index(i))
		y, ok2 := number(w.Index(i))
		if !ok1 || !ok2 || !within(x, y, 0, 1e-6) {
			return fmt.Sprintf("element %d is %v, want %v", i, g.Index(i), w.Index(i))
		}
	}
	return ""
}

func number(v reflect.Value) (float64, bool) {
	switch {
	case v.CanFloat():
		return v.Float(), true
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	}
	return 0, false
}

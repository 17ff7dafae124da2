package ops

import (
	"testing"

	"memoc/ir"
)

// TestFunctions runs the model-local function of every operator that has one
// on the operator's samples: it must give the values of the reference.
func TestFunctions(t *testing.T) {
	overloads := map[string]string{}
	eachSample(t, func(t *testing.T, op *ir.Op, s ir.Sample) {
		if op.Function == nil {
			t.Skip("the operator has no function")
		}
		b := mustBuild(t, op, s, sharedSymbols)
		want := mustEval(t, mustBuild(t, op, s, asConstants))
		f, err := op.Function(b.node)
		if err != nil {
			t.Fatal(err)
		}
		key := ir.FullOp(f.Domain, f.Name) + ":" + f.Overload
		if body := bodyText(f); overloads[key] != "" && overloads[key] != body {
			t.Errorf("two bodies share the overload %q", f.Overload)
		} else {
			overloads[key] = body
		}
		env := map[*ir.Value]ir.Datum{}
		for i, v := range f.Body.Inputs {
			env[v] = b.args[i]
		}
		if err := b.evalGraph(f.Body, env); err != nil {
			t.Fatal(err)
		}
		for i, v := range f.Body.Outputs {
			w, ok := want[i].(*ir.Tensor)
			if !ok {
				continue
			}
			if diff := compare(env[v].(*ir.Tensor), w, 1e-6); diff != "" {
				t.Errorf("output %s: %s", v.Name, diff)
			}
		}
	})
}

// bodyText lists the nodes of a function body.
func bodyText(f *ir.Function) string {
	text := ""
	for _, n := range f.Body.Nodes {
		text += n.FullOp() + "("
		for _, v := range n.In {
			text += v.Name + ","
		}
		text += ")"
		if t := n.Attr("value"); t != nil {
			text += string(t.T.Data)
		}
	}
	return text
}

package ops

import (
	"fmt"
	"testing"

	"memoc/ir"
)

// TestLowerAttention replaces the node of every sample and compares values,
// with static and with symbolic dims.
func TestLowerAttention(t *testing.T) {
	op := ir.Lookup(ir.OnnxDomain, "Attention")
	for _, s := range op.Samples() {
		for _, m := range []mode{asInputs, sharedSymbols} {
			t.Run(fmt.Sprintf("%s/%s", s.Name, m), func(t *testing.T) {
				want := mustEval(t, mustBuild(t, op, s, asConstants))
				b := mustBuild(t, op, s, m)
				var out []*ir.Value
				for i, v := range b.node.Out {
					out = append(out, b.graph.Append(ir.NodeSpec{Name: fmt.Sprint("copy", i), Op: "Identity", In: []*ir.Value{v}, Out: []string{fmt.Sprint("copied", i)}}).Out[0])
					out[i].Type = v.Type
				}
				e := ir.NewEdit(b.graph)
				done, why, err := LowerAttention(e, b.node, nil)
				if err != nil || !done {
					t.Fatalf("not lowered: %s %v", why, err)
				}
				e.Done()
				env := map[*ir.Value]ir.Datum{}
				for i, v := range b.node.In {
					if v != nil {
						env[v] = b.args[i]
					}
				}
				for _, v := range b.graph.Inits {
					if v.Init != nil && env[v] == nil {
						if env[v], err = v.Init.Tensor(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := b.evalGraph(b.graph, env); err != nil {
					t.Fatal(err)
				}
				for i, v := range out {
					if diff := compare(env[v].(*ir.Tensor), want[i].(*ir.Tensor), 1e-6); diff != "" {
						t.Errorf("output %d: %s", i, diff)
					}
				}
			})
		}
	}
}

// TestLowerAttentionRefuses: a node that stays says why.
func TestLowerAttentionRefuses(t *testing.T) {
	op := ir.Lookup(ir.OnnxDomain, "Attention")
	s := ir.Sample{Name: "scores", In: []*ir.Tensor{wave(1, 1, 1, 2, 3), wave(2, 1, 1, 2, 3), wave(3, 1, 1, 2, 3)}, NumOut: 4}
	b := mustBuild(t, op, s, asInputs)
	done, why, err := LowerAttention(ir.NewEdit(b.graph), b.node, nil)
	if done || why == "" || err != nil {
		t.Errorf("done %v, why %q, err %v; a node that asks for the scores must stay, with a reason", done, why, err)
	}
}

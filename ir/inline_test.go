package ir

import (
	"fmt"
	"memoc/ir/diag"
	"strings"
	"testing"
)

func inlined(t *testing.T, src string) *Model {
	t.Helper()
	m, err := Parse("test", src)
	if err != nil {
		t.Fatal(err)
	}
	if err := Inline(m); err != nil {
		t.Fatal(err)
	}
	if err := VerifyStructure(m.Graph); err != nil {
		t.Fatal(err)
	}
	return m
}

// nodes prints the graph's nodes, those of subgraphs in braces.
func inlineNodes(g *Graph) string {
	var out []string
	names := func(vs []*Value) string {
		var s []string
		for _, v := range vs {
			if v == nil {
				s = append(s, "")
				continue
			}
			s = append(s, v.Name)
		}
		return strings.Join(s, ",")
	}
	for _, n := range g.Nodes {
		s := names(n.Out) + "=" + n.Op + "(" + names(n.In) + ")"
		for _, sub := range n.Subgraphs() {
			s += "{" + inlineNodes(sub) + "}"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

const inlineHead = `<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
`

const inlineF = `
<domain: "local", opset_import: ["" : 16]>
F (x, b) => (y) {
  tmp = Relu (x)
  y = Add (tmp, b)
}`

// TestInlineTwice: inner names are fresh in each call, the call's results keep
// their names, an absent argument is absent, versions are the function's.
func TestInlineTwice(t *testing.T) {
	m := inlined(t, inlineHead+`g (float[2] tmp) => (float[2] z) {
  w = local.F (tmp)
  z = local.F (w, tmp)
}`+inlineF)
	want := "F_0/tmp=Relu(tmp) w=Add(F_0/tmp) F_1/tmp=Relu(w) z=Add(F_1/tmp,tmp)"
	got := inlineNodes(m.Graph)
	for _, n := range m.Graph.Nodes {
		if n.Version != 16 {
			t.Errorf("%s: the function imports 16", n)
		}
	}
	if strings.Count(got, "Relu") != 2 || !strings.Contains(got, "w=Add") || !strings.Contains(got, "z=Add") || len(m.Functions) != 0 {
		t.Errorf("got %s, like %s", got, want)
	}
	for _, n := range m.Graph.Nodes {
		for _, v := range n.Out {
			if v.Name == "tmp" {
				t.Error("an inner name is not fresh")
			}
		}
	}
}

// TestInlineInBranch: a call inside an If that captures an outer "tmp".
func TestInlineInBranch(t *testing.T) {
	m := inlined(t, inlineHead+`g (float[2] x, bool k) => (float[2] z) {
  tmp = Sigmoid (x)
  z = If (k) <then_branch = a () => (float[2] o) { o = local.F (x, tmp) }, else_branch = b () => (float[2] p) { p = Identity (tmp) }>
}`+inlineF)
	n := m.Graph.Nodes[1]
	relu, add := n.Attrs[0].G.Nodes[0], n.Attrs[0].G.Nodes[1]
	if relu.In[0] != m.Graph.Inputs[0] || add.In[1] != m.Graph.Nodes[0].Out[0] || relu.Out[0].Name == "tmp" {
		t.Error(inlineNodes(m.Graph))
	}
	if len(n.Captures) != 2 {
		t.Errorf("%d captures", len(n.Captures))
	}
}

// TestInlineNested: functions that call functions, attribute references with
// and without a default, a subgraph in a function that captures, outputs that
// are inputs.
func TestInlineNested(t *testing.T) {
	m := inlined(t, inlineHead+`g (float[2] x, bool k) => (float[2] z, float[2] q) {
  z, q = local.Outer <slope: float = 0.25> (x, k)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Outer <slope, beta: float = 2.0> (x, k) => (y, x) {
  a = local.Inner <s: float = @slope> (x)
  y = If (k) <then_branch = t () => (o) { o = Elu <alpha: float = @beta> (a) }, else_branch = e () => (p) { p = local.Inner (a) }>
}
<domain: "local", opset_import: ["" : 17]>
Inner <s> (x) => (y) {
  y = LeakyRelu <alpha: float = @s> (x)
}`)
	got := inlineNodes(m.Graph)
	leaky, branch, id := m.Graph.Nodes[0], m.Graph.Nodes[1], m.Graph.Nodes[2]
	if leaky.Op != "LeakyRelu" || leaky.Float("alpha", 0) != 0.25 {
		t.Errorf("%s: attribute %v", got, leaky.Attrs)
	}
	elu := branch.Attrs[0].G.Nodes[0]
	if elu.Float("alpha", 0) != 2 || elu.In[0] != leaky.Out[0] {
		t.Errorf("%s: attribute %v", got, elu.Attrs)
	}
	inner := branch.Attrs[1].G.Nodes[0]
	if inner.Op != "LeakyRelu" || len(inner.Attrs) != 0 {
		t.Errorf("%s: an attribute that nobody gives is left out, not %v", got, inner.Attrs)
	}
	if id.Op != "Identity" || id.Out[0].Name != "q" || branch.Out[0].Name != "z" {
		t.Error(got)
	}
	if len(branch.Captures) != 1 {
		t.Errorf("%d captures", len(branch.Captures))
	}
}

func TestInlineRefuses(t *testing.T) {
	for _, c := range []struct{ call, function, want string }{
		{"z = local.R (x)", `R (x) => (y) { y = local.R (x) }`, "function-recursion"},
		{"z = local.A (x)", `A (x) => (y) { y = local.B (x) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
B (x) => (y) { y = local.A (x) }`, "function-recursion"},
		{"z = local.C (x, x)", `C (x) => (y) { y = Relu (x) }`, "function-arity"},
		{"z = local.D ()", `D (x) => (x) { y = Relu (x) }`, "function-arity"},
	} {
		m, err := Parse("test", inlineHead+"g (float[2] x) => (float[2] z) { "+c.call+" }\n"+`<domain: "local", opset_import: ["" : 17, "local" : 1]>
`+c.function)
		if err != nil {
			t.Fatal(err)
		}
		if err := Inline(m); err == nil || !strings.Contains(errorID(err), c.want) {
			t.Errorf("%s: got %v, want %s", c.function, err, c.want)
		}
	}
}

// TestInlineBomb: functions that each call the next one twice, 40 deep.
func TestInlineBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString(inlineHead + "g (float[2] x) => (float[2] z) { z = local.F0 (x) }\n")
	const depth = 40
	for i := range depth {
		body := fmt.Sprintf("t = local.F%d (x) y = local.F%d (t)", i+1, i+1)
		if i == depth-1 {
			body = "y = Relu (x)"
		}
		fmt.Fprintf(&b, "<domain: \"local\", opset_import: [\"\" : 17, \"local\" : 1]>\nF%d (x) => (y) { %s }\n", i, body)
	}
	m, err := Parse("test", b.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := Inline(m); err == nil || errorID(err) != "function-size" {
		t.Errorf("got %v", err)
	}
}

func errorID(err error) string {
	if d, ok := err.(*diag.Diagnostic); ok {
		return d.ID
	}
	return err.Error()
}

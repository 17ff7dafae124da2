package ir

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"memoc/ir/diag"
)

const verifyDomain = "test.verify"

// Same gives its first input's type; Body has subgraphs; Two has an optional
// port and was another operator before version 2.
func init() {
	register := func(name, in, out string, since ...int) {
		Register(Op{Domain: verifyDomain, Name: name, Doc: "test", Since: since, In: Ports(in), Out: Ports(out),
			Infer: func(c *InferCtx) error {
				if c.DType(0) == Bool {
					return c.Errorf("no booleans")
				}
				c.Set(0, c.In(0))
				if ds, ok := c.Ints(0); ok {
					c.SetInts(0, ds)
				}
				c.FreshDim()
				return nil
			}, Axes: NoAxes, Cost: ViewCost, Grad: NoGrad("test"), Recompute: Pure,
			Eval: func(*EvalCtx) error { return nil }, Kernel: NoKernel("test"), Samples: func() []Sample { return nil }})
	}
	register("Same", "x:T", "y:T", 1)
	register("Body", "x:T", "y:T*", 1)
	register("Two", "x:T, y:T, z:T?", "o:T", 1, 2)
}

const verifyText = `g (float[2,N] x, int64[2] i) => (float[2,N] d, float[2,N] e)
<float[2] w = {1,2}, float[2,N] a, float[2,N] b, int64[2] j, float[2] ww, float[3] op> {
  [na] a = test.verify.Same (x)
  [nb] b = test.verify.Two (a, a)
  [nj] j = test.verify.Same (i) #@ version 1
  [nc] d = test.verify.Body (b) <g = inner (float[2,N] p) => (float[2,N] s) <float[2,N] r> {
    [nr] r = test.verify.Two (p, a)
    [ns] s = test.verify.Same (r)
  }>
  [ne] e = test.verify.Same (d)
  [nw] ww = test.verify.Same (w)
  [nop] op = unknown.Op (w, "", e)
}`

func verifyGraphOf(t testing.TB) *Graph {
	t.Helper()
	g, err := ParseGraph("v", verifyText, map[string]int{verifyDomain: 2})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestVerifyAcceptsSoundGraphs(t *testing.T) {
	g := verifyGraphOf(t)
	before := PrintGraph(g, TextOptions{})
	if err := Verify(g); err != nil {
		t.Fatal(err)
	}
	if PrintGraph(g, TextOptions{}) != before || g.FreshDim().String() != "_u1" {
		t.Error("Verify changed the graph")
	}
	// A stored type may say more than the rule, and in other symbols.
	valueNamed(g, "e").Type = TensorOf(Float, Dims(N(2), N(7)))
	if err := Verify(g); err != nil {
		t.Error(err)
	}
	valueNamed(g, "op").Type = Type{} // of an unknown operator
	if err := Verify(g); err != nil {
		t.Error(err)
	}
	valueNamed(g, "e").Type = Type{}
	if err := VerifyStructure(g); err != nil {
		t.Error(err)
	}
}

// Each rule is shown a fault and names itself.
func TestVerifyFindsFaults(t *testing.T) {
	for _, c := range []struct {
		rule, says string
		plant      func(g *Graph)
	}{
		{"owner", "belongs to another graph", func(g *Graph) { nodeNamed(g, "na").Graph = NewGraph("h", nil) }},
		{"owner", "listed twice", func(g *Graph) { g.Nodes = append(g.Nodes, g.Nodes[0]) }},
		{"owner", "another node", func(g *Graph) { nodeNamed(g, "nc").Attrs[0].G.Owner = nil }},
		{"owner", "table of names", func(g *Graph) { nodeNamed(g, "nc").Attrs[0].G.names = &nameTable{} }},
		{"owner", `tensor "x" is listed twice`, func(g *Graph) { g.Inputs = append(g.Inputs, g.Inputs[0]) }},
		{"owner", `tensor "b", but`, func(g *Graph) { valueNamed(g, "b").Graph = nil }},
		{"id", "ID", func(g *Graph) { valueNamed(g, "b").ID = valueNamed(g, "a").ID }},
		{"id", "not below", func(g *Graph) { nodeNamed(g, "na").ID = 99 }},
		{"name", `two tensors are named "a"`, func(g *Graph) { valueNamed(g, "s").Name = "a" }},
		{"name", `two nodes are named "ns"`, func(g *Graph) { nodeNamed(g, "ne").Name = "ns" }},
		{"name", "no name", func(g *Graph) { nodeNamed(g, "ne").Name = "" }},
		{"name", "not reserved", func(g *Graph) { valueNamed(g, "b").Name = "bb" }},
		{"link", "output 1 of another node", func(g *Graph) { valueNamed(g, "b").Port = 1 }},
		{"link", "another node", func(g *Graph) { valueNamed(g, "b").Def = nil }},
		{"link", "has no data", func(g *Graph) { valueNamed(g, "w").Init = nil }},
		{"link", "not among the initializers", func(g *Graph) { valueNamed(g, "x").Init = valueNamed(g, "w").Init }},
		{"order", `"a" before it is made by node "na"`, func(g *Graph) { g.Nodes[0], g.Nodes[1] = g.Nodes[1], g.Nodes[0] }},
		{"order", `"a" before`, func(g *Graph) { // read by the subgraph alone
			e := NewEdit(g)
			for i := range 2 {
				e.SetInput(nodeNamed(g, "nb"), i, g.Inputs[0])
			}
			g.Nodes = append(g.Nodes[1:], g.Nodes[0])
		}},
		{"scope", `of the inner graph "inner"`, func(g *Graph) { NewEdit(g).SetInput(nodeNamed(g, "ne"), 0, valueNamed(g, "r")) }},
		{"dangling", "nothing in the graph makes", func(g *Graph) { g.Nodes = g.Nodes[1:] }},
		{"dangling", "gives out", func(g *Graph) {
			n := nodeNamed(g, "ne")
			NewEdit(g).SetInput(nodeNamed(g, "nop"), 2, nil)
			valueNamed(g, "d").dropUse(Use{n, 0})
			g.Nodes = append(g.Nodes[:4:4], g.Nodes[5:]...)
		}},
		{"captures", `read tensor "a", which is not listed`, func(g *Graph) { nodeNamed(g, "nc").SetCaptures(nil) }},
		{"captures", `lists tensor "x"`, func(g *Graph) {
			nodeNamed(g, "nc").SetCaptures([]*Value{valueNamed(g, "a"), valueNamed(g, "x")})
		}},
		{"uses", "counts 3 readers and has 4", func(g *Graph) { valueNamed(g, "a").dropUse(Use{nodeNamed(g, "nb"), 0}) }},
		{"uses", "twice", func(g *Graph) { v := valueNamed(g, "a"); v.uses[1] = v.uses[0] }},
		{"uses", "which it is not", func(g *Graph) { nodeNamed(g, "nj").In[0] = valueNamed(g, "w") }},
		{"uses", "not in the graph", func(g *Graph) {
			NewEdit(g).InsertBefore(nil, NodeSpec{Name: "lost", Domain: verifyDomain, Op: "Same", In: g.Inputs[:1], Out: []string{"lost_out"}})
		}},
		{"ports", "2 inputs, the operator 1", func(g *Graph) { addInput(g, "na", valueNamed(g, "x")) }},
		{"ports", "input 1 (y) is absent", func(g *Graph) { NewEdit(g).SetInput(nodeNamed(g, "nb"), 1, nil) }},
		{"ports", "2 outputs, the operator 1", func(g *Graph) { n := nodeNamed(g, "na"); n.Out = append(n.Out, nil) }},
		{"ports", "declaration", func(g *Graph) { nodeNamed(g, "na").Op = "Other" }},
		{"type", `graph input "x" has no type`, func(g *Graph) { valueNamed(g, "x").Type = Type{} }},
		{"type", `"e" has no type; its shape rule gives float[2,N]`, func(g *Graph) { valueNamed(g, "e").Type = Type{} }},
		{"type", `"r" has no type`, func(g *Graph) { valueNamed(g, "r").Type = TensorOf(Undefined, Dims(N(2), Sym("N"))) }},
		{"type", "its data of float[2]", func(g *Graph) { v := valueNamed(g, "w"); v.Type = TensorOf(Float, Ints64(3)) }},
		{"shape", "float[3,N], but the shape rule gives float[2,N]", func(g *Graph) {
			valueNamed(g, "e").Type = TensorOf(Float, Dims(N(3), Sym("N")))
		}},
		{"shape", "N+1", func(g *Graph) { valueNamed(g, "s").Type = TensorOf(Float, Dims(N(2), Sym("N").Add(N(1)))) }},
		{"shape", "double", func(g *Graph) { valueNamed(g, "e").Type = TensorOf(Double, Shape{}) }},
		{"shape", "no booleans", func(g *Graph) { valueNamed(g, "x").Type = TensorOf(Bool, Shape{}) }},
		{"shape", "elements", func(g *Graph) {
			valueNamed(g, "i").Ints = []Dim{N(1), N(2)}
			valueNamed(g, "j").Ints = []Dim{N(1), N(3)}
		}},
	} {
		g := verifyGraphOf(t)
		c.plant(g)
		err := Verify(g)
		var d *diag.Diagnostic
		if !errors.As(err, &d) || d.ID != "verify-"+c.rule || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "BUG") {
			t.Errorf("rule %s: want an error with %q, got %v", c.rule, c.says, err)
		}
	}
}

// An old version of an operator may lack inputs that the newest needs.
func TestVerifyOldPorts(t *testing.T) {
	g := verifyGraphOf(t)
	n := nodeNamed(g, "nb")
	NewEdit(g).SetInput(n, 1, nil)
	n.Version = 1
	if err := Verify(g); err != nil {
		t.Error(err)
	}
}

func TestVerifyIsFast(t *testing.T) {
	g := NewGraph("g", map[string]int{verifyDomain: 2})
	x := g.AddInput("x", TensorOf(Float, Ints64(2)))
	for i := range 21000 {
		n := g.Append(NodeSpec{Name: fmt.Sprint("n", i), Domain: verifyDomain, Op: "Two", In: []*Value{g.Inputs[0], x}, Out: []string{fmt.Sprint("v", i)}})
		x = n.Out[0]
		x.Type = g.Inputs[0].Type
	}
	g.Outputs = []*Value{x}
	start := time.Now()
	if err := Verify(g); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("21,000 nodes take %v", d)
	} else {
		t.Logf("21,000 nodes take %v", d)
	}
}

func addInput(g *Graph, node string, v *Value) {
	n := nodeNamed(g, node)
	n.In = append(n.In, v)
	v.uses = append(v.uses, Use{n, len(n.In) - 1})
}

func nodeNamed(g *Graph, name string) (found *Node) {
	g.Walk(func(n *Node) {
		if n.Name == name {
			found = n
		}
	})
	return found
}

func valueNamed(g *Graph, name string) (found *Value) {
	for _, vs := range [][]*Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			if v.Name == name {
				return v
			}
		}
	}
	g.Walk(func(n *Node) {
		for _, v := range n.Out {
			if v != nil && v.Name == name {
				found = v
			}
		}
	})
	return found
}

package ops

import (
	"fmt"
	"strings"

	"memoc/ir"
)

// functionOf makes the Function hook of an operator from its body, which is
// written as a gradient rule is. The body sees inputs of the node's element
// types and ranks (nil where the node has none); of their dims it knows which
// are 1, for broadcasting. It returns one value for each output.
func functionOf(body func(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value) func(*ir.Node) (*ir.Function, error) {
	return func(n *ir.Node) (f *ir.Function, err error) {
		defer ir.Catch(&err)
		opset := n.Graph.Opsets[ir.OnnxDomain]
		g := ir.NewGraph(n.Op, map[string]int{ir.OnnxDomain: opset})
		b := ir.NewBuilder(ir.NewEdit(g))
		b.Prefix = "b_"
		f = &ir.Function{Domain: n.Domain, Name: n.Op, Overload: functionOverload(n), Opsets: g.Opsets, Body: g, Doc: n.Decl.Doc}
		in := make([]*ir.Value, len(n.In))
		for i, v := range n.In {
			name := n.Decl.In[i].Name
			f.Inputs = append(f.Inputs, name)
			formal := ir.Type{}
			if v != nil {
				if !v.Type.Shape.Ranked {
					return nil, n.Errorf("function", "the rank of %q is not known", v.Name)
				}
				formal = ir.TensorOf(v.Type.DType, formalShape(g, v.Type.Shape))
			}
			value := g.AddInput(name, formal)
			if v != nil {
				in[i] = value
			}
		}
		for i := range n.Attrs {
			f.Attrs = append(f.Attrs, n.Attrs[i].Name)
		}
		results := body(b, n, in)
		for i := range n.Out {
			name := g.Fresh(n.Decl.Out[i].Name)
			f.Outputs = append(f.Outputs, name)
			g.Outputs = append(g.Outputs, b.Node(ir.OnnxDomain, "Identity", results[i:i+1], []string{name}).Out[0])
		}
		b.Edit.Done()
		return f, constantsAsNodes(g)
	}
}

// formalShape keeps the dims that are 1 and forgets the others.
func formalShape(g *ir.Graph, s ir.Shape) ir.Shape {
	dims := make([]ir.Dim, s.Rank())
	for i := range dims {
		if dims[i] = s.Dims[i]; !isOne(s.Dims[i]) {
			dims[i] = g.FreshDim()
		}
	}
	return ir.Dims(dims...)
}

func isOne(d ir.Dim) bool {
	n, ok := d.Int()
	return ok && n == 1
}

// functionOverload spells what a function body depends on: opset, element type
// of every input and which of its dims are 1 ("none" if absent), attributes.
func functionOverload(n *ir.Node) string {
	parts := []string{fmt.Sprintf("v%d", n.Graph.Opsets[ir.OnnxDomain])}
	for _, v := range n.In {
		if v == nil {
			parts = append(parts, "none")
			continue
		}
		dims := ""
		for _, d := range v.Type.Shape.Dims {
			if isOne(d) {
				dims += "1"
			} else {
				dims += "n"
			}
		}
		parts = append(parts, v.Type.DType.String()+"_"+dims)
	}
	parts = append(parts, fmt.Sprintf("to%d", len(n.Out)))
	for i := range n.Attrs {
		a := &n.Attrs[i]
		switch a.Kind {
		case ir.AttrInt:
			parts = append(parts, fmt.Sprintf("%s_%d", a.Name, a.I))
		case ir.AttrFloat:
			parts = append(parts, fmt.Sprintf("%s_%g", a.Name, a.F))
		case ir.AttrString:
			parts = append(parts, a.Name+"_"+a.S)
		}
	}
	return strings.NewReplacer("-", "m", "+", "", ".", "p").Replace(strings.Join(parts, "_"))
}

// constantsAsNodes turns initializers, which a function cannot have, into
// Constant nodes.
func constantsAsNodes(g *ir.Graph) error {
	e := ir.NewEdit(g)
	for _, v := range append([]*ir.Value{}, g.Inits...) {
		t, err := v.Init.Tensor()
		if err != nil {
			return err
		}
		c := e.InsertBefore(g.Nodes[0], ir.NodeSpec{Name: g.Fresh("Constant"), Op: "Constant",
			Out: []string{g.Fresh("c")}, Attrs: []ir.Attr{ir.TensorAttr("value", t)}})
		c.Out[0].Type, c.Out[0].Ints = v.Type, v.Ints
		if err := e.ReplaceUses(v, c.Out[0]); err != nil {
			return err
		}
		if err := e.RemoveInit(v); err != nil {
			return err
		}
	}
	e.Done()
	return nil
}

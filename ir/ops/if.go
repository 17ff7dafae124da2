package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "If",
	Doc:   "One of two subgraphs, by a condition.",
	Since: []int{1, 11, 13, 16, 19, 21, 23, 24, 25},
	In:    ir.Ports("cond:tensor(bool)"), Out: ir.Ports("outputs:V*"),
	Types:     map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer:     ifInfer,
	Axes:      ir.NoAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: gradients through subgraphs"),
	Recompute: ir.Never("a subgraph may hold random or stateful operators"),
	Eval: func(c *ir.EvalCtx) error {
		if c.In(0).Len() != 1 {
			return c.Errorf("the condition must be one bool")
		}
		name := "else_branch"
		if c.In(0).Ints()[0] != 0 {
			name = "then_branch"
		}
		g := bodyOf(c.Node, name)
		if g == nil {
			return c.Errorf("the attribute %s is missing", name)
		}
		return runBody(c, g, nil)
	},
	Kernel: ir.NoKernel("control flow is planned, not launched"),
	Samples: func() []ir.Sample {
		attrs := []ir.Attr{constantBody("then_branch", 1, 2), constantBody("else_branch", 3, 4)}
		cond := func(n int64) *ir.Tensor { return ir.FromInts(ir.Bool, []int64{n}) }
		return []ir.Sample{
			{Name: "then", NumOut: 1, In: []*ir.Tensor{cond(1)}, Attrs: attrs, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{1, 2}, 2)}},
			{Name: "else", NumOut: 1, In: []*ir.Tensor{cond(0)}, Attrs: attrs, Want: []*ir.Tensor{ir.FromInts(ir.Int64, []int64{3, 4}, 2)}},
		}
	},
})

// constantBody is a subgraph attribute that gives integers.
func constantBody(name string, vals ...int64) ir.Attr {
	g := ir.NewGraph(name, map[string]int{ir.OnnxDomain: 24})
	n := g.Append(ir.NodeSpec{Name: name + "_node", Op: "Constant", Out: []string{name + "_out"}, Attrs: []ir.Attr{ir.IntsAttr("value_ints", vals...)}})
	g.Outputs = n.Out
	return ir.Attr{Name: name, Kind: ir.AttrGraph, G: g}
}

// bodyOf is a subgraph attribute, nil if it is missing.
func bodyOf(n *ir.Node, name string) *ir.Graph {
	if a := n.Attr(name); a != nil {
		return a.G
	}
	return nil
}

// runBody runs a subgraph and gives its outputs to the node's.
func runBody(c *ir.EvalCtx, g *ir.Graph, in []ir.Datum) error {
	out, err := c.Subgraph(g, in)
	if err != nil {
		return err
	}
	for i, d := range out {
		c.Set(i, d)
	}
	return nil
}

// ifInfer joins the types of both branches. Where the condition is known only
// the branch taken counts, and the other need not even be valid: exporters
// leave a Squeeze there that the shape forbids.
func ifInfer(c *ir.InferCtx) error {
	then, els := bodyOf(c.Node, "then_branch"), bodyOf(c.Node, "else_branch")
	if then == nil || els == nil {
		return c.Errorf("then_branch or else_branch is missing")
	}
	if c.Subgraph == nil {
		return nil
	}
	if len(then.Outputs) != len(c.Node.Out) || len(els.Outputs) != len(c.Node.Out) {
		return c.Errorf("the branches have %d and %d outputs, the node %d", len(then.Outputs), len(els.Outputs), len(c.Node.Out))
	}
	a, errThen := c.Subgraph(then, nil)
	b, errElse := c.Subgraph(els, nil)
	if cond, ok := c.StaticInts(0); ok && len(cond) == 1 {
		taken, types, err := els, b, errElse
		if cond[0] != 0 {
			taken, types, err = then, a, errThen
		}
		if err != nil {
			return err
		}
		for i, t := range types {
			c.Set(i, t)
			if ds := taken.Outputs[i].Ints; ds != nil {
				c.SetInts(i, ds)
			}
		}
		return nil
	}
	if errThen != nil {
		return errThen
	}
	if errElse != nil {
		return errElse
	}
	for i := range a {
		t, ok := joinTypes(c, a[i], b[i])
		if !ok {
			return c.Errorf("output %d is %s in one branch and %s in the other", i, a[i], b[i])
		}
		c.Set(i, t)
	}
	return nil
}

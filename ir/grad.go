package ir

// GradCtx is what a gradient rule sees: the forward node, the gradients of
// its outputs, and a Builder for the backward nodes. A rule sets the gradient
// of every differentiable input that Needs reports; the driver sums over
// fan-out. Each gradient has its input's type and shape.
type GradCtx struct {
	*Builder
	Node    *Node
	Version int // the operator's since-version that applies
	outs    []*Value
	needs   []bool
	ins     []*Value
}

// NewGradCtx prepares the rule of n; outs are the gradients of its outputs
// (nil: zero), needs says which inputs want one.
func NewGradCtx(b *Builder, n *Node, outs []*Value, needs []bool) *GradCtx {
	c := &GradCtx{Builder: b, Node: n, outs: outs, needs: needs, ins: make([]*Value, len(n.In))}
	if n.Decl != nil {
		c.Version = n.Decl.SinceVersion(n.Version)
	}
	return c
}

// In is input i of the forward node, nil if absent.
func (c *GradCtx) In(i int) *Value {
	if i >= len(c.Node.In) {
		return nil
	}
	return c.Node.In[i]
}

// Out is output i of the forward node. If the node did not ask for it, the
// output is added to the node (a Dropout mask, a saved mean): optional
// outputs that the gradient needs are never missing.
func (c *GradCtx) Out(i int) *Value {
	n := c.Node
	for len(n.Out) <= i {
		n.Out = append(n.Out, nil)
	}
	if n.Out[i] == nil {
		name := n.Name + "_out"
		if n.Decl != nil && i < len(n.Decl.Out) {
			name = n.Name + "_" + n.Decl.Out[i].Name
		}
		v := n.Graph.NewValue(n.Graph.Fresh(name), Type{})
		v.Def, v.Port = n, i
		n.Out[i] = v
		n.Raw = nil
		if err := InferNode(n.Graph, n); err != nil {
			c.Fail(err)
		}
	}
	return n.Out[i]
}

// OutGrad is the gradient of output i, nil if it is zero.
func (c *GradCtx) OutGrad(i int) *Value {
	if i >= len(c.outs) {
		return nil
	}
	return c.outs[i]
}

// Needs reports whether input i wants a gradient.
func (c *GradCtx) Needs(i int) bool { return i < len(c.needs) && c.needs[i] }

// Set gives the gradient of input i.
func (c *GradCtx) Set(i int, g *Value) { c.ins[i] = g }

// InGrads lists what was set, nil for zero.
func (c *GradCtx) InGrads() []*Value { return c.ins }

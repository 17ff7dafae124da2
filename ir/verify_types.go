package ir

// ports compares the number of inputs and outputs with the declaration. Older
// versions of an operator may have other ports than the one declared: of
// those, only the number of inputs is bounded.
func (v *verifier) ports(n *Node) {
	op := n.Decl
	if op == nil {
		return
	}
	v.check(op == Lookup(n.Domain, n.Op), "ports", n, "its declaration is that of %s", FullOp(op.Domain, op.Name))
	v.check(len(n.In) <= most(op.In), "ports", n, "it has %d inputs, the operator %d", len(n.In), len(op.In))
	if n.Version > 0 && op.SinceVersion(n.Version) != op.Since[len(op.Since)-1] {
		return
	}
	v.check(len(n.Out) <= most(op.Out), "ports", n, "it has %d outputs, the operator %d", len(n.Out), len(op.Out))
	for i, p := range op.In {
		if !p.Optional && !p.Variadic {
			v.check(i < len(n.In) && n.In[i] != nil, "ports", n, "its input %d (%s) is absent", i, p.Name)
		}
	}
}

func most(ports []Port) int {
	if n := len(ports); n > 0 && ports[n-1].Variadic {
		return 1 << 31
	}
	return len(ports)
}

// sources checks the types of what no node makes.
func (v *verifier) sources(g *Graph) {
	if g.Owner == nil {
		for _, x := range g.Inputs {
			v.check(x.Type.Kind != NoType, "type", nil, "graph input %q has no type", x.Name)
		}
	}
	for _, x := range g.Inits {
		v.check(x.Type.Equal(x.Init.Type) || x.IsInput(), "type", nil, "initializer %q is of type %s, its data of %s", x.Name, x.Type, x.Init.Type)
	}
}

// inferred reports whether inference reaches g: it does not go into the
// subgraphs of unknown operators.
func inferred(g *Graph) bool {
	for ; g.Owner != nil; g = g.Owner.Graph {
		if g.Owner.Decl == nil {
			return false
		}
	}
	return true
}

func untyped(t Type) bool {
	return t.Kind == NoType || t.Kind == TensorKind && t.DType == Undefined
}

// shapes runs n's shape rule again, on the stored types of inputs and of
// subgraphs, and compares. Types that inference does not reach are the file's.
func (v *verifier) shapes(n *Node) {
	if n.Decl == nil || !inferred(n.Graph) {
		return
	}
	c := NewInferCtx(n.Graph, n)
	c.Subgraph = func(g *Graph, _ []Type) ([]Type, error) {
		out := make([]Type, len(g.Outputs))
		for i, x := range g.Outputs {
			out[i] = x.Type
		}
		return out, nil
	}
	if err := n.Decl.Infer(c); err != nil {
		v.check(false, "shape", n, "its shape rule fails: %v", err)
	}
	for i, x := range n.Out {
		if x == nil {
			continue
		}
		t, ints := c.Result(i)
		v.check(!untyped(x.Type) || untyped(t), "type", n, "its output %q has no type; its shape rule gives %s", x.Name, t)
		v.check(!contradicts(t, x.Type), "shape", n, "its output %q is of type %s, but the shape rule gives %s", x.Name, x.Type, t)
		if x.Ints == nil || ints == nil {
			continue
		}
		v.check(len(ints) == len(x.Ints), "shape", n, "its output %q has the elements %v, but the shape rule gives %v", x.Name, x.Ints, ints)
		for j, d := range ints {
			v.check(!d.Differ(x.Ints[j]), "shape", n, "its output %q has the elements %v, but the shape rule gives %v", x.Name, x.Ints, ints)
		}
	}
}

// contradicts reports whether no value can be of both types. What one of them
// leaves open, or says with another symbol, is no contradiction.
func contradicts(t, u Type) bool {
	if t.Kind == NoType || u.Kind == NoType {
		return false
	}
	if t.Kind != u.Kind || t.DType != u.DType && t.DType != Undefined && u.DType != Undefined {
		return true
	}
	if t.Elem != nil && u.Elem != nil && contradicts(*t.Elem, *u.Elem) {
		return true
	}
	if !t.Shape.Ranked || !u.Shape.Ranked {
		return false
	}
	if len(t.Shape.Dims) != len(u.Shape.Dims) {
		return true
	}
	for i, d := range t.Shape.Dims {
		if d.Differ(u.Shape.Dims[i]) {
			return true
		}
	}
	return false
}

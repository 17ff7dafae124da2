package tokens

import (
	"fmt"
	"slices"

	"memoc/ir"
)

// Spec is what a node on a range of tokens has other than the node itself:
// its attributes, and inputs that are constants to be made.
type Spec struct {
	Attrs  []ir.Attr
	Consts []Const
}

// Const is a new constant vector of 64-bit integers for an input.
type Const struct {
	Port int
	Ints []int64
}

// OnRange says what n looks like on tokens [from,to): with the inputs that
// Range flags taken at these tokens, n with these attributes and these
// constants in the place of its own inputs makes these tokens of its outputs.
// It is an error if Range does not allow it or if the range is empty or out of
// bounds.
func (i *Info) OnRange(n *ir.Node, from, to int64) (Spec, error) {
	v := i.verdict(n)
	switch {
	case v.why != "":
		return Spec{}, fmt.Errorf("%s does not run by token: %s", n, v.why)
	case from < 0 || to > i.tokens || from >= to:
		return Spec{}, fmt.Errorf("tokens [%d,%d) are no range of %d tokens", from, to, i.tokens)
	}
	return i.restate(n, v.in, to-from)
}

// shapeInputs are the operators that are told the shape of their output by an
// input, and which one.
var shapeInputs = map[string]int{"Reshape": 1, "Expand": 1, ir.FullOp(ir.MsDomain, "SliceGrad"): 1,
	ir.FullOp(ir.MsDomain, "GatherGrad"): 0, ir.FullOp(ir.MemocDomain, "GatherGrad"): 0}

// restate finds the form of n on that many tokens: as it is, or with the new
// shape where it is told one. Inference decides: it must give the outputs'
// types with the token axis cut.
func (i *Info) restate(n *ir.Node, in []bool, width int64) (Spec, error) {
	t, err := i.cut(n, in, width)
	if err != nil {
		return Spec{}, err
	}
	err = i.infers(t, n, width)
	if err == nil {
		return Spec{Attrs: n.Attrs}, nil
	}
	port, ok := shapeInputs[n.FullOp()]
	if !ok {
		return Spec{}, err
	}
	shape, _ := t.Out[0].Type.Shape.Static()
	s := Spec{Attrs: n.Attrs}
	if port < len(n.In) && n.In[port] != nil {
		s.Consts = []Const{{Port: port, Ints: shape}}
		t.In[port] = i.constant(shape)
	} else if k := slices.IndexFunc(n.Attrs, func(a ir.Attr) bool { return a.Name == "shape" }); k >= 0 {
		s.Attrs = slices.Clone(n.Attrs)
		s.Attrs[k] = ir.IntsAttr("shape", shape...)
		t.Attrs = s.Attrs
	}
	return s, i.infers(t, n, width)
}

// cut is n between values whose types have the token axis cut to that many
// tokens. It is part of no graph.
func (i *Info) cut(n *ir.Node, in []bool, width int64) (*ir.Node, error) {
	t := &ir.Node{Name: n.Name, Domain: n.Domain, Op: n.Op, Overload: n.Overload, Version: n.Version,
		In: slices.Clone(n.In), Out: slices.Clone(n.Out), Attrs: n.Attrs, Graph: i.trial, Decl: n.Decl}
	for p, v := range t.In {
		if !in[p] {
			continue
		}
		c, err := i.cutValue(v, width)
		if err != nil {
			return nil, err
		}
		t.In[p] = c
	}
	for o, v := range t.Out {
		if v == nil {
			continue
		}
		c, err := i.cutValue(v, width)
		if err != nil {
			return nil, err
		}
		t.Out[o] = c
	}
	return t, nil
}

func (i *Info) cutValue(v *ir.Value, width int64) (*ir.Value, error) {
	a, ok := i.Axis(v)
	if !ok {
		return nil, fmt.Errorf("%q has no token axis", v.Name)
	}
	dims, _ := v.Type.Shape.Static()
	dims[a.Dim] = a.Outer * width * a.Inner
	return &ir.Value{Name: v.Name, Type: ir.TensorOf(v.Type.DType, ir.Ints64(dims...)), Graph: i.trial}, nil
}

func (i *Info) constant(ints []int64) *ir.Value {
	w := ir.WeightOf(ir.FromInts(ir.Int64, ints, int64(len(ints))))
	return &ir.Value{Type: w.Type, Init: w, Graph: i.trial}
}

// infers is an error where inference does not give the types of t's outputs.
func (i *Info) infers(t, n *ir.Node, width int64) error {
	c := ir.NewInferCtx(i.trial, t)
	if err := n.Decl.Infer(c); err != nil {
		return fmt.Errorf("on %d tokens it is not valid as it is: %w", width, err)
	}
	for o, v := range t.Out {
		if v == nil {
			continue
		}
		if got, _ := c.Result(o); !got.Equal(v.Type) {
			return fmt.Errorf("on %d tokens it makes %s, which it must be told anew", width, got)
		}
	}
	return nil
}

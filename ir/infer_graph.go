package ir

import (
	"fmt"

	"memoc/ir/diag"
)

// InferNode sets the types of n's outputs by its operator's rule. Outputs of
// unknown operators keep what the file declared.
func InferNode(g *Graph, n *Node) error {
	if n.Decl == nil {
		return checkUnreached(n)
	}
	if err := checkPorts(n); err != nil {
		return err
	}
	c := NewInferCtx(g, n)
	c.Subgraph = inferSubgraph
	if err := n.Decl.Infer(c); err != nil {
		return err
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		t, ints := c.Result(i)
		if t.Kind != NoType {
			v.Type = t
		}
		v.Ints = ints
	}
	return nil
}

// checkPorts refuses what the verifier would call our own fault: a node with
// other ports than its operator. Older versions may have fewer or more outputs.
func checkPorts(n *Node) error {
	op := n.Decl
	for i, p := range op.In {
		if !p.Optional && !p.Variadic && (i >= len(n.In) || n.In[i] == nil) {
			return n.Errorf("ports", "input %q (number %d) is missing", p.Name, i)
		}
	}
	if len(n.In) > most(op.In) {
		return n.Errorf("ports", "it has %d inputs, the operator %d", len(n.In), len(op.In))
	}
	if newest := n.Version == 0 || op.SinceVersion(n.Version) == op.Since[len(op.Since)-1]; newest && len(n.Out) > most(op.Out) {
		return n.Errorf("ports", "it has %d outputs, the operator %d", len(n.Out), len(op.Out))
	}
	return nil
}

// checkUnreached checks the ports of the nodes that inference does not reach,
// since their operator is in a graph of an unknown one.
func checkUnreached(unknown *Node) (err error) {
	for _, sub := range unknown.Subgraphs() {
		sub.Walk(func(n *Node) {
			if n.Decl != nil && err == nil {
				err = checkPorts(n)
			}
		})
	}
	return err
}

// inferSubgraph binds the inputs of a subgraph and infers its nodes.
func inferSubgraph(g *Graph, in []Type) ([]Type, error) {
	for i, t := range in {
		if i < len(g.Inputs) && t.Kind != NoType {
			g.Inputs[i].Type = t
		}
	}
	for _, n := range g.Nodes {
		if err := InferNode(g, n); err != nil {
			return nil, err
		}
	}
	out := make([]Type, len(g.Outputs))
	for i, v := range g.Outputs {
		out[i] = v.Type
	}
	return out, nil
}

// InferOptions steer InferGraph.
type InferOptions struct {
	Dims   map[string]Dim // bindings of symbols
	Strict bool           // a contradiction between declared and inferred types is an error
	Report func(*diag.Diagnostic)
}

// InferGraph infers every node in order. Types that the file declared (on
// values as loaded) refine what inference leaves open; where they contradict
// it, the inferred type wins with a warning.
func InferGraph(g *Graph, opt InferOptions) error {
	for _, vs := range [][]*Value{g.Inputs, g.Inits} {
		for _, v := range vs {
			v.Type = v.Type.Bind(opt.Dims)
			if v.Type.Kind == NoType {
				return &diag.Diagnostic{ID: "untyped-input", Severity: diag.Error, Loc: diag.Location{Value: v.Name},
					Message: fmt.Sprintf("the model does not say of what type its input %q is", v.Name), Help: "declare the input's type"}
			}
		}
	}
	for _, n := range g.Nodes {
		if err := checkOpset(n, opt); err != nil {
			return err
		}
		declared := make([]Type, len(n.Out))
		for i, v := range n.Out {
			if v != nil {
				declared[i] = v.Type.Bind(opt.Dims)
				v.Type = declared[i]
			}
		}
		if err := InferNode(g, n); err != nil {
			return err
		}
		for i, v := range n.Out {
			if v == nil {
				continue
			}
			t, conflict := refine(v.Type, declared[i])
			v.Type = t
			if !conflict {
				continue
			}
			d := &diag.Diagnostic{ID: "shape-contradiction", Severity: diag.Warning, Loc: n.DiagLoc(),
				Message: "the file declares " + declared[i].String() + " but the operator gives " + t.String() + "; the latter is used"}
			d.Loc.Value = v.Name
			if opt.Strict {
				d.Severity = diag.Error
				return d
			}
			if opt.Report != nil {
				opt.Report(d)
			}
		}
	}
	return nil
}

// refine completes an inferred type by a declared one. conflict is true where
// they cannot both be right.
func refine(inferred, declared Type) (t Type, conflict bool) {
	if inferred.Kind == NoType {
		return declared, false
	}
	if declared.Kind == NoType {
		return inferred, false
	}
	if inferred.Kind == OptionalKind && declared.Kind == inferred.Elem.Kind {
		return declared, false // the file promises that it is not empty
	}
	if inferred.Kind != declared.Kind {
		return inferred, true
	}
	if inferred.Kind != TensorKind {
		return inferred, false
	}
	t = inferred
	if t.DType == Undefined {
		t.DType = declared.DType
	} else if declared.DType != Undefined && declared.DType != t.DType {
		return inferred, true
	}
	if !declared.Shape.Ranked {
		return t, false
	}
	if !t.Shape.Ranked {
		t.Shape = declared.Shape
		return t, false
	}
	if t.Shape.Rank() != declared.Shape.Rank() {
		return inferred, true
	}
	dims := make([]Dim, len(t.Shape.Dims))
	for i, d := range t.Shape.Dims {
		dims[i] = d
		_, known := d.Int()
		_, declaredKnown := declared.Shape.Dims[i].Int()
		switch {
		case known && declaredKnown && !d.Equal(declared.Shape.Dims[i]):
			return inferred, true
		case !known && (declaredKnown || d.fresh()):
			// What inference could not tell, the file may: a number, or the
			// symbol it shares with other tensors.
			dims[i] = declared.Shape.Dims[i]
		}
	}
	t.Shape = Dims(dims...)
	return t, false
}

// inputSince is the version from which an operator of the default domain takes
// what was an attribute as an input. Exporters mix the forms; the operators
// read both.
var inputSince = map[OpName]struct {
	attr  string
	since int
}{
	"Squeeze": {"axes", 13}, "Unsqueeze": {"axes", 13}, "ReduceSum": {"axes", 13}, "Split": {"split", 13},
	"ReduceMean": {"axes", 18}, "ReduceMax": {"axes", 18}, "ReduceMin": {"axes", 18}, "ReduceProd": {"axes", 18},
	"ReduceL1": {"axes", 18}, "ReduceL2": {"axes", 18}, "ReduceLogSum": {"axes", 18}, "ReduceLogSumExp": {"axes", 18},
	"ReduceSumSquare": {"axes", 18}, "Dropout": {"ratio", 12}, "Clip": {"min", 11}, "Pad": {"pads", 11},
	"Slice": {"starts", 10}, "TopK": {"k", 10}, "Tile": {"tiles", 6},
}

// checkOpset reports an operator that the model's opset does not have, and one
// written in the form of an older opset.
func checkOpset(n *Node, opt InferOptions) error {
	if f, ok := inputSince[n.Op]; ok && n.Domain == OnnxDomain && n.Version >= f.since && n.Attr(f.attr) != nil {
		return irregular(&diag.Diagnostic{ID: "attribute-form", Loc: n.DiagLoc(), Message: fmt.Sprintf(
			"%s is an input of %s since opset %d, no attribute; it is read all the same", f.attr, n.Op, f.since)}, opt)
	}
	if n.Decl == nil || !n.Decl.Younger(n.Version) {
		return nil
	}
	return irregular(&diag.Diagnostic{ID: "opset", Loc: n.DiagLoc(), Message: fmt.Sprintf(
		"operator %s does not exist in opset %d; it is taken as that of opset %d", n.FullOp(), n.Version, n.Decl.Since[0])}, opt)
}

// irregular reports what is accepted with a warning and refused by strict
// reading.
func irregular(d *diag.Diagnostic, opt InferOptions) error {
	d.Severity = diag.Warning
	if opt.Strict {
		d.Severity = diag.Error
		return d
	}
	if opt.Report != nil {
		opt.Report(d)
	}
	return nil
}

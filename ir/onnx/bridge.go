package onnx

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"memoc/ir"
	"memoc/ir/diag"
)

// compatDomain is where functions stand that hold one operator of another
// version than the model imports.
const compatDomain = "ai.memoc.compat"

// foreign reports whether n follows another version of its operator than the
// model's import gives: it came from a local function with imports of its own.
func (e *encoder) foreign(n *ir.Node) bool {
	v := e.m.Opsets[n.Domain]
	if n.Version == 0 || v == 0 || v == n.Version {
		return false
	}
	return n.Decl == nil || n.Decl.Younger(v) || n.Decl.SinceVersion(n.Version) != n.Decl.SinceVersion(v)
}

// bridge writes n as a call of a local function that imports n's version, so
// that every reader takes the operator for what it is.
func (e *encoder) bridge(n *ir.Node) (*rope, error) {
	if len(n.Subgraphs()) > 0 {
		return nil, &diag.Diagnostic{ID: "opset-mix", Severity: diag.Error, Loc: n.DiagLoc(),
			Message: fmt.Sprintf("the node is of version %d of its domain, the model imports %d, and a node with subgraphs cannot be put into a function",
				n.Version, e.m.Opsets[n.Domain]), Help: "convert the model's functions to the model's operator set"}
	}
	name := fmt.Sprintf("%s_%d_%d", n.Op, n.Version, len(e.bridges))
	var fn, call, body rope
	fn.string(1, name)
	formal := func(num protowire.Number, prefix string, vs []*ir.Value) {
		for i, v := range vs {
			s := ""
			if v != nil {
				s = fmt.Sprint(prefix, i)
				fn.string(3+num, s)
				call.string(num, v.Name)
			}
			body.string(num, s)
		}
	}
	formal(1, "x", n.In)
	formal(2, "y", n.Out)
	body.string(4, n.Op)
	for i := range n.Attrs {
		m, err := e.attr(&n.Attrs[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		body.message(5, m)
	}
	body.optional(7, n.Domain)
	fn.message(7, &body)
	fn.message(9, opsetProto(n.Domain, n.Version))
	fn.string(10, compatDomain)
	e.bridges = append(e.bridges, &fn)
	e.inserted[compatDomain] = 1
	e.irv = max(e.irv, 8)
	call.string(3, n.Name)
	call.string(4, name)
	call.string(7, compatDomain)
	return &call, nil
}

// unbridge turns a call that bridge wrote into the node it stands for.
func (l *loader) unbridge(s *ir.NodeSpec) bool {
	at := slices.IndexFunc(l.bridges, func(f *ir.Function) bool { return s.Domain == f.Domain && s.Op == f.Name })
	if at < 0 {
		return false
	}
	f := l.bridges[at]
	n := f.Body.Nodes[0]
	in, out := make([]*ir.Value, len(n.In)), make([]string, len(n.Out))
	for i, v := range n.In {
		if v != nil {
			k := slices.Index(f.Inputs, v.Name)
			if k < 0 || k >= len(s.In) {
				return false
			}
			in[i] = s.In[k]
		}
	}
	for i, v := range n.Out {
		if v != nil {
			k := slices.Index(f.Outputs, v.Name)
			if k < 0 || k >= len(s.Out) {
				return false
			}
			out[i] = s.Out[k]
		}
	}
	s.Domain, s.Op, s.Version, s.Attrs, s.In, s.Out = n.Domain, n.Op, n.Version, n.Attrs, in, out
	return true
}

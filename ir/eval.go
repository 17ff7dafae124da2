package ir

import "memoc/ir/diag"

// EvalCtx is what a reference evaluation sees: run-time inputs, and where it
// puts outputs. Inputs must not be written; an output may share an input's
// data only if the operator is a view.
type EvalCtx struct {
	Node    *Node
	Version int // the operator's since-version that applies
	Random  RandomStream
	in, out []Datum
	// Subgraph runs a subgraph of the node with the given inputs.
	Subgraph func(g *Graph, in []Datum) ([]Datum, error)
}

// NewEvalCtx prepares an evaluation of n on in.
func NewEvalCtx(n *Node, in []Datum) *EvalCtx {
	c := &EvalCtx{Node: n, in: in, out: make([]Datum, len(n.Out))}
	if n.Decl != nil {
		c.Version = n.Decl.SinceVersion(n.Version)
	}
	return c
}

// NumIn is the number of inputs, absent ones among them.
func (c *EvalCtx) NumIn() int { return len(c.in) }

// Has reports whether input i is present.
func (c *EvalCtx) Has(i int) bool { return i >= 0 && i < len(c.in) && c.in[i] != nil }

// HasOut reports whether output i is asked for.
func (c *EvalCtx) HasOut(i int) bool { return i < len(c.Node.Out) && c.Node.Out[i] != nil }

// In is input i as a tensor; nil if it is absent or no tensor.
func (c *EvalCtx) In(i int) *Tensor {
	if i < 0 || i >= len(c.in) {
		return nil
	}
	t, _ := c.in[i].(*Tensor)
	return t
}

// InDatum is input i of any kind.
func (c *EvalCtx) InDatum(i int) Datum {
	if i < 0 || i >= len(c.in) {
		return nil
	}
	return c.in[i]
}

// Set stores output i; absent outputs are ignored.
func (c *EvalCtx) Set(i int, d Datum) {
	if i < len(c.out) {
		c.out[i] = d
	}
}

// Outputs lists what was set.
func (c *EvalCtx) Outputs() []Datum { return c.out }

// Errorf is an error located at the node.
func (c *EvalCtx) Errorf(format string, args ...any) error {
	return c.Node.Errorf("eval", format, args...)
}

// EvalNode runs the reference evaluation of one node.
func EvalNode(c *EvalCtx) ([]Datum, error) {
	n := c.Node
	if n.Decl == nil {
		return nil, &diag.Diagnostic{ID: "unknown-op", Severity: diag.Error, Loc: n.DiagLoc(),
			Message: "operator " + n.FullOp() + " is not known to memoc, so it cannot be executed"}
	}
	if err := n.Decl.Eval(c); err != nil {
		return nil, err
	}
	return c.out, nil
}

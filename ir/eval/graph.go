package eval

import (
	"fmt"
	"runtime/debug"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

// Options steer an execution.
type Options struct {
	Seed uint64 // of random operators; mixed with the original node's name
	Step uint64 // which training step: random operators draw anew in each

	// Keep selects values of the root graph, beyond its outputs, that the
	// result holds too. Optional.
	Keep func(*ir.Value) bool

	// Observe is called after every node, those of subgraphs included, with
	// its outputs. It must not change them. Optional.
	Observe func(n *ir.Node, out []ir.Datum)

	// The rest is for Program alone.

	// Order seeds an adversary that chooses among the lanes that may go on;
	// 0 runs the steps in the order in which they are issued.
	Order uint64

	// Steps is how often the step runs; 0 stands for once. They draw as steps
	// Step, Step+1, … and the outputs are those of the last.
	Steps int

	// Blind runs a step whatever its inputs' bytes hold, instead of reporting
	// that they are not those of the tensor it wants.
	Blind bool
}

// Graph runs g on inputs (by name; an input that is an initializer too may be
// left out) and returns the outputs by name. A result may share its bytes with
// an input or a weight: it must not be written.
//
// Values are dropped after their last use and weights are loaded when first
// used, so that memory stays near the graph's own peak. An output that
// contradicts the inferred type is reported as our fault.
func Graph(g *ir.Graph, inputs map[string]ir.Datum, opt Options) (map[string]ir.Datum, error) {
	m := &machine{opt: opt, vals: make([]slot, g.NumValues()), dims: map[string]ir.Dim{},
		plans: map[*ir.Graph][][]*ir.Value{}, kept: map[string]ir.Datum{}}
	in, err := m.bindInputs(g, inputs)
	if err != nil {
		return nil, err
	}
	out, err := m.run(g, in)
	if err != nil {
		return nil, err
	}
	for i, v := range g.Outputs {
		m.kept[v.Name] = out[i]
	}
	return m.kept, nil
}

// machine is the state of one execution. Values are indexed by ID over all
// scopes: a subgraph is never active twice at once.
type machine struct {
	opt   Options
	vals  []slot
	dims  map[string]ir.Dim           // symbols that the inputs' shapes bind
	plans map[*ir.Graph][][]*ir.Value // see lastUses
	kept  map[string]ir.Datum
}

// slot is a value at run time; nil is a value too (an empty optional).
type slot struct {
	d   ir.Datum
	set bool
}

// bindInputs orders the inputs as g does, checks them, and learns the values
// of symbolic dims.
func (m *machine) bindInputs(g *ir.Graph, inputs map[string]ir.Datum) ([]ir.Datum, error) {
	in := make([]ir.Datum, len(g.Inputs))
	byName := map[string]bool{}
	for i, v := range g.Inputs {
		byName[v.Name] = true
		d, ok := inputs[v.Name]
		switch {
		case ok:
			if err := m.checkInput(v, d); err != nil {
				return nil, err
			}
			in[i] = d
		case v.Init == nil:
			return nil, &diag.Diagnostic{ID: "input-missing", Severity: diag.Error, Loc: diag.Location{Value: v.Name},
				Message: fmt.Sprintf("no value is given for graph input %q of type %s", v.Name, v.Type)}
		}
	}
	for name := range inputs {
		if !byName[name] {
			return nil, &diag.Diagnostic{ID: "input-unknown", Severity: diag.Error, Loc: diag.Location{Value: name},
				Message: fmt.Sprintf("a value is given for %q, which is no input of the graph", name)}
		}
	}
	return in, nil
}

// checkInput holds a given value against the declared type and binds the
// symbols of its shape.
func (m *machine) checkInput(v *ir.Value, d ir.Datum) error {
	fail := func(format string, args ...any) error {
		return &diag.Diagnostic{ID: "input-type", Severity: diag.Error, Loc: diag.Location{Value: v.Name},
			Message: fmt.Sprintf("graph input is declared %s, but ", v.Type) + fmt.Sprintf(format, args...)}
	}
	if t, ok := d.(*ir.Tensor); ok && t != nil && v.Type.IsTensor() && v.Type.Shape.Rank() == len(t.Dims) {
		for a, dim := range v.Type.Shape.Dims {
			name, ok := dim.IsSym()
			if !ok {
				continue
			}
			n := ir.N(t.Dims[a])
			if old, bound := m.dims[name]; bound && !old.Equal(n) {
				return fail("dim %s is %s here and %s in an earlier input", name, n, old)
			}
			m.dims[name] = n
		}
	}
	if why := mismatch(v.Type.Bind(m.dims), d); why != "" {
		return fail("%s", why)
	}
	return nil
}

// lastUses lists, for every node of g, the values of g that no later node
// reads and that are no outputs: they are dropped after it.
func (m *machine) lastUses(g *ir.Graph) [][]*ir.Value {
	if p, ok := m.plans[g]; ok {
		return p
	}
	last := map[*ir.Value]int{}
	for i, n := range g.Nodes {
		for _, vs := range [][]*ir.Value{n.Out, n.In, n.Captures} {
			for _, v := range vs {
				if v != nil && v.Graph == g {
					last[v] = i
				}
			}
		}
	}
	for _, v := range g.Outputs {
		delete(last, v)
	}
	if g.Owner != nil {
		for _, v := range g.Inits { // a loop reads them again
			delete(last, v)
		}
	}
	p := make([][]*ir.Value, len(g.Nodes))
	for v, i := range last {
		p[i] = append(p[i], v)
	}
	m.plans[g] = p
	return p
}

// run executes g with its inputs bound to in; an absent input (nil) of an
// initializer takes the initializer's value.
func (m *machine) run(g *ir.Graph, in []ir.Datum) ([]ir.Datum, error) {
	if len(in) > len(g.Inputs) {
		return nil, fmt.Errorf("BUG: graph %q has %d inputs, not %d", g.Name, len(g.Inputs), len(in))
	}
	for i, v := range g.Inputs {
		m.vals[v.ID] = slot{}
		if i < len(in) && (in[i] != nil || v.Init == nil) {
			m.vals[v.ID] = slot{in[i], true}
			m.keep(v, in[i])
		}
	}
	drop := m.lastUses(g)
	for i, n := range g.Nodes {
		if err := m.step(n); err != nil {
			return nil, err
		}
		for _, v := range drop[i] {
			m.vals[v.ID] = slot{}
		}
	}
	out := make([]ir.Datum, len(g.Outputs))
	for i, v := range g.Outputs {
		d, err := m.value(v)
		if err != nil {
			return nil, fmt.Errorf("output of graph %q: %w", g.Name, err)
		}
		out[i] = d
	}
	for _, v := range g.Outputs {
		if v.Graph == g && v.Init == nil {
			m.vals[v.ID] = slot{}
		}
	}
	return out, nil
}

// value reads a value in scope, loading a weight at its first use.
func (m *machine) value(v *ir.Value) (ir.Datum, error) {
	s := &m.vals[v.ID]
	if s.set {
		return s.d, nil
	}
	if v.Init == nil {
		return nil, fmt.Errorf("BUG: tensor %q is read before it is made", v.Name)
	}
	t, err := v.Init.Tensor()
	if err != nil {
		return nil, fmt.Errorf("weight %q: %w", v.Name, err)
	}
	*s = slot{t, true}
	m.keep(v, t)
	return t, nil
}

func (m *machine) keep(v *ir.Value, d ir.Datum) {
	if m.opt.Keep != nil && v.Graph.Owner == nil && m.opt.Keep(v) {
		m.kept[v.Name] = d
	}
}

// step executes one node.
func (m *machine) step(n *ir.Node) error {
	in := make([]ir.Datum, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		d, err := m.value(v)
		if err != nil {
			return located(n, err)
		}
		in[i] = d
	}
	out, err := evalNode(n, in, m.opt, m.run)
	if err != nil {
		return err
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		if why := mismatch(v.Type.Bind(m.dims), out[i]); why != "" {
			return contradiction(n, i, m.dims, out[i], why)
		}
		m.vals[v.ID] = slot{out[i], true}
		m.keep(v, out[i])
	}
	if m.opt.Observe != nil {
		m.opt.Observe(n, out)
	}
	return nil
}

// contradiction reports that output i is not of its type: as our fault if the
// operator's own shape rule says the same or the node is none of the file's,
// else as the model's, which declares it so.
func contradiction(n *ir.Node, i int, dims map[string]ir.Dim, d ir.Datum, why string) error {
	v := n.Out[i]
	c := ir.NewInferCtx(n.Graph, n)
	c.Subgraph = func(g *ir.Graph, _ []ir.Type) ([]ir.Type, error) {
		ts := make([]ir.Type, len(g.Outputs))
		for k, o := range g.Outputs {
			ts[k] = o.Type
		}
		return ts, nil
	}
	if n.Loc.File != "" && n.Origin == "" && n.Decl.Infer(c) == nil {
		if t, _ := c.Result(i); mismatch(t.Bind(dims), d) == "" {
			return n.Errorf("eval", "the model declares its output %d (%q) as %s, but %s", i, v.Name, v.Type, why)
		}
	}
	return n.Errorf("eval", "BUG: output %d (%q) has the inferred type %s, but %s", i, v.Name, v.Type, why)
}

// evalNode runs the reference evaluation of one node and turns a panic in it
// into an error that names the node.
func evalNode(n *ir.Node, in []ir.Datum, opt Options, sub func(*ir.Graph, []ir.Datum) ([]ir.Datum, error)) (out []ir.Datum, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = n.Errorf("eval", "BUG: the reference evaluation panicked on %s: %v\n%s", describe(in), r, trimStack(debug.Stack()))
		}
	}()
	c := ir.NewEvalCtx(n, in)
	c.Random = ir.RandomStream{Seed: ir.RandomKey(opt.Seed, n.OriginName()), Step: opt.Step}
	c.Subgraph = sub
	out, err = ir.EvalNode(c)
	if err != nil {
		return nil, located(n, err)
	}
	for i, d := range out {
		if t, ok := d.(*ir.Tensor); ok && t == nil {
			out[i] = nil
		}
	}
	return out, nil
}

// located gives an error without a place the node's.
func located(n *ir.Node, err error) error {
	if _, ok := err.(*diag.Diagnostic); ok {
		return err
	}
	return n.Errorf("eval", "%v", err)
}

// describe prints the types of run-time values.
func describe(ds []ir.Datum) string {
	parts := make([]string, len(ds))
	for i, d := range ds {
		parts[i] = typeName(d)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func typeName(d ir.Datum) string {
	switch d := d.(type) {
	case *ir.Tensor:
		if d != nil {
			return d.Type().String()
		}
	case ir.Sequence:
		return fmt.Sprintf("a sequence of %d", len(d))
	}
	return "absent"
}

// trimStack keeps the frames from the panic down to the interpreter.
func trimStack(stack []byte) string {
	s := string(stack)
	if i := strings.Index(s, "panic("); i >= 0 {
		s = s[i:]
	}
	if i := strings.Index(s, "memoc/ir.EvalNode"); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSpace(s)
}

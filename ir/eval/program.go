package eval

import (
	"fmt"

	"memoc/ir"
)

// Program executes a planned step inside its arenas and returns the graph's
// outputs by name, to be compared bit for bit with what Graph gives for the
// graph before planning.
//
// Every tensor is read from the bytes the plan gave it and nowhere else. Bytes
// are 0xFF before their buffer's first write and again after its last access,
// and a step's workspace is overwritten, so that a plan that reuses bytes too
// early reads garbage. Beyond that, each read is held against what was last
// written there: the error names the step, the tensor and what it found
// instead (Options.Blind leaves the garbage to the comparison).
//
// All lanes have ended when a step of the training loop ends. With
// Options.Steps the step runs several times, without clearing the arenas; the
// outputs are the last one's.
func Program(p *ir.Program, inputs map[string]ir.Datum, opt Options) (map[string]ir.Datum, error) {
	r, err := NewRunner(p, opt)
	if err != nil {
		return nil, err
	}
	out, err := r.Step(inputs)
	for i := 1; i < opt.Steps && err == nil; i++ {
		out, err = r.Step(inputs)
	}
	return out, err
}

// Runner holds the arenas of a Program from one step to the next.
type Runner struct {
	p      *ir.Program
	opt    Options
	arenas []arena
	loose  map[*ir.Value]ir.Datum // values that no arena can hold
	source map[*ir.Node]int       // step of each node
	makers map[*ir.Value]owners   // what must lie in a value's bytes: see owned
	roots  []preload              // what lives across steps
	life   lives
	kept   map[string]ir.Datum
}

type preload struct {
	v *ir.Value
	t *ir.Tensor
}

// arena is the bytes of one arena and, for each, which value was written last.
type arena struct {
	bytes  []byte
	owners owners
}

// NewRunner checks the program's indices and ranges, makes the arenas and
// loads the weights.
func NewRunner(p *ir.Program, opt Options) (*Runner, error) {
	if err := validate(p); err != nil {
		return nil, err
	}
	r := &Runner{p: p, opt: opt, loose: map[*ir.Value]ir.Datum{}, source: map[*ir.Node]int{},
		makers: map[*ir.Value]owners{}}
	for i, s := range p.Steps {
		r.source[s.Node] = i
	}
	for _, a := range p.Arenas {
		b := arena{bytes: make([]byte, a.Size)}
		poison(b.bytes)
		r.arenas = append(r.arenas, b)
	}
	r.life = newLives(p)
	if err := r.loadWeights(); err != nil {
		return nil, err
	}
	return r, nil
}

func poison(b []byte) {
	for i := range b {
		b[i] = 0xFF
	}
}

// loadWeights fills in what lives across steps: initializers, and nodes that
// are no step, no view and follow from those alone (constants).
func (r *Runner) loadWeights() error {
	known := map[*ir.Value]bool{}
	for _, v := range r.p.Graph.Inits {
		known[v] = true
		if b, ok := r.place(v); ok && b.Size > 0 && !v.IsInput() {
			t, err := v.Init.Tensor()
			if err != nil {
				return fmt.Errorf("weight %q: %w", v.Name, err)
			}
			if err := r.preload(v, t); err != nil {
				return err
			}
		}
	}
nodes:
	for _, n := range r.p.Graph.Nodes {
		if _, isStep := r.source[n]; isStep || len(n.Subgraphs()) > 0 {
			continue
		}
		in := make([]ir.Datum, len(n.In))
		for i, v := range n.In {
			if v == nil {
				continue
			}
			if !known[v] || v.IsInput() {
				continue nodes
			}
			d, err := r.constant(v)
			if err != nil {
				return err
			}
			in[i] = d
		}
		if err := r.preloadNode(n, in, known); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) preloadNode(n *ir.Node, in []ir.Datum, known map[*ir.Value]bool) error {
	out, err := evalNode(n, in, r.opt, nil)
	if err != nil {
		return err
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		known[v] = true
		r.loose[v] = out[i]
		t, ok := out[i].(*ir.Tensor)
		if b, placed := r.place(v); placed && ok && b.Size > 0 && r.viewed(v) == nil {
			if err := r.preload(v, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// constant is the value of an initializer or of a node evaluated before.
func (r *Runner) constant(v *ir.Value) (ir.Datum, error) {
	if d, ok := r.loose[v]; ok {
		return d, nil
	}
	t, err := v.Init.Tensor()
	if err != nil {
		return nil, fmt.Errorf("weight %q: %w", v.Name, err)
	}
	return t, nil
}

func (r *Runner) preload(v *ir.Value, t *ir.Tensor) error {
	if why := mismatch(v.Type, t); why != "" {
		return fmt.Errorf("BUG: tensor %q has the type %s, but %s", v.Name, v.Type, why)
	}
	r.roots = append(r.roots, preload{v, t})
	return r.store(v, t)
}

// Step runs the program once.
func (r *Runner) Step(inputs map[string]ir.Datum) (map[string]ir.Datum, error) {
	g := r.p.Graph
	m := &machine{dims: map[string]ir.Dim{}}
	in, err := m.bindInputs(g, inputs)
	if err != nil {
		return nil, err
	}
	r.life.restart()
	r.kept = map[string]ir.Datum{}
	for _, root := range r.roots { // weights are in their places, whoever updated them
		b, _ := r.place(root.v)
		r.arenas[b.Arena].owners.place(b.Place, root.v)
	}
	for i, v := range g.Inputs {
		d := in[i]
		if d == nil && v.Init != nil {
			if d, err = r.constant(v); err != nil {
				return nil, err
			}
		}
		if err := r.put(v, d); err != nil {
			return nil, err
		}
	}
	if err := r.schedule(); err != nil {
		return nil, err
	}
	r.opt.Step++
	return r.outputs()
}

func (r *Runner) outputs() (map[string]ir.Datum, error) {
	out := r.kept
	for _, v := range r.p.Graph.Outputs {
		d, err := r.load(-1, v)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", v.Name, err)
		}
		out[v.Name] = d
	}
	r.life.end(r)
	return out, nil
}

// run executes one step of the program.
func (r *Runner) run(i int) error {
	s := &r.p.Steps[i]
	var err error
	if s.Kind == ir.RunStep {
		err = r.runNode(i, s)
	} else {
		err = r.copyBytes(i, s)
	}
	if err != nil {
		return err
	}
	r.life.ended(r, i)
	return nil
}

func (r *Runner) runNode(i int, s *ir.Step) error {
	n := s.Node
	in := make([]ir.Datum, len(n.In))
	for k, v := range n.In {
		if v == nil {
			continue
		}
		d, err := r.operand(i, n, k)
		if err != nil {
			return located(n, err)
		}
		in[k] = d
	}
	sub, err := r.subgraphs(i, n)
	if err != nil {
		return located(n, err)
	}
	r.scratch(s)
	out, err := evalNode(n, in, r.opt, sub)
	if err != nil {
		return err
	}
	for k, v := range n.Out {
		if v == nil {
			continue
		}
		if why := mismatch(v.Type, out[k]); why != "" {
			return contradiction(n, k, nil, out[k], why)
		}
		if err := r.write(i, v, out[k]); err != nil {
			return located(n, err)
		}
	}
	if r.opt.Observe != nil && r.assembled(n) == 0 { // else a part may be on its way still
		r.opt.Observe(n, out)
	}
	return nil
}

// subgraphs prepares the execution of n's subgraphs: their captures are read
// from the arenas, their own values live outside.
func (r *Runner) subgraphs(i int, n *ir.Node) (func(*ir.Graph, []ir.Datum) ([]ir.Datum, error), error) {
	if len(n.Subgraphs()) == 0 {
		return nil, nil
	}
	m := &machine{opt: r.opt, vals: make([]slot, r.p.Graph.NumValues()), plans: map[*ir.Graph][][]*ir.Value{}, kept: map[string]ir.Datum{}}
	for _, v := range n.Captures {
		d, err := r.load(i, v)
		if err != nil {
			return nil, err
		}
		m.vals[v.ID] = slot{d, true}
	}
	return m.run, nil
}

// scratch overwrites the step's workspace.
func (r *Runner) scratch(s *ir.Step) {
	if s.Workspace < 0 {
		return
	}
	b := &r.p.Buffers[s.Workspace]
	a := &r.arenas[b.Arena]
	poison(a.bytes[b.Offset : b.Offset+b.Size])
	a.owners.set(b.Offset, b.Offset+b.Size, nil)
}

// copyBytes moves what the step reads to where it writes, both taken as one
// run of bytes.
func (r *Runner) copyBytes(i int, s *ir.Step) error {
	n := s.Node
	if len(n.In) == 0 || n.In[0] == nil || len(n.Out) == 0 || n.Out[0] == nil {
		return n.Errorf("eval", "BUG: a copy has one input and one output")
	}
	var data []byte
	for _, x := range s.Reads {
		if err := r.holds(i, n.In[0], r.absolute(x)); err != nil {
			return located(n, err)
		}
		data = append(data, r.gather(r.absolute(x))...)
	}
	for _, x := range s.Writes {
		if int64(len(data)) < x.Size {
			return n.Errorf("eval", "BUG: step %d writes more bytes than it reads", i)
		}
		r.scatter(r.absolute(x), data[:x.Size], n.Out[0])
		data = data[x.Size:]
	}
	if len(data) > 0 {
		return n.Errorf("eval", "BUG: step %d reads %d bytes more than it writes", i, len(data))
	}
	if r.opt.Keep != nil && r.opt.Keep(n.Out[0]) {
		d, err := r.load(-1, n.Out[0])
		if err != nil {
			return located(n, err)
		}
		r.kept[n.Out[0].Name] = d
	}
	return nil
}

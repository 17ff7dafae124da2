package passes

import (
	"memoc/ir"
	"memoc/passes/plan"
)

var rewritePass = Pass{
	Name:  "rewrite",
	Doc:   "Carries the plan into the graph: SwapOut and SwapIn nodes, clones named .remat just before who needs them; and lists the steps of the Program.",
	Stage: Plan,
	After: []Edge{
		{"plan", "the schedule says what to move and what to run again"},
		{"cleanup", "removing common nodes after this would merge the clones back"},
	},
	Run: func(c *Context) (Result, error) {
		r := newRewriter(c)
		if err := r.run(); err != nil {
			return Result{}, err
		}
		c.Program = r.prog
		return Result{Changed: r.clones+r.copies > 0, Stats: []ir.KV{stat("clones", r.clones), stat("copies", r.copies),
			stat("steps", len(r.prog.Steps))}}, nil
	},
}

// rewriter walks the entries of the schedule in order. The nodes that run once
// keep their places; clones and copies are inserted before the next of them.
// Every instance of a tensor has its own values: the original ones, or those of
// a clone or a copy, with the views of it made anew.
type rewriter struct {
	c      *Context
	s      *plan.Schedule
	edit   *ir.Edit
	prog   *ir.Program
	values []map[*ir.Value]*ir.Value // by instance: original value to the one that stands for it; nil for originals
	hosted map[int]*ir.Value         // by tensor: its value in host memory
	slot   map[int]int               // by tensor: its host slot's buffer
	holds  map[*ir.Value]int         // new value to its buffer
	anchor []*ir.Node                // by entry: the next node that runs in its own place
	clones int
	copies int
}

func newRewriter(c *Context) *rewriter {
	r := &rewriter{c: c, s: c.Schedule, edit: ir.NewEdit(c.Graph), values: make([]map[*ir.Value]*ir.Value, len(c.Schedule.Instances)),
		hosted: map[int]*ir.Value{}, slot: map[int]int{}, holds: map[*ir.Value]int{}, anchor: make([]*ir.Node, len(c.Schedule.Entries))}
	var next *ir.Node
	for i := len(r.s.Entries) - 1; i >= 0; i-- {
		if r.s.Entries[i].Kind == plan.Run {
			next = c.Origin.node[r.s.Entries[i].Op]
		}
		r.anchor[i] = next
	}
	r.prog = &ir.Program{Name: c.Graph.Name, Graph: c.Graph, Device: c.Options.Device.Name,
		Lanes:  []ir.Lane{{Name: "compute"}, {Name: "device-to-host"}, {Name: "host-to-device"}},
		Arenas: []ir.Arena{{Name: "device", Align: ir.Align}, {Name: "host", Align: ir.Align}}}
	return r
}

func (r *rewriter) run() error {
	r.buffers()
	for i := range r.s.Entries {
		e := &r.s.Entries[i]
		var step ir.Step
		var err error
		switch e.Kind {
		case plan.Run:
			step, err = r.runNode(i, e)
		case plan.Clone:
			step, err = r.clone(i, e)
		case plan.CopyOut:
			step = r.copyOut(i, e)
		case plan.CopyIn:
			step = r.copyIn(i, e)
		}
		if err != nil {
			return err
		}
		r.prog.Steps = append(r.prog.Steps, step)
	}
	r.edit.Done()
	r.places()
	r.accesses()
	r.decisions()
	return nil
}

// buffers lists the program's buffers: those of the schedule in its order,
// workspaces, host slots, then the persistent ones.
func (r *rewriter) buffers() {
	c, p := r.c, r.prog
	class := make([]ir.Class, len(r.s.Buffers)) // the most lasting of the tensors that share the bytes
	for _, in := range r.s.Instances {
		class[in.Buffer] = max(class[in.Buffer], c.Live.Storages[c.Origin.storage[in.Tensor]].Class)
	}
	for i, b := range r.s.Buffers {
		t := r.s.Instances[b.Instance].Tensor
		st := &c.Live.Storages[c.Origin.storage[t]]
		p.Buffers = append(p.Buffers, ir.Buffer{Name: st.Root.Name, Value: st.Root, Arena: ir.DeviceArena, Size: st.Bytes,
			First: b.First, End: b.End, Class: class[i]})
	}
	for _, h := range r.s.Host {
		st := &c.Live.Storages[c.Origin.storage[h.Tensor]]
		r.slot[h.Tensor] = len(p.Buffers)
		p.Buffers = append(p.Buffers, ir.Buffer{Name: st.Root.Name + ".out", Arena: ir.HostArena, Size: st.Bytes,
			First: h.First, End: h.End, Class: ir.HostSlot})
	}
	for i := range c.Live.Storages {
		if st := &c.Live.Storages[i]; st.Def < 0 {
			p.Buffers = append(p.Buffers, ir.Buffer{Name: st.Root.Name, Value: st.Root, Arena: ir.DeviceArena, Size: st.Bytes,
				First: 0, End: len(r.s.Entries), Class: ir.Persistent})
		}
	}
}

// isOriginal reports whether instance x is made by the op in its own place.
func (r *rewriter) isOriginal(x int) bool { return r.values[x] == nil }

// reading is the value that stands for v in entry i: v itself, the one of a
// restored instance, or a view made anew of that.
func (r *rewriter) reading(i int, e *plan.Entry, v *ir.Value) *ir.Value {
	t := r.c.Origin.of(r.c, v)
	if t < 0 {
		return v
	}
	for k, in := range r.c.Problem.Ops[e.Op].In {
		if in == t {
			return r.value(i, e.In[k], v)
		}
	}
	return v
}

// value is what stands for v in instance x, made before entry i's anchor if
// need be.
func (r *rewriter) value(i, x int, v *ir.Value) *ir.Value {
	if r.isOriginal(x) {
		return v
	}
	if w := r.values[x][v]; w != nil {
		return w
	}
	n := v.Def
	in := append([]*ir.Value{}, n.In...)
	base := n.Decl.View(n, v.Port)
	in[base] = r.value(i, x, in[base])
	w := r.copyNode(i, n, in).Out[v.Port]
	r.values[x][v] = w
	r.holds[w] = r.s.Instances[x].Buffer
	return w
}

// copyNode makes a clone of n with other inputs before entry i's anchor.
func (r *rewriter) copyNode(i int, n *ir.Node, in []*ir.Value) *ir.Node {
	g := r.c.Graph
	out := make([]string, len(n.Out))
	for k, v := range n.Out {
		if v != nil {
			out[k] = g.Fresh(v.Name + ".remat")
		}
	}
	m := r.edit.InsertBefore(r.anchor[i], ir.NodeSpec{Name: g.Fresh(n.Name + ".remat"), Domain: n.Domain, Op: n.Op, Version: n.Version,
		In: in, Out: out, Attrs: n.Attrs, Origin: n.OriginName(), Backward: true, Loc: n.Loc})
	for k, v := range n.Out {
		if v != nil {
			m.Out[k].Type, m.Out[k].Ints = v.Type, v.Ints
		}
	}
	return m
}

func (r *rewriter) runNode(i int, e *plan.Entry) (ir.Step, error) {
	n := r.c.Origin.node[e.Op]
	for port, v := range r.c.Origin.in[e.Op] {
		if v != nil {
			if w := r.reading(i, e, v); w != v {
				r.edit.SetInput(n, port, w)
			}
		}
	}
	for _, v := range append([]*ir.Value{}, n.Captures...) {
		if w := r.reading(i, e, v); w != v {
			r.edit.ReplaceCapture(n, v, w)
		}
	}
	return r.step(ir.RunStep, ir.ComputeLane, n), nil
}

func (r *rewriter) clone(i int, e *plan.Entry) (ir.Step, error) {
	n := r.c.Origin.node[e.Op]
	in := make([]*ir.Value, len(n.In))
	for port, v := range r.c.Origin.in[e.Op] {
		if v != nil {
			in[port] = r.reading(i, e, v)
		}
	}
	m := r.copyNode(i, n, in)
	for k, t := range r.c.Problem.Ops[e.Op].Out {
		root := r.c.Live.Storages[r.c.Origin.storage[t]].Root
		r.restored(e.Out[k], root, m.Out[root.Port])
	}
	r.clones++
	return r.step(ir.RunStep, ir.ComputeLane, m), nil
}

// restored records that w stands for root in instance x.
func (r *rewriter) restored(x int, root, w *ir.Value) {
	r.values[x] = map[*ir.Value]*ir.Value{root: w}
	r.holds[w] = r.s.Instances[x].Buffer
}

func (r *rewriter) root(x int) *ir.Value {
	return r.c.Live.Storages[r.c.Origin.storage[r.s.Instances[x].Tensor]].Root
}

func (r *rewriter) copyOut(i int, e *plan.Entry) ir.Step {
	root := r.root(e.In[0])
	n := r.copyStep(i, "SwapOut", root, root.Name+".out")
	t := r.s.Instances[e.In[0]].Tensor
	r.hosted[t] = n.Out[0]
	r.holds[n.Out[0]] = r.slot[t]
	return r.step(ir.CopyOutStep, ir.OutLane, n)
}

func (r *rewriter) copyIn(i int, e *plan.Entry) ir.Step {
	x := e.Out[0]
	root := r.root(x)
	n := r.copyStep(i, "SwapIn", r.hosted[r.s.Instances[x].Tensor], root.Name+".in")
	r.restored(x, root, n.Out[0])
	return r.step(ir.CopyInStep, ir.InLane, n)
}

// copyStep makes a SwapOut or SwapIn node of v before entry i's anchor.
func (r *rewriter) copyStep(i int, op string, v *ir.Value, name string) *ir.Node {
	g := r.c.Graph
	n := r.edit.InsertBefore(r.anchor[i], ir.NodeSpec{Name: g.Fresh(name + "/" + op), Domain: ir.MemocDomain, Op: op, Version: 1,
		In: []*ir.Value{v}, Out: []string{g.Fresh(name)}, Origin: nameOfDef(v), Backward: op == "SwapIn"})
	n.Out[0].Type, n.Out[0].Ints = v.Type, v.Ints
	r.copies++
	return n
}

func nameOfDef(v *ir.Value) string {
	if v.Def == nil {
		return ""
	}
	return v.Def.OriginName()
}

func (r *rewriter) step(kind ir.StepKind, lane int, n *ir.Node) ir.Step {
	return ir.Step{Kind: kind, Lane: lane, Node: n, Workspace: -1}
}

// places gives every value its bytes.
func (r *rewriter) places() {
	c, p := r.c, r.prog
	p.Places = make([]ir.Place, c.Graph.NumValues())
	for i := range p.Places {
		p.Places[i].Buffer = -1
	}
	first := make([]int, len(c.Problem.Tensors)) // buffer of each tensor's own instance
	for x := len(r.s.Instances) - 1; x >= 0; x-- {
		first[r.s.Instances[x].Tensor] = r.s.Instances[x].Buffer
	}
	persistent := len(r.s.Buffers) + len(r.s.Host)
	for i := range c.Live.Storages {
		st := &c.Live.Storages[i]
		buffer := persistent
		if st.Def < 0 {
			persistent++
		} else {
			buffer = first[c.Origin.tensor[i]]
		}
		for _, v := range st.Values {
			p.Places[v.ID] = ir.Place{Buffer: buffer, Size: st.Bytes}
		}
	}
	for v, b := range r.holds {
		p.Places[v.ID] = ir.Place{Buffer: b, Size: p.Buffers[b].Size}
	}
}

// accesses lists what each step reads and writes, with a workspace buffer
// where it needs one.
func (r *rewriter) accesses() {
	p := r.prog
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, vs := range [][]*ir.Value{s.Node.In, s.Node.Captures} {
			for _, v := range vs {
				s.Reads = addAccess(s.Reads, p.Places, v)
			}
		}
		for _, v := range s.Node.Out {
			s.Writes = addAccess(s.Writes, p.Places, v)
		}
		if w := workspace(r.c, &r.s.Entries[i]); w > 0 {
			s.Workspace = len(p.Buffers)
			s.Writes = append(s.Writes, ir.Access{Buffer: s.Workspace, Size: w})
			p.Buffers = append(p.Buffers, ir.Buffer{Name: s.Node.Name + ".workspace", Arena: ir.DeviceArena, Size: w,
				First: i, End: i + 1, Class: ir.Scratch})
		}
	}
}

// addAccess adds v's bytes, once per buffer; values without bytes add nothing.
func addAccess(as []ir.Access, places []ir.Place, v *ir.Value) []ir.Access {
	if v == nil || places[v.ID].Buffer < 0 || places[v.ID].Size == 0 {
		return as
	}
	for _, a := range as {
		if a.Buffer == places[v.ID].Buffer {
			return as
		}
	}
	return append(as, ir.Access{Buffer: places[v.ID].Buffer, Offset: places[v.ID].Offset, Size: places[v.ID].Size})
}

package passes

import (
	"fmt"

	"memoc/ir"
	"memoc/passes/plan"
)

var rewritePass = Pass{
	Name:  "rewrite",
	Doc:   "Carries the plan into the graph: SwapOut and SwapIn nodes, clones named .remat just before who needs them, for a split tensor Slice and Concat around both; and lists the steps of the Program.",
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
	parts  [][]madePart              // by instance: what of a split one is there so far
	slices map[sliceKey]*ir.Value
	hosted map[int]*ir.Value      // by tensor: its value in host memory
	slot   map[int]int            // by tensor: its host slot's buffer
	holds  map[*ir.Value]ir.Place // of new values
	own    []ir.Place             // by storage: of the original values
	anchor []*ir.Node             // by entry: the next node that runs in its own place
	build  *ir.Builder            // of constants
	inits  int                    // constants before
	clones int
	copies int
}

func newRewriter(c *Context) *rewriter {
	r := &rewriter{c: c, s: c.Schedule, edit: ir.NewEdit(c.Graph), values: make([]map[*ir.Value]*ir.Value, len(c.Schedule.Instances)),
		parts: make([][]madePart, len(c.Schedule.Instances)), slices: map[sliceKey]*ir.Value{}, hosted: map[int]*ir.Value{},
		slot: map[int]int{}, holds: map[*ir.Value]ir.Place{}, own: make([]ir.Place, len(c.Live.Storages)),
		anchor: make([]*ir.Node, len(c.Schedule.Entries)), inits: len(c.Graph.Inits)}
	r.build = ir.NewBuilder(r.edit)
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
		step, err := r.entry(i, &r.s.Entries[i])
		if err != nil {
			return err
		}
		r.prog.Steps = append(r.prog.Steps, step)
	}
	r.edit.Done()
	if err := r.constants(); err != nil {
		return err
	}
	r.places()
	r.accesses()
	r.decisions()
	return nil
}

// entry carries out one entry of the schedule.
func (r *rewriter) entry(i int, e *plan.Entry) (ir.Step, error) {
	part := e.To > 0
	switch {
	case e.Kind == plan.Run:
		return r.runNode(i, e)
	case e.Kind == plan.Clone && part:
		return r.cloneRange(i, e)
	case e.Kind == plan.Clone:
		return r.clone(i, e)
	case e.Kind == plan.CopyOut && part:
		return r.copyOutHead(i, e)
	case e.Kind == plan.CopyOut:
		return r.copyOut(i, e)
	case e.Kind == plan.CopyIn && part:
		return r.copyInHead(i, e), nil
	case e.Kind == plan.CopyIn:
		return r.copyIn(i, e), nil
	case e.Kind == plan.Pack:
		return r.pack(i, e)
	case e.Kind == plan.Unpack:
		return r.unpack(i, e)
	}
	return ir.Step{}, fmt.Errorf("BUG: the schedule has an entry of kind %d", e.Kind)
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
		p.Buffers = append(p.Buffers, ir.Buffer{Name: st.Root.Name, Value: st.Root, Arena: ir.DeviceArena, Size: r.place(b.Instance, 0, 0).Size,
			First: b.First, End: b.End, Class: class[i]})
	}
	for _, h := range r.s.Host {
		st := &c.Live.Storages[c.Origin.storage[h.Tensor]]
		r.slot[h.Tensor] = len(p.Buffers)
		name, size := st.Root.Name+".out", st.Bytes
		if h.Head > 0 {
			g := r.tokens(0, h.Head)
			name, size = st.Root.Name+".head.out", g.extent()*c.Problem.Tensors[h.Tensor].TokenBytes
		}
		p.Buffers = append(p.Buffers, ir.Buffer{Name: name, Arena: ir.HostArena, Size: size,
			First: h.First, End: h.End, Class: ir.HostSlot})
	}
	first := make([]int, len(c.Problem.Tensors)) // buffer of each tensor's own instance
	for x := len(r.s.Instances) - 1; x >= 0; x-- {
		first[r.s.Instances[x].Tensor] = r.s.Instances[x].Buffer
	}
	for i := range c.Live.Storages {
		st := &c.Live.Storages[i]
		if st.Def >= 0 {
			r.own[i] = ir.Place{Buffer: first[c.Origin.tensor[i]], Size: st.Bytes}
			continue
		}
		r.own[i] = ir.Place{Buffer: len(p.Buffers), Size: st.Bytes}
		r.persistent(st.Root, st.Bytes)
	}
}

func (r *rewriter) persistent(v *ir.Value, size ir.Bytes) {
	r.prog.Buffers = append(r.prog.Buffers, ir.Buffer{Name: v.Name, Value: v, Arena: ir.DeviceArena, Size: size,
		First: 0, End: len(r.s.Entries), Class: ir.Persistent})
}

// constants gives the constants that splitting made buffers beside the other
// persistent ones. The plan was chosen with room for them.
func (r *rewriter) constants() error {
	sum := ir.Bytes(0)
	for _, v := range r.c.Graph.Inits[r.inits:] {
		size := ir.Bytes(len(v.Ints)) * 8
		r.holds[v] = ir.Place{Buffer: len(r.prog.Buffers), Size: size}
		r.persistent(v, size)
		sum += ir.Padded(size)
	}
	r.c.Metrics.Persistent += sum
	if room := cutConstants(r.c, r.s); sum > room {
		return fmt.Errorf("BUG: the constants of splits take %d bytes, and the plan has %d for them", sum, room)
	}
	return nil
}

// isOriginal reports whether instance x is made by the op in its own place.
func (r *rewriter) isOriginal(x int) bool { return r.values[x] == nil }

// reading is the value that stands for v in entry i: v itself, the one of a
// restored instance, or a view made anew of that.
func (r *rewriter) reading(i int, e *plan.Entry, v *ir.Value) (*ir.Value, error) {
	t := r.c.Origin.of(r.c, v)
	if t < 0 {
		return v, nil
	}
	for k, in := range r.c.Problem.Ops[e.Op].In {
		if in == t {
			return r.value(i, e.In[k], v)
		}
	}
	return v, nil
}

// value is what stands for v in instance x, made before entry i's anchor if
// need be.
func (r *rewriter) value(i, x int, v *ir.Value) (*ir.Value, error) {
	if r.isOriginal(x) {
		return v, nil
	}
	if w := r.values[x][v]; w != nil {
		return w, nil
	}
	if v == r.root(x) {
		_, err := r.join(i, x)
		return r.values[x][v], err
	}
	n := v.Def
	in := append([]*ir.Value{}, n.In...)
	base := n.Decl.View(n, v.Port)
	below, err := r.value(i, x, in[base])
	if err != nil {
		return nil, err
	}
	in[base] = below
	w := r.copyNode(i, n, in).Out[v.Port]
	r.values[x][v] = w
	r.holds[w] = r.place(x, 0, 0)
	return w, nil
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
		if v == nil {
			continue
		}
		w, err := r.reading(i, e, v)
		if err != nil {
			return ir.Step{}, err
		}
		if w != v {
			r.edit.SetInput(n, port, w)
		}
	}
	for _, v := range append([]*ir.Value{}, n.Captures...) {
		w, err := r.reading(i, e, v)
		if err != nil {
			return ir.Step{}, err
		}
		if w != v {
			r.edit.ReplaceCapture(n, v, w)
		}
	}
	return r.step(ir.RunStep, ir.ComputeLane, n), nil
}

func (r *rewriter) clone(i int, e *plan.Entry) (ir.Step, error) {
	n := r.c.Origin.node[e.Op]
	in := make([]*ir.Value, len(n.In))
	for port, v := range r.c.Origin.in[e.Op] {
		if v == nil {
			continue
		}
		var err error
		if in[port], err = r.reading(i, e, v); err != nil {
			return ir.Step{}, err
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
	r.holds[w] = r.place(x, 0, 0)
}

func (r *rewriter) root(x int) *ir.Value {
	return r.c.Live.Storages[r.c.Origin.storage[r.s.Instances[x].Tensor]].Root
}

func (r *rewriter) copyOut(i int, e *plan.Entry) (ir.Step, error) {
	root := r.root(e.In[0])
	w, err := r.value(i, e.In[0], root)
	if err != nil {
		return ir.Step{}, err
	}
	n := r.copyStep(i, "SwapOut", w, root.Name+".out")
	r.onHost(r.s.Instances[e.In[0]].Tensor, n.Out[0])
	return r.step(ir.CopyOutStep, ir.OutLane, n), nil
}

// onHost records that v is tensor t, or its head, in host memory.
func (r *rewriter) onHost(t int, v *ir.Value) {
	r.hosted[t] = v
	r.holds[v] = ir.Place{Buffer: r.slot[t], Size: r.prog.Buffers[r.slot[t]].Size}
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
	for i := range c.Live.Storages {
		for _, v := range c.Live.Storages[i].Values {
			p.Places[v.ID] = r.own[i]
		}
	}
	for v, at := range r.holds {
		p.Places[v.ID] = at
	}
}

// accesses lists what each step reads and writes, with a workspace buffer
// where it needs one.
func (r *rewriter) accesses() {
	p := r.prog
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Reads, s.Writes = p.Accesses(s.Node)
		if v := s.Node.In; r.s.Entries[i].To == 0 && s.Node.Op == "Slice" && p.Places[v[0].ID].Size > 0 {
			// The search takes the model's own Slice to read all of its input. Its
			// step waits for all of it, too: a plan is never faster than it was
			// taken to be.
			s.Reads = append(s.Reads, p.Places[v[0].ID])
		}
		if w := workspace(r.c, &r.s.Entries[i]); w > 0 {
			s.Workspace = len(p.Buffers)
			s.Writes = append(s.Writes, ir.Access{Buffer: s.Workspace, Size: w})
			p.Buffers = append(p.Buffers, ir.Buffer{Name: s.Node.Name + ".workspace", Arena: ir.DeviceArena, Size: w,
				First: i, End: i + 1, Class: ir.Scratch})
		}
	}
}

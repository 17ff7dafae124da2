package handmade

import (
	"fmt"
	"slices"

	"memoc/ir"
)

// layout puts a Program together step by step. Buffers get lifetimes from the
// steps that touch them and the first gap that is free for as long.
type layout struct {
	p     *ir.Program
	node  map[string]*ir.Node
	value map[string]*ir.Value
}

func newLayout(g *ir.Graph) *layout {
	l := &layout{node: map[string]*ir.Node{}, value: map[string]*ir.Value{}, p: &ir.Program{Name: g.Name, Graph: g, Device: "none",
		Arenas: []ir.Arena{{Name: "device", Align: ir.Align}, {Name: "host", Align: ir.Align}},
		Lanes:  []ir.Lane{{Name: "compute"}, {Name: "device-to-host"}, {Name: "host-to-device"}}}}
	l.p.Places = make([]ir.Place, g.NumValues())
	for i := range l.p.Places {
		l.p.Places[i].Buffer = -1
	}
	for _, v := range slices.Concat(g.Inputs, g.Inits) {
		l.value[v.Name] = v
	}
	for _, n := range g.Nodes {
		l.node[n.Name] = n
		l.value[n.Out[0].Name] = n.Out[0]
	}
	return l
}

// buffer gives v a buffer of its own.
func (l *layout) buffer(v *ir.Value, arena int, class ir.Class) {
	size, err := v.Type.Bytes()
	if err != nil {
		panic(fmt.Sprintf("BUG: %s has no size: %v", v.Name, err))
	}
	l.p.Places[v.ID] = ir.Place{Buffer: len(l.p.Buffers), Size: size}
	l.p.Buffers = append(l.p.Buffers, ir.Buffer{Name: v.Name, Value: v, Arena: arena, Size: size, Class: class})
}

func (l *layout) step(kind ir.StepKind, lane int, name string) {
	s := ir.Step{Kind: kind, Lane: lane, Node: l.node[name], Workspace: -1, Duration: 1000}
	s.Reads, s.Writes = l.p.Accesses(s.Node)
	l.p.Steps = append(l.p.Steps, s)
}

// run is a step on the compute lane whose output has a buffer of its own.
func (l *layout) run(name string, class ir.Class) {
	l.buffer(l.value[name], ir.DeviceArena, class)
	l.step(ir.RunStep, ir.ComputeLane, name)
}

func (l *layout) copyOut(name string) {
	l.buffer(l.value[name], ir.HostArena, ir.HostSlot)
	l.step(ir.CopyOutStep, ir.OutLane, name)
}

// view lays name on the bytes of base, as Reshape does.
func (l *layout) view(name, base string) {
	l.p.Places[l.value[name].ID] = l.p.Places[l.value[base].ID]
}

// rows is tokens [from, to) of a whole tensor in a buffer, in bytes counted
// here by hand.
func rows(buffer int, batch, from, to int64) ir.Place {
	const token = 4 * width
	p := ir.Place{Buffer: buffer, Offset: from * token, Size: batch * (to - from) * token}
	if batch > 1 {
		p.Rows, p.Pitch = batch, Tokens*token
	}
	return p
}

// part lays name on a range of tokens of base.
func (l *layout) part(name, base string, batch, from, to int64) {
	l.p.Places[l.value[name].ID] = rows(l.p.Places[l.value[base].ID].Buffer, batch, from, to)
}

// restore opens a buffer for the whole tensor and copies its head there.
func (l *layout) restore(tensor string, batch int64) {
	in := l.value[tensor+".in"]
	l.buffer(in, ir.DeviceArena, ir.Skeletal)
	b := l.p.Places[in.ID].Buffer
	l.p.Places[in.ID], l.p.Buffers[b].Size = rows(b, batch, 0, Head), rows(b, batch, 0, Tokens).Size
	l.step(ir.CopyInStep, ir.InLane, in.Name)
}

// tail makes the last tokens: in the whole tensor where they are contiguous
// there, else in a buffer of their own.
func (l *layout) tail(tensor, name string, batch int64) {
	if batch > 1 {
		l.run(name, ir.Transient)
		return
	}
	l.p.Places[l.value[name].ID] = rows(l.p.Places[l.value[tensor+".in"].ID].Buffer, batch, Head, Tokens)
	l.step(ir.RunStep, ir.ComputeLane, name)
}

// join makes the whole tensor of its parts, of which the first is in place.
func (l *layout) join(name string, batch int64) {
	n := l.node[name]
	l.p.Places[n.Out[0].ID] = rows(l.p.Places[n.In[0].ID].Buffer, batch, 0, Tokens)
	if batch > 1 {
		l.step(ir.RunStep, ir.ComputeLane, name)
	}
}

// finish sets lifetimes, offsets and waits.
func (l *layout) finish() {
	l.lifetimes()
	for b := range l.p.Buffers {
		l.place(b)
	}
	l.waits()
	for i := range l.p.Steps {
		l.p.Steps[i].Start = int64(i) * 1000
	}
	for a := range l.p.Arenas {
		l.p.Arenas[a].LowerBound = l.mostAlive(a)
	}
	device, host := &l.p.Arenas[ir.DeviceArena], &l.p.Arenas[ir.HostArena]
	host.Budget = host.Size
	l.p.Metrics = ir.Metrics{Peak: device.Size, LowerBound: device.LowerBound, HostPeak: host.Size, HostBudget: host.Size}
}

func (l *layout) lifetimes() {
	p := l.p
	for b := range p.Buffers {
		p.Buffers[b].First, p.Buffers[b].End = len(p.Steps), 0
	}
	for i, s := range p.Steps {
		for _, x := range slices.Concat(s.Reads, s.Writes) {
			b := &p.Buffers[x.Buffer]
			b.First, b.End = min(b.First, i), max(b.End, i+1)
		}
	}
	for b := range p.Buffers {
		if class := p.Buffers[b].Class; class == ir.Persistent {
			p.Buffers[b].First, p.Buffers[b].End = 0, len(p.Steps)
		} else if class == ir.Output {
			p.Buffers[b].End = len(p.Steps)
		}
	}
}

// place gives buffer b the lowest offset that no earlier buffer alive with it
// takes.
func (l *layout) place(b int) {
	x := &l.p.Buffers[b]
	meets := func(y *ir.Buffer) bool {
		return y.Arena == x.Arena && y.First < x.End && x.First < y.End && x.Offset < y.Offset+y.Size && y.Offset < x.Offset+x.Size
	}
	for k := 0; k < b; k++ {
		if y := &l.p.Buffers[k]; meets(y) {
			x.Offset = ir.Padded(y.Offset + y.Size)
			k = -1
		}
	}
	a := &l.p.Arenas[x.Arena]
	a.Size = max(a.Size, ir.Padded(x.Offset+x.Size))
}

// waits makes every step wait for the last step of each other lane that
// touches common bytes, if one of the two writes, and that nothing else orders.
func (l *layout) waits() {
	p := l.p
	for i := range p.Steps {
		s := &p.Steps[i]
		seen := make([]bool, len(p.Lanes))
		for k := i - 1; k >= 0; k-- {
			if o := &p.Steps[k]; o.Lane != s.Lane && !seen[o.Lane] && l.conflict(o, s) {
				seen[o.Lane] = true
				s.Waits = append(s.Waits, k)
			}
		}
		slices.Sort(s.Waits)
		all := slices.Clone(s.Waits)
		s.Waits = slices.DeleteFunc(s.Waits, func(w int) bool {
			rest := slices.DeleteFunc(slices.Clone(all), func(x int) bool { return x == w })
			return l.before(w, i, rest)
		})
	}
}

// before reports whether step a has ended when step b starts, through the order
// of lanes and waits, those of b being the given ones.
func (l *layout) before(a, b int, waits []int) bool {
	for k := b - 1; k >= a; k-- {
		if l.p.Steps[k].Lane == l.p.Steps[b].Lane {
			waits = append(slices.Clone(waits), k)
			break
		}
	}
	return slices.ContainsFunc(waits, func(w int) bool { return w == a || w > a && l.before(a, w, l.p.Steps[w].Waits) })
}

// conflict compares byte by byte.
func (l *layout) conflict(a, b *ir.Step) bool {
	type address struct {
		arena int
		at    ir.Bytes
	}
	bytes := map[address]bool{}
	each := func(as []ir.Access, f func(address)) {
		for _, x := range as {
			buffer := &l.p.Buffers[x.Buffer]
			x.Shifted(buffer.Offset).Each(func(from, to ir.Bytes) {
				for at := from; at < to; at += ir.Align / 2 {
					f(address{buffer.Arena, at / (ir.Align / 2)})
				}
			})
		}
	}
	common := false
	each(a.Writes, func(x address) { bytes[x] = true })
	each(b.Reads, func(x address) { common = common || bytes[x] })
	each(b.Writes, func(x address) { common = common || bytes[x] })
	clear(bytes)
	each(b.Writes, func(x address) { bytes[x] = true })
	each(a.Reads, func(x address) { common = common || bytes[x] })
	return common
}

func (l *layout) mostAlive(arena int) (most ir.Bytes) {
	for i := range l.p.Steps {
		sum := ir.Bytes(0)
		for _, b := range l.p.Buffers {
			if b.Arena == arena && b.First <= i && i < b.End {
				sum += ir.Padded(b.Size)
			}
		}
		most = max(most, sum)
	}
	return most
}

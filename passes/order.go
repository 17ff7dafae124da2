package passes

import (
	"memoc/ir"
	"memoc/passes/plan"
	"memoc/passes/sim"
)

var orderPass = Pass{
	Name:  "order",
	Doc:   "Makes the order of lanes sound: for every two overlapping accesses of which one writes, a wait where lane order and other waits do not imply it. Then replays the step in time.",
	Stage: Place,
	After: []Edge{{"place", "which accesses overlap is decided by the offsets"}},
	Run: func(c *Context) (Result, error) {
		waits := orderSteps(c.Program, c.Schedule)
		if err := replay(c); err != nil {
			return Result{}, err
		}
		c.Program.Metrics = c.Metrics
		return Result{Stats: []ir.KV{stat("waits", waits)}}, nil
	},
}

// span is an access as absolute bytes of an arena.
type span struct {
	arena      int
	start, end ir.Bytes // half-open
	write      bool
}

// orderSteps adds the waits: those that the schedule asks for, and those that
// the offsets make necessary.
func orderSteps(p *ir.Program, s *plan.Schedule) (waits int) {
	spans := make([][]span, len(p.Steps))
	lane := make([]int, len(p.Steps))
	for i := range p.Steps {
		spans[i], lane[i] = stepSpans(p, &p.Steps[i]), p.Steps[i].Lane
	}
	for i, w := range waitsFor(len(p.Lanes), lane, spans, s) {
		p.Steps[i].Waits = w
		waits += len(w)
	}
	return waits
}

// waitsFor is what each of a list of steps, given by lane and spans, must wait
// for on other lanes. clock[l] of a step is the last step of lane l known to
// have ended before it starts (Lamport's happens-before by vector clocks); a
// conflict at or before it needs no wait.
func waitsFor(lanes int, lane []int, spans [][]span, s *plan.Schedule) [][]int {
	out := make([][]int, len(lane))
	onLane := make([][]int, lanes)
	clocks := make([][]int, len(lane))
	for i, mine := range lane {
		clock := make([]int, lanes)
		for l := range clock {
			clock[l] = -1
		}
		if before := onLane[mine]; len(before) > 0 {
			prev := before[len(before)-1]
			copy(clock, clocks[prev])
			clock[mine] = prev
		}
		wait := func(q int) {
			out[i] = append(out[i], q)
			for k, t := range clocks[q] {
				clock[k] = max(clock[k], t)
			}
			clock[lane[q]] = max(clock[lane[q]], q)
		}
		if q := s.Entries[i].Wait; q >= 0 && q > clock[lane[q]] {
			wait(q)
		}
		for l := range lanes {
			if l == mine {
				continue
			}
			if q := lastConflict(spans, onLane[l], clock[l], spans[i]); q >= 0 {
				wait(q)
			}
		}
		out[i] = undominated(out[i], clocks, lane)
		clocks[i] = clock
		onLane[mine] = append(onLane[mine], i)
	}
	return out
}

// undominated drops waits that another one implies.
func undominated(waits []int, clocks [][]int, lane []int) []int {
	out := waits[:0]
	for _, w := range waits {
		implied := false
		for _, v := range waits {
			if v != w && clocks[v][lane[w]] >= w {
				implied = true
			}
		}
		if !implied {
			out = append(out, w)
		}
	}
	return out
}

func stepSpans(p *ir.Program, s *ir.Step) []span {
	var out []span
	add := func(as []ir.Access, write bool) {
		for _, a := range as {
			b := &p.Buffers[a.Buffer]
			if b.Class == ir.Persistent && !write || a.Size == 0 {
				continue // nothing writes a persistent buffer
			}
			start := b.Offset + a.Offset
			out = append(out, span{b.Arena, start, start + a.Size, write})
		}
	}
	add(s.Reads, false)
	add(s.Writes, true)
	return out
}

// lastConflict is the latest step of a lane after the step known, that
// conflicts with one of spans; -1 if none does.
func lastConflict(all [][]span, lane []int, known int, spans []span) int {
	for k := len(lane) - 1; k >= 0 && lane[k] > known; k-- {
		for _, a := range all[lane[k]] {
			for _, b := range spans {
				if a.arena == b.arena && (a.write || b.write) && a.start < b.end && b.start < a.end {
					return lane[k]
				}
			}
		}
	}
	return -1
}

// replay predicts start and stall of every step, and the step's time.
func replay(c *Context) error {
	p := c.Program
	tasks := make([]sim.Task, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		dur, err := duration(c, s)
		if err != nil {
			return err
		}
		s.Duration = dur
		tasks[i] = sim.Task{Lane: s.Lane, Dur: dur, Deps: s.Waits}
	}
	r, err := sim.Run(len(p.Lanes), tasks)
	if err != nil {
		return err
	}
	busy := ir.Nanos(0)
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Start, s.Stall = r.Start[i], r.Stall[i]
		if s.Lane == ir.ComputeLane {
			busy += s.Duration
		}
	}
	c.Metrics.Time, c.Metrics.Stall = r.Span, r.Span-busy
	c.Metrics.ExtraCompute = c.Schedule.Extra
	return nil
}

func duration(c *Context, s *ir.Step) (ir.Nanos, error) {
	switch s.Kind {
	case ir.CopyOutStep:
		return copyTime(c, stepBytes(s.Writes), c.Options.Device.OutGBps), nil
	case ir.CopyInStep:
		return copyTime(c, stepBytes(s.Writes), c.Options.Device.InGBps), nil
	}
	t, _, err := c.Options.Device.Node(s.Node)
	return t, err
}

// copyTime is the predicted time of a copy, of whole lines as in planning.
func copyTime(c *Context, bytes ir.Bytes, rate float64) ir.Nanos {
	return c.Options.Device.CopyLatency + ir.Nanos(float64(ir.Padded(bytes))/rate)
}

// orderedTime is the time that a placement's step takes, with the waits that
// its offsets ask for: what replay will say of it.
func orderedTime(c *Context, p *placement) (ir.Nanos, error) {
	s := p.schedule
	slot := map[int]int{}
	for i, h := range s.Host {
		slot[h.Tensor] = i
	}
	work := len(s.Buffers) // the next workspace among the placed buffers
	tasks, spans, lane := make([]sim.Task, len(s.Entries)), make([][]span, len(s.Entries)), make([]int, len(s.Entries))
	for i := range s.Entries {
		e := &s.Entries[i]
		add := func(arena int, at, size ir.Bytes, write bool) {
			if size > 0 {
				spans[i] = append(spans[i], span{arena, at, at + size, write})
			}
		}
		for k, xs := range [][]int{e.In, e.Out} {
			for _, x := range xs {
				b := s.Instances[x].Buffer
				add(ir.DeviceArena, p.device.Offsets[b], s.Buffers[b].Bytes, k == 1)
			}
		}
		onHost := func(x int, write bool) ir.Bytes {
			h := slot[s.Instances[x].Tensor]
			add(ir.HostArena, p.host.Offsets[h], s.Host[h].Bytes, write)
			return s.Host[h].Bytes
		}
		switch e.Kind {
		case plan.CopyOut:
			lane[i], tasks[i].Dur = ir.OutLane, copyTime(c, onHost(e.In[0], true), c.Options.Device.OutGBps)
		case plan.CopyIn:
			lane[i], tasks[i].Dur = ir.InLane, copyTime(c, onHost(e.Out[0], false), c.Options.Device.InGBps)
		default:
			lane[i], tasks[i].Dur = ir.ComputeLane, c.Problem.Ops[e.Op].Time
			if w := workspace(c, e); w > 0 {
				add(ir.DeviceArena, p.device.Offsets[work], w, true)
				work++
			}
		}
		tasks[i].Lane = lane[i]
	}
	for i, w := range waitsFor(3, lane, spans, s) {
		tasks[i].Deps = w
	}
	r, err := sim.Run(3, tasks)
	if err != nil {
		return 0, err
	}
	return r.Span, nil
}

func stepBytes(as []ir.Access) ir.Bytes {
	sum := ir.Bytes(0)
	for _, a := range as {
		sum += a.Size
	}
	return sum
}

package passes

import (
	"memoc/ir"
	"memoc/passes/sim"
)

var orderPass = Pass{
	Name:  "order",
	Doc:   "Makes the order of lanes sound: for every two overlapping accesses of which one writes, a wait where lane order and other waits do not imply it. Then replays the step in time.",
	Stage: Place,
	After: []Edge{{"place", "which accesses overlap is decided by the offsets"}},
	Run: func(c *Context) (Result, error) {
		waits := orderSteps(c.Program)
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

// orderSteps adds the waits. clock[l] of a step is the last step of lane l
// known to have ended before it starts (Lamport's happens-before by vector
// clocks); a conflict at or before it needs no wait.
func orderSteps(p *ir.Program) (waits int) {
	lanes := len(p.Lanes)
	spans := make([][]span, len(p.Steps))
	onLane := make([][]int, lanes)
	clocks := make([][]int, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		spans[i] = stepSpans(p, s)
		clock := make([]int, lanes)
		for l := range clock {
			clock[l] = -1
		}
		if mine := onLane[s.Lane]; len(mine) > 0 {
			prev := mine[len(mine)-1]
			copy(clock, clocks[prev])
			clock[s.Lane] = prev
		}
		s.Waits = nil
		for l := range lanes {
			if l == s.Lane {
				continue
			}
			if q := lastConflict(spans, onLane[l], clock[l], spans[i]); q >= 0 {
				s.Waits = append(s.Waits, q)
				for k, t := range clocks[q] {
					clock[k] = max(clock[k], t)
				}
				clock[l] = q
			}
		}
		s.Waits = undominated(s.Waits, clocks, p)
		waits += len(s.Waits)
		clocks[i] = clock
		onLane[s.Lane] = append(onLane[s.Lane], i)
	}
	return waits
}

// undominated drops waits that another one implies.
func undominated(waits []int, clocks [][]int, p *ir.Program) []int {
	out := waits[:0]
	for _, w := range waits {
		implied := false
		for _, v := range waits {
			if v != w && clocks[v][p.Steps[w].Lane] >= w {
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
	dev := c.Options.Device
	copyTime := func(bytes ir.Bytes, rate float64) ir.Nanos {
		return dev.CopyLatency + ir.Nanos(float64(bytes)/rate)
	}
	switch s.Kind {
	case ir.CopyOutStep:
		return copyTime(stepBytes(s.Writes), dev.OutGBps), nil
	case ir.CopyInStep:
		return copyTime(stepBytes(s.Writes), dev.InGBps), nil
	}
	t, _, err := dev.Node(s.Node)
	return t, err
}

func stepBytes(as []ir.Access) ir.Bytes {
	sum := ir.Bytes(0)
	for _, a := range as {
		sum += a.Size
	}
	return sum
}

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

// lastConflict is the latest step of a lane after the step known, that
// conflicts with one of spans; -1 if none does.
func lastConflict(all [][]span, lane []int, known int, spans []span) int {
	for k := len(lane) - 1; k >= 0 && lane[k] > known; k-- {
		for _, a := range all[lane[k]] {
			for _, b := range spans {
				if (a.write || b.write) && a.meets(&b) {
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
		s.Duration = c.Schedule.Duration(c.Problem, &c.Schedule.Entries[i])
		tasks[i] = sim.Task{Lane: s.Lane, Dur: s.Duration, Deps: s.Waits}
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

// orderedTime is the time that a placement's step takes, with the waits that
// its offsets ask for: what replay will say of it.
func orderedTime(c *Context, p *placement) (ir.Nanos, error) {
	s := p.schedule
	tasks, spans, lane := make([]sim.Task, len(s.Entries)), p.spans(c), make([]int, len(s.Entries))
	for i := range s.Entries {
		e := &s.Entries[i]
		lane[i] = e.Lane()
		tasks[i] = sim.Task{Lane: lane[i], Dur: s.Duration(c.Problem, e)}
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

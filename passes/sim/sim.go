// Package sim replays tasks on lanes in time: the start and end of each, and
// how long each lane stood still waiting. It is pure: tasks in, times out, and
// it knows nothing of graphs.
package sim

import "fmt"

// Task is one operation on a lane. Lanes run their tasks in the order of the
// list; Deps are earlier tasks that must have ended before this one starts.
type Task struct {
	Lane int
	Dur  int64 // nanoseconds, >= 0
	Deps []int
}

// Result is the replay; times in nanoseconds from the start of the step.
type Result struct {
	Start []int64
	Stall []int64 // time the lane stood idle just before the task, waiting for Deps
	Span  int64   // when the last task ends
	Busy  []int64 // per lane
}

// End is when task i ends.
func (r *Result) End(i int, tasks []Task) int64 { return r.Start[i] + tasks[i].Dur }

// Run replays tasks on that many lanes. It is an error if a dependency is not
// earlier in the list, or a lane or duration is out of range.
func Run(lanes int, tasks []Task) (*Result, error) {
	r := &Result{Start: make([]int64, len(tasks)), Stall: make([]int64, len(tasks)), Busy: make([]int64, lanes)}
	var c Clock
	c.Reset(lanes)
	for i, t := range tasks {
		if t.Lane < 0 || t.Lane >= lanes || t.Dur < 0 {
			return nil, fmt.Errorf("sim: task %d has lane %d of %d and duration %d", i, t.Lane, lanes, t.Dur)
		}
		for _, d := range t.Deps {
			if d < 0 || d >= i {
				return nil, fmt.Errorf("sim: task %d depends on task %d, which is not before it", i, d)
			}
		}
		free := c.Free(t.Lane)
		r.Start[i] = c.Add(t.Lane, t.Dur, c.Ready(t.Lane, t.Deps))
		r.Stall[i] = r.Start[i] - free
		r.Busy[t.Lane] += t.Dur
	}
	r.Span = c.Span
	return r, nil
}

// Clock replays tasks one at a time, for a caller that decides on the way what
// to wait for. It may be reset and used again.
type Clock struct {
	Span int64   // when the last task ends
	Ends []int64 // of each task so far
	free []int64
}

// Reset starts a replay on that many lanes.
func (c *Clock) Reset(lanes int) {
	if cap(c.free) < lanes {
		c.free = make([]int64, lanes)
	}
	c.free = c.free[:lanes]
	clear(c.free)
	c.Span, c.Ends = 0, c.Ends[:0]
}

// Free is when the last task of a lane ends.
func (c *Clock) Free(lane int) int64 { return c.free[lane] }

// Ready is when a task on lane that waits for deps can start.
func (c *Clock) Ready(lane int, deps []int) int64 {
	start := c.free[lane]
	for _, d := range deps {
		start = max(start, c.Ends[d])
	}
	return start
}

// Add is the next task, which starts at the given time or when its lane is
// free. It returns when that is.
func (c *Clock) Add(lane int, dur, start int64) int64 {
	start = max(start, c.free[lane])
	c.free[lane] = start + dur
	c.Ends = append(c.Ends, start+dur)
	c.Span = max(c.Span, start+dur)
	return start
}

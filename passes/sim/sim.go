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
	r := &Result{}
	return r, r.Run(lanes, tasks)
}

// Run is Run into r, whose memory is used again.
func (r *Result) Run(lanes int, tasks []Task) error {
	r.Start, r.Stall, r.Busy, r.Span = sized(r.Start, len(tasks)), sized(r.Stall, len(tasks)), sized(r.Busy, lanes), 0
	clear(r.Busy)
	free := make([]int64, lanes)
	for i, t := range tasks {
		if t.Lane < 0 || t.Lane >= lanes || t.Dur < 0 {
			return fmt.Errorf("sim: task %d has lane %d of %d and duration %d", i, t.Lane, lanes, t.Dur)
		}
		start := free[t.Lane]
		for _, d := range t.Deps {
			if d < 0 || d >= i {
				return fmt.Errorf("sim: task %d depends on task %d, which is not before it", i, d)
			}
			start = max(start, r.Start[d]+tasks[d].Dur)
		}
		r.Start[i] = start
		r.Stall[i] = start - free[t.Lane]
		free[t.Lane] = start + t.Dur
		r.Busy[t.Lane] += t.Dur
		r.Span = max(r.Span, free[t.Lane])
	}
	return nil
}

// sized is a slice of n elements, in s if there is room; they hold anything.
func sized(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n)
	}
	return s[:n]
}

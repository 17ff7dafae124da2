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
	free := make([]int64, lanes)
	for i, t := range tasks {
		if t.Lane < 0 || t.Lane >= lanes || t.Dur < 0 {
			return nil, fmt.Errorf("sim: task %d has lane %d of %d and duration %d", i, t.Lane, lanes, t.Dur)
		}
		start := free[t.Lane]
		for _, d := range t.Deps {
			if d < 0 || d >= i {
				return nil, fmt.Errorf("sim: task %d depends on task %d, which is not before it", i, d)
			}
			start = max(start, r.Start[d]+tasks[d].Dur)
		}
		r.Start[i] = start
		r.Stall[i] = start - free[t.Lane]
		free[t.Lane] = start + t.Dur
		r.Busy[t.Lane] += t.Dur
		r.Span = max(r.Span, free[t.Lane])
	}
	return r, nil
}

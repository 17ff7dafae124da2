package sim

import (
	"slices"
	"testing"
)

// A copy of 30 hides behind two of three computations of 10, and the fourth
// computation, which needs it, waits 10.
func TestCopyHidesBehindCompute(t *testing.T) {
	tasks := []Task{
		{Lane: 0, Dur: 10},
		{Lane: 1, Dur: 30, Deps: []int{0}},
		{Lane: 0, Dur: 10}, {Lane: 0, Dur: 10},
		{Lane: 0, Dur: 10, Deps: []int{1}},
	}
	r, err := Run(2, tasks)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{0, 10, 10, 20, 40}; !slices.Equal(r.Start, want) {
		t.Errorf("starts %v, want %v", r.Start, want)
	}
	if r.Stall[4] != 10 || r.Span != 50 || r.Busy[0] != 40 || r.Busy[1] != 30 {
		t.Errorf("stall %d span %d busy %v, want 10, 50, [40 30]", r.Stall[4], r.Span, r.Busy)
	}
}

func TestRefusesBadTasks(t *testing.T) {
	for name, tasks := range map[string][]Task{
		"later dependency":  {{Deps: []int{1}}, {}},
		"itself":            {{Deps: []int{0}}},
		"no such lane":      {{Lane: 3}},
		"negative duration": {{Dur: -1}},
	} {
		if _, err := Run(1, tasks); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

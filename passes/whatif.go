package passes

import (
	"cmp"
	"slices"

	"memoc/passes/plan"
)

// WhatIf is a point of the trade-off between memory and time: with Budget
// bytes or more the step takes Time nanoseconds. Predicted, before placement.
type WhatIf struct {
	Budget   int64 `json:"budget"` // device bytes, weights and inputs included
	Peak     int64 `json:"peak"`   // as in the summary: persistent bytes included
	HostPeak int64 `json:"host_peak"`
	Time     int64 `json:"time_ns"`
	Extra    int64 `json:"extra_compute_ns"`
	Stall    int64 `json:"stall_ns"`
	Chunks   int   `json:"chunks,omitempty"` // in which feed-forward layers run
}

// WhatIf is the trade-off by descending budget: the plans of all ladders that
// no other beats in both memory and time. Less budget always takes longer.
func (c *Context) WhatIf() []WhatIf {
	ladders := c.ladders
	if len(ladders) == 0 {
		ladders = []ladderOf{{c.Metrics.Chunks, c.Metrics.Persistent, c.Ladder}}
	}
	type rung struct {
		plan.Rung
		of *ladderOf
	}
	var all []rung
	for i := range ladders {
		for _, r := range ladders[i].ladder.Pareto() {
			r.Peak += ladders[i].persistent
			all = append(all, rung{r, &ladders[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b rung) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Moved, b.Moved), cmp.Compare(a.Peak, b.Peak))
	})
	var out []WhatIf
	for _, r := range all {
		if len(out) == 0 || r.Peak < out[len(out)-1].Peak {
			out = append(out, WhatIf{Budget: r.Peak, Peak: r.Peak, HostPeak: r.HostPeak, Time: r.Time, Extra: r.Extra, Stall: r.Stall, Chunks: r.of.chunks})
		}
	}
	return out
}

package passes

// WhatIf is a point of the trade-off between memory and time: with Budget
// bytes or more the step takes Time nanoseconds. Predicted, before placement.
type WhatIf struct {
	Budget   int64 `json:"budget"` // device bytes, weights and inputs included
	Peak     int64 `json:"peak"`   // as in the summary: persistent bytes included
	HostPeak int64 `json:"host_peak"`
	Time     int64 `json:"time_ns"`
	Extra    int64 `json:"extra_compute_ns"`
	Stall    int64 `json:"stall_ns"`
}

// WhatIf is the trade-off by descending budget: the plans of the ladder that
// no other beats in both memory and time. Less budget always takes longer.
func (c *Context) WhatIf() []WhatIf {
	var out []WhatIf
	for _, r := range c.Ladder.Pareto() {
		out = append(out, WhatIf{Budget: c.Metrics.Persistent + r.Peak, Peak: c.Metrics.Persistent + r.Peak, HostPeak: r.HostPeak, Time: r.Time, Extra: r.Extra, Stall: r.Stall})
	}
	return out
}

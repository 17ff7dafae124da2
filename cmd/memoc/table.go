package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"memoc/ir"
	"memoc/passes"
)

// printTable prints the summary of a plan for people.
func printTable(w io.Writer, c *passes.Context, out string) {
	m := &c.Program.Metrics
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	size := passes.FormatBytes
	fmt.Fprintf(w, "%s on %s\n", c.Model.Path, c.Options.Device.Description)
	if x := c.CrossingSummary(); x.Values > 0 {
		row("cross the halves", "%d values, %d bytes: %d skeletal (%s), %d inputs or weights (%s), %d of another layout (%s), %d results (%s), %d not needed (%s)",
			x.Values, x.Bytes, x.Skeletal, size(x.SkeletalBytes), x.Persistent, size(x.PersistentBytes), x.Derived, size(x.DerivedBytes),
			x.Output, size(x.OutputBytes), x.Unused, size(x.UnusedBytes))
	}
	row("peak as exported", "%s", size(m.PeakExported))
	row("unplanned peak", "%s, of which %s are weights, inputs and constants", size(m.PeakUnplanned), size(m.Persistent))
	if m.Budget > 0 {
		row("budget", "%s", size(m.Budget))
	} else {
		row("budget", "none")
	}
	row("planned peak", "%s (lower bound %s, ratio %.4f)", size(m.Peak), size(m.LowerBound), ratio(m.Peak, m.LowerBound))
	if m.TwoLevelPeak > 0 {
		row("placement", "flat %s, layer by layer %s", size(m.FlatPeak), size(m.TwoLevelPeak))
	}
	row("host memory", "%s of %s", size(m.HostPeak), size(m.HostBudget))
	counts := decisionCounts(c.Program)
	for _, k := range []ir.DecisionKind{ir.Keep, ir.Swap, ir.Remat, ir.SplitTokens} {
		d := counts[k.String()]
		if d.Head > 0 {
			row(k.String(), "%s in %d tensors (%s swapped, %s recomputed)", size(d.Bytes), d.Tensors, size(d.Head), size(d.Bytes-d.Head))
			continue
		}
		row(k.String(), "%s in %d tensors", size(d.Bytes), d.Tensors)
	}
	if s := chunksLine(m.Chunks, m.ChunkedLayers, m.ChunkedBytes); s != "" {
		row("chunks", "%s", s)
	}
	row("extra compute", "%s", duration(m.ExtraCompute))
	row("predicted step time", "%s, of which %s stalled (unplanned: %s)", duration(m.Time), duration(m.Stall), duration(m.UnplannedTime))
	if out != "" {
		row("written", "%s", out)
	}
}

// chunksLine says in how many chunks feed-forward layers run, "" if they run
// whole.
func chunksLine(chunks, layers int, bytes int64) string {
	if chunks == 0 {
		return ""
	}
	return fmt.Sprintf("MLP in %d chunks: %s, of a tensor of %s %s at a time", chunks, plural(layers, "layer"),
		passes.FormatBytes(bytes), passes.FormatBytes((bytes+int64(chunks)-1)/int64(chunks)))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

func duration(n ir.Nanos) string { return time.Duration(n).Round(time.Microsecond).String() }

// decisionCount is how many tensors met one decision, and their bytes.
type decisionCount struct {
	Tensors int   `json:"tensors"`
	Bytes   int64 `json:"bytes"`
	Head    int64 `json:"head_bytes,omitempty"` // of split ones: what goes to the host
}

func decisionCounts(p *ir.Program) map[string]*decisionCount {
	counts := map[string]*decisionCount{}
	for _, k := range []ir.DecisionKind{ir.Keep, ir.Swap, ir.Remat, ir.SplitTokens} {
		counts[k.String()] = &decisionCount{}
	}
	for _, d := range p.Decisions {
		counts[d.Kind.String()].Tensors++
		counts[d.Kind.String()].Bytes += d.Bytes
		counts[d.Kind.String()].Head += d.Head
	}
	return counts
}

// printJSON prints the summary as one JSON object: the contract of --json.
func printJSON(w io.Writer, c *passes.Context, whatIf bool) error {
	m := &c.Program.Metrics
	var curve []passes.WhatIf
	if whatIf {
		curve = c.WhatIf()
	}
	return json.NewEncoder(w).Encode(struct {
		PeakExported  int64                     `json:"peak_exported"`
		PeakUnplanned int64                     `json:"peak_unplanned"`
		Persistent    int64                     `json:"persistent"`
		Budget        int64                     `json:"budget"`
		Peak          int64                     `json:"peak"`
		LowerBound    int64                     `json:"lower_bound"`
		HostPeak      int64                     `json:"host_peak"`
		Time          int64                     `json:"time_ns"`
		Stall         int64                     `json:"stall_ns"`
		Extra         int64                     `json:"extra_compute_ns"`
		Chunks        int                       `json:"chunks,omitempty"`
		Decisions     map[string]*decisionCount `json:"decisions"`
		WhatIf        []passes.WhatIf           `json:"what_if,omitempty"`
	}{m.PeakExported, m.PeakUnplanned, m.Persistent, m.Budget, m.Peak, m.LowerBound, m.HostPeak, m.Time, m.Stall,
		m.ExtraCompute, m.Chunks, decisionCounts(c.Program), curve})
}

package passes

import (
	"memoc/ir"
	"memoc/passes/liveness"
)

var exportedPass = Pass{
	Name:  "exported",
	Doc:   "Measures the peak of the graph as it was exported: its own order, everything kept, nothing in place.",
	Stage: Infer,
	After: []Edge{{"infer", "sizes come from shapes"}},
	Run: func(c *Context) (Result, error) {
		if c.Options.Train {
			return Result{}, nil // measured on the whole step, by grad
		}
		return Result{}, measureExported(c)
	},
}

// measureExported takes the peak over the graph's present order. Values
// without a static size (sequences that later passes resolve, symbols nobody
// bound) count nothing here; planning refuses them if they are still there.
func measureExported(c *Context) error {
	live, err := liveness.Analyze(c.Graph, liveness.Lenient)
	if err != nil {
		return err
	}
	c.Metrics.PeakExported, _ = live.Peak()
	return nil
}

var livenessPass = Pass{
	Name:  "liveness",
	Doc:   "Finds the storages, their classes and lifetimes.",
	Stage: Analyze,
	After: []Edge{{"cleanup", "what is removed needs no bytes"}},
	Run: func(c *Context) (Result, error) {
		live, err := liveness.Analyze(c.Graph, liveness.Strict)
		if err != nil {
			return Result{}, err
		}
		c.Live = live
		c.Metrics.Persistent = live.Persistent()
		c.Metrics.OutputBytes = 0
		count := map[ir.Class]int{}
		for i := range live.Storages {
			s := &live.Storages[i]
			count[s.Class]++
			if s.Class == ir.Output {
				c.Metrics.OutputBytes += ir.Padded(s.Bytes)
			}
		}
		return Result{Stats: []ir.KV{stat("persistent", count[ir.Persistent]), stat("skeletal", count[ir.Skeletal]),
			stat("transient", count[ir.Transient]), stat("outputs", count[ir.Output])}}, nil
	},
}

package passes

import (
	"slices"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/passes/plan"
	"memoc/passes/tokens"
)

// chunkCounts are the numbers of chunks that a plan considers for feed-forward
// layers, beside running them whole.
var chunkCounts = []int{2, 4, 8}

// chunkWork bounds the search for the plans of one number of chunks: the graph
// has several times the nodes.
const chunkWork = 1 << 18

// ladderOf is the ladder of one number of chunks, for WhatIf.
type ladderOf struct {
	chunks     int
	persistent int64
	ladder     *plan.Ladder
}

// mayChunk reports whether the number of chunks is the plan's to choose.
func (c *Context) mayChunk() bool {
	return c.Options.MLPChunks == 0 && c.Options.Policy == plan.Auto && c.Options.Budget.IsSet() && !c.Options.Debug["chunk"].Off
}

// chooseChunks plans the graph once more for each number of chunks, with a
// ladder of its own, and takes the fastest plan of all that fits; best is the
// time of the one in hand, < 0 if there is none. Each time is the least there
// is for its budget among plans that do not depend on it, and so is the least
// of them: more budget is never slower. Where all operations of a number of
// chunks, each once, take as long as the plan in hand, it cannot win, nor can
// more chunks: they do the same work in more operations, which read the weights
// more often. Nor can it where those and what must be made again within the
// budget take as long.
func (c *Context) chooseChunks(budget int64, best ir.Nanos) (changed bool, err error) {
	c.ladders = []ladderOf{{0, c.Metrics.Persistent, c.Ladder}}
	every := c.Options.WhatIf
	if !every && best >= 0 && best <= c.Problem.OnceTime() {
		return false, nil
	}
	least := c.Options.ChunkBytes
	if least == 0 {
		least = chunkBytes
	}
	// An Info of its own: it remembers what it was asked, and plans may be tried
	// at once.
	if len(c.regions(tokens.Find(c.Graph), least)) == 0 {
		return false, nil
	}
	var chosen *Context
	for _, count := range chunkCounts {
		v, err := c.variant(count, least)
		if err != nil || v == nil {
			return false, err
		}
		if !every && best >= 0 {
			if best <= v.Problem.OnceTime() {
				break // more chunks take no less
			}
			if best <= v.Problem.LeastTime(budget-v.Metrics.Persistent, c.hostBudget()) {
				continue
			}
		}
		if v.Ladder, err = v.Problem.Search(plan.Options{Policy: plan.Auto, Work: chunkWork, Rungs: 48}); err != nil {
			return false, err
		}
		c.considered = append(c.considered, v)
		c.ladders = append(c.ladders, ladderOf{count, v.Metrics.Persistent, v.Ladder})
		time, _, err := v.fastest(budget)
		if err != nil {
			return false, err
		}
		if time >= 0 && (best < 0 || time < best) {
			best, chosen = time, v
		}
	}
	if chosen == nil {
		return false, nil
	}
	c.become(chosen)
	return true, nil
}

// variant is c on a copy of the graph with its feed-forward layers in count
// chunks, up to the planning problem; nil where that fails.
func (c *Context) variant(count int, least int64) (*Context, error) {
	v := *c
	v.Graph = c.Graph.Clone()
	v.Report = func(*diag.Diagnostic) {}
	v.Tokens, v.Schedule, v.placement, v.producers, v.considered, v.limit = nil, nil, placement{}, nil, nil, -1
	found, err := v.chunk(count, least)
	if err != nil {
		// Whole layers are a plan, too.
		c.warn(&diag.Diagnostic{ID: "chunk", Message: "feed-forward layers run whole: " + err.Error()})
		return nil, nil
	}
	if found == 0 {
		return nil, nil
	}
	for _, p := range []*Pass{&livenessPass, &costPass, &schedulePass} {
		if c.Options.Debug[p.Name].Off {
			continue
		}
		if _, err := p.Run(&v); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

// become takes over the graph and the plan of a variant.
func (c *Context) become(v *Context) {
	crossing := map[ir.ValueID]*ir.Value{}
	v.Graph.Walk(func(n *ir.Node) {
		for _, w := range slices.Concat(n.In, n.Out) {
			if w != nil {
				crossing[w.ID] = w
			}
		}
	})
	c.Crossing = slices.Clone(c.Crossing)
	for i, w := range c.Crossing {
		if moved := crossing[w.ID]; moved != nil {
			c.Crossing[i] = moved
		}
	}
	c.Graph, c.Model.Graph = v.Graph, v.Graph
	c.Live, c.Tokens, c.Problem, c.Origin, c.Ladder = v.Live, v.Tokens, v.Problem, v.Origin, v.Ladder
	c.Schedule, c.placement, c.producers, c.Metrics = v.Schedule, v.placement, nil, v.Metrics
}

package passes

import (
	"slices"

	"memoc/ir"
	"memoc/passes/layers"
	"memoc/passes/liveness"
)

// LayerClass is a stretch of equal layers, one after the other.
type LayerClass struct {
	Count    int
	Period   int        // nodes of one layer that do work
	Nodes    []*ir.Node // of all layers, in order: Count times Period
	Backward bool       // its nodes are part of the backward pass
	// Input is what one of the middle layers takes from the layer before, nil
	// where that is not one tensor.
	Input    *ir.Value
	Skeletal []liveness.Storage // what that layer makes for the backward pass, Input first
	// SameAs is the position in Skeletal of the tensor that each one only
	// arranges anew, -1 where it is of its own.
	SameAs []int
}

// Layers finds the repeated layers of a graph with static shapes or without.
// Where a layer begins is where the fewest bytes cross from one to the next.
func Layers(live *liveness.Result) []LayerClass {
	var nodes []*ir.Node
	var seq []uint64
	backward := liveness.BackwardFrom(live.Graph)
	at, split := map[*ir.Node]int{}, 0
	for i, n := range live.Graph.Nodes {
		at[n] = i
		if live.Computes(n) {
			nodes, seq = append(nodes, n), append(seq, nodeSignature(n))
			if i < backward {
				split = len(nodes)
			}
		}
	}
	var out []LayerClass
	for part, bounds := range [][2]int{{0, split}, {split, len(nodes)}} {
		mine := nodes[bounds[0]:bounds[1]]
		for _, run := range layers.Find(seq[bounds[0]:bounds[1]]) {
			run = turned(live, mine, run, at, backward)
			c := LayerClass{Count: run.Count, Period: run.Period, Nodes: mine[run.Start:run.End()], Backward: part == 1}
			if !c.Backward && backward < len(live.Graph.Nodes) {
				c.middle(live, at, backward)
			}
			out = append(out, c)
		}
	}
	return out
}

// turned moves a run's start within one period to where fewest bytes cross. A
// run may lose its last layer, where the turn leaves less than a whole one.
func turned(live *liveness.Result, nodes []*ir.Node, run layers.Run, at map[*ir.Node]int, backward int) layers.Run {
	end := run.End()
	for end < len(nodes) && nodeSignature(nodes[end]) == nodeSignature(nodes[end-run.Period]) {
		end++ // what follows and would begin another layer
	}
	cut := run.Start + (run.Count/2)*run.Period
	best, least := 0, ir.Bytes(-1)
	for turn := range min(run.Period, 512) {
		if b := crossing(live, at[nodes[cut+turn]], backward); least < 0 || b < least {
			best, least = turn, b
		}
	}
	count := (end - run.Start - best) / run.Period
	if count < 2 {
		return run
	}
	return layers.Run{Start: run.Start + best, Period: run.Period, Count: count}
}

// crossing is the bytes made before node i and read from it on, before the
// backward pass; what follows from weights alone does not count.
func crossing(live *liveness.Result, i, backward int) ir.Bytes {
	sum := ir.Bytes(0)
	for k := range live.Storages {
		s := &live.Storages[k]
		if s.Def >= 0 && s.Def < i && !s.Derived && readBetween(s, i, backward) {
			sum += s.Bytes
		}
	}
	return sum
}

func readBetween(s *liveness.Storage, from, to int) bool {
	for _, r := range s.Reads {
		if r >= from && r < to {
			return true
		}
	}
	return false
}

// middle fills in the tensors of the layer in the middle.
func (c *LayerClass) middle(live *liveness.Result, at map[*ir.Node]int, backward int) {
	k := (c.Count - 1) / 2
	first := at[c.Nodes[k*c.Period]]
	end := backward
	if (k+1)*c.Period < len(c.Nodes) {
		end = at[c.Nodes[(k+1)*c.Period]]
	}
	before := 0
	if k > 0 {
		before = at[c.Nodes[(k-1)*c.Period]]
	}
	for i := range live.Storages {
		s := &live.Storages[i]
		if s.Def >= before && s.Def < first && !s.Derived && readBetween(s, first, end) && (c.Input == nil || s.Bytes > live.Storages[live.Of[c.Input.ID]].Bytes) {
			c.Input = s.Root
		}
	}
	for i := range live.Storages {
		s := &live.Storages[i]
		own := s.Def >= first && s.Def < end && !readAfterLayer(s, end, backward)
		if !s.Derived && s.Class == ir.Skeletal && (own || s.Root == c.Input) {
			c.Skeletal = append(c.Skeletal, *s)
		}
	}
	slices.SortStableFunc(c.Skeletal, func(a, b liveness.Storage) int { return compare(int64(a.Def), int64(b.Def)) })
	for _, s := range c.Skeletal {
		same := -1
		if n := s.Root.Def; n.Domain == ir.OnnxDomain && n.Op == "Transpose" {
			same = slices.IndexFunc(c.Skeletal, func(o liveness.Storage) bool { return slices.Contains(o.Values, n.In[0]) })
		}
		c.SameAs = append(c.SameAs, same)
	}
}

// readAfterLayer reports whether a later layer's forward pass reads s: then it
// is that layer's input.
func readAfterLayer(s *liveness.Storage, end, backward int) bool {
	return readBetween(s, end, backward)
}

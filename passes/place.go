package passes

import (
	"context"
	"fmt"

	"memoc/ir"
	"memoc/passes/place"
)

var placePass = Pass{
	Name:  "place",
	Doc:   "Gives every buffer its offset: persistent ones at the bottom, then the placement the plan was chosen by; host slots in their own arena.",
	Stage: Place,
	After: []Edge{{"rewrite", "the buffers are those of the rewritten graph"}},
	Run: func(c *Context) (Result, error) {
		p := c.Program
		if err := placeDevice(c); err != nil {
			return Result{}, err
		}
		if err := placeHost(c); err != nil {
			return Result{}, err
		}
		c.Metrics.Peak, c.Metrics.LowerBound = p.Arenas[ir.DeviceArena].Size, p.Arenas[ir.DeviceArena].LowerBound
		c.Metrics.HostPeak = p.Arenas[ir.HostArena].Size
		return Result{Stats: []ir.KV{stat("buffers", len(p.Buffers))}}, nil
	},
}

// placeDevice puts persistent buffers at the bottom, one after the other, and
// the rest above them where the plan's placement has them: the schedule's
// buffers come first in both lists, workspaces last and in the same order.
func placeDevice(c *Context) error {
	p := c.Program
	base := ir.Bytes(0)
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Arena == ir.DeviceArena && b.Class == ir.Persistent {
			b.Offset = base
			base += ir.Padded(b.Size)
		}
	}
	k := 0
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Arena != ir.DeviceArena || b.Class == ir.Persistent {
			continue
		}
		if k >= len(c.placement.Offsets) {
			return fmt.Errorf("BUG: the program has more buffers than its placement")
		}
		b.Offset = base + c.placement.Offsets[k]
		k++
	}
	if k != len(c.placement.Offsets) {
		return fmt.Errorf("BUG: the program has %d buffers, its placement %d", k, len(c.placement.Offsets))
	}
	a := &p.Arenas[ir.DeviceArena]
	a.Size, a.LowerBound, a.Budget = base+c.placement.Height, base+c.placement.LowerBound, c.Metrics.Budget
	return nil
}

// placeHost packs the host slots.
func placeHost(c *Context) error {
	p := c.Program
	var problem place.Problem
	var at []int
	for i, b := range p.Buffers {
		if b.Arena == ir.HostArena {
			at = append(at, i)
			problem.Buffers = append(problem.Buffers, place.Buffer{ID: b.Name, Size: b.Size, Align: ir.Align, Start: b.First, End: b.End})
		}
	}
	sol, err := place.Solve(context.Background(), &problem, place.Options{})
	if err != nil {
		return err
	}
	for k, i := range at {
		p.Buffers[i].Offset = sol.Offsets[k]
	}
	a := &p.Arenas[ir.HostArena]
	a.Size, a.LowerBound, a.Budget = sol.Height, sol.LowerBound, c.Metrics.HostBudget
	if a.Size > a.Budget && len(at) > 0 {
		return fmt.Errorf("BUG: the host arena takes %s of a budget of %s", FormatBytes(a.Size), FormatBytes(a.Budget))
	}
	return nil
}

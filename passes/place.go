package passes

import (
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
		base := placePersistent(p)
		for arena, sol := range []*place.Solution{ir.DeviceArena: c.placement.device, ir.HostArena: c.placement.host} {
			if err := applyPlacement(p, arena, base[arena], sol); err != nil {
				return Result{}, err
			}
		}
		p.Arenas[ir.DeviceArena].Budget, p.Arenas[ir.HostArena].Budget = c.Metrics.Budget, c.Metrics.HostBudget
		c.Metrics.Peak, c.Metrics.LowerBound = p.Arenas[ir.DeviceArena].Size, p.Arenas[ir.DeviceArena].LowerBound
		c.Metrics.HostPeak = p.Arenas[ir.HostArena].Size
		return Result{Stats: []ir.KV{stat("buffers", len(p.Buffers))}}, nil
	},
}

// placePersistent puts the persistent buffers at the bottom of their arena,
// one after the other, and returns where the rest begins.
func placePersistent(p *ir.Program) [2]ir.Bytes {
	var base [2]ir.Bytes
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Class == ir.Persistent {
			b.Offset = base[b.Arena]
			base[b.Arena] += ir.Padded(b.Size)
		}
	}
	return base
}

// applyPlacement gives an arena's moving buffers the offsets of a placement
// that lists them in the same order: those of the schedule, then workspaces.
func applyPlacement(p *ir.Program, arena int, base ir.Bytes, sol *place.Solution) error {
	k := 0
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Arena != arena || b.Class == ir.Persistent {
			continue
		}
		if k < len(sol.Offsets) {
			b.Offset = base + sol.Offsets[k]
		}
		k++
	}
	if k != len(sol.Offsets) {
		return fmt.Errorf("BUG: arena %s has %d buffers, its placement %d", p.Arenas[arena].Name, k, len(sol.Offsets))
	}
	p.Arenas[arena].Size, p.Arenas[arena].LowerBound = base+sol.Height, base+sol.LowerBound
	return nil
}

package passes

import (
	"fmt"

	"memoc/ir"
	"memoc/passes/plan"
)

// decisions states what became of every skeletal storage and of every other
// one that was moved or made again, with what else could have and why not.
func (r *rewriter) decisions() {
	c := r.c
	prices := c.Problem.Prices(c.placement.choice, r.s)
	for t, i := range c.Origin.storage {
		st := &c.Live.Storages[i]
		x := &prices[t]
		if x.Copied == 0 && x.Made == 0 && st.Class != ir.Skeletal {
			continue
		}
		j := judge{c: c, s: r.s, t: t, x: x, node: st.Root.Def, derived: st.Derived}
		d := ir.Decision{Tensor: st.Root.Name, Type: st.Root.Type.String(), Bytes: st.Bytes, Produce: st.Root.Def.Name, First: x.First, End: x.End}
		d.Options = []ir.Alternative{j.keep(), j.swap(), j.again()}
		j.decide(&d)
		r.prog.Decisions = append(r.prog.Decisions, d)
	}
}

// judge weighs the alternatives for one tensor of a finished plan.
type judge struct {
	c       *Context
	s       *plan.Schedule
	t       int
	x       *plan.Price
	node    *ir.Node
	derived bool
}

// over is the bytes by which the plan would exceed its budget if the tensor
// were kept beside everything else; 0 where it would not.
func (j *judge) over() int64 {
	m := &j.c.Metrics
	if m.Budget == 0 {
		return 0
	}
	return max(m.Persistent+j.x.Above-m.Budget, 0)
}

func (j *judge) keep() ir.Alternative {
	a := ir.Alternative{Kind: ir.Keep, Possible: j.over() == 0, Bytes: j.x.AtPeak}
	switch over := j.over(); {
	case over > 0:
		a.Note = fmt.Sprintf("the rest of the plan as it is, %s over the budget", FormatBytes(over))
	case j.x.AtPeak > 0:
		a.Note = "alive at the peak"
	default:
		a.Note = "not alive at the peak"
	}
	return a
}

func (j *judge) swap() ir.Alternative {
	a := ir.Alternative{Kind: ir.Swap, Time: j.x.Copy}
	p := j.c.Problem
	bytes := p.Tensors[j.t].Bytes
	switch {
	case p.Tensors[j.t].Output:
		a.Note = "an output stays"
	case p.Tensors[j.t].Derived:
		a.Note = "never copied: follows from weights and constants alone"
	case p.Tensors[j.t].Spread:
		a.Note = "never copied: it repeats the elements of something smaller"
	case j.c.hostBudget() == 0:
		a.Note = "there is no host memory"
	case j.x.Copied == 0 && j.s.HostPeak+bytes > j.c.hostBudget():
		a.Note = fmt.Sprintf("%s of %s of host memory are taken", FormatBytes(j.s.HostPeak), FormatBytes(j.c.hostBudget()))
	case j.x.Idle < j.x.Copy:
		a.Possible, a.Note = true, fmt.Sprintf("does not hide: %s of computation pass while it waits", nanos(j.x.Idle))
	default:
		a.Possible, a.Note = true, fmt.Sprintf("hides behind %s of computation if the lanes are free", nanos(j.x.Idle))
	}
	return a
}

func (j *judge) again() ir.Alternative {
	a := ir.Alternative{Kind: ir.Remat, Time: j.x.Again}
	if why := neverAgain(j.node); why != "" {
		a.Time, a.Note = 0, why
		return a
	}
	a.Possible, a.Note = true, "with what it needs and is not there"
	if own := j.c.Problem.Ops[j.c.producerOf(j.t)].Time; own == j.x.Again {
		a.Note = "what it needs is there"
	}
	return a
}

// producerOf is the problem op that makes tensor t.
func (c *Context) producerOf(t int) int {
	if c.producers == nil {
		c.producers = make([]int, len(c.Problem.Tensors))
		for i := range c.Problem.Ops {
			for _, o := range c.Problem.Ops[i].Out {
				c.producers[o] = i
			}
		}
	}
	return c.producers[t]
}

// neverAgain is why n cannot run twice, "" if it can.
func neverAgain(n *ir.Node) string {
	switch {
	case n.Decl == nil:
		return "its operator is unknown to memoc"
	case len(n.Subgraphs()) > 0:
		return "never made again: it has subgraphs"
	}
	if pure, why := n.Decl.Recompute.OK(); !pure {
		return "never made again: " + why
	}
	return ""
}

// decide states the decision, the reason and what binds.
func (j *judge) decide(d *ir.Decision) {
	swap, again := d.Options[1], d.Options[2]
	switch {
	case j.x.Copied > 0:
		d.Kind, d.Reason, d.Binds = ir.Swap, "its copies hide behind computation", "budget"
		if j.x.Idle < j.x.Copy || j.s.Stall > 0 {
			d.Reason = fmt.Sprintf("its copies take %s of which computation may not hide all", nanos(j.x.Copy))
		}
	case j.x.Made > 0:
		d.Kind, d.Binds = ir.Remat, "budget"
		d.Extra = int64(j.x.Made) * j.c.Problem.Ops[j.c.producerOf(j.t)].Time
		d.Reason = "made again once, which costs less than its bytes"
		if j.x.Made > 1 {
			d.Reason = fmt.Sprintf("made again %d times, which costs less than its bytes", j.x.Made)
		}
		switch {
		case j.derived:
			d.Reason, d.Binds = "follows from weights and constants alone", "weights alone"
		case !swap.Possible && j.c.hostBudget() > 0 && !j.c.Problem.Tensors[j.t].Spread:
			d.Binds = "host budget"
		case swap.Possible && j.x.Idle < j.x.Copy:
			d.Binds = "copy lane"
		}
	default:
		d.Kind, d.Reason, d.Binds = ir.Keep, "it fits", "nothing"
		if !again.Possible {
			d.Reason = again.Note
			if !swap.Possible {
				d.Binds = "never recomputed"
			}
		}
	}
}

func nanos(n ir.Nanos) string {
	if n < 10_000 {
		return fmt.Sprintf("%.1f µs", float64(n)/1e3)
	}
	if n < 10_000_000 {
		return fmt.Sprintf("%.0f µs", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(n)/1e6)
}

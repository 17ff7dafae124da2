package passes

import (
	"fmt"
	"time"

	"memoc/ir"
	"memoc/passes/plan"
)

// decisions states what became of every skeletal storage and of every other
// one that was moved or made again, with what else could have and why not.
func (r *rewriter) decisions() {
	c := r.c
	prices, again := c.Problem.Prices(c.placement.choice, r.s), r.timeOfClones()
	for t, i := range c.Origin.storage {
		st := &c.Live.Storages[i]
		x := &prices[t]
		if x.Copied == 0 && x.Made == 0 && st.Class != ir.Skeletal {
			continue
		}
		j := judge{c: c, s: r.s, t: t, x: x, node: st.Root.Def, derived: st.Derived, again: again[c.producerOf(t)]}
		d := ir.Decision{Tensor: st.Root.Name, Type: st.Root.Type.String(), Bytes: st.Bytes, Produce: st.Root.Def.Name, First: x.First, End: x.End}
		d.Options = []ir.Alternative{j.keep(), j.swap(), j.remake()}
		if c.Problem.Tokens > 0 {
			d.Options = append(d.Options, j.split())
		}
		j.decide(&d)
		r.prog.Decisions = append(r.prog.Decisions, d)
	}
}

// timeOfClones is by problem op the time of its clones.
func (r *rewriter) timeOfClones() []ir.Nanos {
	out := make([]ir.Nanos, len(r.c.Problem.Ops))
	for i := range r.s.Entries {
		if e := &r.s.Entries[i]; e.Kind == plan.Clone {
			out[e.Op] += r.s.Duration(r.c.Problem, e)
		}
	}
	return out
}

// judge weighs the alternatives for one tensor of a finished plan.
type judge struct {
	c       *Context
	s       *plan.Schedule
	t       int
	x       *plan.Price
	node    *ir.Node
	derived bool
	again   ir.Nanos // of the clones of its producer
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

func (j *judge) remake() ir.Alternative {
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

// split judges cutting along the tokens.
func (j *judge) split() ir.Alternative {
	a := ir.Alternative{Kind: ir.SplitTokens}
	p := j.c.Problem
	op := &p.Ops[j.c.producerOf(j.t)]
	switch x := &p.Tensors[j.t]; {
	case x.Output:
		a.Note = "an output stays"
	case x.Rows == 0:
		a.Note = "it has no token axis"
	case op.Range == nil:
		a.Note = "cannot be cut"
		if why := j.c.Tokens.Why(j.node); why != "" {
			a.Note += ": " + why
		}
	default:
		a.Possible = true
		a.Note = fmt.Sprintf("may be cut every %d of %d tokens", p.Tile, p.Tokens)
		if j.x.Head > 0 {
			head := tokensOf(p, 0, j.x.Head).extent()
			a.Time = 2*p.CopyLatency + j.again + j.copies(head*x.TokenBytes)
			a.Note = fmt.Sprintf("cut after %d of %d tokens", head, p.Tokens)
		}
	}
	return a
}

// copies is the time of moving that many bytes out and in, without latencies.
func (j *judge) copies(bytes ir.Bytes) ir.Nanos {
	return ir.Nanos(float64(bytes)/j.c.Problem.OutRate + float64(bytes)/j.c.Problem.InRate)
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
	case j.x.Copied > 0 && j.x.Head > 0:
		j.decideSplit(d)
	case j.x.Copied > 0:
		d.Kind, d.Reason, d.Binds = ir.Swap, "its copies hide behind computation", "budget"
		if j.x.Idle < j.x.Copy || j.s.Stall > 0 {
			d.Reason = fmt.Sprintf("its copies take %s of which computation may not hide all", nanos(j.x.Copy))
		}
	case j.x.Made > 0:
		d.Kind, d.Binds = ir.Remat, "budget"
		d.Extra = j.again
		times, of := "once", ""
		if j.x.Made > 1 {
			times = fmt.Sprintf("%d times", j.x.Made)
		}
		if j.again < int64(j.x.Made)*j.c.Problem.Ops[j.c.producerOf(j.t)].Time {
			of = " for some of the tokens"
		}
		d.Reason = fmt.Sprintf("made again %s%s, which costs less than its bytes", times, of)
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

// decideSplit states a split: what of it goes where, and why not all of it to
// the host.
func (j *judge) decideSplit(d *ir.Decision) {
	p := j.c.Problem
	x := &p.Tensors[j.t]
	head := tokensOf(p, 0, j.x.Head).extent()
	d.Kind, d.Head, d.Extra, d.Binds = ir.SplitTokens, head*x.TokenBytes, j.again, "budget"
	rest := "the rest"
	switch {
	case j.s.HostPeak+x.Bytes-d.Head > j.c.hostBudget():
		rest, d.Binds = "the rest, for which there is no host memory,", "host budget"
	case j.x.Idle < j.x.Copy:
		rest, d.Binds = "the rest, whose copies would not hide,", "copy lane"
	}
	d.Reason = fmt.Sprintf("the first %d of %d tokens go to the host; %s is made again", head, p.Tokens, rest)
}

// nanos writes a time as the command line does.
func nanos(n ir.Nanos) string { return time.Duration(n).Round(time.Microsecond).String() }

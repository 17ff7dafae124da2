package passes

import (
	"memoc/ir"
	"memoc/passes/plan"
)

// Trial is a plan that was made and not carried out.
type Trial struct {
	Peak     ir.Bytes // height of the device arena, persistent bytes included
	HostPeak ir.Bytes // height of the host arena
	Time     ir.Nanos // with the waits that the offsets ask for
	Stall    ir.Nanos
	Extra    ir.Nanos // time of recomputation
}

// Try plans under a policy and a budget as the pass plan does, places included,
// and leaves c as it is. c has been run up to the stage Plan. Several tries may
// run at once.
func (c *Context) Try(policy plan.Policy, budget Budget) (*Trial, error) {
	// Where everything fits kept no policy does better: each has that plan, and
	// nothing is faster than every operation once.
	if policy != plan.KeepAll {
		if t, err := c.try(plan.KeepAll, budget); err == nil && t.Time == c.Problem.OnceTime() {
			return t, nil
		}
	}
	return c.try(policy, budget)
}

func (c *Context) try(policy plan.Policy, budget Budget) (*Trial, error) {
	x, model := *c, *c.Model
	x.Model = &model // a plan in chunks takes a graph of its own
	x.Options.Policy, x.Options.Budget = policy, budget
	if _, err := runPlan(&x); err != nil {
		return nil, err
	}
	time, err := orderedTime(&x, &x.placement)
	if err != nil {
		return nil, err
	}
	s := x.placement.schedule
	t := &Trial{Peak: x.placement.height, HostPeak: x.placement.host.Height, Time: time, Stall: time, Extra: s.Extra}
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Lane() == 0 {
			t.Stall -= s.Duration(x.Problem, e)
		}
	}
	return t, nil
}

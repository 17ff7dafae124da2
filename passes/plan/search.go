package plan

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Policy says which means a plan may use.
type Policy uint8

// The policies. Auto's ladder holds those of all others, so that it is never
// worse than one of them.
const (
	Auto          Policy = iota
	KeepAll              // nothing moves; what follows from weights alone may be made again
	SwapOnly             // copies alone
	RecomputeOnly        // recomputation alone
	Memo                 // as the paper MEMO does: see memo.go
)

var policyNames = []string{"auto", "keep", "swap", "recompute", "memo"}

// String names the policy as the command line does.
func (p Policy) String() string { return policyNames[p] }

// PolicyNames lists the policies in the order of their values.
func PolicyNames() []string { return slices.Clone(policyNames) }

// ParsePolicy reads a policy's name.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames, s); i >= 0 {
		return Policy(i), nil
	}
	return Auto, fmt.Errorf("no policy is called %q; use one of %v", s, policyNames)
}

// Options steer the search; the zero value is the default.
type Options struct {
	// Rungs is about how many steps lead from "keep all" to the least memory,
	// per strategy. 0: 96.
	Rungs  int
	Policy Policy
	// Work bounds the schedule entries built to lower the end of one level, and
	// to fill it. 0: as many as there is any use for.
	Work int64
}

// Rung is one plan of the ladder.
type Rung struct {
	Choice   []Choice
	Limit    int64 // what it is to be carried out within: see BuildWithin
	Peak     int64 // device bytes, persistent ones not counted
	HostPeak int64
	Time     int64
	Stall    int64
	Extra    int64
	Moved    int64 // bytes copied to the host

	floor    int64 // no limit brings the peak of these choices below it; 0: not known
	squeezed int64 // the least limit they have been tried within
}

// Ladder is the plans the search went through. It does not depend on any
// budget, so that the fastest rung that fits a larger budget is never slower
// than the one that fits a smaller.
type Ladder struct {
	Rungs []Rung // in the order in which they are to be tried: see compareRungs
}

// compareRungs puts the faster first; of equally fast ones that which copies
// less, then that which needs less memory.
func compareRungs(a, b Rung) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Moved, b.Moved), cmp.Compare(a.Peak, b.Peak), cmp.Compare(a.HostPeak, b.HostPeak))
}

// Search lists the plans that it finds on its paths from keeping everything to
// the least memory: copies alone, recomputation alone, and both together. Each
// path is walked down in coarse steps, taken lower from its end, and filled in
// between. Plans with splits start from every layer treated alike, and at last
// from whatever was found. Work is bounded by counts, never by time; paths know nothing of each
// other, and run at the same time.
//
// More host memory never makes a plan slower: what is searched at one level of
// host memory depends on lower levels alone, and the levels do not depend on
// what there is: all that lie below are searched.
func (p *Problem) Search(opt Options) (*Ladder, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if opt.Rungs == 0 {
		opt.Rungs = 96
	}
	f := p.facts()
	canSwap := p.HostBytes > 0 && p.OutRate > 0 && p.InRate > 0
	var paths []*path
	if canSwap && opt.Policy == Auto {
		paths = append(paths, &path{swap: true, remat: true, split: true}, &path{swap: true, remat: true})
	}
	each := opt.Work == 0 // with little work to do it, the means together
	if canSwap && (opt.Policy == Auto && each || opt.Policy == SwapOnly) {
		paths = append(paths, &path{swap: true})
	}
	if opt.Policy == Auto && (each || !canSwap) || opt.Policy == RecomputeOnly {
		paths = append(paths, &path{remat: true})
	}
	if canSwap && (opt.Policy == Auto || opt.Policy == Memo) {
		paths = append(paths, &path{memo: true})
	}
	paths = append(paths, &path{})
	for _, w := range paths {
		w.p, w.f, w.opt = p, f, opt
		if err := w.start(); err != nil {
			return nil, err
		}
	}
	var wg sync.WaitGroup
	for _, w := range paths {
		wg.Go(w.finish)
	}
	wg.Wait()
	var l Ladder
	for _, w := range slices.Backward(paths) {
		l.Rungs = append(l.Rungs, w.rungs...)
	}
	if w := paths[0]; w.split {
		before := len(w.rungs)
		w.refit(l.Rungs)
		l.Rungs = append(l.Rungs, w.rungs[before:]...)
	}
	sortRungs(&l)
	return &l, nil
}

func sortRungs(l *Ladder) { slices.SortStableFunc(l.Rungs, compareRungs) }

// Pareto lists the rungs that no other beats in both peak and time, by
// descending peak: the trade-off between memory and time.
func (l *Ladder) Pareto() []Rung {
	var out []Rung
	for _, r := range l.Rungs {
		if len(out) == 0 || r.Peak < out[len(out)-1].Peak {
			out = append(out, r)
		}
	}
	return out
}

// keepAll keeps even what follows from weights alone: nothing runs twice.
func (p *Problem) keepAll() []Choice { return make([]Choice, len(p.Tensors)) }

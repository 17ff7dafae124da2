package plan

import (
	"cmp"
	"errors"
	"slices"
)

// path is the search with one set of means.
type path struct {
	p           *Problem
	f           *facts
	opt         Options
	swap, remat bool
	memo        bool   // the paper's plan, and nothing else
	split       bool   // tensors are split
	mixer       *mixer // where they are
	tried       map[string]bool
	dear        bool // every copy has its price: the host is for what is dear to recompute
	rungs       []Rung
	mem         memory
	work        int64     // entries of all schedules built so far
	filled      *Schedule // the last that fill looked at, and the choices it carries out
	filledBy    *Choice
	grain       int64 // fill's budgets differ by one part in grain
	// State of the walk.
	choice   []Choice
	hostUsed int64
	outBusy  int64   // time of all copies out so far
	total    int64   // time of all ops once
	chain    []int64 // memo of chainTime, -1 where not known
	refused  []bool  // tensors whose release made recomputation grow without bound
}

// search fills rungs.
func (w *path) search() error {
	switch {
	case w.memo:
		return w.addMemo()
	case w.split:
		w.searchSplits()
		return nil
	}
	if err := w.trivial(); err != nil || !w.swap && !w.remat {
		return err
	}
	if err := w.walk(); err != nil {
		return err
	}
	if w.swap && w.remat {
		w.dear = true
		if err := w.walk(); err != nil {
			return err
		}
	}
	w.lower(lowerWork)
	w.fill()
	w.climb()
	return nil
}

// trivial adds the plans in which nothing leaves.
func (w *path) trivial() error {
	if s, err := w.build(w.p.keepAll()); err == nil {
		w.add(w.p.keepAll(), s)
	}
	s, err := w.build(w.p.initial(w.f))
	if err != nil {
		return err
	}
	w.add(w.p.initial(w.f), s)
	return nil
}

func (w *path) build(c []Choice) (*Schedule, error) {
	s, err := w.p.build(w.f, &w.mem, c)
	w.work += int64(len(w.p.Ops))
	if s != nil {
		w.work += int64(len(s.Entries) - len(w.p.Ops))
	}
	return s, err
}

// atMost is a bound of the path's own, or the one that was asked for.
func (w *path) atMost(work int64) int64 {
	if w.opt.Work > 0 {
		return min(work, w.opt.Work)
	}
	return work
}

// add makes a rung of choices carried out, unless they need more host memory
// than there is.
func (w *path) add(c []Choice, s *Schedule) {
	if s.HostPeak <= w.p.HostBytes {
		w.rungs = append(w.rungs, rungOf(c, s))
	}
}

func rungOf(c []Choice, s *Schedule) Rung {
	return Rung{slices.Clone(c), s.Peak, s.HostPeak, s.Time, s.Stall, s.Extra, s.Moved}
}

// walk goes from keeping everything to the least memory it finds: while some
// tensor idles across the peak, it lets go of those that cost least per byte.
func (w *path) walk() error {
	w.choice = w.p.initial(w.f)
	w.refused = make([]bool, len(w.choice))
	w.hostUsed, w.outBusy, w.total = 0, 0, 0
	for _, op := range w.p.Ops {
		w.total += op.Time
	}
	step := int64(0)
	var batch []option
	var last *Schedule // before the batch
	for range 4 * w.opt.Rungs {
		s, err := w.build(w.choice)
		switch {
		case errors.Is(err, errTooLong) && len(batch) > 0:
			w.undo(batch)
			if s, err = w.build(w.choice); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			w.add(w.choice, s)
			if len(batch) == 1 && last != nil && s.Peak > last.Peak {
				// Letting go of this one costs more than it frees: its copies are
				// under way for longer than it would lie idle.
				w.undo(batch)
				w.mem.drop(s)
				s = last
			}
		}
		if last != s {
			w.mem.drop(last)
		}
		last = s
		options := w.options(s)
		if step == 0 {
			for _, o := range options {
				step += o.freed
			}
			step = step/int64(w.opt.Rungs) + 1
		}
		if batch = w.take(options, step); len(batch) == 0 {
			return nil
		}
	}
	return nil
}

// Initial is the choice before any planning: see initial.
func (p *Problem) Initial() []Choice { return p.initial(p.facts()) }

// initial keeps what waits between uses, and leaves the rest to be made again
// should a clone ask for it. What follows from weights alone (a transposed
// weight) is made again for each far use, if it is large enough to matter.
func (p *Problem) initial(f *facts) []Choice {
	c := make([]Choice, len(p.Tensors))
	for t := range c {
		if p.Tensors[t].Output || !p.Ops[f.producer[t]].Clone {
			continue
		}
		if !f.skeletal(t) || p.Tensors[t].Derived && p.Tensors[t].Bytes >= 1<<20 {
			c[t] = Recompute
		}
	}
	return c
}

// option is one way to free bytes at the peak.
type option struct {
	tensor int
	choice Choice
	freed  int64
	cost   int64 // nanoseconds
}

// perByte is the cost per byte freed, in nanoseconds.
func (o option) perByte() float64 { return float64(o.cost) / float64(o.freed) }

// options lists the tensors that sit idle across the peak of s with the
// cheapest way to let go of each, cheapest per byte first.
func (w *path) options(s *Schedule) []option {
	w.chain = make([]int64, len(w.p.Tensors))
	for t := range w.chain {
		w.chain[t] = -1
	}
	if len(s.Entries) == 0 {
		return nil
	}
	touched := map[int]bool{}
	if e := s.Entries[s.PeakAt]; e.Lane() == 0 {
		for _, x := range slices.Concat(e.In, e.Out) {
			touched[s.Instances[x].Tensor] = true
		}
	}
	var out []option
	for _, in := range s.Instances {
		t := in.Tensor
		if in.First > s.PeakAt || in.End <= s.PeakAt || w.choice[t] != Keep || !w.f.skeletal(t) ||
			w.p.Tensors[t].Output || w.p.Tensors[t].Bytes == 0 || touched[t] || w.refused[t] {
			continue
		}
		touched[t] = true
		if o, ok := w.cheapest(t); ok {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.perByte(), b.perByte()), cmp.Compare(b.freed, a.freed), cmp.Compare(a.tensor, b.tensor))
	})
	return out
}

func (w *path) cheapest(t int) (best option, ok bool) {
	bytes := w.p.Tensors[t].Bytes
	if w.swap && !w.p.Tensors[t].Derived && !w.p.Tensors[t].Spread && w.hostUsed+bytes <= w.p.HostBytes {
		best, ok = option{t, Swap, bytes, w.swapCost(bytes)}, true
	}
	if w.remat && w.p.Ops[w.f.producer[t]].Clone {
		freed := bytes - w.heldFor(t)
		if o := (option{t, Recompute, freed, w.chainTime(t)}); freed > 0 && (!ok || o.perByte() < best.perByte()) {
			best, ok = o, true
		}
	}
	return best, ok
}

// swapCost is near nothing while the copy lane is idle most of the forward
// pass, and the time of the copies both ways once it is full.
func (w *path) swapCost(bytes int64) int64 {
	both := w.p.outTime(bytes) + w.p.inTime(bytes)
	forward := w.total / 3 // the backward pass takes about twice the forward's time
	if !w.dear && w.outBusy+w.p.outTime(bytes) < forward*9/10 {
		return both / 64
	}
	return both
}

// chainTime is the time of recomputing t and whatever it needs that is not
// kept or copied.
func (w *path) chainTime(t int) int64 {
	if w.chain[t] >= 0 {
		return w.chain[t]
	}
	op := &w.p.Ops[w.f.producer[t]]
	w.chain[t] = op.Time
	sum := op.Time
	for _, in := range op.In {
		if w.choice[in] == Recompute && !w.p.Tensors[in].Output {
			sum += w.chainTime(in)
		}
	}
	w.chain[t] = sum
	return sum
}

// heldFor is the bytes that recomputing t keeps alive which would otherwise
// be dead: inputs that cannot be cloned and do not wait for their own sake.
func (w *path) heldFor(t int) int64 {
	held := int64(0)
	for _, in := range w.p.Ops[w.f.producer[t]].In {
		if w.choice[in] == Keep && !w.f.skeletal(in) && !w.p.Tensors[in].Output {
			held += w.p.Tensors[in].Bytes
		}
	}
	return held
}

// take carries out the cheapest options until they free step bytes, and
// returns them. Copies that no longer fit the host beside those just taken are
// left for the next batch, which finds another way to let go of them.
func (w *path) take(options []option, step int64) []option {
	var batch []option
	freed := int64(0)
	for _, o := range options {
		if freed >= step {
			break
		}
		if o.choice == Swap {
			if w.hostUsed+o.freed > w.p.HostBytes {
				continue
			}
			w.hostUsed += o.freed
			w.outBusy += w.p.outTime(o.freed)
		}
		w.choice[o.tensor] = o.choice
		freed += o.freed
		batch = append(batch, o)
	}
	return batch
}

// undo takes back a batch whose recomputation grew without bound, and never
// tries those tensors again on this path.
func (w *path) undo(batch []option) {
	for _, o := range batch {
		w.choice[o.tensor] = Keep
		w.refused[o.tensor] = true
		if o.choice == Swap {
			w.hostUsed -= o.freed
			w.outBusy -= w.p.outTime(o.freed)
		}
	}
}

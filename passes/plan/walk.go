package plan

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// path is the search with one set of means.
type path struct {
	p           *Problem
	f           *facts
	opt         Options
	swap, remat bool
	split       bool   // tensors are split
	mixer       *mixer // where they are
	tried       map[string]bool
	memo        bool    // the paper's plan, and nothing else
	hosts       []int64 // levels of host memory, ascending
	rungs       []Rung
	work        int64 // entries of all schedules built so far
	room        scratch
	// State of the walk.
	host    int64 // level of host memory of the walk
	used    int64 // bytes of it taken by the choices so far
	choice  []Choice
	victims []option // what can be taken from the host and recomputed instead, cheapest per byte first
	chain   []int64  // memo of chainTime, -1 where not known
	refused []bool   // tensors whose release made recomputation grow without bound
	lanes   lanes
	// Room of fill.
	saved []int64
	over  int64 // bytes by which the last change was too much
	live  levels
	like  map[likeness][]int // room of likes
}

// start walks once for each level of host memory, at the same time, and once
// without any.
func (w *path) start() error {
	switch {
	case w.memo:
		return w.addMemo()
	case w.split:
		return nil
	}
	if err := w.trivial(); err != nil || !w.swap && !w.remat {
		return err
	}
	w.hosts = w.levels()
	walks := make([]*path, len(w.hosts))
	errs := make([]error, len(walks))
	var wg sync.WaitGroup
	for i, host := range w.hosts {
		walks[i] = &path{p: w.p, f: w.f, opt: w.opt, swap: w.swap, remat: w.remat, host: host}
		wg.Go(func() { errs[i] = walks[i].walk() })
	}
	wg.Wait()
	for i, x := range walks {
		if errs[i] != nil {
			return errs[i]
		}
		w.rungs = append(w.rungs, x.rungs...)
	}
	return nil
}

// finish improves on the walks, one level of host memory after another, most
// of all at the last.
func (w *path) finish() {
	if w.split {
		w.searchSplits()
	}
	for i, host := range w.hosts {
		part := int64(8)
		if i == len(w.hosts)-1 || len(w.p.Ops) <= smallOps {
			part = 1
		}
		if w.octave(host) {
			w.lower(host, lowerWork/part)
		}
		w.fill(host, fillWork/part)
		if w.octave(host) || len(w.p.Ops) <= tinyOps {
			w.climb(host)
		}
	}
}

// octave reports whether a level is one of those that most work is spent on:
// powers of two, and the last.
func (w *path) octave(host int64) bool {
	return host&(host-1) == 0 || host == w.copyable() || host == w.p.HostBytes && len(w.p.Ops) > smallOps
}

// copied reports whether t may be copied to the host.
func (w *path) copied(t int) bool {
	x := &w.p.Tensors[t]
	return w.swap && !x.Output && !x.Derived && !x.Spread && x.Bytes > 0
}

// copyable is the bytes of all tensors that may be worth copying.
func (w *path) copyable() int64 {
	total := int64(0)
	for t, x := range w.p.Tensors {
		if w.copied(t) && w.f.gap[t] > 1 {
			total += x.Bytes
		}
	}
	return total
}

// levels are the amounts of host memory that plans are searched for, ascending:
// nothing where the path need not copy, powers of two up to what all tensors
// that can be copied take, as far as the host has them, and all that it has. On
// small problems there are eight to the octave, and what it has besides is left.
func (w *path) levels() []int64 {
	if !w.swap {
		return []int64{0}
	}
	total, step := w.copyable(), int64(8)
	small := len(w.p.Ops) <= smallOps
	if small {
		step = 1
	}
	var out []int64
	for e := max(bits.Len64(uint64(total))-9, 0); ; e++ {
		for m := int64(8); m < 16; m += step {
			switch h := m << e; {
			case h >= total || h > w.p.HostBytes:
				if most := min(total, w.p.HostBytes); (most == total || !small) && !slices.Contains(out, most) {
					out = append(out, most)
				}
				return out
			case m == 8 || h > total/4:
				out = append(out, h)
			}
		}
	}
}

// smallOps is the size of problems that are small enough for more work on each
// operation, and tinyOps of those that are climbed at every level.
const (
	smallOps = 128
	tinyOps  = 16
)

// trivial adds the plans in which nothing leaves.
func (w *path) trivial() error {
	for _, c := range [][]Choice{w.p.keepAll(), w.p.initial(w.f)} {
		s, err := w.build(c, 0)
		if err != nil {
			return err
		}
		w.add(c, s, 0)
		w.room.free(s)
	}
	return nil
}

func (w *path) build(c []Choice, limit int64) (*Schedule, error) {
	s, err := w.p.build(w.f, c, limit, &w.room)
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
func (w *path) add(c []Choice, s *Schedule, limit int64) {
	if s.HostPeak <= w.p.HostBytes {
		r := rungOf(s)
		r.squeezed = math.MaxInt64
		r.Choice, r.Limit = slices.Clone(c), limit
		w.rungs = append(w.rungs, r)
	}
}

// rungOf is what counts of s.
func rungOf(s *Schedule) Rung {
	r := Rung{Peak: s.Peak, HostPeak: s.HostPeak, Time: s.Time, Stall: s.Stall, Extra: s.Extra, Moved: s.Moved, floor: s.floor}
	if s.Moved == 0 {
		r.floor = s.Peak
	}
	return r
}

// walk goes from keeping everything to the least memory it finds: while some
// tensor idles across the peak, it lets go of those that cost least per byte.
func (w *path) walk() error {
	w.choice = w.p.initial(w.f)
	w.refused = make([]bool, len(w.choice))
	w.used = 0
	step := int64(0)
	var batch []option
	var last *Schedule // before the batch
	for range 4 * w.opt.Rungs {
		s, err := w.build(w.choice, 0)
		switch {
		case errors.Is(err, errTooLong) && len(batch) > 0:
			w.undo(batch)
			if s, err = w.build(w.choice, 0); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			w.add(w.choice, s, 0)
			if len(batch) == 1 && last != nil && s.Peak > last.Peak {
				// Letting go of this one costs more than it frees: its copies are
				// under way for longer than it would lie idle.
				w.undo(batch)
				s, last = last, s
			}
		}
		w.room.free(last)
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
	victim bool  // it is on the host, and makes room there
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
	w.lanes.read(w.p, s)
	w.listVictims()
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
	if w.copied(t) && (w.used+bytes <= w.host || len(w.victims) > 0) {
		best, ok = option{t, Swap, bytes, w.swapCost(t), false}, true
	}
	if w.remat && w.p.Ops[w.f.producer[t]].Clone {
		freed := bytes - w.heldFor(t)
		if o := (option{t, Recompute, freed, w.chainTime(t), false}); freed > 0 && (!ok || o.perByte() < best.perByte()) {
			best, ok = o, true
		}
	}
	return best, ok
}

// swapCost is near nothing where the lanes are idle for long enough while t
// waits, and the part of its copies that they are not idle for. Where the
// host is full, it costs what must be recomputed to make room.
func (w *path) swapCost(t int) int64 {
	bytes := w.p.Tensors[t].Bytes
	out, in := w.p.outTime(bytes), w.p.inTime(bytes)
	from, to := w.widest(t)
	over := max(out-w.lanes.idle(1, from, to), 0) + max(in-w.lanes.idle(2, from, to), 0)
	over = max(over, out+in-(w.lanes.at[to]-w.lanes.at[from]))
	if w.used+bytes > w.host {
		over += int64(w.victims[0].perByte() * float64(bytes))
	}
	return over + (out+in)/64
}

// widest is the op after t's definition or a use, and that of the use after its
// widest gap.
func (w *path) widest(t int) (from, to int) {
	prev, most := w.f.producer[t], 0
	for _, u := range w.f.uses[t] {
		if u-prev > most {
			most, from, to = u-prev, prev+1, u
		}
		prev = u
	}
	return from, to
}

// lanes is the time of a schedule by op: when each starts, and how long each
// copy lane has been busy until then.
type lanes struct {
	at   []int64
	busy [3][]int64
}

// read takes the times from s. Copies are taken to run when they are issued: in
// a schedule without a limit they hardly wait.
func (l *lanes) read(p *Problem, s *Schedule) {
	l.at = l.at[:0]
	for k := range l.busy {
		l.busy[k] = l.busy[k][:0]
	}
	var now int64
	var free, done [3]int64 // when a lane is free, and its busy time until then
	for i := range s.Entries {
		e := &s.Entries[i]
		k := e.Lane()
		if k > 0 {
			d := s.Duration(p, e)
			free[k] = max(free[k], now) + d
			done[k] += d
			continue
		}
		if e.Kind == Run {
			l.at = append(l.at, now)
			for k := 1; k < 3; k++ {
				l.busy[k] = append(l.busy[k], done[k]-max(free[k]-now, 0))
			}
		}
		now += s.Duration(p, e)
	}
}

// idle is how long lane k is idle between the starts of two ops.
func (l *lanes) idle(k, from, to int) int64 {
	return l.at[to] - l.at[from] - (l.busy[k][to] - l.busy[k][from])
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

// listVictims lists what is on the host and could be recomputed instead.
func (w *path) listVictims() {
	w.victims = w.victims[:0]
	for t, c := range w.choice {
		if c == Swap && w.remat && w.p.Ops[w.f.producer[t]].Clone && !w.refused[t] {
			w.victims = append(w.victims, option{t, Recompute, w.p.Tensors[t].Bytes, w.chainTime(t), true})
		}
	}
	slices.SortStableFunc(w.victims, func(a, b option) int { return cmp.Compare(a.perByte(), b.perByte()) })
}

// take carries out the cheapest options until they free step bytes, and
// returns what it changed.
func (w *path) take(options []option, step int64) []option {
	var batch []option
	freed := int64(0)
	for _, o := range options {
		if freed >= step {
			break
		}
		if o.choice == Swap {
			victims, ok := w.makeHostRoom(o)
			if !ok {
				continue
			}
			batch = append(batch, victims...)
			w.used += w.p.Tensors[o.tensor].Bytes
		}
		w.choice[o.tensor] = o.choice
		freed += o.freed
		batch = append(batch, o)
	}
	return batch
}

// makeHostRoom recomputes what is on the host in the way of o, if that is
// cheaper than to recompute o.
func (w *path) makeHostRoom(o option) (gone []option, ok bool) {
	bytes := w.p.Tensors[o.tensor].Bytes
	room, n := w.host-w.used, 0
	for ; room < bytes; n++ {
		if n == len(w.victims) {
			return nil, false
		}
		v := w.victims[n]
		if w.p.Ops[w.f.producer[o.tensor]].Clone && v.perByte()*float64(bytes) >= float64(w.chainTime(o.tensor)) {
			return nil, false
		}
		room += v.freed
	}
	gone = slices.Clone(w.victims[:n])
	w.victims = w.victims[n:]
	for _, v := range gone {
		w.choice[v.tensor] = Recompute
		w.used -= v.freed
	}
	return gone, true
}

// undo takes back a batch whose recomputation grew without bound, and never
// tries those tensors again on this path.
func (w *path) undo(batch []option) {
	for _, o := range slices.Backward(batch) {
		w.refused[o.tensor] = true
		switch bytes := w.p.Tensors[o.tensor].Bytes; {
		case o.choice == Swap:
			w.used -= bytes
			w.choice[o.tensor] = Keep
		case o.victim:
			w.used += bytes
			w.choice[o.tensor] = Swap
		default:
			w.choice[o.tensor] = Keep
		}
	}
}

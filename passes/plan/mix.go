package plan

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// mixer puts whole steps together from the plans of single layers.
type mixer struct {
	p      *Problem
	f      *facts
	layers []layer
	solved map[string][]Choice // by layer problem: choices in the order of its tensors
}

// newMixer takes the repeated layers, or the whole step as one where there are
// none. It is nil where nothing can be split.
func newMixer(p *Problem, f *facts) *mixer {
	m := &mixer{p: p, f: f, layers: p.layers(f), solved: map[string][]Choice{}}
	if len(m.layers) == 0 {
		m.layers = []layer{m.whole()}
	}
	for _, l := range m.layers {
		for _, t := range l.tensors {
			if p.splittable(f, t) {
				return m
			}
		}
	}
	return nil
}

// wholeTensors is the most tensors that are solved for at once where there are
// no layers.
const wholeTensors = 48

// whole is the step as one layer: the largest of what waits. The backward pass
// takes about twice the forward's time.
func (m *mixer) whole() layer {
	l := layer{number: 1}
	for _, op := range m.p.Ops {
		l.time += op.Time / 3
	}
	for t, x := range m.p.Tensors {
		if m.f.skeletal(t) && !x.Output && x.Bytes > 0 && !x.Derived && !x.Spread {
			l.tensors = append(l.tensors, t)
		}
	}
	slices.SortStableFunc(l.tensors, func(a, b int) int { return compare(m.p.Tensors[b].Bytes, m.p.Tensors[a].Bytes) })
	l.tensors = l.tensors[:min(len(l.tensors), wholeTensors)]
	return l
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// plan is base with what is not kept of every layer swapped, split and made
// again in the least time. Each layer's copies take up to level times its
// forward pass, and all of them the host at most: what that lacks every layer
// lacks alike.
func (m *mixer) plan(base []Choice, kept func(layer, tensor int) bool, level float64) []Choice {
	c := slices.Clone(base)
	host := m.p.HostBytes
	mine := make([]bool, len(c))
	rest := make([][]int, len(m.layers))
	for i, l := range m.layers {
		for _, t := range l.tensors {
			mine[t] = true
			if c[t] = Keep; !kept(i, t) {
				rest[i] = append(rest[i], t)
			}
		}
	}
	for t, k := range c {
		if !mine[t] && k.Kind() == Swap {
			host -= m.p.Tensors[t].Bytes
		}
	}
	limits := m.limits(rest, max(host, 0), level)
	for i, ts := range rest {
		for k, x := range m.solve(ts, limits[i]) {
			c[ts[k]] = x
		}
	}
	return c
}

// limits is the bytes that each layer may have on the host.
func (m *mixer) limits(rest [][]int, host int64, level float64) []int64 {
	want := make([]int64, len(rest))
	for i, ts := range rest {
		all := m.p.sum(ts)
		time := float64(m.layers[i].time)*level - float64(m.p.CopyLatency)*float64(len(ts))
		want[i] = all
		if hides := time * min(m.p.OutRate, 2*m.p.InRate); hides < float64(all) {
			want[i] = max(int64(hides), 0)
		}
	}
	order := make([]int, len(want))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(want[a], want[b]) })
	for k, i := range order {
		want[i] = min(want[i], host/int64(len(order)-k))
		host -= want[i]
	}
	return want
}

// solve is the choices for tensors of one layer within limit bytes on the host;
// with everything made again that may be where there is no such plan.
func (m *mixer) solve(tensors []int, limit int64) []Choice {
	key := binary.AppendVarint(nil, limit)
	for _, t := range tensors {
		x := &m.p.Tensors[t]
		key = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(key, int64(x.Role)), x.Bytes), m.p.Ops[m.f.producer[t]].Time)
	}
	if c, ok := m.solved[string(key)]; ok {
		return c
	}
	s := newShare(m.p, m.f, tensors)
	if !s.solve(limit) {
		s.best = make([]state, len(s.items))
		for i := range s.best {
			s.best[i] = remade
		}
	}
	all := make(map[int]Choice, len(tensors))
	s.choices(func(t int, c Choice) { all[t] = c })
	c := make([]Choice, len(tensors))
	for k, t := range tensors {
		c[k] = all[t]
	}
	m.solved[string(key)] = c
	return c
}

// The plans that mixes tries: with how many layers, the last, kept whole, and
// how full the copy lane.
const mixedLayers = 16

var mixedLevels = []float64{1, 0.9, 1.15, 1.5, 1 << 20}

// searchSplits adds plans in which tensors are split.
func (w *path) searchSplits() {
	if w.mixer = newMixer(w.p, w.f); w.mixer == nil {
		return
	}
	w.tried = map[string]bool{}
	w.mixes(w.p.initial(w.f))
	if len(w.rungs) > 0 {
		w.lowerAlike()
		w.lower(w.p.HostBytes, lowerWork/4)
		w.fill(w.p.HostBytes, fillWork)
	}
}

// lowerAlike goes on from the least peak as lower does, and changes the same
// tensor of all layers at once: alike layers have alike peaks, which no single
// change lowers. Of all such changes it takes the one that costs least time for
// each byte.
func (w *path) lowerAlike() {
	roles := map[int][]int{}
	for _, l := range w.mixer.layers {
		for _, t := range l.tensors {
			if r := w.p.Tensors[t].Role; r > 0 {
				roles[r] = append(roles[r], t)
			}
		}
	}
	c := slices.MinFunc(w.rungs, func(a, b Rung) int { return cmp.Or(compare(a.Peak, b.Peak), compareRungs(a, b)) }).Choice
	limit := w.work + w.atMost(lowerWork/2)
	for c != nil && w.work < limit {
		c = w.lowerRole(slices.Clone(c), roles, limit)
	}
}

// lowerRole is c with the choice of one tensor of all layers changed for the
// better, nil if there is no such change.
func (w *path) lowerRole(c []Choice, roles map[int][]int, limit int64) []Choice {
	s, err := w.build(c, 0)
	if err != nil {
		return nil
	}
	var best []Choice
	least := math.Inf(1)
	tried := map[int]bool{0: true}
	for _, t := range w.atPeak(s) {
		role := w.p.Tensors[t].Role
		if tried[role] {
			continue
		}
		tried[role] = true
		had := slices.Clone(c)
		for _, k := range append(w.alternatives(t), Split|Tight) {
			for _, u := range roles[role] {
				if c[u] = k; k == Split|Tight {
					c[u] = had[u] | Tight
				}
			}
			if w.work >= limit {
				break
			}
			n, err := w.build(c, 0)
			if err == nil && n.HostPeak <= w.p.HostBytes && n.Peak < s.Peak {
				w.add(c, n, 0)
				if price := float64(n.Time-s.Time) / float64(s.Peak-n.Peak); price < least {
					least, best = price, w.rungs[len(w.rungs)-1].Choice
				}
			}
			w.room.free(n)
		}
		copy(c, had)
	}
	w.room.free(s)
	return best
}

// mixes adds plans in which every layer but the last few are treated alike, and
// what belongs to no layer as in base.
func (w *path) mixes(base []Choice) {
	n := len(w.mixer.layers)
	for k := 0; k <= min(n, mixedLayers); k++ {
		whole := n - n*k/min(n, mixedLayers)
		for _, level := range mixedLevels {
			w.tryMix(w.mixer.plan(base, func(layer, _ int) bool { return layer >= n-whole }, level))
		}
	}
}

// tryMix adds a plan unless it has been tried.
func (w *path) tryMix(c []Choice) {
	key := keyOf(c)
	if w.tried[key] {
		return
	}
	w.tried[key] = true
	if s, err := w.build(c, 0); err == nil {
		w.add(c, s, 0)
		w.room.free(s)
	}
}

// refit looks at the plans of the front of all that was found once more: what is
// kept there stays, and how the rest goes is decided anew. What belongs to no
// layer is tried as it is where the peak is least, too.
func (w *path) refit(found []Rung) {
	if w.mixer == nil {
		return
	}
	w.mixes(slices.MinFunc(found, func(a, b Rung) int { return compare(a.Peak, b.Peak) }).Choice)
	order := slices.Clone(found)
	slices.SortStableFunc(order, compareRungs)
	limit := w.work + w.atMost(refitWork)
	for _, r := range (&Ladder{order}).Pareto() {
		for _, level := range mixedLevels[:3] {
			if w.work < limit {
				w.tryMix(w.mixer.plan(r.Choice, func(_, t int) bool { return r.Choice[t].Kind() == Keep }, level))
			}
		}
	}
}

// refitWork bounds the entries of all schedules built to look at plans again.
const refitWork = 1 << 20

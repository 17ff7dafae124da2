package place

import "slices"

// conflict finds a set of buffers that do not fit below the limit, such that they
// would without any one of them. It is a reason that a person can look at: most
// of the problem has nothing to do with it. The second result says that the set
// may still be too large, because the work ran out.
func (s *solver) conflict() (set []int, reducible bool) {
	in := s.in
	for _, k := range in.pinned {
		if in.fixed[k]+in.size[k] > s.limit {
			return []int{in.index[k]}, false
		}
	}
	set = slices.Clone(in.index)
	for t, load := range in.load {
		if load > s.limit {
			set = s.overload(int32(t))
			break
		}
	}
	if s.in.bound > s.limit && !in.crooked {
		return set, false // any part of it fits by stacking
	}
	// What a proof of the whole took is a measure of what a proof of a part
	// may take; the filter needs many.
	budget := 4*s.spent + 1<<20
	s.left = max(s.left, 64*budget)
	for chunk := (len(set) + 1) / 2; chunk > 0; chunk /= 2 {
		reducible = false
		for at := 0; at < len(set); {
			rest := slices.Concat(set[:at], set[min(at+chunk, len(set)):])
			switch s.part(rest, budget) {
			case fails:
				set = rest
			case stops:
				reducible = true
				at += chunk
			case fits:
				at += chunk
			}
		}
	}
	return set, reducible
}

// overload returns buffers live in one section that are too large together. It
// drops the smallest first, so that few are left.
func (s *solver) overload(t int32) []int {
	in := s.in
	var live []int32
	for k := range int32(in.n) {
		var buf [1]span
		if meets(in.active(int(k), &buf), t, t+1) {
			live = append(live, k)
		}
	}
	slices.SortStableFunc(live, func(a, b int32) int { return compare(in.size[a], in.size[b]) })
	sum := in.load[t]
	var set []int
	for _, k := range live {
		if sum-in.size[k] > s.limit {
			sum -= in.size[k]
			continue
		}
		set = append(set, in.index[k])
	}
	slices.Sort(set)
	return set
}

// part decides whether some of the buffers fit.
func (s *solver) part(numbers []int, budget int64) verdict {
	if s.left <= 0 || s.halted() {
		return stops
	}
	sub := &solver{ctx: s.ctx, p: s.p, tech: s.tech, deadline: s.deadline, limit: s.limit,
		left: min(budget, s.left), height: never}
	sub.in = compileSome(s.p, numbers, s.in.grain)
	sub.lower = sub.in.bound
	sub.offer(sweep(sub.in))
	sub.cannot = sub.lower > sub.limit
	sub.improve()
	s.spend(sub.spent)
	switch {
	case sub.cannot:
		return fails
	case sub.height <= sub.limit:
		return fits
	}
	return stops
}

package check

import "memoc/ir/planfile"

// views: a view lies in its base's bytes, and its base is a value of its own.
// The parts of a value lie in its bytes and have none in common.
func (j *judge) views() error {
	for i := range j.p.Values {
		v := &j.p.Values[i]
		base := j.value[v.Base]
		if base.Base != base.Name || base.Buffer != v.Buffer || len(without(j.runs(v), j.runs(base))) > 0 {
			return fault("views", "value %q is a view of %q, which has other bytes", v.Name, v.Base)
		}
		free := j.runs(v)
		for _, name := range v.Parts {
			part := j.value[name]
			if v.Base != v.Name || part.Buffer != v.Buffer || len(without(j.runs(part), free)) > 0 {
				return fault("views", "value %q has a part %q, which lies outside of it or over another part", v.Name, name)
			}
			free = without(free, j.runs(part))
		}
	}
	return nil
}

// rows: what lies in pieces is touched by copies, slices and joins alone:
// kernels take contiguous bytes. A part of an operand lies within it.
func (j *judge) rows() error {
	for i, s := range j.p.Steps {
		if s.Part != nil && (s.Op != "Slice" || len(without(runsOf(*s.Part), j.runs(j.value[s.Reads[0]]))) > 0) {
			return fault("ranges", "step %d (%s) reads a part that is none of %q", i, s.Node, s.Reads[0])
		}
		if s.Kind != "run" || s.Op == "Slice" || s.Op == "Concat" {
			continue
		}
		for _, name := range append(append([]string{}, s.Reads...), s.Writes...) {
			if len(j.runs(j.value[name])) > 1 {
				return fault("ranges", "step %d (%s) computes with %q, which lies in %d pieces", i, s.Node, name, j.value[name].Rows)
			}
		}
	}
	return nil
}

// metrics: what the plan states of itself follows from its buffers, and no
// arena takes more than was allowed.
func (j *judge) metrics() error {
	m := &j.p.Metrics
	for a, arena := range j.p.Arenas {
		if bound := j.mostAlive(a); arena.LowerBound != bound {
			return fault("metrics", "arena %s states a lower bound of %d bytes, most alive at once are %d", arena.Name, arena.LowerBound, bound)
		}
		size, allowed := m.Peak, m.Budget
		if arena.Name == "host" {
			size, allowed = m.HostPeak, m.HostBudget
			if arena.Size > allowed { // there is always a limit, which may be none at all
				return fault("budget", "arena %s takes %d bytes of a budget of %d", arena.Name, arena.Size, allowed)
			}
		}
		if arena.Size != size || arena.Budget != allowed {
			return fault("metrics", "arena %s takes %d bytes of %d, the summary says %d of %d", arena.Name, arena.Size, arena.Budget, size, allowed)
		}
	}
	return nil
}

// mostAlive is the largest sum of the bytes of an arena's buffers that are
// alive at one step, padded to the arena's alignment.
func (j *judge) mostAlive(arena int) int64 {
	change := make([]int64, len(j.p.Steps)+1)
	always, align := int64(0), j.p.Arenas[arena].Align
	for _, b := range j.p.Buffers {
		if b.Arena != arena {
			continue
		}
		padded := (b.Size + align - 1) / align * align
		if b.Class == "persistent" {
			always += padded
			continue
		}
		change[b.First] += padded
		change[b.End] -= padded
	}
	most, live := always, always
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}

// workspaces: a workspace is a buffer for one step and holds no value.
func (j *judge) workspaces() error {
	user := map[int]int{}
	for i, s := range j.p.Steps {
		if s.Workspace < 0 {
			continue
		}
		if k, twice := user[s.Workspace]; twice {
			return fault("workspaces", "steps %d and %d have the same workspace", k, i)
		}
		user[s.Workspace] = i
		if b := j.p.Buffers[s.Workspace]; i < b.First || i >= b.End {
			return fault("lifetimes", "step %d (%s) touches its workspace, whose bytes are alive for [%d,%d)", i, s.Node, b.First, b.End)
		}
	}
	for i := range j.p.Values {
		v := &j.p.Values[i]
		if k, taken := user[v.Buffer]; taken {
			return fault("workspaces", "value %q lies in the workspace of step %d", v.Name, k)
		}
	}
	return nil
}

// apart: the values that one step writes share no bytes.
func (j *judge) apart(i int, s *planfile.Step) error {
	for k, name := range s.Writes {
		for _, other := range s.Writes[:k] {
			a, b := j.value[name], j.value[other]
			if _, yes := meet(j.writes(a), 0, j.writes(b), 0); a.Buffer == b.Buffer && yes {
				return fault("contents", "step %d (%s) writes %q and %q to common bytes", i, s.Node, other, name)
			}
		}
	}
	return nil
}

package check

import "memoc/ir/planfile"

// touch is bytes of a buffer that a step reads or writes.
type touch struct {
	arena  int
	offset int64 // of the buffer
	runs   []run
	write  bool
}

func (j *judge) touches(s *planfile.Step) []touch {
	var out []touch
	add := func(buffer int, runs []run, write bool) {
		if b := &j.p.Buffers[buffer]; len(runs) > 0 {
			out = append(out, touch{b.Arena, b.Offset, runs, write})
		}
	}
	for k, name := range s.Reads {
		add(j.value[name].Buffer, j.reads(s, k), false)
	}
	for _, name := range s.Writes {
		add(j.value[name].Buffer, j.writes(j.value[name]), true)
	}
	if s.Workspace >= 0 {
		add(s.Workspace, []run{{0, j.p.Buffers[s.Workspace].Size}}, true)
	}
	return out
}

// common is the first address that both touch, of which one writes.
func common(x, y *touch) (at int64, yes bool) {
	if x.arena != y.arena || !x.write && !y.write {
		return 0, false
	}
	if x.runs[0].from+x.offset >= y.runs[len(y.runs)-1].to+y.offset || y.runs[0].from+y.offset >= x.runs[len(x.runs)-1].to+x.offset {
		return 0, false
	}
	return meet(x.runs, x.offset, y.runs, y.offset)
}

// reach is, for every step, the last step of each lane that has ended for sure
// before it starts: through its own lane's order and the waits.
func (j *judge) reach() [][]int {
	out := make([][]int, len(j.p.Steps))
	last := make([]int, len(j.p.Lanes))
	for l := range last {
		last[l] = -1
	}
	for i, s := range j.p.Steps {
		known := make([]int, len(j.p.Lanes))
		for l := range known {
			known[l] = -1
		}
		for _, before := range append([]int{last[s.Lane]}, s.Waits...) {
			if before < 0 {
				continue
			}
			for l, k := range out[before] {
				known[l] = max(known[l], k)
			}
			lane := j.p.Steps[before].Lane
			known[lane] = max(known[lane], before)
		}
		out[i] = known
		last[s.Lane] = i
	}
	return out
}

// races: of two accesses to common bytes of which one writes, the earlier has
// ended before the later starts.
func (j *judge) races() error {
	known := j.reach()
	all := make([][]touch, len(j.p.Steps))
	for i := range j.p.Steps {
		all[i] = j.touches(&j.p.Steps[i])
	}
	for i := range all {
		for k := 0; k < i; k++ {
			a, b := &j.p.Steps[k], &j.p.Steps[i]
			if a.Lane == b.Lane || known[i][a.Lane] >= k {
				continue
			}
			for x := range all[k] {
				for y := range all[i] {
					if at, yes := common(&all[k][x], &all[i][y]); yes {
						return fault("races", "step %d (%s) and step %d (%s) touch common bytes of arena %s from %d on, and nothing orders them",
							k, a.Node, i, b.Node, j.p.Arenas[all[k][x].arena].Name, at)
					}
				}
			}
		}
	}
	return nil
}

// copies: a copy moves equal sizes between the device and the host, on a lane
// of its own kind, and a copy in reads what a copy out of the same tensor
// wrote. Nothing else touches host memory.
func (j *judge) copies() error {
	written := map[string]bool{}
	kind := make([]string, len(j.p.Lanes))
	for i, s := range j.p.Steps {
		if kind[s.Lane] == "" {
			kind[s.Lane] = s.Kind
		}
		if kind[s.Lane] != s.Kind {
			return fault("copies", "step %d (%s) of kind %s runs on lane %s among steps of kind %s", i, s.Node, s.Kind, j.p.Lanes[s.Lane], kind[s.Lane])
		}
		if s.Kind == "run" {
			for _, name := range append(append([]string{}, s.Reads...), s.Writes...) {
				if j.p.Buffers[j.value[name].Buffer].Class == "host-slot" {
					return fault("copies", "step %d (%s) computes with %q, which lies in host memory", i, s.Node, name)
				}
			}
			continue
		}
		if len(s.Reads) != 1 || len(s.Writes) != 1 {
			return fault("copies", "step %d (%s) copies %d values into %d", i, s.Node, len(s.Reads), len(s.Writes))
		}
		from, to := j.value[s.Reads[0]], j.value[s.Writes[0]]
		if from.Size != to.Size {
			return fault("copies", "step %d (%s) copies %d bytes into %d", i, s.Node, from.Size, to.Size)
		}
		fromHost, toHost := j.p.Buffers[from.Buffer].Class == "host-slot", j.p.Buffers[to.Buffer].Class == "host-slot"
		switch {
		case s.Kind == "copy-out" && (fromHost || !toHost), s.Kind == "copy-in" && (!fromHost || toHost):
			return fault("copies", "step %d (%s) of kind %s goes from %s to %s", i, s.Node, s.Kind, from.Name, to.Name)
		case s.Kind == "copy-out":
			written[to.Name] = true
		case !written[from.Name]:
			return fault("copies", "step %d (%s) brings back %q before it was moved out", i, s.Node, from.Name)
		}
	}
	return nil
}

package check

import "memoc/ir/planfile"

// memory is what the bytes of each buffer hold while the steps are followed.
type memory struct {
	j     *judge
	holds [][]held // by buffer, in no order, without common bytes
}

// newMemory is before the first step: inputs, weights and constants are there.
func newMemory(j *judge) *memory {
	m := &memory{j, make([][]held, len(j.p.Buffers))}
	for _, names := range [][]string{j.p.Inputs, j.p.Weights} {
		for _, name := range names {
			if v := j.value[name]; v != nil {
				m.write(v)
			}
		}
	}
	for i := range j.p.Values { // constants
		if v := &j.p.Values[i]; j.p.Buffers[v.Buffer].Class == "persistent" && len(m.holds[v.Buffer]) == 0 {
			m.write(v)
		}
	}
	return m
}

// write puts v where its step writes it. A view that is a step leaves its base
// there.
func (m *memory) write(v *planfile.Value) {
	here := m.j.writes(v)
	var kept []held
	for _, h := range m.holds[v.Buffer] {
		if left := without(h.runs, here); len(left) > 0 {
			kept = append(kept, held{left, h.name})
		}
	}
	for _, h := range m.j.made(v) {
		if put := both(h.runs, here); len(put) > 0 {
			kept = append(kept, held{put, h.name})
		}
	}
	m.holds[v.Buffer] = kept
}

// other looks for bytes of v among those at where that hold something else than
// v, and says what: "" for nothing.
func (m *memory) other(v *planfile.Value, where []run) (name string, found bool) {
	left := where
	for _, want := range m.j.made(v) {
		for _, h := range m.holds[v.Buffer] {
			if h.name == want.name {
				left = without(left, both(h.runs, want.runs))
			}
		}
	}
	if len(left) == 0 {
		return "", false
	}
	for _, h := range m.holds[v.Buffer] {
		if len(both(h.runs, left[:1])) > 0 {
			return h.name, true
		}
	}
	return "", true
}

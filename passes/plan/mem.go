package plan

import "memoc/passes/sim"

// memory is what building schedules needs for itself and uses again for the
// next: a search builds thousands.
type memory struct {
	spare []*Schedule // whose memory may be used again

	current, touched []int
	copied           []bool
	start            []int64
	entries          []Entry
	points           []int // of issue
	heads, nexts     []int
	tasks            []sim.Task
	deps             []int
	writers          [3][]int
	result           sim.Result
	compute          []int
	live             []int64
	taken            []int
	levels           levels
}

// ints is n elements of value v, in *s if there is room.
func ints(s *[]int, n, v int) []int {
	if cap(*s) < n {
		*s = make([]int, n+n/4)
	}
	out := (*s)[:n]
	for i := range out {
		out[i] = v
	}
	return out
}

func ints64(s *[]int64, n int) []int64 {
	if cap(*s) < n {
		*s = make([]int64, n+n/4)
	}
	out := (*s)[:n]
	clear(out)
	return out
}

// schedule is an empty one.
func (m *memory) schedule(p *Problem) *Schedule {
	if n := len(m.spare); n > 0 {
		s := m.spare[n-1]
		m.spare = m.spare[:n-1]
		*s = Schedule{Entries: s.Entries[:0], Instances: s.Instances[:0], Buffers: s.Buffers[:0], Host: s.Host[:0],
			copying: s.copying[:0], lists: s.lists, mem: m}
		return s
	}
	return &Schedule{Entries: make([]Entry, 0, len(p.Ops)+len(p.Ops)/4), Instances: make([]Instance, 0, len(p.Tensors)+len(p.Tensors)/4), mem: m}
}

// drop takes back a schedule that nobody will look at again.
func (m *memory) drop(s *Schedule) {
	if s != nil {
		m.spare = append(m.spare, s)
	}
}

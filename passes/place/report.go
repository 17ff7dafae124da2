package place

// Report is an answer in the form of JSON: what memoc place --json prints.
type Report struct {
	Name         string         `json:"name,omitempty"`
	Buffers      int            `json:"buffers"`
	Capacity     int64          `json:"capacity,omitempty"`
	Status       Status         `json:"status"`
	Height       int64          `json:"height"`
	LowerBound   int64          `json:"lower_bound"`
	Gap          float64        `json:"gap"` // height over bound, less 1
	Work         int64          `json:"work"`
	Reproducible bool           `json:"reproducible"`
	Conflict     []string       `json:"conflict,omitempty"` // ids
	Reducible    bool           `json:"conflict_reducible,omitempty"`
	Offsets      []OffsetReport `json:"offsets"`
}

// OffsetReport is the place of one buffer.
type OffsetReport struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// Report puts a solution of p into that form.
func (s *Solution) Report(name string, p *Problem) *Report {
	r := &Report{Name: name, Buffers: len(p.Buffers), Capacity: p.Capacity, Status: s.Status, Height: s.Height,
		LowerBound: s.LowerBound, Gap: s.Gap(), Work: s.Work, Reproducible: s.Reproducible, Reducible: s.ConflictReducible,
		Offsets: make([]OffsetReport, len(p.Buffers))}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		r.Offsets[i] = OffsetReport{b.ID, s.Offsets[i], b.Size}
	}
	for _, i := range s.Conflict {
		r.Conflict = append(r.Conflict, p.Buffers[i].ID)
	}
	return r
}

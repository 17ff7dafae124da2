// Package planfile is the versioned JSON form of a Program: plan.json. Reading
// one needs neither the model nor the passes, so that a checker, a script or
// another back end can work from the file alone. The schema is described in
// docs/plan.md.
package planfile

import (
	"bytes"
	"encoding/json"
	"fmt"

	"memoc/ir"
)

// Version is the newest version of the schema; a reader refuses newer ones. A
// plan is written in the oldest that can say it: 2 where bytes lie in rows,
// values are made of parts or layers run in chunks, else 1.
const Version = 2

// Plan is the whole file. Sizes and offsets are bytes, times nanoseconds,
// lifetimes half-open in steps.
type Plan struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	Device    string     `json:"device"`
	Metrics   Metrics    `json:"metrics"`
	Arenas    []Arena    `json:"arenas"`
	Lanes     []string   `json:"lanes"`
	Buffers   []Buffer   `json:"buffers"`
	Values    []Value    `json:"values"`
	Steps     []Step     `json:"steps"`
	Inputs    []string   `json:"inputs"`
	Weights   []string   `json:"weights"`
	Outputs   []string   `json:"outputs"`
	Decisions []Decision `json:"decisions"`
	Passes    []Pass     `json:"passes"`
}

// Metrics is the summary of the plan.
type Metrics struct {
	PeakExported  int64 `json:"peak_exported"`
	PeakUnplanned int64 `json:"peak_unplanned"`
	Persistent    int64 `json:"persistent"`
	Budget        int64 `json:"budget"`
	Peak          int64 `json:"peak"`
	LowerBound    int64 `json:"lower_bound"`
	HostPeak      int64 `json:"host_peak"`
	HostBudget    int64 `json:"host_budget"`
	Time          int64 `json:"time_ns"`
	Stall         int64 `json:"stall_ns"`
	ExtraCompute  int64 `json:"extra_compute_ns"`
	// Chunks is the number of chunks of tokens that ChunkedLayers feed-forward
	// layers run in, whose widest tensor has ChunkedBytes bytes in all. 0: they
	// run whole.
	Chunks        int   `json:"chunks,omitempty"`
	ChunkedLayers int   `json:"chunked_layers,omitempty"`
	ChunkedBytes  int64 `json:"chunked_bytes,omitempty"`
}

// Arena is one allocation.
type Arena struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	Align      int64  `json:"align"`
	LowerBound int64  `json:"lower_bound"`
	Budget     int64  `json:"budget"`
}

// Buffer is a fixed range of an arena.
type Buffer struct {
	Name   string `json:"name"`
	Arena  int    `json:"arena"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
	First  int    `json:"first"`
	End    int    `json:"end"`
	Class  string `json:"class"`
}

// Value says which bytes a value of the model has: Size bytes of its buffer
// from Offset on, or, with Rows, that many pieces of Size/Rows bytes, each Pitch
// bytes after the one before. Base names the value whose bytes these are
// (itself, or what it is a view or a range of). Parts names the values that lie
// in its bytes and make it up: what they do not fill is written by the value's
// own step.
type Value struct {
	Name   string   `json:"name"`
	Base   string   `json:"base"`
	Buffer int      `json:"buffer"`
	Offset int64    `json:"offset"`
	Size   int64    `json:"size"`
	Rows   int64    `json:"rows,omitempty"`
	Pitch  int64    `json:"pitch,omitempty"`
	Parts  []string `json:"parts,omitempty"`
}

// Range is bytes of a buffer, as those of a Value.
type Range struct {
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
	Rows   int64 `json:"rows,omitempty"`
	Pitch  int64 `json:"pitch,omitempty"`
}

// Step is one operation on a lane.
type Step struct {
	Kind      string   `json:"kind"` // "run", "copy-out", "copy-in"
	Lane      int      `json:"lane"`
	Node      string   `json:"node"`
	Op        string   `json:"op"`
	Reads     []string `json:"reads"`          // names of values
	Part      *Range   `json:"part,omitempty"` // all that it reads of the first value of reads
	Writes    []string `json:"writes"`         // names of values
	Workspace int      `json:"workspace"`      // buffer, -1 for none
	Waits     []int    `json:"waits"`
	Duration  int64    `json:"duration_ns"`
	Start     int64    `json:"start_ns"`
	Stall     int64    `json:"stall_ns"`
}

// Decision is the fate of one tensor.
type Decision struct {
	Tensor   string `json:"tensor"`
	Bytes    int64  `json:"bytes"`
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Extra    int64  `json:"extra_ns"`
	Producer string `json:"producer"`
	// What follows came later within version 1; older files do not have it.
	Type         string        `json:"type,omitempty"`
	First        int           `json:"first,omitempty"`
	End          int           `json:"end,omitempty"`
	Binds        string        `json:"binds,omitempty"`
	Alternatives []Alternative `json:"alternatives,omitempty"`
	HeadBytes    int64         `json:"head_bytes,omitempty"` // of a split
}

// Alternative is one way to treat a tensor, and what it costs beside the rest
// of the plan.
type Alternative struct {
	Decision string `json:"decision"`
	Possible bool   `json:"possible"`
	Bytes    int64  `json:"bytes"` // held at the plan's peak
	Time     int64  `json:"time_ns"`
	Note     string `json:"note"`
}

// Pass is what one pass did.
type Pass struct {
	Name    string            `json:"name"`
	Changed bool              `json:"changed"`
	Stats   map[string]string `json:"stats,omitempty"`
}

var stepKinds = map[ir.StepKind]string{ir.RunStep: "run", ir.CopyOutStep: "copy-out", ir.CopyInStep: "copy-in"}

// FromProgram is the plan of p.
func FromProgram(p *ir.Program) *Plan {
	m := p.Metrics
	out := &Plan{Name: p.Name, Device: p.Device, Metrics: Metrics{
		PeakExported: m.PeakExported, PeakUnplanned: m.PeakUnplanned, Persistent: m.Persistent, Budget: m.Budget, Peak: m.Peak,
		LowerBound: m.LowerBound, HostPeak: m.HostPeak, HostBudget: m.HostBudget, Time: m.Time, Stall: m.Stall, ExtraCompute: m.ExtraCompute,
		Chunks: m.Chunks, ChunkedLayers: m.ChunkedLayers, ChunkedBytes: m.ChunkedBytes}}
	for _, a := range p.Arenas {
		out.Arenas = append(out.Arenas, Arena{a.Name, a.Size, a.Align, a.LowerBound, a.Budget})
	}
	for _, l := range p.Lanes {
		out.Lanes = append(out.Lanes, l.Name)
	}
	for _, b := range p.Buffers {
		out.Buffers = append(out.Buffers, Buffer{b.Name, b.Arena, b.Offset, b.Size, b.First, b.End, b.Class.String()})
	}
	l := newLister(p)
	out.Values = l.values()
	for i := range p.Steps {
		out.Steps = append(out.Steps, l.step(&p.Steps[i]))
	}
	for _, d := range p.Decisions {
		out.Decisions = append(out.Decisions, decisionOf(&d))
	}
	for _, r := range p.Log {
		pass := Pass{Name: r.Pass, Changed: r.Changed, Stats: map[string]string{}}
		for _, kv := range r.Stats {
			pass.Stats[kv.Key] = kv.Value
		}
		out.Passes = append(out.Passes, pass)
	}
	out.Inputs, out.Weights, out.Outputs = names(p.Graph.Inputs), names(p.Graph.Inits), names(p.Graph.Outputs)
	out.Version = out.oldest()
	return out
}

func decisionOf(d *ir.Decision) Decision {
	out := Decision{Tensor: d.Tensor, Bytes: d.Bytes, Decision: d.Kind.String(), Reason: d.Reason, Extra: d.Extra, Producer: d.Produce,
		Type: d.Type, First: d.First, End: d.End, Binds: d.Binds, HeadBytes: d.Head}
	for _, a := range d.Options {
		out.Alternatives = append(out.Alternatives, Alternative{a.Kind.String(), a.Possible, a.Bytes, a.Time, a.Note})
	}
	return out
}

func names(vs []*ir.Value) []string {
	out := []string{}
	for _, v := range vs {
		out = append(out, v.Name)
	}
	return out
}

// Encode is the plan as JSON, one array element a line.
func (p *Plan) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return breakLines(b.Bytes()), nil
}

// breakLines starts a new line before every object in an array and every
// top-level member, so that files can be read and compared line by line.
func breakLines(in []byte) []byte {
	var out []byte
	depth, quoted := 0, false
	for i, c := range in {
		if quoted {
			quoted = !(c == '"' && !escaped(in, i))
			out = append(out, c)
			continue
		}
		switch c {
		case '"':
			if depth == 1 && (in[i-1] == ',' || in[i-1] == '{') {
				out = append(out, '\n')
			}
			quoted = true
		case '{':
			if depth > 0 && (in[i-1] == '[' || in[i-1] == ',') {
				out = append(out, '\n', ' ')
			}
			depth++
		case '[':
			depth++
		case '}', ']':
			depth--
		}
		out = append(out, c)
	}
	return out
}

// escaped reports whether the byte at i follows an odd run of backslashes.
func escaped(in []byte, i int) bool {
	n := 0
	for i--; i >= 0 && in[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// Decode reads a plan; unknown members and other versions are errors.
func Decode(data []byte) (*Plan, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if head.Version < 1 || head.Version > Version {
		return nil, fmt.Errorf("plan: version %d, this memoc reads versions 1 to %d", head.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var p Plan
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if v := p.oldest(); v > p.Version {
		return nil, fmt.Errorf("plan: version %d, but it says what only version %d can", p.Version, v)
	}
	return &p, nil
}

// oldest is the oldest version of the schema that can say what p does.
func (p *Plan) oldest() int {
	if p.Metrics.Chunks > 0 {
		return 2
	}
	for _, v := range p.Values {
		if v.Rows != 0 || v.Pitch != 0 || len(v.Parts) > 0 {
			return 2
		}
	}
	for _, s := range p.Steps {
		if s.Part != nil {
			return 2
		}
	}
	return 1
}

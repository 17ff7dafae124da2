package onnx

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"memoc/ir"
	"memoc/ir/diag"
)

// Encode is the model as a file. What did not change since the model was read
// has the bytes it was read with; a model in which nothing changed is its
// file, byte for byte.
func Encode(m *ir.Model) ([]byte, error) {
	r, err := encode(m)
	if err != nil {
		return nil, err
	}
	return r.flat(), nil
}

// Write writes the encoded model without putting it together in memory.
func Write(w io.Writer, m *ir.Model) error {
	r, err := encode(m)
	if err != nil {
		return err
	}
	_, err = r.WriteTo(w)
	return err
}

// Save writes the model to path, whole or not at all. It refuses to replace
// the file that the model was read from. External data stays where it is: the
// references are written as they were read.
func Save(path string, m *ir.Model) error {
	r, err := encode(m)
	if err != nil {
		return err
	}
	if same(path, m.Path) {
		return &diag.Diagnostic{ID: "write-input", Severity: diag.Error, Loc: diag.Location{File: path},
			Message: "this is the model that was read, which is never changed", Help: "write to another file"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".memoc-*.onnx")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err = r.WriteTo(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil || b == "" {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// encoder writes one model.
type encoder struct {
	m        *ir.Model
	irv      int64          // the version that is needed
	bridges  []*rope        // functions for nodes of other versions
	inserted map[string]int // domains of nodes that no file held, with version
}

func encode(m *ir.Model) (*rope, error) {
	if m.Graph == nil {
		return nil, fmt.Errorf("BUG: a model without a graph is written")
	}
	e := &encoder{m: m, irv: m.IRVersion, inserted: map[string]int{}}
	out, err := e.model()
	if err == nil && out.size > 1<<31-1 {
		err = &diag.Diagnostic{ID: "too-large", Severity: diag.Error, Loc: diag.Location{File: m.Path},
			Message: fmt.Sprintf("the model has %d bytes; an ONNX file holds at most 2 GiB", out.size), Help: "keep weights as external data"}
	}
	return out, err
}

// model writes the ModelProto: the records as read, with what changed put in
// their place.
func (e *encoder) model() (*rope, error) {
	old, err := splitModel(e.m.Raw)
	if err != nil {
		return nil, err
	}
	e.needVersions()
	graph, same, err := e.graph(e.m.Graph, old.graph.b, true)
	if err != nil {
		return nil, err
	}
	funcs, sameFuncs, err := e.functions(old)
	if err != nil {
		return nil, err
	}
	opsets, sameOpsets := e.opsets(old, same)
	sameMeta := slices.Equal(old.model.Meta, e.m.Meta)
	head := e.header(old)
	if same && sameFuncs && sameOpsets && sameMeta && head == nil && e.m.Raw != nil {
		out := &rope{}
		out.raw(e.m.Raw)
		return out, nil
	}
	meta := &rope{}
	for _, kv := range e.m.Meta {
		meta.kv(14, kv.Key, kv.Value)
	}
	g := &rope{}
	if g.raw(old.graph.raw); !same || len(old.graph.raw) == 0 {
		g = &rope{}
		g.message(7, graph)
	}
	slots := []slot{
		{same: head == nil, nums: []int32{1, 2, 3, 4, 5, 6}, new: head},
		{nums: []int32{7}, new: g},
		{same: sameOpsets, nums: []int32{8}, new: opsets},
		{same: sameMeta, nums: []int32{14}, new: meta},
		{same: sameFuncs, nums: []int32{25}, new: funcs},
	}
	out := &rope{}
	replace(out, old.records, slots)
	return out, nil
}

// slot is what stands for the records of some fields: these as they are, or
// one replacement where the first of them stood (at the end, if there was
// none).
type slot struct {
	same bool
	nums []int32
	new  *rope
	done bool
}

// replace copies records, those of slots that changed replaced.
func replace(out *rope, records []record, slots []slot) {
	emit := func(s *slot) {
		if !s.done && s.new != nil {
			out.rope(s.new)
		}
		s.done = true
	}
	for _, r := range records {
		at := slices.IndexFunc(slots, func(s slot) bool { return !s.same && slices.Contains(s.nums, int32(r.num)) })
		if at >= 0 {
			emit(&slots[at])
		} else {
			out.raw(r.raw)
		}
	}
	for i := range slots {
		if !slots[i].same {
			emit(&slots[i])
		}
	}
}

// modelRecords is the model as it was read: header fields, opsets and records.
type modelRecords struct {
	model     ir.Model
	records   []record
	graph     record
	functions []record
	opsets    []record
	domains   []string // of opsets
}

func splitModel(raw []byte) (*modelRecords, error) {
	old := &modelRecords{model: ir.Model{Opsets: map[string]int{}}}
	l := &loader{}
	err := each(raw, 0, func(r record) (err error) {
		old.records = append(old.records, r)
		switch {
		case r.num == 7 && r.isBytes():
			old.graph = r
		case r.num == 25 && r.isBytes():
			old.functions = append(old.functions, r)
		case r.num == 8 && r.isBytes():
			one := map[string]int{}
			if err = l.opset(one, r); err != nil {
				return err
			}
			for d, v := range one {
				old.model.Opsets[d] = v
				old.opsets, old.domains = append(old.opsets, r), append(old.domains, d)
			}
		default:
			err = l.modelField(&old.model, r)
		}
		return err
	})
	return old, err
}

// header writes the scalar fields, nil if they are as they were.
func (e *encoder) header(old *modelRecords) *rope {
	o, m := &old.model, e.m
	if o.IRVersion == e.irv && o.ProducerName == m.ProducerName && o.ProducerVersion == m.ProducerVersion &&
		o.Domain == m.Domain && o.ModelVersion == m.ModelVersion && o.Doc == m.Doc {
		return nil
	}
	var r rope
	r.varint(1, e.irv)
	r.optional(2, m.ProducerName)
	r.optional(3, m.ProducerVersion)
	r.optional(4, m.Domain)
	if m.ModelVersion != 0 {
		r.varint(5, m.ModelVersion)
	}
	r.optional(6, m.Doc)
	return &r
}

// opsets writes the imports: those read, unless their version changed, then
// the new ones in alphabetical order.
func (e *encoder) opsets(old *modelRecords, sameGraph bool) (*rope, bool) {
	want := maps.Clone(e.m.Opsets)
	for domain, version := range e.inserted {
		if want[domain] == 0 {
			want[domain] = version
		}
	}
	if e.m.Raw != nil && sameGraph && len(old.opsets) == 0 && want[""] == e.m.Opsets[""] {
		delete(want, "") // the file had none, reading assumed one, and nothing else is written
	}
	same := true
	var out rope
	for i, r := range old.opsets {
		d := old.domains[i]
		if v, ok := want[d]; ok && v == old.model.Opsets[d] {
			out.raw(r.raw)
		} else {
			same = false
		}
	}
	for _, d := range slices.Sorted(maps.Keys(want)) {
		if want[d] == old.model.Opsets[d] {
			continue
		}
		same = false
		out.message(8, opsetProto(d, want[d]))
	}
	return &out, same
}

func opsetProto(domain string, version int) *rope {
	var m rope
	m.string(1, domain)
	m.varint(2, int64(version))
	return &m
}

// needVersions raises the IR version where a feature that is written needs it.
func (e *encoder) needVersions() {
	if e.irv == 0 && e.m.Raw == nil {
		e.irv = 8
	}
	need := func(v int64) { e.irv = max(e.irv, v) }
	for _, f := range e.m.Functions {
		if f.Raw == nil {
			need(8)
			if f.Overload != "" {
				need(10)
			}
		}
	}
	e.m.Graph.Walk(func(n *ir.Node) {
		if n.Raw == nil && (len(n.Meta) > 0 || n.Overload != "") {
			need(10)
		}
	})
}

// functions writes the local functions: those read as they were, new ones
// after them.
func (e *encoder) functions(old *modelRecords) (*rope, bool, error) {
	var out rope
	same := len(old.functions) == len(e.m.Functions)
	spans := map[*byte]record{}
	for _, r := range old.functions {
		spans[start(r.b)] = r
	}
	for i, f := range e.m.Functions {
		if r, ok := spans[start(f.Raw)]; ok && f.Raw != nil {
			out.raw(r.raw)
			same = same && start(old.functions[i].b) == start(f.Raw)
			continue
		}
		same = false
		m, err := e.function(f)
		if err != nil {
			return nil, false, err
		}
		out.message(25, m)
	}
	for _, m := range e.bridges {
		same = false
		out.message(25, m)
	}
	return &out, same, nil
}

// start tells spans of one file apart: no two messages begin at one byte,
// unless one is empty.
func start(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	return &b[0]
}

func (e *encoder) function(f *ir.Function) (*rope, error) {
	var r rope
	r.string(1, f.Name)
	for _, s := range f.Inputs {
		r.string(4, s)
	}
	for _, s := range f.Outputs {
		r.string(5, s)
	}
	for _, s := range f.Attrs {
		r.string(6, s)
	}
	for _, n := range f.Body.Nodes {
		m, err := e.node(n)
		if err != nil {
			return nil, err
		}
		r.message(7, m)
	}
	r.optional(8, f.Doc)
	for _, d := range slices.Sorted(maps.Keys(f.Opsets)) {
		r.message(9, opsetProto(d, f.Opsets[d]))
	}
	r.string(10, f.Domain)
	for _, a := range f.AttrDefaults {
		m, err := e.attr(&a)
		if err != nil {
			return nil, err
		}
		r.message(11, m)
	}
	r.optional(13, f.Overload)
	return &r, nil
}

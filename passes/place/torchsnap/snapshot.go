package torchsnap

import (
	"fmt"
	"io"
	"strconv"

	"memoc/passes/place"
)

// Snapshot is what a file says of each device.
type Snapshot struct {
	Devices []Device
}

// Device is the record of one device. Steps count the events of its trace.
type Device struct {
	Index  int
	Events int

	// Requests are the buffers asked for while the trace ran, by the order of
	// the requests. One that was never freed lives to the end.
	Requests []place.Buffer
	Freed    int // how many of them were freed

	// Before are buffers that were there when the trace began. Their life starts
	// at 0.
	Before []place.Buffer

	LivePeak       int64 // largest sum of bytes of Requests live at once
	ReservedPeak   int64 // largest sum of bytes that the trace took from the driver
	ReservedBefore int64 // bytes taken from the driver before the trace began

	live map[int64]int // address to request, at the end of the trace
}

// Problem is the question how low the buffers could lie. With before, those that
// were there when the trace began take part. Offsets are multiples of align.
func (d *Device) Problem(before bool, align int64) *place.Problem {
	p := &place.Problem{}
	if before {
		p.Buffers = append(p.Buffers, d.Before...)
	}
	p.Buffers = append(p.Buffers, d.Requests...)
	for i := range p.Buffers {
		p.Buffers[i].Align = align
	}
	return p
}

// Read reads a snapshot. Errors name the file and the byte or the entry.
func Read(r io.Reader, name string) (*Snapshot, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	v, err := unpickle(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := decode(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// decode turns the plain data into a snapshot.
func decode(v any) (*Snapshot, error) {
	root, ok := v.(dict)
	if !ok {
		return nil, fmt.Errorf("the pickle holds a %s, not a dict with segments and device_traces", kind(v))
	}
	traces, err := root.list("device_traces")
	if err != nil {
		return nil, err
	}
	segments, err := root.list("segments")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	for i, v := range traces {
		t, ok := v.(*list)
		if !ok {
			return nil, fmt.Errorf("device_traces[%d] is a %s, not a list", i, kind(v))
		}
		tr := newTracer(i, len(t.items))
		for j, v := range t.items {
			if err := tr.event(j, v); err != nil {
				return nil, fmt.Errorf("device_traces[%d][%d]: %w", i, j, err)
			}
		}
		s.Devices = append(s.Devices, tr.finish())
	}
	for i, v := range segments {
		if err := s.segment(v); err != nil {
			return nil, fmt.Errorf("segments[%d]: %w", i, err)
		}
	}
	for i := range s.Devices {
		s.Devices[i].settle()
	}
	return s, nil
}

// tracer follows the events of one device.
type tracer struct {
	d        Device
	live     map[int64]int // address to request
	sum      int64         // live bytes of requests
	reserved int64         // bytes taken from the driver, less those given back
}

func newTracer(index, events int) *tracer {
	return &tracer{d: Device{Index: index, Events: events}, live: map[int64]int{}}
}

// event reads entry number step of the trace.
func (t *tracer) event(step int, v any) error {
	e, ok := v.(dict)
	if !ok {
		return fmt.Errorf("an entry is a %s, not a dict", kind(v))
	}
	action, ok := e["action"].(string)
	if !ok {
		return fmt.Errorf("action is a %s, not a string", kind(e["action"]))
	}
	switch action {
	case "alloc", "free_completed", "segment_alloc", "segment_map", "segment_free", "segment_unmap":
	default:
		return nil // free_requested, oom, snapshot and what later versions add
	}
	addr, err := e.integer("addr")
	if err != nil {
		return err
	}
	size, err := e.size("size")
	if err != nil {
		return err
	}
	switch action {
	case "alloc":
		t.free(addr, step) // the trace may lack the free
		t.live[addr] = len(t.d.Requests)
		t.d.Requests = append(t.d.Requests, place.Buffer{ID: strconv.Itoa(step), Size: size, Start: step, End: t.d.Events})
		if t.sum, err = add(t.sum, size); err != nil {
			return err
		}
		t.d.LivePeak = max(t.d.LivePeak, t.sum)
	case "free_completed":
		if !t.free(addr, step) {
			t.d.Before = append(t.d.Before, place.Buffer{ID: fmt.Sprintf("before-%d", len(t.d.Before)), Size: size, End: step})
		}
	case "segment_alloc", "segment_map":
		if t.reserved, err = add(t.reserved, size); err != nil {
			return err
		}
		t.d.ReservedPeak = max(t.d.ReservedPeak, t.reserved)
	default:
		t.reserved -= size
	}
	return nil
}

// free ends the request that lives at an address, if there is one.
func (t *tracer) free(addr int64, step int) bool {
	i, ok := t.live[addr]
	if !ok {
		return false
	}
	delete(t.live, addr)
	t.d.Requests[i].End = step
	t.d.Freed++
	t.sum -= t.d.Requests[i].Size
	return true
}

func (t *tracer) finish() Device {
	// Until the segments are known, this is minus what the trace has reserved.
	t.d.ReservedBefore = -t.reserved
	t.d.live = t.live
	return t.d
}

// segment adds the final state of a piece of memory from the driver: its blocks
// that no event of the trace has made were there before.
func (s *Snapshot) segment(v any) error {
	g, ok := v.(dict)
	if !ok {
		return fmt.Errorf("an entry is a %s, not a dict", kind(v))
	}
	index, err := g.integer("device")
	if err != nil {
		return err
	}
	if index < 0 || index >= int64(len(s.Devices)) {
		return fmt.Errorf("device %d has no trace", index)
	}
	d := &s.Devices[index]
	total, err := g.size("total_size")
	if err != nil {
		return err
	}
	if d.ReservedBefore, err = add(d.ReservedBefore, total); err != nil {
		return err
	}
	blocks, err := g.list("blocks")
	if err != nil {
		return err
	}
	at, _ := g.integer("address")
	for i, v := range blocks {
		b, ok := v.(dict)
		if !ok {
			return fmt.Errorf("blocks[%d] is a %s, not a dict", i, kind(v))
		}
		size, err := b.size("size")
		if err != nil {
			return fmt.Errorf("blocks[%d]: %w", i, err)
		}
		addr := at // old versions do not write the address
		if _, ok := b["address"]; ok {
			if addr, err = b.integer("address"); err != nil {
				return fmt.Errorf("blocks[%d]: %w", i, err)
			}
		}
		at = addr + size
		state, _ := b["state"].(string)
		if _, traced := d.live[addr]; traced || len(state) < 6 || state[:6] != "active" {
			continue
		}
		d.Before = append(d.Before, place.Buffer{ID: fmt.Sprintf("before-%d", len(d.Before)), Size: size, End: d.Events})
	}
	return nil
}

// settle corrects what a trace that was cut off at its start can make negative.
func (d *Device) settle() {
	d.ReservedBefore = max(d.ReservedBefore, 0)
	d.live = nil
}

// add sums byte counts from a file.
func add(a, b int64) (int64, error) {
	if b > 0 && a > 1<<62-b {
		return 0, fmt.Errorf("sizes add up to more than 2^62")
	}
	return a + b, nil
}

func (d dict) list(key string) ([]any, error) {
	l, ok := d[key].(*list)
	if !ok {
		return nil, fmt.Errorf("%s is a %s, not a list", key, kind(d[key]))
	}
	return l.items, nil
}

// integer reads a number; addresses above 2^63 wrap, which keeps them distinct.
func (d dict) integer(key string) (int64, error) {
	switch v := d[key].(type) {
	case int64:
		return v, nil
	case uint64:
		return int64(v), nil
	}
	return 0, fmt.Errorf("%s is a %s, not a number", key, kind(d[key]))
}

func (d dict) size(key string) (int64, error) {
	v, err := d.integer(key)
	if err == nil && v < 0 {
		err = fmt.Errorf("%s %d is negative", key, v)
	}
	return v, err
}

// kind names the type of a value in the words of Python.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "None or absent value"
	case *list:
		return "list"
	case tuple:
		return "tuple"
	case dict:
		return "dict"
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return "float"
	}
	return "number"
}

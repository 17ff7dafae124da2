package onnx

import (
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// rope is a message under construction: pieces of the file it was read from
// and new bytes between them, so that weights are not copied.
type rope struct {
	parts [][]byte
	size  int
	open  bool // the last part is ours to append to
}

func (r *rope) raw(b []byte) {
	if len(b) > 0 {
		r.parts, r.size, r.open = append(r.parts, b), r.size+len(b), false
	}
}

// own appends bytes made by f, which appends to its argument.
func (r *rope) own(f func([]byte) []byte) {
	if !r.open {
		r.parts, r.open = append(r.parts, nil), true
	}
	last := &r.parts[len(r.parts)-1]
	n := len(*last)
	*last = f(*last)
	r.size += len(*last) - n
}

func (r *rope) rope(s *rope) {
	r.parts, r.size, r.open = append(r.parts, s.parts...), r.size+s.size, false
}

func (r *rope) tag(num protowire.Number, typ protowire.Type) {
	r.own(func(b []byte) []byte { return protowire.AppendTag(b, num, typ) })
}

func (r *rope) varint(num protowire.Number, v int64) {
	r.own(func(b []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
	})
}

func (r *rope) string(num protowire.Number, s string) {
	r.own(func(b []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	})
}

// optional is string unless s is empty.
func (r *rope) optional(num protowire.Number, s string) {
	if s != "" {
		r.string(num, s)
	}
}

// bytes refers to b, which must not change.
func (r *rope) bytes(num protowire.Number, b []byte) {
	r.own(func(p []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(p, num, protowire.BytesType), uint64(len(b)))
	})
	r.raw(b)
}

func (r *rope) message(num protowire.Number, m *rope) {
	r.own(func(p []byte) []byte {
		return protowire.AppendVarint(protowire.AppendTag(p, num, protowire.BytesType), uint64(m.size))
	})
	r.rope(m)
}

func (r *rope) kv(num protowire.Number, key, value string) {
	var m rope
	m.string(1, key)
	m.string(2, value)
	r.message(num, &m)
}

// WriteTo implements io.WriterTo.
func (r *rope) WriteTo(w io.Writer) (int64, error) {
	total := int64(0)
	for _, p := range r.parts {
		n, err := w.Write(p)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (r *rope) flat() []byte {
	out := make([]byte, 0, r.size)
	for _, p := range r.parts {
		out = append(out, p...)
	}
	return out
}

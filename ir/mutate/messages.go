package mutate

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// field is one field of an encoded protobuf message.
type field struct {
	num, typ uint64
	raw      []byte // with its tag
	body     []byte // of a length-delimited field
}

// fields splits a message; ok is false where b is none.
func fields(b []byte) (out []field, ok bool) {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 {
			return nil, false
		}
		f := field{num: tag >> 3, typ: tag & 7}
		size := n
		switch f.typ {
		case 0:
			_, m := binary.Uvarint(b[n:])
			if m <= 0 {
				return nil, false
			}
			size += m
		case 1:
			size += 8
		case 2:
			l, m := binary.Uvarint(b[n:])
			if m <= 0 || l > uint64(len(b)-n-m) {
				return nil, false
			}
			size += m + int(l)
			f.body = b[n+m : size]
		case 5:
			size += 4
		default:
			return nil, false
		}
		if size > len(b) {
			return nil, false
		}
		f.raw, b = b[:size], b[size:]
		out = append(out, f)
	}
	return out, true
}

// Messages changes one field of a protobuf message, or of one inside it, and
// sets right the lengths around it.
func Messages(r *rand.Rand, b []byte) []byte {
	fs, ok := fields(b)
	if !ok || len(fs) == 0 {
		return change(r, b, b, nil)
	}
	i := r.IntN(len(fs))
	f := fs[i]
	if inner, ok := fields(f.body); ok && len(inner) > 0 && r.IntN(5) > 0 {
		fs[i].raw = delimited(f.num, Messages(r, f.body), 0)
	} else {
		fs = changeField(r, fs, i)
	}
	return join(fs)
}

func join(fs []field) []byte {
	var out []byte
	for _, f := range fs {
		out = append(out, f.raw...)
	}
	return out
}

// changeField changes the i-th field or its place.
func changeField(r *rand.Rand, fs []field, i int) []field {
	f, j := fs[i], r.IntN(len(fs))
	insert := func(raw []byte) []field {
		return append(fs[:j:j], append([]field{{raw: raw}}, fs[j:]...)...)
	}
	switch r.IntN(9) {
	case 0:
		return append(fs[:i:i], fs[i+1:]...)
	case 1:
		return insert(f.raw)
	case 2:
		fs[i], fs[j] = fs[j], f
	case 3: // an unknown field, or a known one where none stood
		return insert(scalar(r, 1+r.Uint64N(30)))
	case 4: // a group, which readers skip
		num := 100 + r.Uint64N(4)
		return insert(bytes.Join([][]byte{uvarint(num<<3|3, 0), f.raw, uvarint(num<<3|4, 0)}, nil))
	case 5: // the content of another field
		if f.typ == 2 && fs[j].typ == 2 {
			fs[i].raw = delimited(f.num, fs[j].body, 0)
		}
	case 6: // lengths may be encoded in more bytes than they need
		if f.typ == 2 {
			fs[i].raw = delimited(f.num, f.body, 1+r.IntN(2))
		}
	case 7:
		if f.typ == 2 {
			fs[i].raw = delimited(1+r.Uint64N(30), f.body, 0)
		} else {
			fs[i].raw = scalar(r, f.num)
		}
	default:
		if f.typ == 2 {
			fs[i].raw = delimited(f.num, change(r, f.body, f.body, nil), 0)
		}
	}
	return fs
}

// scalar is a field of some value and wire type.
func scalar(r *rand.Rand, num uint64) []byte {
	switch r.IntN(4) {
	case 0:
		return append(uvarint(num<<3|5, 0), 0, 0, 0x80, 0x3f)
	case 1:
		return delimited(num, []byte{byte(r.IntN(256)), 1}[:r.IntN(3)], 0)
	case 2:
		return append(uvarint(num<<3, 0), uvarint(r.Uint64()>>r.IntN(64), 0)...)
	}
	return append(uvarint(num<<3, 0), uvarint(r.Uint64N(24), r.IntN(2))...)
}

func delimited(num uint64, body []byte, extra int) []byte {
	return bytes.Join([][]byte{uvarint(num<<3|2, 0), uvarint(uint64(len(body)), extra), body}, nil)
}

// uvarint encodes v in extra more bytes than it needs.
func uvarint(v uint64, extra int) []byte {
	b := binary.AppendUvarint(nil, v)
	for range extra {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

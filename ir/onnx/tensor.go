package onnx

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"memoc/ir"
)

// tensorProto is a TensorProto split into its fields; data is not converted.
type tensorProto struct {
	name     string
	doc      string
	dims     []int64
	dtype    ir.DType
	raw      []byte
	hasRaw   bool
	packed   []record // the typed data fields, as they stand
	strings  []string
	external bool
	ext      ir.External
	span     []byte
	off      int64
	bad      error // the header makes no sense
}

// parseTensor splits a TensorProto at byte off of the file. It checks the
// header (type, dims, external keys), leaving what it finds in bad, so that a
// broken graph around it is reported first; data is checked when decoded.
func parseTensor(b []byte, off int64) (*tensorProto, error) {
	t := &tensorProto{span: b, off: off, dims: []int64{}}
	dtype := int64(0)
	keys := extKeys{}
	err := each(b, off, func(r record) (err error) {
		switch {
		case r.num == 1 && r.isInts():
			t.dims, err = r.varints(t.dims)
		case r.num == 2 && r.isVarint():
			dtype = int64(int32(r.n))
		case r.num == 3 && r.isBytes():
			return &wireError{r.off, "the tensor is a segment of another, which memoc does not read"}
		case r.num == 4 && r.isFloats(), (r.num == 5 || r.num == 7 || r.num == 11) && r.isInts(), r.num == 10 && !r.isVarint():
			t.packed = append(t.packed, r)
		case r.num == 6 && r.isBytes():
			t.strings = append(t.strings, string(r.b))
		case r.num == 8 && r.isBytes():
			t.name = string(r.b)
		case r.num == 9 && r.isBytes():
			t.raw, t.hasRaw = r.b, true
		case r.num == 12 && r.isBytes():
			t.doc = string(r.b)
		case r.num == 13 && r.isBytes():
			err = keys.add(r)
		case r.num == 14 && r.isVarint():
			t.external = r.n == 1
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.bad = t.checkHeader(dtype, keys)
	return t, nil
}

func (t *tensorProto) checkHeader(dtype int64, keys extKeys) (err error) {
	if dtype <= 0 || dtype > 255 || !ir.DType(dtype).Valid() {
		return &wireError{t.off, fmt.Sprintf("tensor %q has element type %d, which memoc does not know", t.name, dtype)}
	}
	t.dtype = ir.DType(dtype)
	if err := checkDims(t.dims, t.dtype); err != nil {
		return &wireError{t.off, fmt.Sprintf("tensor %q: %v", t.name, err)}
	}
	if t.external {
		if t.ext, err = keys.external(); err != nil {
			return &wireError{t.off, fmt.Sprintf("tensor %q: %v", t.name, err)}
		}
	}
	return nil
}

func checkDims(dims []int64, d ir.DType) error {
	n, ok := ir.MulSizes(dims...)
	if ok {
		_, ok = ir.MulSizes(n, int64(max(d.Bits(), 8)))
	}
	if !ok {
		return fmt.Errorf("dims %v are negative or their product overflows", dims)
	}
	return nil
}

// extKeys are the external_data entries of a tensor.
type extKeys map[string]string

func (k extKeys) add(r record) error {
	kv, err := parseKV(r)
	k[kv.Key] = kv.Value
	return err
}

func (k extKeys) external() (e ir.External, err error) {
	e.Location, e.Checksum = k["location"], k["checksum"]
	if e.Location == "" {
		return e, fmt.Errorf("external data without a location")
	}
	number := func(key string) (n int64) {
		if s := k[key]; s != "" && err == nil {
			if n, err = strconv.ParseInt(s, 10, 64); err != nil || n < 0 {
				err = fmt.Errorf("external data: %s is %q, expected a number from 0", key, s)
			}
		}
		return n
	}
	e.Offset, e.Length = number("offset"), number("length")
	return e, err
}

func parseKV(r record) (ir.KV, error) {
	var kv ir.KV
	err := each(r.b, r.boff, func(f record) error {
		switch {
		case f.num == 1 && f.isBytes():
			kv.Key = string(f.b)
		case f.num == 2 && f.isBytes():
			kv.Value = string(f.b)
		}
		return nil
	})
	return kv, err
}

func (t *tensorProto) typ() ir.Type { return ir.TensorOf(t.dtype, ir.Ints64(t.dims...)) }

// sizes is the number of elements and of bytes; the header check made sure
// that they do not overflow.
func (t *tensorProto) sizes() (elems, bytes int64) {
	elems, _ = ir.MulSizes(t.dims...)
	return elems, (elems*int64(t.dtype.Bits()) + 7) / 8
}

// decode is the tensor's value; raw data is shared, not copied. Tensors whose
// data is external are not for it.
func (t *tensorProto) decode() (*ir.Tensor, error) {
	out := &ir.Tensor{DType: t.dtype, Dims: t.dims}
	elems, size := t.sizes()
	if t.dtype == ir.String {
		if int64(len(t.strings)) != elems {
			return nil, t.mismatch(int64(len(t.strings)), elems, "strings")
		}
		out.Strings = t.strings
		return out, nil
	}
	if t.hasRaw && (len(t.raw) > 0 || len(t.packed) == 0) {
		if int64(len(t.raw)) != size {
			return nil, t.mismatch(int64(len(t.raw)), size, "bytes")
		}
		out.Data = t.raw
		return out, nil
	}
	data, err := t.typedData(elems)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, t.mismatch(int64(len(data)), size, "bytes")
	}
	out.Data = data
	return out, nil
}

func (t *tensorProto) mismatch(got, want int64, unit string) error {
	return fmt.Errorf("tensor %q (at byte %d) holds %d %s, but its type %s needs %d", t.name, t.off, got, unit, t.typ(), want)
}

// typedData converts the typed data fields to little-endian elements.
func (t *tensorProto) typedData(elems int64) ([]byte, error) {
	switch t.dtype {
	case ir.Float, ir.Complex64:
		return t.fixed(4)
	case ir.Double, ir.Complex128:
		return t.fixed(10)
	case ir.Int64:
		return t.varints(7, 8)
	case ir.Uint32:
		return t.varints(11, 4)
	case ir.Uint64:
		return t.varints(11, 8)
	}
	if t.dtype.Bits() >= 8 {
		return t.varints(5, t.dtype.Bits()/8)
	}
	data, err := t.varints(5, 1)
	per := int64(8 / t.dtype.Bits())
	if err == nil && elems > 1 && int64(len(data)) == elems {
		return pack(data, t.dtype.Bits(), per), nil // one element an entry
	}
	return data, err
}

// pack puts sub-byte elements that stand one a byte together, low bits first.
func pack(data []byte, bits int, per int64) []byte {
	out := make([]byte, (int64(len(data))+per-1)/per)
	for i, v := range data {
		out[int64(i)/per] |= v & (1<<bits - 1) << (bits * (i % int(per)))
	}
	return out
}

func (t *tensorProto) fixed(num int32) ([]byte, error) {
	var out []byte
	for _, r := range t.packed {
		switch {
		case int32(r.num) != num:
			return nil, t.wrongField(r)
		case r.isBytes() && len(t.packed) == 1:
			return r.b, nil
		case r.isBytes():
			out = append(out, r.b...)
		case num == 4:
			out = binary.LittleEndian.AppendUint32(out, uint32(r.n))
		default:
			out = binary.LittleEndian.AppendUint64(out, r.n)
		}
	}
	return out, nil
}

func (t *tensorProto) varints(num int32, size int) ([]byte, error) {
	var vals []int64
	for _, r := range t.packed {
		if int32(r.num) != num {
			return nil, t.wrongField(r)
		}
		var err error
		if vals, err = r.varints(vals); err != nil {
			return nil, err
		}
	}
	out := make([]byte, 0, len(vals)*size)
	for _, v := range vals {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		out = append(out, b[:size]...)
	}
	return out, nil
}

func (t *tensorProto) wrongField(r record) error {
	return &wireError{r.off, fmt.Sprintf("tensor %q of type %s has its data in field %d of TensorProto", t.name, t.dtype, r.num)}
}

// DecodeTensor reads a file that holds one TensorProto, as ONNX's test cases
// do.
func DecodeTensor(b []byte) (name string, t *ir.Tensor, err error) {
	p, err := parseTensor(b, 0)
	if err == nil {
		err = p.bad
	}
	if err != nil {
		return "", nil, err
	}
	if p.external {
		return p.name, nil, fmt.Errorf("tensor %q: its data is in another file", p.name)
	}
	t, err = p.decode()
	return p.name, t, err
}

// sparseProto is a SparseTensorProto.
type sparseProto struct {
	values, indices *tensorProto
	dims            []int64
	span            []byte
}

func parseSparse(b []byte, off int64) (*sparseProto, error) {
	s := &sparseProto{span: b, dims: []int64{}}
	err := each(b, off, func(r record) (err error) {
		switch {
		case r.num == 1 && r.isBytes():
			if s.values, err = parseTensor(r.b, r.boff); err == nil {
				err = s.values.bad
			}
		case r.num == 2 && r.isBytes():
			if s.indices, err = parseTensor(r.b, r.boff); err == nil {
				err = s.indices.bad
			}
		case r.num == 3 && r.isInts():
			s.dims, err = r.varints(s.dims)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.values == nil {
		return nil, &wireError{off, "a sparse tensor without values"}
	}
	if err := checkDims(s.dims, s.values.dtype); err != nil {
		return nil, &wireError{off, fmt.Sprintf("sparse tensor %q: %v", s.values.name, err)}
	}
	return s, nil
}

// denseLimit bounds, in bytes, what a sparse tensor may unfold to.
const denseLimit = 1 << 26

// dense unfolds the tensor; indices are linear or one row a value.
func (s *sparseProto) dense() (*ir.Tensor, error) {
	d := s.values.dtype
	n, _ := ir.MulSizes(s.dims...)
	if d.Bits()%8 != 0 || d.Bits() == 0 || n*int64(d.Bits()/8) > denseLimit {
		return nil, fmt.Errorf("sparse tensor %q of %s%v is not unfolded", s.values.name, d, s.dims)
	}
	vals, err := s.values.decode()
	if err != nil {
		return nil, err
	}
	idx, err := s.linear(vals.Len(), n)
	if err != nil {
		return nil, err
	}
	out := ir.NewTensor(d, s.dims...)
	size := int64(d.Bits() / 8)
	for i, at := range idx {
		copy(out.Data[at*size:(at+1)*size], vals.Data[int64(i)*size:])
	}
	return out, nil
}

func (s *sparseProto) linear(count, n int64) ([]int64, error) {
	if count == 0 {
		return nil, nil
	}
	bad := func(why string) error {
		return fmt.Errorf("sparse tensor %q: %s", s.values.name, why)
	}
	if s.indices == nil || s.indices.dtype != ir.Int64 || s.indices.external {
		return nil, bad("indices must be int64 and in the model file")
	}
	it, err := s.indices.decode()
	if err != nil {
		return nil, err
	}
	raw := it.Ints()
	width := int64(1)
	if len(it.Dims) == 2 {
		width = int64(len(s.dims))
	}
	if int64(len(raw)) != count*width {
		return nil, bad(fmt.Sprintf("%d indices for %d values", len(raw), count))
	}
	out := make([]int64, count)
	for i := range out {
		at := int64(0)
		for j, x := range raw[int64(i)*width : int64(i+1)*width] {
			if width > 1 || len(it.Dims) == 2 {
				if x < 0 || x >= s.dims[j] {
					return nil, bad(fmt.Sprintf("index %d is out of range", x))
				}
				at = at*s.dims[j] + x
			} else {
				at = x
			}
		}
		if at < 0 || at >= n {
			return nil, bad(fmt.Sprintf("index %d is out of range", at))
		}
		out[i] = at
	}
	return out, nil
}

package npz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"memoc/ir"
)

const magic = "\x93NUMPY"

// maxHeader bounds the text header: NumPy's own limit for trusted files is
// 10,000; shapes of a hundred dims fit.
const maxHeader = 1 << 16

// descrs are NumPy's type codes (kind and size) of the element types.
var descrs = map[string]ir.DType{
	"f2": ir.Float16, "f4": ir.Float, "f8": ir.Double, "i1": ir.Int8, "i2": ir.Int16, "i4": ir.Int32, "i8": ir.Int64,
	"u1": ir.Uint8, "u2": ir.Uint16, "u4": ir.Uint32, "u8": ir.Uint64, "b1": ir.Bool, "c8": ir.Complex64, "c16": ir.Complex128,
	"V2": ir.BFloat16, "V1": ir.Uint8, "f1": ir.Uint8,
}

// header is the text header of an .npy file.
type header struct {
	order   byte // '<', '>', '|' or '='
	code    string
	fortran bool
	dims    []int64
}

// ReadNPY reads one array, of at most limit bytes (0: 16 GiB).
func ReadNPY(r io.Reader, limit int64) (*ir.Tensor, error) {
	t, _, err := readNPY(r, Limits{Bytes: limit}.orDefault().Bytes)
	return t, err
}

func readNPY(r io.Reader, limit int64) (*ir.Tensor, int64, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, 0, err
	}
	n, ok := ir.MulSizes(h.dims...)
	if !ok {
		return nil, 0, fmt.Errorf("shape %v overflows", h.dims)
	}
	if kind := h.code[0]; kind == 'U' || kind == 'S' {
		return h.strings(r, n, limit)
	}
	d, ok := descrs[h.code]
	if !ok {
		return nil, 0, fmt.Errorf("elements of NumPy type %q are not read", h.code)
	}
	size := int64(d.Bits() / 8)
	data, err := h.body(r, n, size, limit)
	if err != nil {
		return nil, 0, err
	}
	if h.order == '>' {
		swap(data, int(size), d == ir.Complex64 || d == ir.Complex128)
	}
	if h.fortran {
		data = transpose(data, h.dims, int(size))
	}
	return &ir.Tensor{DType: d, Dims: h.dims, Data: data}, int64(len(data)), nil
}

// body reads n elements. Memory grows with what is there, not with what the
// header promises.
func (h *header) body(r io.Reader, n, size, limit int64) ([]byte, error) {
	bytesWanted, ok := ir.MulSizes(n, size)
	if !ok || bytesWanted > limit {
		return nil, fmt.Errorf("shape %v is larger than the limit of %d bytes", h.dims, limit)
	}
	var b bytes.Buffer
	if got, err := io.CopyN(&b, r, bytesWanted); err != nil {
		if err == io.EOF {
			return nil, fmt.Errorf("the array is cut off: shape %v needs %d bytes, there are %d", h.dims, bytesWanted, got)
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// strings reads fixed-width text: UTF-32 for U, bytes for S; zeros pad.
func (h *header) strings(r io.Reader, n, limit int64) (*ir.Tensor, int64, error) {
	width, err := strconv.ParseInt(h.code[1:], 10, 32)
	if err != nil || width < 0 || n > 1<<24 || width == 0 && n > 1<<16 {
		return nil, 0, fmt.Errorf("elements of NumPy type %q are not read", h.code)
	}
	unit := int64(1)
	if h.code[0] == 'U' {
		unit = 4
	}
	data, err := h.body(r, n, width*unit, limit)
	if err != nil {
		return nil, 0, err
	}
	if h.order == '>' {
		swap(data, int(unit), false)
	}
	if h.fortran {
		data = transpose(data, h.dims, int(width*unit))
	}
	t := &ir.Tensor{DType: ir.String, Dims: h.dims, Strings: make([]string, n)}
	for i := range t.Strings {
		cell := data[int64(i)*width*unit : int64(i+1)*width*unit]
		if unit == 1 {
			t.Strings[i] = strings.TrimRight(string(cell), "\x00")
			continue
		}
		var s []rune
		for ; len(cell) > 0; cell = cell[4:] {
			s = append(s, rune(binary.LittleEndian.Uint32(cell)))
		}
		t.Strings[i] = strings.TrimRight(string(s), "\x00")
	}
	return t, int64(len(data)), nil
}

// swap reverses the bytes of every element, of each half of a complex one.
func swap(data []byte, size int, complex bool) {
	if complex {
		size /= 2
	}
	if size < 2 {
		return
	}
	for ; len(data) >= size; data = data[size:] {
		slices.Reverse(data[:size])
	}
}

// transpose turns column-major data into row-major.
func transpose(data []byte, dims []int64, size int) []byte {
	out := make([]byte, len(data))
	idx := make([]int64, len(dims))
	for at := 0; at < len(data); at += size {
		src, stride := int64(0), int64(1)
		for i, d := range dims {
			src += idx[i] * stride
			stride *= d
		}
		copy(out[at:at+size], data[src*int64(size):])
		for i := len(idx) - 1; i >= 0; i-- {
			if idx[i]++; idx[i] < dims[i] {
				break
			}
			idx[i] = 0
		}
		if size == 0 {
			break
		}
	}
	return out
}

func readHeader(r io.Reader) (*header, error) {
	var pre [12]byte
	if _, err := io.ReadFull(r, pre[:8]); err != nil || string(pre[:6]) != magic {
		return nil, errors.New("no .npy array: the magic bytes are missing")
	}
	size := int64(0)
	switch pre[6] {
	case 1:
		if _, err := io.ReadFull(r, pre[:2]); err != nil {
			return nil, errors.New("the header is cut off")
		}
		size = int64(binary.LittleEndian.Uint16(pre[:]))
	case 2, 3:
		if _, err := io.ReadFull(r, pre[:4]); err != nil {
			return nil, errors.New("the header is cut off")
		}
		size = int64(binary.LittleEndian.Uint32(pre[:]))
	default:
		return nil, fmt.Errorf("version %d of the .npy format is not read", pre[6])
	}
	if size > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes, more than %d", size, maxHeader)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, errors.New("the header is cut off")
	}
	if !utf8.Valid(text) {
		return nil, errors.New("the header is no text")
	}
	return parseHeader(string(text))
}

// parseHeader reads the Python dict {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), }.
func parseHeader(s string) (*header, error) {
	bad := func() (*header, error) { return nil, fmt.Errorf("header %q is not understood", strings.TrimSpace(s)) }
	h := &header{dims: []int64{}}
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), "{")
	seen := map[string]bool{}
	for ok {
		rest = strings.TrimLeft(rest, ", \n\t")
		if strings.HasPrefix(rest, "}") {
			break
		}
		var key string
		if key, rest, ok = quoted(rest); !ok || seen[key] {
			return bad()
		}
		seen[key] = true
		if rest, ok = strings.CutPrefix(strings.TrimSpace(rest), ":"); !ok {
			return bad()
		}
		rest, ok = h.field(key, strings.TrimSpace(rest))
	}
	if !ok || len(seen) != 3 {
		if seen["descr"] && strings.Contains(s, "[") && h.code == "" {
			return nil, errors.New("structured arrays are not read")
		}
		return bad()
	}
	if h.code[0] == 'O' {
		return nil, errors.New("arrays of Python objects (pickle) are not read")
	}
	return h, nil
}

func quoted(s string) (text, rest string, ok bool) {
	if s == "" || s[0] != '\'' && s[0] != '"' {
		return "", s, false
	}
	return strings.Cut(s[1:], s[:1])
}

func (h *header) field(key, s string) (rest string, ok bool) {
	switch key {
	case "descr":
		text, rest, ok := quoted(s)
		if !ok || len(text) < 2 || !strings.ContainsRune("<>|=", rune(text[0])) {
			return rest, false
		}
		h.order, h.code = text[0], text[1:]
		return rest, true
	case "fortran_order":
		if rest, ok = strings.CutPrefix(s, "True"); ok {
			h.fortran = true
			return rest, true
		}
		return strings.CutPrefix(s, "False")
	case "shape":
		body, ok := strings.CutPrefix(s, "(")
		if !ok {
			return s, false
		}
		body, rest, ok = strings.Cut(body, ")")
		for f := range strings.SplitSeq(body, ",") {
			f = strings.TrimSuffix(strings.TrimSpace(f), "L")
			if f == "" {
				continue
			}
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil || n < 0 || len(h.dims) > 64 {
				return rest, false
			}
			h.dims = append(h.dims, n)
		}
		return rest, ok
	}
	return s, false
}

// WriteNPY writes one array in version 1.0 of the format. Types that NumPy
// does not have are written as plain bytes ("<V2", "|V1").
func WriteNPY(w io.Writer, t *ir.Tensor) error {
	descr, data, err := numpyForm(t)
	if err != nil {
		return err
	}
	var dims strings.Builder
	for _, d := range t.Dims {
		fmt.Fprintf(&dims, "%d, ", d)
	}
	shape := dims.String()
	if len(t.Dims) > 1 {
		shape = strings.TrimSuffix(shape, ", ")
	}
	shape = strings.TrimSuffix(shape, " ")
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	const align = 64
	pad := (align - (10+len(text)+1)%align) % align
	text += strings.Repeat(" ", pad) + "\n"
	if len(text) > 0xffff {
		return fmt.Errorf("a shape of %d dims does not fit", len(t.Dims))
	}
	head := append([]byte(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	if _, err := w.Write(append(head, text...)); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

func numpyForm(t *ir.Tensor) (descr string, data []byte, err error) {
	switch bits := t.DType.Bits(); {
	case t.DType == ir.String:
		return stringForm(t)
	case bits == 0:
		return "", nil, fmt.Errorf("elements of type %s cannot be written", t.DType)
	case bits < 8:
		return "|V1", unpack(t, bits), nil
	}
	for code, d := range descrs {
		if d == t.DType && code != "V1" && code != "f1" {
			order := "<"
			if d.Bits() == 8 {
				order = "|"
			}
			return order + code, t.Data, nil
		}
	}
	return "|V1", t.Data, nil // the 8-bit floats
}

// unpack gives every element of a packed type a byte, as ml_dtypes has them.
func unpack(t *ir.Tensor, bits int) []byte {
	n := t.Len()
	out := make([]byte, n)
	per := int64(8 / bits)
	for i := range n {
		v := t.Data[i/per] >> (int64(bits) * (i % per)) & (1<<bits - 1)
		if (t.DType == ir.Int4 || t.DType == ir.Int2) && v>>(bits-1) == 1 {
			v |= 0xff << bits
		}
		out[i] = v
	}
	return out
}

func stringForm(t *ir.Tensor) (string, []byte, error) {
	width := 1
	for _, s := range t.Strings {
		width = max(width, utf8.RuneCountInString(s))
	}
	data := make([]byte, 0, len(t.Strings)*width*4)
	for _, s := range t.Strings {
		n := 0
		for _, r := range s {
			data = binary.LittleEndian.AppendUint32(data, uint32(r))
			n++
		}
		data = append(data, make([]byte, 4*(width-n))...)
	}
	return fmt.Sprintf("<U%d", width), data, nil
}

// As reads t as elements of type want, where NumPy could not say so: uint16
// as bfloat16 or float16, uint8 as an 8-bit float or as one element of a
// packed type a byte. Other differences are an error; no value is converted.
func As(t *ir.Tensor, want ir.DType) (*ir.Tensor, error) {
	u := *t
	u.DType = want
	bits := want.Bits()
	raw := t.DType == ir.Uint8 || t.DType == ir.Uint16 || t.DType == ir.BFloat16
	switch {
	case t.DType == want:
		return t, nil
	case raw && bits == t.DType.Bits() && !want.IsInt() && want != ir.Bool:
		return &u, nil
	case t.DType == ir.Uint8 && bits > 0 && bits < 8:
		per := 8 / bits
		u.Data = make([]byte, (len(t.Data)+per-1)/per)
		for i, v := range t.Data {
			u.Data[i/per] |= v & (1<<bits - 1) << (bits * (i % per))
		}
		return &u, nil
	}
	return nil, fmt.Errorf("the array holds %s, expected %s", t.DType, want)
}

// Package torchsnap reads memory snapshots of PyTorch's CUDA allocator (what
// torch.cuda.memory._dump_snapshot writes), and turns the recorded requests into
// a placement problem.
//
// A snapshot is a Python pickle, which is a program. This package runs only the
// part of it that builds plain data: numbers, strings, lists, tuples and dicts.
// Whatever would import, call or construct anything else is an error, so reading
// a file can do no harm.
package torchsnap

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// list is a Python list; a pointer, because the pickle may refer to it again
// before it is filled.
type list struct{ items []any }

// tuple is a Python tuple.
type tuple []any

// dict is a Python dict with the keys that can be Go map keys.
type dict map[any]any

// mark is what the opcode MARK leaves on the stack.
type mark struct{}

// machine runs a pickle.
type machine struct {
	data  []byte
	pos   int
	stack []any
	memo  map[uint64]any
}

// unpickle returns the value that a pickle builds. Errors name the byte.
func unpickle(data []byte) (v any, err error) {
	m := &machine{data: data, memo: map[uint64]any{}}
	for {
		at := m.pos
		op, err := m.bytes(1)
		if err != nil {
			return nil, fmt.Errorf("byte %d: the pickle is cut off: no STOP", at)
		}
		if op[0] == '.' {
			v, err := m.pop()
			if err != nil || len(m.stack) > 0 {
				return nil, fmt.Errorf("byte %d: STOP with %d values on the stack", at, len(m.stack))
			}
			return v, nil
		}
		if err := m.step(op[0]); err != nil {
			return nil, fmt.Errorf("byte %d: opcode %q: %w", at, op[0], err)
		}
	}
}

// bytes takes the next n bytes of the program.
func (m *machine) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(m.data)-m.pos) {
		return nil, fmt.Errorf("the pickle is cut off: %d bytes are missing", n-uint64(len(m.data)-m.pos))
	}
	b := m.data[m.pos : m.pos+int(n)]
	m.pos += int(n)
	return b, nil
}

// unsigned takes a little-endian number of n bytes.
func (m *machine) unsigned(n uint64) (uint64, error) {
	b, err := m.bytes(n)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// counted takes a length of n bytes and then as many bytes.
func (m *machine) counted(n uint64) ([]byte, error) {
	size, err := m.unsigned(n)
	if err != nil {
		return nil, err
	}
	return m.bytes(size)
}

// line takes the text up to a newline.
func (m *machine) line() (string, error) {
	rest := m.data[m.pos:]
	for i, c := range rest {
		if c == '\n' {
			m.pos += i + 1
			return string(rest[:i]), nil
		}
	}
	return "", fmt.Errorf("the pickle is cut off: a line has no end")
}

func (m *machine) push(v any) error {
	m.stack = append(m.stack, v)
	return nil
}

func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, fmt.Errorf("the stack is empty")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popMark takes all values above the last mark, and the mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(mark); ok {
			items := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, fmt.Errorf("there is no mark on the stack")
}

// forbidden opcodes import, call or construct.
var forbidden = map[byte]string{
	'c': "GLOBAL", 'i': "INST", 'o': "OBJ", 'R': "REDUCE", 'b': "BUILD", 'P': "PERSID", 'Q': "BINPERSID",
	0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL",
	0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}

// step runs one opcode.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		v, err := m.unsigned(1)
		if err == nil && v > 5 {
			err = fmt.Errorf("pickle protocol %d is unknown", v)
		}
		return err
	case 0x95: // FRAME: a length that only helps streaming readers
		_, err := m.bytes(8)
		return err
	case '(':
		return m.push(mark{})
	case '0': // POP
		_, err := m.pop()
		return err
	case '1': // POP_MARK
		_, err := m.popMark()
		return err
	case '2': // DUP
		v, err := m.pop()
		if err != nil {
			return err
		}
		m.push(v)
		return m.push(v)
	case 'N':
		return m.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		return m.push(op == 0x88)
	}
	if known, err := m.scalar(op); known {
		return err
	}
	if known, err := m.container(op); known {
		return err
	}
	if known, err := m.memory(op); known {
		return err
	}
	if name, ok := forbidden[op]; ok {
		return fmt.Errorf("%s makes or calls objects; a snapshot needs none and it is not run", name)
	}
	return fmt.Errorf("unknown")
}

// scalar runs the opcodes that push numbers and strings.
func (m *machine) scalar(op byte) (known bool, err error) {
	var n uint64
	var b []byte
	var s string
	switch op {
	case 'K', 'M': // BININT1, BININT2
		n, err = m.unsigned(uint64(op-'K')/2 + 1)
		return true, m.result(int64(n), err)
	case 'J': // BININT
		n, err = m.unsigned(4)
		return true, m.result(int64(int32(n)), err)
	case 0x8a, 0x8b: // LONG1, LONG4
		b, err = m.counted(1 + 3*uint64(op-0x8a))
		if err != nil {
			return true, err
		}
		v, err := integer(b)
		return true, m.result(v, err)
	case 'G': // BINFLOAT is big-endian
		b, err = m.bytes(8)
		if err != nil {
			return true, err
		}
		return true, m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case 'I', 'L', 'F', 'V', 'S':
		s, err = m.line()
		if err != nil {
			return true, err
		}
		v, err := textual(op, s)
		return true, m.result(v, err)
	case 0x8c, 'U', 'C': // SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES
		b, err = m.counted(1)
	case 'X', 'T', 'B': // BINUNICODE, BINSTRING, BINBYTES
		b, err = m.counted(4)
	case 0x8d, 0x8e, 0x96: // BINUNICODE8, BINBYTES8, BYTEARRAY8
		b, err = m.counted(8)
	default:
		return false, nil
	}
	return true, m.result(string(b), err)
}

func (m *machine) result(v any, err error) error {
	if err != nil {
		return err
	}
	return m.push(v)
}

// integer decodes a little-endian two's complement number of any length.
func integer(b []byte) (any, error) {
	for len(b) > 8 && (b[len(b)-1] == 0 && b[len(b)-2] < 0x80 || b[len(b)-1] == 0xff && b[len(b)-2] >= 0x80) {
		b = b[:len(b)-1]
	}
	if len(b) == 9 && b[8] == 0 {
		return binary.LittleEndian.Uint64(b), nil // an address with the top bit set
	}
	if len(b) > 8 {
		return nil, fmt.Errorf("a number of %d bytes is too large", len(b))
	}
	var wide [8]byte
	if len(b) > 0 && b[len(b)-1] >= 0x80 {
		for i := range wide {
			wide[i] = 0xff
		}
	}
	copy(wide[:], b)
	return int64(binary.LittleEndian.Uint64(wide[:])), nil
}

// textual decodes the opcodes of protocol 0.
func textual(op byte, s string) (any, error) {
	switch op {
	case 'F':
		return strconv.ParseFloat(s, 64)
	case 'V', 'S':
		return strings.Trim(s, "'\""), nil
	}
	if op == 'I' && (s == "00" || s == "01") {
		return s == "01", nil
	}
	return strconv.ParseInt(strings.TrimSuffix(s, "L"), 10, 64)
}

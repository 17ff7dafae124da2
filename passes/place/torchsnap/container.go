package torchsnap

import "fmt"

// container runs the opcodes that make and fill lists, tuples and dicts.
func (m *machine) container(op byte) (known bool, err error) {
	switch op {
	case ']':
		return true, m.push(&list{})
	case '}':
		return true, m.push(dict{})
	case ')':
		return true, m.push(tuple{})
	case 0x8f: // EMPTY_SET: a set is read as a list
		return true, m.push(&list{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		return true, m.makeTuple(int(op - 0x84))
	case 't', 'l', 'd', 0x91, 'e', 'u', 0x90:
		items, err := m.popMark()
		if err != nil {
			return true, err
		}
		return true, m.collect(op, items)
	case 'a', 's': // APPEND, SETITEM
		n := 1
		if op == 's' {
			n = 2
		}
		if len(m.stack) < n+1 {
			return true, fmt.Errorf("the stack is empty")
		}
		items := append([]any(nil), m.stack[len(m.stack)-n:]...)
		m.stack = m.stack[:len(m.stack)-n]
		return true, m.collect(op, items)
	}
	return false, nil
}

func (m *machine) makeTuple(n int) error {
	if len(m.stack) < n {
		return fmt.Errorf("the stack is empty")
	}
	at := len(m.stack) - n
	t := append(tuple(nil), m.stack[at:]...)
	m.stack = m.stack[:at]
	return m.push(t)
}

// collect puts items into a new container or into the one on top of the stack.
func (m *machine) collect(op byte, items []any) error {
	for _, v := range items {
		if _, ok := v.(mark); ok {
			return fmt.Errorf("a mark is no value")
		}
	}
	switch op {
	case 't':
		return m.push(tuple(items))
	case 'l', 0x91: // LIST, FROZENSET
		return m.push(&list{items})
	case 'd':
		d := dict{}
		m.push(d)
		return d.set(items)
	}
	if len(m.stack) == 0 {
		return fmt.Errorf("the stack is empty")
	}
	switch c := m.stack[len(m.stack)-1].(type) {
	case *list:
		if op == 'e' || op == 'a' || op == 0x90 {
			c.items = append(c.items, items...)
			return nil
		}
	case dict:
		if op == 'u' || op == 's' {
			return c.set(items)
		}
	}
	return fmt.Errorf("the value to fill is of another kind")
}

// set adds keys and values in turn. Only scalars can be keys.
func (d dict) set(items []any) error {
	if len(items)%2 != 0 {
		return fmt.Errorf("a key has no value")
	}
	for i := 0; i < len(items); i += 2 {
		switch k := items[i].(type) {
		case nil, bool, int64, uint64, float64, string:
			d[k] = items[i+1]
		default:
			return fmt.Errorf("a key of type %T is not supported", k)
		}
	}
	return nil
}

// memory runs the opcodes that store values for later and bring them back.
func (m *machine) memory(op byte) (known bool, err error) {
	var at uint64
	switch op {
	case 0x94: // MEMOIZE
		return true, m.store(uint64(len(m.memo)))
	case 'q', 'r': // BINPUT, LONG_BINPUT
		if at, err = m.unsigned(1 + 3*uint64(op-'q')); err != nil {
			return true, err
		}
		return true, m.store(at)
	case 'h', 'j': // BINGET, LONG_BINGET
		if at, err = m.unsigned(1 + 3*uint64((op-'h')/2)); err != nil {
			return true, err
		}
	case 'p', 'g': // PUT, GET
		s, err := m.line()
		if err != nil {
			return true, err
		}
		if _, err := fmt.Sscanf(s, "%d", &at); err != nil {
			return true, fmt.Errorf("%q is no memo number", s)
		}
		if op == 'p' {
			return true, m.store(at)
		}
	default:
		return false, nil
	}
	v, ok := m.memo[at]
	if !ok {
		return true, fmt.Errorf("nothing is stored as number %d", at)
	}
	return true, m.push(v)
}

func (m *machine) store(at uint64) error {
	if len(m.stack) == 0 {
		return fmt.Errorf("the stack is empty")
	}
	v := m.stack[len(m.stack)-1]
	if _, ok := v.(mark); ok {
		return fmt.Errorf("a mark is no value")
	}
	m.memo[at] = v
	return nil
}

package mutate

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// nested is a message that holds a message: field 2 {field 1 varint 5}, and a
// string beside it.
var nested = []byte{0x12, 2, 0x08, 5, 0x0a, 3, 'a', 'b', 'c'}

// A fault behind two levels of lengths is found, the same one every time.
func TestSearch(t *testing.T) {
	fault := errors.New("fault")
	holds := func(b []byte) (bool, error) {
		outer, ok := fields(b)
		if !ok {
			return false, nil
		}
		for _, f := range outer {
			inner, ok := fields(f.body)
			if f.num == 2 && ok && len(inner) == 2 && inner[0].num == 9 {
				return true, fault
			}
		}
		return true, nil
	}
	first, err := search([][]byte{nested}, 20000, holds, []Mutation{Messages})
	if err != fault {
		t.Fatalf("got %v", err)
	}
	if again, _ := search([][]byte{nested}, 20000, holds, []Mutation{Messages}); !bytes.Equal(first, again) {
		t.Errorf("%x, then %x", first, again)
	}
}

func TestPanicIsFound(t *testing.T) {
	_, err := search([][]byte{nested}, 1, func([]byte) (bool, error) { panic("oh") }, nil)
	if err == nil || !strings.Contains(err.Error(), "oh") {
		t.Errorf("got %v", err)
	}
}

// The property cannot change what is mutated next.
func TestInputIsCopied(t *testing.T) {
	seed := bytes.Clone(nested)
	_, err := search([][]byte{seed}, 100, func(b []byte) (bool, error) { clear(b); return true, nil }, []Mutation{Messages})
	if err != nil || !bytes.Equal(seed, nested) {
		t.Errorf("%x %v", seed, err)
	}
}

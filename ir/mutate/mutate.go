// Package mutate tests properties of readers on damaged inputs. What fuzzing
// finds by luck is no property of a change, so a gate needs inputs that are
// the same every time: here they come from a generator with a fixed seed. The
// same property is a fuzz target, for exploration. The package knows no format
// and is used by tests alone.
package mutate

import (
	"bytes"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A Property tries one input: whether the reader accepts it, and what is wrong.
type Property func(b []byte) (accepted bool, wrong error)

// A Mutation returns a changed copy of b. Those of this package know bytes
// only; a format has its own beside them.
type Mutation func(r *rand.Rand, b []byte) []byte

// Explore makes the property a fuzz target.
func Explore(f *testing.F, seeds [][]byte, holds Property) {
	for _, b := range seeds {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := holds(b); err != nil {
			t.Fatal(err)
		}
	})
}

var longer = flag.Int("mutate", 1, "make runs of seeded mutations this many times as long")

// Test mutates every seed, and every committed finding of the fuzz target,
// rounds times. What the reader accepts is mutated further, so that a run
// walks among inputs that mean something. What is made of a seed depends on it
// alone, so that a new seed does not change what is made of the others.
func Test(t *testing.T, target string, seeds [][]byte, rounds int, holds Property, own ...Mutation) {
	t.Helper()
	seeds = append(findings(t, target), seeds...)
	if b, err := search(seeds, rounds**longer, holds, own); err != nil {
		t.Fatalf("%v\n%s", err, keep(target, b))
	}
}

// search returns the first input of which the property does not hold.
func search(seeds [][]byte, rounds int, holds Property, own []Mutation) (input []byte, wrong error) {
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(digest(seed), 1))
		base := seed
		for range rounds {
			b := base
			for range 1 + r.IntN(3) {
				b = change(r, b, seed, own)
			}
			accepted, err := try(holds, b)
			if err != nil {
				return b, err
			}
			switch {
			case r.IntN(20) == 0:
				base = seed
			case accepted && len(b) < 2*len(seed)+64:
				base = b
			}
		}
	}
	return nil, nil
}

// try runs the property; a panic is a wrong result.
func try(holds Property, b []byte) (accepted bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return holds(bytes.Clone(b))
}

// keep says how an input becomes a committed test.
func keep(target string, b []byte) string {
	return fmt.Sprintf("the input in hex: %x\nto commit it:\nmkdir -p testdata/fuzz/%[2]s && printf 'go test fuzz v1\\n[]byte(%%s)\\n' '%[3]s' > testdata/fuzz/%[2]s/%016[4]x",
		b, target, strings.ReplaceAll(strconv.QuoteToASCII(string(b)), "'", `\x27`), digest(b))
}

func digest(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// findings are the inputs under testdata/fuzz.
func findings(t *testing.T, target string) [][]byte {
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", target, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := strings.TrimSpace(string(text))
		s, head := strings.CutPrefix(s, "go test fuzz v1\n[]byte(")
		s, tail := strings.CutSuffix(s, ")")
		b, err := strconv.Unquote(s)
		if !head || !tail || err != nil {
			t.Fatalf("%s holds no []byte: %v", file, err)
		}
		out = append(out, []byte(b))
	}
	return out
}

// awkward are bytes at which formats turn: signs, ends of varints, digits,
// separators.
const awkward = "\x00\x01\x02\x08\x0a\x10\x12\x7f\x80\x81\xfe\xff 09aN_-+.,:;'\"()[]{}<>*/\n"

// change makes one mutation of b, which came from seed.
func change(r *rand.Rand, b, seed []byte, own []Mutation) []byte {
	if k := r.IntN(2 + len(own)); k >= 2 {
		return own[k-2](r, b)
	}
	at := r.IntN(len(b) + 1)
	end := min(len(b), at+1+r.IntN(8))
	part := func(s []byte) []byte {
		if len(s) == 0 {
			return nil
		}
		i := r.IntN(len(s))
		return s[i:min(len(s), i+1+r.IntN(16))]
	}
	switch r.IntN(7) {
	case 0: // flip bits
		if at < len(b) {
			return splice(b, at, at+1, []byte{b[at] ^ 1<<r.IntN(8)})
		}
	case 1:
		if at < len(b) {
			return splice(b, at, at+1, []byte{awkward[r.IntN(len(awkward))]})
		}
	case 2: // count up or down
		if at < len(b) {
			return splice(b, at, at+1, []byte{b[at] + byte(r.IntN(5)) - 2})
		}
	case 3:
		return splice(b, at, at, []byte{awkward[r.IntN(len(awkward))]})
	case 4:
		return splice(b, at, end, nil)
	case 5: // repeat a part of the input
		return splice(b, at, at, part(b))
	}
	return splice(b, at, end, part(seed))
}

// splice is b with b[from:to] replaced, in memory of its own.
func splice(b []byte, from, to int, with []byte) []byte {
	return bytes.Join([][]byte{b[:from], with, b[to:]}, nil)
}

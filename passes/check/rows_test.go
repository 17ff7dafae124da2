package check

import (
	"testing"

	"memoc/ir/planfile"
)

// runsFrom is the runs of the bits that are set.
func runsFrom(bits int) (out []run) {
	for i := range int64(8) {
		if bits>>i&1 == 1 {
			out = append(out, run{i, i + 1})
		}
	}
	return merged(out)
}

func bitsOf(rs []run) (bits int) {
	for _, r := range rs {
		for at := r.from; at < r.to; at++ {
			bits |= 1 << at
		}
	}
	return bits
}

// TestRunsAgainstBits holds the algebra of runs against that of bits, for every
// two sets of eight bytes.
func TestRunsAgainstBits(t *testing.T) {
	for a := range 256 {
		for b := range 256 {
			x, y := runsFrom(a), runsFrom(b)
			if got := bitsOf(both(x, y)); got != a&b {
				t.Fatalf("%08b and %08b have %08b in common", a, b, got)
			}
			if got := bitsOf(without(x, y)); got != a&^b {
				t.Fatalf("%08b without %08b is %08b", a, b, got)
			}
			at, yes := meet(x, 0, y, 0)
			if yes != (a&b != 0) || yes && a&b&(1<<at-1) != 0 || yes && a&b>>at&1 == 0 {
				t.Fatalf("%08b and %08b meet at %d: %v", a, b, at, yes)
			}
			if _, yes := meet(x, 3, y, 1); yes != (a<<3&(b<<1) != 0) {
				t.Fatalf("%08b three on and %08b one on meet: %v", a, b, yes)
			}
		}
	}
}

func TestRunsOfRows(t *testing.T) {
	got := runsOf(planfile.Range{Offset: 1, Size: 4, Rows: 2, Pitch: 3})
	if len(got) != 2 || got[0] != (run{1, 3}) || got[1] != (run{4, 6}) {
		t.Errorf("%v", got)
	}
	if got := through(got, 1, 3); len(got) != 2 || got[0] != (run{2, 3}) || got[1] != (run{4, 5}) {
		t.Errorf("the second and third byte lie at %v", got)
	}
}

package ir

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestSmallFloats compares with values computed by ml_dtypes.
func TestSmallFloats(t *testing.T) {
	f, err := os.Open("testdata/small_floats.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		num := func(i int) float64 {
			x, err := strconv.ParseFloat(w[i], 64)
			if err != nil {
				t.Fatalf("%q: %v", s.Text(), err)
			}
			return x
		}
		d, _ := ParseDType(w[1])
		switch w[0] {
		case "code":
			got, want := SmallFloat(d, byte(num(2))), num(3)
			if got != want && !(got != got && want != want) || math.Signbit(got) != math.Signbit(want) && want == 0 {
				t.Errorf("%s: got %v", s.Text(), got)
			}
		case "round":
			if got := SmallFloatBits(d, num(2), false); got != byte(num(3)) {
				t.Errorf("%s: got %d", s.Text(), got)
			}
			if got := SmallFloatBits(d, num(2), true); got != byte(num(4)) {
				t.Errorf("%s: got %d saturated", s.Text(), got)
			}
		case "power":
			if got := PowerOfTwoBits(num(2), w[1], true); got != byte(num(3)) {
				t.Errorf("%s: got %d", s.Text(), got)
			}
		}
	}
}

func TestPackedInts(t *testing.T) {
	for _, d := range []DType{Int2, Uint2, Int4, Uint4} {
		x := NewTensor(d, 5)
		SetInts(x, []int64{0, 1, -1, 2, -2})
		want := map[DType][]int64{Int2: {0, 1, -1, -2, -2}, Uint2: {0, 1, 3, 2, 2}, Int4: {0, 1, -1, 2, -2}, Uint4: {0, 1, 15, 2, 14}}[d]
		for i, v := range x.Ints() {
			if v != want[i] {
				t.Errorf("%s[%d] = %d, want %d", d, i, v, want[i])
			}
		}
	}
}

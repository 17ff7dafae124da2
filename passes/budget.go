package passes

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Budget is how much device memory a plan may take: bytes, or a share. A share
// means the persistent and output bytes plus that share of the rest of the
// unplanned peak. The zero value is no limit.
type Budget struct {
	Bytes int64
	Share float64 // 0.6 for "60%"
}

// IsSet reports whether there is a limit.
func (b Budget) IsSet() bool { return b.Bytes > 0 || b.Share > 0 }

// Limit is the budget in bytes; 0 for none.
func (b Budget) Limit(fixed, unplanned int64) int64 {
	if b.Share > 0 {
		return fixed + int64(math.Floor(b.Share*float64(max(unplanned-fixed, 0))))
	}
	return b.Bytes
}

// ParseBudget reads "80GB", "80GiB", "123456" (bytes) or "60%".
func ParseBudget(s string) (Budget, error) {
	if share, ok := strings.CutSuffix(strings.TrimSpace(s), "%"); ok {
		x, err := strconv.ParseFloat(share, 64)
		if err != nil || !(x > 0) || x > 1000 {
			return Budget{}, fmt.Errorf("%q is no share: write a positive percentage such as 60%%", s)
		}
		return Budget{Share: x / 100}, nil
	}
	n, err := ParseSize(s)
	if err != nil {
		return Budget{}, err
	}
	if n == 0 {
		return Budget{}, fmt.Errorf("a budget of 0 bytes holds nothing")
	}
	return Budget{Bytes: n}, nil
}

var units = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes: "80GB" is decimal, "80GiB" binary, a bare
// number is bytes.
func ParseSize(s string) (int64, error) {
	text := strings.TrimSpace(s)
	for _, u := range units {
		num, ok := cutSuffixFold(text, u.suffix)
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || x < 0 || math.IsNaN(x) {
			break
		}
		if x*u.factor >= math.MaxInt64 {
			return 0, fmt.Errorf("%q is more than 64 bits hold", s)
		}
		return int64(x * u.factor), nil
	}
	return 0, fmt.Errorf("%q is no size: write for example 80GB (decimal), 80GiB (binary) or a number of bytes", s)
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) < len(suffix) || !strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}

package diag

import (
	"cmp"
	"slices"
	"strings"
)

// Suggest is the candidate that a mistyped name most likely means, "" if none
// is near.
func Suggest(name string, candidates []string) string {
	if near := Nearest(name, candidates, 1); len(near) > 0 {
		return near[0]
	}
	return ""
}

// Nearest lists at most n candidates that name may have been meant for, the
// nearest first, equally near ones in alphabetical order. A candidate is near
// if a third of its letters or fewer are wrong, or if one name is a part of
// the other that is at least three letters long ("weight" of "fc.weight").
// Case does not count.
func Nearest(name string, candidates []string, n int) []string {
	type scored struct {
		name  string
		score int
	}
	var near []scored
	low := strings.ToLower(name)
	for _, c := range candidates {
		if c == "" || low == "" {
			continue
		}
		lc := strings.ToLower(c)
		longest := max(len(low), len(lc))
		allowed := max(1, longest/3)
		score := distance(low, lc, allowed)
		if score > allowed && min(len(low), len(lc)) >= 3 && (strings.Contains(lc, low) || strings.Contains(low, lc)) {
			score = longest // behind every misspelling
		} else if score > allowed || score >= longest {
			continue
		}
		near = append(near, scored{c, score})
	}
	slices.SortFunc(near, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	near = slices.Compact(near)
	var out []string
	for _, s := range near[:min(n, len(near))] {
		out = append(out, s.name)
	}
	return out
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b; anything above limit may be returned as
// limit+1.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
	}
	return rows[len(a)%3][len(b)]
}

package place

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the instances, the heights and the picture")

const instances = "../../testdata/place"

// ownInstances are small problems of each kind, made here and kept as files so
// that they can be looked at and given to other tools.
func ownInstances() map[string]*Problem {
	mixed := &Problem{}
	r := rand.New(rand.NewSource(11))
	for len(mixed.Buffers) < 60 {
		for _, b := range randomSmall(r, 3).Buffers {
			b.ID = fmt.Sprint(len(mixed.Buffers))
			shift := len(mixed.Buffers) / 4
			b.Start, b.End = b.Start+shift, b.End+shift
			for i := range b.Gaps {
				b.Gaps[i].Start += shift
				b.Gaps[i].End += shift
			}
			mixed.Buffers = append(mixed.Buffers, b)
		}
	}
	fixed := randomProblem(60, 12)
	for i := range 4 {
		b := &fixed.Buffers[i]
		b.Start, b.End, b.Fixed, b.Offset = 0, 60, true, int64(i)<<21
		b.HasHint, b.Hint = true, b.Offset
	}
	const mib = 1 << 20
	own := map[string]*Problem{
		"fragmentation": {Buffers: []Buffer{
			{ID: "T1", Size: 4 * mib, Start: 0, End: 3, Align: 256},
			{ID: "T2", Size: 1 * mib, Start: 0, End: 7, Align: 256},
			{ID: "T3", Size: 4 * mib, Start: 1, End: 4, Align: 256},
			{ID: "T4", Size: 8 * mib, Start: 4, End: 7, Align: 256},
		}},
		"perfect": perfectProblem(80, 1, false),
		"loose":   perfectProblem(80, 2, true),
		"random":  randomProblem(120, 1),
		"wide":    wideProblem(80, 1),
		"step":    trainingStep(2, true),
		"mixed":   mixed,
		"fixed":   fixed,
	}
	for kind := range 8 {
		own[fmt.Sprintf("small%d", kind)] = oracleProblem(kind)
	}
	return own
}

// oracleProblem is small enough for a general solver of integer programs, which
// continuous integration holds it against; kind is that of randomSmall.
func oracleProblem(kind int) *Problem {
	r := rand.New(rand.NewSource(int64(100 + kind)))
	for {
		p := &Problem{}
		for len(p.Buffers) < 12 {
			p.Buffers = append(p.Buffers, randomSmall(r, kind).Buffers...)
		}
		for i := range p.Buffers {
			p.Buffers[i].ID = fmt.Sprint(i)
		}
		if !fixedOverlap(p) {
			return p
		}
	}
}

// The files are what the code makes, and the answers are the same bytes on every
// machine.
func TestGolden(t *testing.T) {
	var heights bytes.Buffer
	fmt.Fprintln(&heights, "name buffers bound height status")
	own := ownInstances()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		p := own[name]
		var text bytes.Buffer
		if err := WriteCSV(&text, p, nil); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join(instances, name+".csv"), text.Bytes())
		table, err := ReadCSV(&text, name+".csv", CSVOptions{})
		if err != nil {
			t.Fatal(err)
		}
		q, err := table.Problem()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Solve(context.Background(), q, Options{Work: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(p, s.Offsets); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&heights, name, len(p.Buffers), s.LowerBound, s.Height, s.Status)
		if name == "step" {
			var svg bytes.Buffer
			if err := WriteSVG(&svg, p, s.Offsets); err != nil {
				t.Fatal(err)
			}
			golden(t, "../../docs/placement.svg", svg.Bytes())
		}
	}
	golden(t, filepath.Join(instances, "heights.txt"), heights.Bytes())
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale; go test ./passes/place -update rewrites it", path)
	}
}

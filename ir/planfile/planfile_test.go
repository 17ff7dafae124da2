package planfile_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/handmade"
	"memoc/ir/mutate"
	_ "memoc/ir/ops"
	"memoc/ir/planfile"
)

func encoded(t *testing.T, batch int64) (*handmade.Case, []byte) {
	t.Helper()
	c, err := handmade.Split(batch)
	if err != nil {
		t.Fatal(err)
	}
	data, err := planfile.FromProgram(c.Program).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return c, data
}

// What is written of a step with splits is read back, byte for byte the same
// accesses, and executes.
func TestSplitsAreReadBack(t *testing.T) {
	for _, batch := range []int64{1, 3} {
		c, data := encoded(t, batch)
		plan, err := planfile.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Version != 2 {
			t.Errorf("version %d", plan.Version)
		}
		p, err := plan.Program(c.Program.Graph)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Steps {
			for _, side := range [][2][]ir.Access{{p.Steps[i].Reads, c.Program.Steps[i].Reads}, {p.Steps[i].Writes, c.Program.Steps[i].Writes}} {
				if !slices.EqualFunc(side[0], side[1], ir.Place.Same) {
					t.Errorf("batch %d, step %d: %v, was %v", batch, i, side[0], side[1])
				}
			}
		}
		again, err := planfile.FromProgram(p).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(lines(again, "name", "kind"), lines(data, "name", "kind")) {
			t.Error("written again, values or steps differ")
		}
		in := handmade.Input(batch)
		want, err := eval.Graph(c.Plain, in, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := eval.Program(p, in, eval.Options{Order: 3})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got["y"].(*ir.Tensor).Data, want["y"].(*ir.Tensor).Data) {
			t.Error("the step that was read back differs")
		}
	}
}

// lines is the lines of a plan that start an object with one of the members.
func lines(data []byte, members ...string) (out []string) {
	for _, l := range strings.Split(string(data), "\n") {
		for _, m := range members {
			if strings.HasPrefix(l, ` {"`+m+`"`) {
				out = append(out, l)
			}
		}
	}
	return out
}

// The members of version 2, as docs/plan.md shows them. A token of one row has
// 256 bytes.
func TestMembersOfSplits(t *testing.T) {
	_, data := encoded(t, 3)
	plan, err := planfile.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	values, steps := map[string]planfile.Value{}, map[string]planfile.Step{}
	for _, v := range plan.Values {
		v.Buffer = 0
		values[v.Name] = v
	}
	for _, s := range plan.Steps {
		steps[s.Node] = s
	}
	for name, want := range map[string]string{
		"h.head":  "{h.head h 0 0 3840 3 2048 []}",
		"h.in":    "{h.in h.in 0 0 3840 3 2048 []}",
		"h.whole": "{h.whole h.whole 0 0 6144 0 0 [h.in]}",
		"f.whole": "{f.whole h.whole 0 0 6144 0 0 []}",
		"h.range": "{h.range h.range 0 0 2304 0 0 []}",
	} {
		if got := fmt.Sprint(values[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if s := steps["h.whole"]; fmt.Sprint(s.Reads, s.Writes) != "[h.tail] [h.whole]" {
		t.Errorf("the join reads %v and writes %v", s.Reads, s.Writes)
	}
	if x := steps["h.range"].Part; x == nil || *x != (planfile.Range{Offset: 1280, Size: 2304, Rows: 3, Pitch: 2048}) {
		t.Errorf("the range that is packed is %v", x)
	}
}

// The example of docs/plan.md is what is written.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, data := encoded(t, 3)
	shown := 0
	for _, l := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(l, `    {"name":"h`) {
			shown++
			if !strings.Contains(string(data), strings.TrimSpace(l)) {
				t.Errorf("docs/plan.md shows %s", l)
			}
		}
	}
	if shown != 3 {
		t.Errorf("%d lines are shown", shown)
	}
}

// A file that says more than its version can, or is of a version to come, is
// refused.
func TestVersions(t *testing.T) {
	_, data := encoded(t, 3)
	for _, c := range []struct{ version, want string }{
		{"1", "version 1, but it says what only version 2 can"},
		{"0", "version 0, this memoc reads versions 1 to 2"},
		{"3", "version 3, this memoc reads versions 1 to 2"},
	} {
		_, err := planfile.Decode(bytes.Replace(data, []byte(`"version":2`), []byte(`"version":`+c.version), 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("version %s: %v, want %q", c.version, err, c.want)
		}
	}
	plain := &planfile.Plan{Version: 1, Values: []planfile.Value{{Name: "x", Base: "x", Size: 4}}}
	file, err := plain.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planfile.Decode(file); err != nil {
		t.Errorf("a plan of version 1: %v", err)
	}
}

// number finds the numbers of a plan.
var number = regexp.MustCompile(`[:\[,](-?[0-9]+)`)

// replaceNumber replaces the nth number of a plan, if it has as many.
func replaceNumber(data []byte, nth int, value int64) []byte {
	if at := number.FindAllSubmatchIndex(data, -1); nth < len(at) {
		return slices.Concat(data[:at[nth][2]], []byte(fmt.Sprint(value)), data[at[nth][3]:])
	}
	return data
}

// execute runs a file as a plan, and says whether it was taken. What is
// refused is in order; only a panic is not.
func execute(g *ir.Graph, batch int64, data []byte) bool {
	plan, err := planfile.Decode(data)
	if err != nil || slices.ContainsFunc(plan.Arenas, func(a planfile.Arena) bool { return a.Size > 1<<20 }) {
		return false
	}
	p, err := plan.Program(g)
	if err == nil {
		eval.Program(p, handmade.Input(batch), eval.Options{Order: 1})
	}
	return err == nil
}

// Each number of a plan is spoiled in several ways.
func TestSpoiledNumbers(t *testing.T) {
	for _, batch := range []int64{1, 3} {
		c, data := encoded(t, batch)
		n := len(number.FindAll(data, -1))
		if n < 300 {
			t.Fatalf("%d numbers", n)
		}
		for nth := range n {
			for _, value := range []int64{-1, 7, 3000, 1 << 62} {
				execute(c.Program.Graph, batch, replaceNumber(data, nth, value))
			}
		}
	}
}

func FuzzPlan(f *testing.F) {
	seeds, holds := plans(f)
	mutate.Explore(f, seeds, holds)
}

func TestPlanMutated(t *testing.T) {
	seeds, holds := plans(t)
	spoil := func(r *rand.Rand, b []byte) []byte {
		at := number.FindAllIndex(b, -1)
		values := []int64{-1, 0, 1, 3000, 1 << 62, r.Int64N(8192)}
		return replaceNumber(b, r.IntN(len(at)+1), values[r.IntN(len(values))])
	}
	mutate.Test(t, "FuzzPlan", seeds, 200, holds, spoil, spoil)
}

// plans are the files of two programs, with the property that no file makes
// the reader panic, and what it takes executes or is refused.
func plans(t testing.TB) (seeds [][]byte, holds mutate.Property) {
	graphs := map[int64]*ir.Graph{}
	for _, batch := range []int64{1, 3} {
		c, err := handmade.Split(batch)
		if err != nil {
			t.Fatal(err)
		}
		data, err := planfile.FromProgram(c.Program).Encode()
		if err != nil {
			t.Fatal(err)
		}
		graphs[batch], seeds = c.Program.Graph, append(seeds, data)
	}
	return seeds, func(data []byte) (accepted bool, wrong error) {
		one := execute(graphs[1], 1, data)
		three := execute(graphs[3], 3, data)
		return one || three, nil
	}
}

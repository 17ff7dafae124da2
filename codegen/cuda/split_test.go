package cuda

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/handmade"
)

func splitCase(t *testing.T, batch int64) (c *handmade.Case, in []Named, want *ir.Tensor) {
	t.Helper()
	c, err := handmade.Split(batch)
	if err != nil {
		t.Fatal(err)
	}
	x := handmade.Input(batch)
	out, err := eval.Graph(c.Plain, x, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, []Named{{"x", x["x"].(*ir.Tensor)}}, out["y"].(*ir.Tensor)
}

// TestSplitEmitted runs steps with splits along tokens in many orders of the
// lanes, and once on the stand-in for CUDA.
func TestSplitEmitted(t *testing.T) {
	for _, batch := range []int64{1, 3} {
		c, in, want := splitCase(t, batch)
		host := build(t, c.Program)
		plain, err := host.Run(context.Background(), in, RunOptions{Steps: 2, Schedules: 20})
		if err != nil {
			t.Fatalf("batch %d: %v", batch, err)
		}
		near(t, plain[0].Tensor, want)
		for name, run := range map[string]func() ([]Named, error){
			"paranoid": func() ([]Named, error) {
				return host.Run(context.Background(), in, RunOptions{Steps: 2, Schedules: 3, Paranoid: true})
			},
			"emulated": func() ([]Named, error) {
				return buildEmulated(t, c.Program).Run(context.Background(), in, RunOptions{Steps: 3, Graph: true})
			},
		} {
			got, err := run()
			if err != nil {
				t.Fatalf("batch %d, %s: %v", batch, name, err)
			}
			if !bytes.Equal(got[0].Tensor.Data, plain[0].Tensor.Data) {
				t.Errorf("batch %d, %s: other bits", batch, name)
			}
		}
	}
}

// near holds what the kernels give against the reference interpreter, which
// rounds Tanh, Exp and sums in its own way.
func near(t *testing.T, got, want *ir.Tensor) {
	t.Helper()
	a, b := got.Floats(), want.Floats()
	worst, size := 0.0, 0.0
	for i := range a {
		worst, size = max(worst, a[i]-b[i], b[i]-a[i]), max(size, b[i], -b[i])
	}
	if worst > 1e-5*size || size == 0 {
		t.Errorf("off by %v of %v", worst, size)
	}
}

// TestSplitSource: which copies are emitted, in bytes counted by hand; a token
// of one row has 256.
func TestSplitSource(t *testing.T) {
	for _, x := range []struct {
		batch  int64
		copies []string // bytes of a row, rows
	}{
		{1, []string{"1280, 1", "1280, 1", "1280, 1", "1280, 1"}},
		{3, []string{"1280, 3", "1280, 3", "1280, 3", "768, 3", "768, 3", "768, 3", "1280, 3", "768, 3"}},
	} {
		c, _, _ := splitCase(t, x.batch)
		e := newEmitter(c.Program)
		if err := e.collect(); err != nil {
			t.Fatal(err)
		}
		text := e.stepSource()
		table := text[strings.Index(text, "const Copy copies"):]
		table = table[:strings.Index(table, "};")]
		var got []string
		for _, m := range regexp.MustCompile(`([0-9]+, [0-9]+)\},  //`).FindAllStringSubmatch(table, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, "; ") != strings.Join(x.copies, "; ") {
			t.Errorf("batch %d: copies of %q, want %q\n%s", x.batch, got, x.copies, table)
		}
	}
}

// TestSplitFaultsAreFound: the host runtime names what is wrong with ranges.
func TestSplitFaultsAreFound(t *testing.T) {
	for _, f := range []struct {
		name, want string
		batch      int64
		spoil      func(p *ir.Program, step func(string) *ir.Step)
	}{
		{"the whole is read before its head is back", "race: step 'e' (lane 0) reads device bytes", 3, func(p *ir.Program, step func(string) *ir.Step) { step("e").Waits = nil }},
		{"the contiguous whole is read before its head is back", "race: step 'e' (lane 0) reads device bytes", 1, func(p *ir.Program, step func(string) *ir.Step) { step("e").Waits = nil }},
		{"the head is back before it left", "race: step 'h.in' (lane 2) reads host bytes", 3, func(p *ir.Program, step func(string) *ir.Step) { step("h.in").Waits = nil }},
		{"a row is missing", "use after free: step 'e' (lane 0) reads device bytes", 3, func(p *ir.Program, step func(string) *ir.Step) {
			// Of the three rows that come back.
			for _, x := range []*ir.Access{&step("h.in").Reads[0], &step("h.in").Writes[0]} {
				x.Size = x.Size / 3 * 2
				if x.Rows > 1 {
					x.Rows = 2
				}
			}
		}},
		{"the tail is not unpacked", "reads device bytes", 3, func(p *ir.Program, step func(string) *ir.Step) {
			step("q.join").Reads, step("q.join").Writes = nil, nil
		}},
		{"rows that overlap the tail", "race: step 'h.whole' (lane 0) writes device bytes", 3, func(p *ir.Program, step func(string) *ir.Step) {
			w := &step("h.in").Writes[0]
			w.Offset += 256
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			c, in, _ := splitCase(t, f.batch)
			f.spoil(c.Program, func(name string) *ir.Step {
				for i := range c.Program.Steps {
					if c.Program.Steps[i].Node.Name == name {
						return &c.Program.Steps[i]
					}
				}
				t.Fatalf("no step %q", name)
				return nil
			})
			_, err := build(t, c.Program).Run(context.Background(), in, RunOptions{Steps: 2, Schedules: 5})
			if err == nil || !strings.Contains(err.Error(), f.want) {
				t.Fatalf("got %v, want %q", err, f.want)
			}
		})
	}
}

// TestRowsNeedContiguousBytes: a kernel on rows is our fault, and refused.
func TestRowsNeedContiguousBytes(t *testing.T) {
	c, _, _ := splitCase(t, 3)
	for _, n := range c.Program.Graph.Nodes {
		if n.Name == "a.tail" {
			p := &c.Program.Places[n.Out[0].ID]
			p.Rows, p.Pitch, p.Size = 3, p.Size/3, p.Size/2
		}
	}
	if _, err := Emit(c.Program); err == nil || !strings.Contains(err.Error(), `"a.tail" lies in 3 pieces`) {
		t.Errorf("got %v", err)
	}
}

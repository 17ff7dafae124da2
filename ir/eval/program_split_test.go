package eval_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/handmade"
	_ "memoc/ir/ops"
)

// split is the hand-made step and its input.
func split(t *testing.T, batch int64) (*handmade.Case, map[string]ir.Datum) {
	t.Helper()
	c, err := handmade.Split(batch)
	if err != nil {
		t.Fatal(err)
	}
	return c, handmade.Input(batch)
}

// Tensors that are split along tokens give what the step before planning gives,
// in every order of the lanes and in two steps on the same arenas: with parts
// that are contiguous, and with parts in rows.
func TestProgramSplit(t *testing.T) {
	for _, batch := range []int64{1, 3} {
		c, in := split(t, batch)
		want, err := eval.Graph(c.Plain, in, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		distinct := map[float64]bool{}
		for _, x := range want["y"].(*ir.Tensor).Floats() {
			distinct[x] = true
		}
		if len(distinct) < 100 {
			t.Fatalf("the step gives %d different values", len(distinct))
		}
		for order := range uint64(60) {
			for _, blind := range []bool{false, true} {
				got, err := eval.Program(c.Program, in, eval.Options{Order: order, Steps: 2, Blind: blind})
				if err != nil {
					t.Fatalf("batch %d, order %d: %v", batch, order, err)
				}
				if !bytes.Equal(got["y"].(*ir.Tensor).Data, want["y"].(*ir.Tensor).Data) {
					t.Fatalf("batch %d, order %d, blind %v: the planned step differs", batch, order, blind)
				}
			}
		}
	}
}

// spoiler changes a Program by names.
type spoiler struct{ p *ir.Program }

func (s spoiler) step(node string) *ir.Step {
	i := slices.IndexFunc(s.p.Steps, func(x ir.Step) bool { return x.Node.Name == node })
	if i < 0 {
		panic("no step " + node)
	}
	return &s.p.Steps[i]
}

func (s spoiler) place(value string) *ir.Place {
	for _, n := range s.p.Graph.Nodes {
		if n.Out[0].Name == value {
			return &s.p.Places[n.Out[0].ID]
		}
	}
	panic("no value " + value)
}

// restate makes a node's step state what its places say.
func (s spoiler) restate(nodes ...string) {
	for _, n := range nodes {
		x := s.step(n)
		x.Reads, x.Writes = s.p.Accesses(x.Node)
	}
}

const token = 256 // bytes of a token in one row

// Each fault is named in some order of the lanes; without looking at who wrote
// what, it is seen as a difference, unless the run stops.
func TestProgramSplitFaults(t *testing.T) {
	for _, f := range []struct {
		name, says string
		batch      int64
		stops      bool // before the first step
		plant      func(s spoiler)
	}{
		{"the tail is a token too early", `not in the bytes of its range`, 1, true, func(s spoiler) { s.place("h.range").Offset -= token }},
		{"the head is a row too wide", `not in the bytes of its range`, 3, true, func(s spoiler) { s.place("h.head").Pitch += token }},
		{"the head comes back a token too late", `it is no part of it`, 1, true, func(s spoiler) { s.place("h.in").Offset += token; s.restate("h.in") }},
		{"a part that is missing", `hold nothing`, 1, false, func(s spoiler) { s.step("h.in").Reads, s.step("h.in").Writes = nil, nil }},
		{"the tail is made elsewhere and not moved", `nothing moves "q.tail.deep" into "q.join"`, 1, true, func(s spoiler) {
			s.p.Arenas[0].Size += 1 << 16
			s.p.Buffers = append(s.p.Buffers, ir.Buffer{Name: "elsewhere", Offset: s.p.Arenas[0].Size - 1<<16, Size: 3 * token, End: len(s.p.Steps)})
			*s.place("q.tail") = ir.Place{Buffer: len(s.p.Buffers) - 1, Size: 3 * token}
			*s.place("q.tail.deep") = *s.place("q.tail")
			s.restate("q.tail")
		}},
		{"the tail is not unpacked", `nothing moves "h.tail" into "h.whole"`, 3, true, func(s spoiler) {
			join := s.step("h.whole")
			join.Node, join.Reads, join.Writes = s.step("z").Node, nil, nil
		}},
		{"a clone on the tail over the head", `hold tensor "a.tail"`, 1, false, func(s spoiler) {
			*s.place("a.tail") = ir.Place{Buffer: s.place("h.in").Buffer, Size: 3 * token}
			s.restate("a.tail", "h.tail")
		}},
		{"a range is packed before it is made", `but bytes`, 3, false, func(s spoiler) {
			join, pack := s.step("h.whole"), s.step("h.range")
			*join, *pack = *pack, *join
			for b := range s.p.Buffers {
				s.p.Buffers[b].First, s.p.Buffers[b].End = 0, len(s.p.Steps)
			}
		}},
		{"the reader of the whole does not wait for the head", `but bytes`, 3, false, func(s spoiler) { s.step("e").Waits = nil }},
		{"the reader of the whole does not wait for the contiguous head", `but bytes`, 1, false, func(s spoiler) { s.step("e").Waits = nil }},
		{"the head is reloaded before its own offload", `tensor "h.out" is read`, 3, false, func(s spoiler) { s.step("h.in").Waits = nil }},
		{"the head is overwritten before its offload", `tensor "q.head" is read`, 3, false, func(s spoiler) {
			for i := range s.p.Steps {
				if x := &s.p.Steps[i]; x.Lane == ir.ComputeLane {
					x.Waits = slices.DeleteFunc(x.Waits, func(w int) bool { return s.p.Steps[w].Node.Name == "q.out" })
				}
			}
		}},
		{"an unpack that states the head", `does not state that it writes`, 3, false, func(s spoiler) {
			s.step("h.whole").Writes[0].Offset = 0
		}},
		{"a pack that states the head", `does not state that it reads`, 3, false, func(s spoiler) { s.step("h.range").Reads[0].Offset = 0 }},
		{"rows that leave the buffer", `lies outside of its buffer`, 3, true, func(s spoiler) { s.place("h.head").Rows = 5 }},
	} {
		t.Run(f.name, func(t *testing.T) { splitFault(t, f.batch, f.says, f.stops, f.plant) })
	}
}

func splitFault(t *testing.T, batch int64, says string, stops bool, plant func(s spoiler)) {
	sound, in := split(t, batch)
	want, err := eval.Graph(sound.Plain, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found, different := map[string]bool{}, false
	for order := range uint64(40) {
		for _, blind := range []bool{false, true} {
			c, _ := split(t, batch)
			plant(spoiler{c.Program})
			got, err := eval.Program(c.Program, in, eval.Options{Order: order, Steps: 2, Blind: blind})
			switch {
			case err != nil && !blind:
				found[err.Error()] = true
			case err != nil:
				different = true
			case blind:
				different = different || !bytes.Equal(got["y"].(*ir.Tensor).Data, want["y"].(*ir.Tensor).Data)
			}
		}
		if stops {
			break
		}
	}
	named := false
	for msg := range found {
		named = named || strings.Contains(msg, says)
	}
	if !named {
		t.Errorf("no order reports %q but %s", says, fmt.Sprint(found))
	}
	if !different {
		t.Error("blind runs never differ")
	}
}

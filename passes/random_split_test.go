package passes_test

import (
	"fmt"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// randomStep is a graph with inputs, made anew at every call.
type randomStep struct {
	what string
	loss string
	make func() *ir.Model
	in   map[string]ir.Datum // nil: random
}

// randomSteps are the graphs of a seed: of a few operators in all forms that
// planning treats in its own way, of all operators, and attention.
func randomSteps(t testing.TB, seed uint64) []randomStep {
	loss := ""
	if seed%3 > 0 {
		loss = "l"
	}
	out := []randomStep{{"graph", loss, func() *ir.Model { return text(t, randomGraph(seed, loss != "")) }, nil}}
	size := 10 + int(seed%25)
	all := makeRandom(seed, size, nil)
	out = append(out, randomStep{"operators", all.loss, func() *ir.Model { return makeRandom(seed, size, nil).model }, all.in})
	if a, err := randomAttention(seed); err == nil {
		again := func() *ir.Model {
			s, err := randomAttention(seed)
			if err != nil {
				t.Fatal(err)
			}
			return s.model
		}
		out = append(out, randomStep{"attention", a.loss, again, a.in})
	}
	return out
}

// splitRandom cuts the tensors of a random graph at random, and holds the
// planned step against the plain graph bit for bit.
func splitRandom(t *testing.T, s randomStep, seed uint64) (splits int, how string) {
	compileAt := func(stage passes.Stage) (*passes.Context, error) {
		m := s.make()
		o := setup{train: s.loss}.options(t)
		o.Tile, o.Choose = 1+int64(seed%2), splitMixed(seed)
		c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
		return c, (&passes.Runner{}).RunUntil(c, stage)
	}
	base, err := compileAt(passes.Analyze)
	if err != nil && acceptable(err) {
		return 0, ""
	} else if err != nil {
		return 0, err.Error()
	}
	in := s.in
	if in == nil {
		if in, err = eval.RandomInputs(base.Graph, seed); err != nil {
			return 0, err.Error()
		}
	}
	want, err := eval.Graph(base.Graph, in, eval.Options{Step: 1})
	if err != nil {
		return 0, "" // values out of an operator's range
	}
	c, err := compileAt(passes.Place + 1)
	if err != nil && acceptable(err) {
		return 0, ""
	} else if err != nil {
		return 0, err.Error()
	}
	for _, d := range c.Program.Decisions {
		if d.Kind == ir.SplitTokens {
			splits++
		}
	}
	for order := range uint64(3) {
		if how := sameOutputs(c.Program, in, want, eval.Options{Order: order, Steps: 2}); how != "" {
			return splits, fmt.Sprintf("order %d: %s", order, how)
		}
	}
	if s.what == "operators" {
		return splits, "" // not all of them have a body of standard operators
	}
	return splits, fromFiles(t, c, in, want)
}

// TestRandomSplits: see splitRandom. MEMOC_RANDOM=from:to tries other seeds.
func TestRandomSplits(t *testing.T) {
	from, to := randomSeeds(60)
	splits := map[string]int{}
	for seed := from; seed <= to; seed++ {
		for _, s := range randomSteps(t, seed) {
			n, how := splitRandom(t, s, seed)
			splits[s.what] += n
			if how != "" {
				t.Errorf("%s, seed %d: %s", s.what, seed, how)
			}
		}
	}
	t.Logf("tensors split: %v", splits)
	for what, least := range map[string]int{"graph": 20, "operators": 20, "attention": 20} {
		if to-from >= 59 && splits[what] < least {
			t.Errorf("%s: %d tensors are split: the graphs show too little", what, splits[what])
		}
	}
}

package passes_test

import (
	"math/rand/v2"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
	"memoc/passes/plan"
)

// splitAll cuts every tensor that waits and may be cut after that share of its
// tokens.
func splitAll(eighths int) func(*plan.Problem) []plan.Choice {
	return func(p *plan.Problem) []plan.Choice {
		c := p.Initial()
		for t := range c {
			if c[t] == plan.Keep && p.Splittable(t) && !p.Tensors[t].Output {
				c[t] = plan.SplitAt(p.Tiles() * eighths / 8)
			}
		}
		return c
	}
}

// splitMixed treats every tensor that waits in a way drawn for it.
func splitMixed(seed uint64) func(*plan.Problem) []plan.Choice {
	return func(p *plan.Problem) []plan.Choice {
		r := rand.New(rand.NewPCG(seed, 1))
		c := p.Initial()
		for t := range c {
			way := r.IntN(8)
			if c[t] != plan.Keep || p.Tensors[t].Output {
				continue
			}
			switch {
			case way < 5 && p.Splittable(t):
				c[t] = plan.SplitAt(r.IntN(p.Tiles() + 1))
			case way == 5 && !p.Tensors[t].Derived && !p.Tensors[t].Spread:
				c[t] = plan.Swap
			case way == 6 && p.Splittable(t):
				c[t] = plan.Recompute
			}
		}
		return c
	}
}

// splitModel compiles a model with the given choices.
func splitModel(t *testing.T, s subject, choose func(*plan.Problem) []plan.Choice) *passes.Context {
	t.Helper()
	m := load(t, s.path)
	o := setup{train: s.train, dims: s.dims}.options(t)
	o.Choose = choose
	c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
	if err := (&passes.Runner{}).RunUntil(c, passes.Place); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSplitGraph(t *testing.T) {
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.long && !long() {
				t.Skip("set MEMOC_LONG=1")
			}
			base, _, err := compileUntil(t, load(t, s.path), setup{train: s.train, dims: s.dims}, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(base.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			want, err := eval.Graph(base.Graph, in, eval.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for eighths := 0; eighths <= 8; eighths++ {
				c := splitModel(t, s, splitAll(eighths))
				got, err := eval.Graph(c.Graph, in, eval.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for name, d := range want {
					if w, ok := d.(*ir.Tensor); ok && unlikeBits(got[name].(*ir.Tensor), w) {
						t.Errorf("%d/8: output %q differs", eighths, name)
					}
				}
			}
		})
	}
}

func unlikeBits(a, b *ir.Tensor) bool { return string(a.Data) != string(b.Data) }

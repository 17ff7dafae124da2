package place

import (
	"context"
	"testing"
)

// Each technique has a problem on which the search is worse without it.
func TestTechniquesMatter(t *testing.T) {
	height := func(p *Problem, work int64) func(Techniques) int64 {
		return func(tech Techniques) int64 {
			s, err := Solve(context.Background(), p, Options{Work: work, Techniques: &tech})
			if err != nil {
				t.Fatal(err)
			}
			return s.Height
		}
	}
	// Sizes in few steps, so that some buffers are alike.
	coarse := perfectProblem(100, 11, true)
	for k := range coarse.Buffers {
		coarse.Buffers[k].Size = roundUp(coarse.Buffers[k].Size, 1<<16)
	}
	nodes := func(tech Techniques) int64 {
		x := newExact(compile(coarse), &tech)
		if v := x.decide(x.in.bound, strategies[0], 1<<26); v != fits {
			t.Fatalf("verdict %d", v)
		}
		return x.nodes
	}
	base := DefaultTechniques()
	packing := base
	packing.Exact = false
	promoteOff, ordersOff := packing, packing
	promoteOff.Promote, ordersOff.Orders = false, false
	ordersOff.Promote = false
	less := func(off func(*Techniques)) Techniques {
		tech := base
		off(&tech)
		return tech
	}
	for name, c := range map[string]struct {
		measure   func(Techniques) int64
		with, off Techniques
	}{
		"Orders":   {height(randomProblem(300, 8), 1<<22), promoteOff, ordersOff},
		"Promote":  {height(randomProblem(300, 8), 1<<24), packing, promoteOff},
		"Exact":    {height(perfectProblem(80, 1, false), 1<<24), base, packing},
		"Restarts": {height(perfectProblem(150, 3, true), 1<<25), base, less(func(t *Techniques) { t.Restarts = false })},
		"Ladder":   {height(perfectProblem(150, 4, true), 1<<25), base, less(func(t *Techniques) { t.Ladder = false })},
		"Split":    {nodes, base, less(func(t *Techniques) { t.Split = false })},
		"Memory":   {nodes, base, less(func(t *Techniques) { t.Memory = false })},
		"Twins":    {nodes, base, less(func(t *Techniques) { t.Twins = false })},
		"Support":  {nodes, base, less(func(t *Techniques) { t.Support = false })},
	} {
		if on, off := c.measure(c.with), c.measure(c.off); on >= off {
			t.Errorf("%s: %d with, %d without", name, on, off)
		} else {
			t.Logf("%s: %d with, %d without", name, on, off)
		}
	}
}

// The search never refutes a ceiling that can be met: problems cut out of a
// rectangle have a placement without a wasted byte, so any shortcut that loses
// placements shows here.
func TestNoFalseProof(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		for _, loose := range []bool{false, true} {
			p := perfectProblem(10+3*seed, int64(seed), loose)
			in := compile(p)
			for m := range 1 << 4 {
				tech := Techniques{Split: m&1 != 0, Memory: m&2 != 0, Twins: m&4 != 0, Support: m&8 != 0}
				for i, plan := range strategies {
					plan.noise, plan.seed = 100*float64(i%2), uint64(m)
					x := newExact(in, &tech)
					if v := x.decide(1<<20, plan, 1<<20); v == fails {
						t.Fatalf("seed %d, loose %v: %+v, %+v refutes a height that can be had", seed, loose, tech, plan)
					}
				}
			}
		}
	}
}

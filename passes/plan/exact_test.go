package plan

import (
	"math/rand/v2"
	"testing"
)

// small is a random network of few tensors that wait: a forward pass whose
// tensors the backward pass reads in reverse, with some skips.
func small(seed uint64) (*Problem, []int) {
	rng := rand.New(rand.NewPCG(seed, 11))
	n := 4 + rng.IntN(5)
	p := &Problem{OutRate: 0.3 + rng.Float64(), InRate: 0.3 + rng.Float64(), HostBytes: 1 << 30, CopyLatency: int64(rng.IntN(20))}
	add := func(bytes, time int64, clone bool, in ...int) int {
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, Op{Time: time, In: in, Out: []int{len(p.Tensors) - 1}, Clone: clone})
		return len(p.Tensors) - 1
	}
	var wait []int
	for i := range n {
		var in []int
		if i > 0 {
			in = append(in, wait[i-1])
		}
		if i > 1 && rng.IntN(3) == 0 {
			in = append(in, wait[rng.IntN(i-1)])
		}
		wait = append(wait, add(int64(20+rng.IntN(200)), int64(10+rng.IntN(300)), rng.IntN(5) > 0, in...))
	}
	grad := add(10, 10, false, wait[n-1])
	for i := n - 1; i >= 0; i-- {
		grad = add(int64(10+rng.IntN(60)), int64(20+rng.IntN(500)), false, grad, wait[i])
	}
	p.Tensors[grad].Output = true
	return p, wait
}

// Auto against the best of all choices for every tensor that waits, 3^n of
// them, at every budget at which there is a plan.
func TestAgainstEveryChoice(t *testing.T) {
	worst, sum, cells, optimal, floors := 1.0, 0.0, 0, 0, 0
	const problems = 60
	for seed := range uint64(problems) {
		p, wait := small(seed)
		l := ladder(t, p, Auto)
		all := &Ladder{}
		base := p.Initial()
		total := 1
		for range wait {
			total *= 3
		}
		for code := range total {
			c, rest := append([]Choice{}, base...), code
			for _, x := range wait {
				c[x], rest = Choice(rest%3), rest/3
			}
			if s, err := p.Build(c); err == nil {
				all.Rungs = append(all.Rungs, Rung{Peak: s.Peak, Time: s.Time, Moved: s.Moved})
			}
		}
		sortRungs(all)
		curve := all.Pareto()
		least := l.Pareto()
		if floor := least[len(least)-1].Peak; floor > curve[len(curve)-1].Peak {
			t.Errorf("seed %d: the least peak is %d, some choice has %d", seed, floor, curve[len(curve)-1].Peak)
		} else if floor < curve[len(curve)-1].Peak {
			floors++
		}
		for _, r := range curve {
			b := best(l, r.Peak)
			if b == nil {
				continue // reported above
			}
			gap := float64(b.Time) / float64(r.Time)
			worst, sum, cells = max(worst, gap), sum+gap, cells+1
			if gap <= 1 {
				optimal++
			}
		}
	}
	t.Logf("%d problems, %d budgets: optimal at %d, %.3f times the optimum on average, %.3f at worst; least peak below that of all choices in %d",
		problems, cells, optimal, sum/float64(cells), worst, floors)
	if worst > 1.05 {
		t.Errorf("the worst plan takes %.3f times the optimum", worst)
	}
}

package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// step is a random training step of n operations: a forward pass with skips,
// then one operation for each in reverse that reads what the forward one read
// and made. Every third step has little host memory.
func step(seed uint64, n int) *Problem {
	rng := rand.New(rand.NewPCG(seed, 21))
	p := &Problem{OutRate: 0.2 + rng.Float64(), InRate: 0.2 + rng.Float64(), HostBytes: 1 << 30, CopyLatency: int64(rng.IntN(20))}
	if seed%3 == 0 {
		p.HostBytes = int64(100 * n / 4)
	}
	add := func(o Op, bytes int64) int {
		o.Out = []int{len(p.Tensors)}
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, o)
		return o.Out[0]
	}
	var made []int
	for i := range n / 2 {
		o := Op{Time: int64(10 + rng.IntN(300)), Clone: rng.IntN(6) > 0, Workspace: int64(rng.IntN(20))}
		if i > 0 {
			o.In = append(o.In, made[i-1])
		}
		if i > 1 && rng.IntN(3) == 0 {
			o.In = append(o.In, made[rng.IntN(i-1)])
		}
		bytes := int64(20 + rng.IntN(200))
		if i > 0 && rng.IntN(4) == 0 {
			bytes = p.Tensors[made[i-1]].Bytes
			o.InPlace = []Alias{{made[i-1], len(p.Tensors)}}
		}
		made = append(made, add(o, bytes))
	}
	grad := add(Op{Time: 10, In: []int{made[len(made)-1]}}, 10)
	for i := n/2 - 1; i > 0; i-- {
		o := Op{Time: int64(20 + rng.IntN(500)), In: []int{grad, made[i]}, Workspace: int64(rng.IntN(20))}
		if rng.IntN(2) == 0 {
			o.In = append(o.In, made[i-1])
		}
		grad = add(o, int64(20+rng.IntN(100)))
	}
	p.Tensors[grad].Output = true
	return p
}

// cell is a budget and the predicted time of the plan that auto has for it.
type cell struct{ Budget, Time int64 }

// cells are eight budgets from the least peak of l to that of keeping all.
func cells(p *Problem, l *Ladder) []cell {
	curve := l.Pareto()
	least := curve[len(curve)-1].Peak
	s, err := p.Build(p.keepAll())
	if err != nil {
		return nil
	}
	var out []cell
	for k := range int64(8) {
		budget := least + (s.Peak-least)*k/7
		if b := best(l, budget); b != nil {
			out = append(out, cell{budget, b.Time})
		}
	}
	return out
}

// TestOracle writes steps and what auto makes of them for the outside oracle:
// .ci/plan_oracle.py proves lower bounds for the same budgets.
func TestOracle(t *testing.T) {
	dir := os.Getenv("MEMOC_PROBLEMS")
	if dir == "" {
		t.Skip("MEMOC_PROBLEMS names no folder to write problems to")
	}
	write := func(name string, p *Problem) {
		data, err := json.Marshal(map[string]any{"name": name, "problem": p, "cells": cells(p, ladder(t, p, Auto))})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(6) {
		for _, n := range []int{16, 24, 32, 40} {
			write(fmt.Sprintf("step-%d-%d", n, seed), step(seed, n))
		}
		p := random(seed + 40)
		write(fmt.Sprintf("dag-%d-%d", len(p.Ops), seed), p)
	}
}

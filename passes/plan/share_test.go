package plan

import (
	"math/rand/v2"
	"testing"
)

// layerOf is a random layer of few operations whose outputs all wait for one
// reader at the end, some by way of operations whose outputs do not.
func layerOf(seed uint64, shared bool) (p *Problem, waiting []int) {
	rng := rand.New(rand.NewPCG(seed, 37))
	p = &Problem{OutRate: 1, InRate: 1, HostBytes: 1 << 40, Tokens: 2 + rng.Int64N(4), Tile: 1, PackRate: 10 + 50*rng.Float64(), PackLatency: rng.Int64N(5)}
	add := func(in ...int) int {
		rows := 1 + rng.Int64N(8)/6
		token := 256 * rows * (1 + rng.Int64N(4))
		p.Tensors = append(p.Tensors, Tensor{Bytes: p.Tokens * token, Rows: rows, TokenBytes: token})
		op := Op{Time: 5 + rng.Int64N(300), In: in, Out: []int{len(p.Tensors) - 1}, Clone: rng.IntN(8) > 0}
		if rng.IntN(6) > 0 {
			op.Range, op.TileTime = make([]bool, len(in)), op.Time/p.Tokens+rng.Int64N(op.Time/4+1)
			for k := range op.Range {
				op.Range[k] = rng.IntN(6) > 0
			}
		}
		p.Ops = append(p.Ops, op)
		return len(p.Tensors) - 1
	}
	waiting = []int{add()}
	for range 2 + rng.IntN(3) {
		in := waiting[rng.IntN(len(waiting))]
		switch rng.IntN(3) {
		case 0:
			waiting = append(waiting, add(in))
		case 1:
			waiting = append(waiting, add(add(in)))
		case 2:
			m := add(in)
			waiting = append(waiting, add(m))
			if shared {
				waiting = append(waiting, add(m))
			}
		}
	}
	x := waiting[0]
	for range 6 {
		x = add(x)
		p.Tensors[x].Output = true
	}
	p.Tensors[add(append([]int{x}, waiting...)...)].Output = true
	return p, waiting
}

// again is the time of making n tiles of every waiting tensor again, from the
// rules alone.
func again(p *Problem, waiting []int, n map[int]int) int64 {
	tiles := int(p.Tokens)
	makes := map[int]int{}
	for i, op := range p.Ops {
		makes[op.Out[0]] = i
	}
	waits := map[int]bool{}
	for _, t := range waiting {
		waits[t] = true
	}
	runs, packs := map[int]int{}, int64(0) // by op: the most tiles it runs on
	var run func(op, n int)
	run = func(op, n int) {
		runs[op] = max(runs[op], n)
		for k, t := range p.Ops[op].In {
			same := n < tiles && p.Ops[op].Range[k]
			if waits[t] || p.Tensors[t].Output || !p.Ops[makes[t]].Clone {
				if same && p.Tensors[t].Rows > 1 {
					packs += p.packTime(int64(n) * p.Tensors[t].TokenBytes)
				}
				continue
			}
			if same && p.Ops[makes[t]].Range != nil {
				run(makes[t], n)
			} else {
				run(makes[t], tiles)
			}
		}
	}
	for _, t := range waiting {
		if n[t] > 0 {
			run(makes[t], n[t])
			if n[t] < tiles && p.Tensors[t].Rows > 1 {
				packs += p.packTime(int64(n[t]) * p.Tensors[t].TokenBytes)
			}
		}
	}
	sum := packs
	for op, n := range runs {
		sum += p.Ops[op].TileTime + (p.Ops[op].Time-p.Ops[op].TileTime)*int64(n-1)/int64(tiles-1)
		if n == tiles || p.Ops[op].Range == nil {
			sum += p.Ops[op].Time - (p.Ops[op].TileTime + (p.Ops[op].Time-p.Ops[op].TileTime)*int64(n-1)/int64(tiles-1))
		}
	}
	return sum
}

// The layer's problem against every choice of tiles for every tensor. Where
// several tensors would best be cut at different tiles, a single cut may cost a
// tile more.
func TestShareAgainstEveryChoice(t *testing.T) {
	limits, exact, cuts := 0, 0, 0
	for seed := range uint64(150) {
		p, waiting := layerOf(seed, seed%2 == 0)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		f := p.facts()
		s := newShare(p, f, waiting)
		var free []int
		forced, all := int64(0), int64(0)
		for _, x := range waiting {
			if all += p.Tensors[x].Bytes; p.Ops[f.producer[x]].Clone {
				free = append(free, x)
			} else {
				forced += p.Tensors[x].Bytes
			}
		}
		for _, limit := range []int64{forced, forced + (all-forced)/3, (forced + all) / 2, all - 1, all} {
			best, tile := int64(-1), int64(0)
			n := map[int]int{}
			var try func(k int)
			try = func(k int) {
				if k < len(free) {
					for n[free[k]] = 0; n[free[k]] <= int(p.Tokens); n[free[k]]++ {
						if m := n[free[k]]; m == 0 || m == int(p.Tokens) || p.Splittable(free[k]) {
							try(k + 1)
						}
					}
					return
				}
				bytes := forced
				for _, x := range free {
					bytes += (p.Tokens - int64(n[x])) * p.Tensors[x].TokenBytes
				}
				if bytes > limit {
					return
				}
				if c := again(p, waiting, n); best < 0 || c < best {
					best = c
				}
			}
			try(0)
			for _, it := range s.items {
				if it.split {
					tile = max(tile, s.alone(&it, 2)-s.alone(&it, 1))
				}
			}
			if !s.solve(limit) {
				t.Fatalf("seed %d, limit %d: nothing found, %d is possible", seed, limit, best)
			}
			c := make([]Choice, len(p.Tensors))
			s.choices(func(t int, k Choice) { c[t] = k })
			m, bytes := map[int]int{}, int64(0)
			for _, x := range waiting {
				switch c[x].Kind() {
				case Swap:
				case Recompute:
					m[x] = int(p.Tokens)
				case Split:
					m[x] = int(p.Tokens) - c[x].Head()
					cuts++
				}
				bytes += (p.Tokens - int64(m[x])) * p.Tensors[x].TokenBytes
			}
			got := again(p, waiting, m)
			if got != s.cost || bytes > limit {
				t.Fatalf("seed %d, limit %d: it takes %d, stated %d; %d bytes", seed, limit, got, s.cost, bytes)
			}
			if limits++; got == best {
				exact++
			}
			if got > best+tile {
				t.Errorf("seed %d, limit %d: %d, the best is %d, a tile %d", seed, limit, got, best, tile)
			}
		}
	}
	t.Logf("%d of %d are optimal, with %d tensors cut", exact, limits, cuts)
	if exact < limits*9/10 || cuts < 50 {
		t.Error("too few")
	}
}

package plan

import (
	"math"
	"math/rand/v2"
	"testing"
)

// No schedule is faster than the bound for the memory that it takes, whatever
// is decided.
func TestNoPlanIsBelowTheLeastTime(t *testing.T) {
	built, above := 0, 0
	for seed := range uint64(1200) {
		p := ranged(seed)
		if seed%3 == 0 {
			p, _ = small(seed)
		}
		rng := rand.New(rand.NewPCG(seed, 31))
		for range 8 {
			s, err := p.Build(randomChoices(p, rng))
			if err != nil {
				continue
			}
			built++
			least := p.LeastTime(s.Peak, s.HostPeak)
			if least > s.Time {
				t.Fatalf("seed %d: %d ns within %d and %d bytes, but the bound is %d", seed, s.Time, s.Peak, s.HostPeak, least)
			}
			if least > p.OnceTime() {
				above++
			}
		}
	}
	if t.Logf("%d schedules, %d with a bound above all operations once", built, above); above < 500 {
		t.Error("the bound says too little to be tested")
	}
}

// Three tensors of 100 bytes wait, which take 5, 1 and 7 ns to make: with room
// for one and a half the cheapest goes whole and half of the next.
func TestLeastTimeByHand(t *testing.T) {
	p := &Problem{OutRate: 1, InRate: 1}
	for i, time := range []int64{5, 1, 7} {
		p.Ops = append(p.Ops, Op{Time: time, Out: []int{i}, Clone: true})
		p.Tensors = append(p.Tensors, Tensor{Bytes: 100})
	}
	p.Ops = append(p.Ops, Op{Time: 10}) // while this runs
	for i := range 3 {
		p.Ops = append(p.Ops, Op{Time: 10, In: []int{2 - i}})
	}
	const once = 5 + 1 + 7 + 4*10
	if p.OnceTime() != once {
		t.Errorf("all operations once take %d ns, not %d", p.OnceTime(), once)
	}
	for _, x := range []struct{ device, host, extra int64 }{
		{300, 0, 0}, {100, 200, 0}, {200, 0, 1}, {100, 100, 1}, {100, 50, 3}, {0, 0, 13},
	} {
		// Fractions of nanoseconds are lost, never added.
		if got := p.LeastTime(x.device, x.host) - once; got > x.extra || got < x.extra-1 {
			t.Errorf("%d and %d bytes: %d ns beyond all operations once, not %d", x.device, x.host, got, x.extra)
		}
	}
	p.Ops[2].Clone = false
	if got := p.LeastTime(99, 0); got != math.MaxInt64 {
		t.Errorf("100 bytes that are neither copied nor made again fit 99: %d", got)
	}
	p.OutRate = 0
	if got := p.LeastTime(100, 200) - once; got > 6 || got < 5 {
		t.Errorf("without copies the host is no help: %d ns, not 6", got)
	}
}

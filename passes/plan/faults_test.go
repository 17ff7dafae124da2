package plan

import (
	"math/rand/v2"
	"testing"
)

// liveness is the peak of a schedule, taken from its list of entries alone, and
// the bytes that are left when it ends. A buffer is alive from the first entry
// that touches it to the last; outputs stay.
func liveness(p *Problem, s *Schedule) (peak, left int64) {
	first, last := map[int]int{}, map[int]int{}
	touch := func(x, i int) {
		b := s.Instances[x].Buffer
		if _, seen := first[b]; !seen {
			first[b] = i
		}
		last[b] = max(last[b], i)
	}
	original := map[int]bool{}
	for i, e := range s.Entries {
		for _, x := range e.In {
			touch(x, i)
		}
		for _, x := range e.Out {
			touch(x, i)
			if t := s.Instances[x].Tensor; p.Tensors[t].Output && !original[t] {
				original[t] = true
				touch(x, len(s.Entries))
			}
		}
	}
	for i := range len(s.Entries) + 1 {
		live := int64(0)
		for b := range first {
			if first[b] <= i && i <= last[b] {
				live += s.Buffers[b].Bytes
			}
		}
		if i == len(s.Entries) {
			return peak, live
		}
		if e := s.Entries[i]; e.Kind == Run || e.Kind == Clone {
			live += p.Ops[e.Op].Workspace
		}
		peak = max(peak, live)
	}
	return peak, 0
}

// B12: a tensor is counted once, whatever is recomputed; when the step ends
// nothing but the outputs is left; the stated peak is that of the entries.
func TestB12MemoryArithmetic(t *testing.T) {
	const MiB = 1 << 20
	// a -> b -> c, much later c and b are needed.
	p := &Problem{OutRate: 1, InRate: 1}
	add := func(bytes int64, in ...int) int {
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, Op{Time: 10, In: in, Out: []int{len(p.Tensors) - 1}, Clone: true})
		return len(p.Tensors) - 1
	}
	a := add(MiB)
	b := add(MiB, a)
	c := add(MiB, b)
	x := c
	for range 8 {
		x = add(16, x)
	}
	x = add(16, x, c)
	x = add(16, x, b)
	p.Tensors[x].Output = true
	choice := make([]Choice, len(p.Tensors))
	choice[b], choice[c] = Recompute, Recompute
	s, err := p.Build(choice)
	if err != nil {
		t.Fatal(err)
	}
	// c is made again from b, made again from a: three at once, as it was in the
	// forward pass for two.
	peak, left := liveness(p, s)
	if s.Peak != peak || left != 16 || peak > 3*MiB+64 {
		t.Errorf("stated peak %d, that of the entries %d, left over %d", s.Peak, peak, left)
	}
	if s.Extra != 20 {
		t.Errorf("two tensors were made again in %d ns, want 20", s.Extra)
	}
	for seed := range uint64(300) {
		p := random(seed)
		outputs := int64(0)
		for _, x := range p.Tensors {
			if x.Output {
				outputs += x.Bytes
			}
		}
		rng := rand.New(rand.NewPCG(seed, 7))
		choice := make([]Choice, len(p.Tensors))
		for i := range choice {
			choice[i] = []Choice{Keep, Recompute}[rng.IntN(2)]
		}
		s, err := p.Build(choice)
		if err != nil {
			continue // recomputation without end
		}
		peak, left := liveness(p, s)
		if s.Peak != peak || left != outputs {
			t.Fatalf("seed %d: stated peak %d, that of the entries %d; left over %d, outputs %d", seed, s.Peak, peak, left, outputs)
		}
	}
}

// A large tensor that idles for a moment is not worth a copy that takes longer:
// trying it must not end the walk in a worse place.
func TestCopyLongerThanIdle(t *testing.T) {
	p := &Problem{OutRate: 1, InRate: 1, CopyLatency: 100, HostBytes: 1 << 40}
	add := func(bytes int64, in ...int) int {
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, Op{Time: 10, In: in, Out: []int{len(p.Tensors) - 1}})
		return len(p.Tensors) - 1
	}
	work := func(x int) int {
		for range 40 {
			x = add(1, x)
			p.Ops[len(p.Ops)-1].Time = 1000
		}
		return x
	}
	r := add(100)
	x := work(r)
	b0 := add(1000, x)
	b1 := add(1000, b0)
	c := add(1000, b1)
	d := add(1, b0, c)
	p.Tensors[add(1, work(d), r)].Output = true
	l, err := p.Search(Options{})
	if err != nil {
		t.Fatal(err)
	}
	least := l.Rungs[0].Peak
	for _, rung := range l.Rungs {
		least = min(least, rung.Peak)
	}
	if least > 3001 {
		t.Errorf("the least peak is %d; with the waiting tensor on the host it is 3000 and a little", least)
	}
}

// Copies hide behind computation where there is enough of it: what is brought
// back is issued early enough, and no earlier than the peak allows.
func TestReloadsComeJustInTime(t *testing.T) {
	p := &Problem{OutRate: 1, InRate: 1, HostBytes: 1 << 40}
	add := func(bytes, time int64, in ...int) int {
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		p.Ops = append(p.Ops, Op{Time: time, In: in, Out: []int{len(p.Tensors) - 1}})
		return len(p.Tensors) - 1
	}
	r := add(500, 10)
	x := r
	for range 20 {
		x = add(1, 100, x)
	}
	x = add(1000, 100, x) // the peak: 1000 and what goes in
	for range 20 {
		x = add(1, 100, x)
	}
	p.Tensors[add(1, 10, x, r)].Output = true
	choice := make([]Choice, len(p.Tensors))
	choice[r] = Swap
	s, err := p.Build(choice)
	if err != nil {
		t.Fatal(err)
	}
	if s.Stall != 0 || s.Peak > 1002 {
		t.Errorf("stalled for %d ns at a peak of %d; the copies take 500 ns of 2000 on each side, and the rest needs 1002 bytes", s.Stall, s.Peak)
	}
}

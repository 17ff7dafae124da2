package plan

import (
	"math/rand/v2"
	"testing"
)

// chain is a network of n layers: layer i makes a cheap tensor (2i) from the
// layer below and a costly one (2i+1) from that, and the backward pass reads
// both in reverse.
func chain(n int, bytes, cheap, costly int64) *Problem {
	p := &Problem{OutRate: 1, InRate: 1, HostBytes: 1 << 40}
	for i := range n {
		in := []int{}
		if i > 0 {
			in = []int{2*i - 1}
		}
		p.Ops = append(p.Ops,
			Op{Time: cheap, In: in, Out: []int{2 * i}, Clone: true},
			Op{Time: costly, In: []int{2 * i}, Out: []int{2*i + 1}, Clone: true})
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes}, Tensor{Bytes: bytes})
	}
	for i := n - 1; i >= 0; i-- {
		grad := len(p.Tensors)
		p.Tensors = append(p.Tensors, Tensor{Bytes: bytes})
		in := []int{2 * i, 2*i + 1}
		if i < n-1 {
			in = append(in, grad-1)
		}
		p.Ops = append(p.Ops, Op{Time: 2 * (cheap + costly), In: in, Out: []int{grad}})
	}
	p.Tensors[len(p.Tensors)-1].Output = true
	return p
}

func TestKeepAllPeakIsTheSumOfWhatWaits(t *testing.T) {
	p := chain(4, 100, 10, 10)
	s, err := p.Build(make([]Choice, len(p.Tensors)))
	if err != nil {
		t.Fatal(err)
	}
	// Eight activations and the first gradient.
	if s.Peak != 900 {
		t.Errorf("peak %d, want 900", s.Peak)
	}
	if s.Extra != 0 || s.Stall != 0 || len(s.Entries) != len(p.Ops) {
		t.Errorf("keeping everything changed the schedule: %+v", s)
	}
}

// The cheap half is recomputed and the costly half copied: what a planner that
// knows both costs does.
func TestSearchUsesBothMeans(t *testing.T) {
	p := chain(8, 1000, 10, 2000)
	l, err := p.Search(Options{})
	if err != nil {
		t.Fatal(err)
	}
	least := l.Rungs[0]
	for _, r := range l.Rungs {
		if r.Peak < least.Peak {
			least = r
		}
	}
	full := l.Rungs[0].Peak
	for _, r := range l.Rungs {
		full = max(full, r.Peak)
	}
	if least.Peak > full/2 {
		t.Errorf("least peak %d of %d", least.Peak, full)
	}
}

// Every schedule reads only instances that are alive and holds every tensor's
// latest value: the plain rules, checked on random graphs and random choices.
func TestSchedulesAreSound(t *testing.T) {
	for seed := range uint64(300) {
		p := random(seed)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		choice := make([]Choice, len(p.Tensors))
		for i := range choice {
			choice[i] = Choice(rng.IntN(3))
		}
		s, err := p.Build(choice)
		if err != nil {
			continue
		}
		if msg := sound(p, s); msg != "" {
			t.Fatalf("seed %d: %s\nproblem %+v\nchoices %v\nschedule %+v", seed, msg, p, choice, s)
		}
	}
}

func random(seed uint64) *Problem {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &Problem{OutRate: 0.5 + rng.Float64(), InRate: 0.5 + rng.Float64(), HostBytes: 1 << 30, CopyLatency: 3}
	n := 5 + rng.IntN(60)
	for i := range n {
		op := Op{Time: int64(rng.IntN(50)), Out: []int{len(p.Tensors)}, Clone: rng.IntN(4) > 0, Workspace: int64(rng.IntN(20))}
		p.Tensors = append(p.Tensors, Tensor{Bytes: int64(rng.IntN(100)), Output: rng.IntN(12) == 0})
		if rng.IntN(5) == 0 {
			op.Out = append(op.Out, len(p.Tensors))
			p.Tensors = append(p.Tensors, Tensor{Bytes: int64(rng.IntN(100))})
		}
		for range rng.IntN(3) {
			if i > 0 {
				op.In = append(op.In, rng.IntN(op.Out[0]))
			}
		}
		if len(op.In) > 0 && rng.IntN(3) == 0 {
			p.Tensors[op.Out[0]].Bytes = p.Tensors[op.In[0]].Bytes
			op.InPlace = []Alias{{op.In[0], op.Out[0]}}
		}
		p.Ops = append(p.Ops, op)
	}
	return p
}

// sound replays a schedule with explicit contents and returns what is wrong.
func sound(p *Problem, s *Schedule) string {
	holder := make([]int, len(s.Buffers)) // instance whose value the buffer holds
	for i := range holder {
		holder[i] = -1
	}
	host := map[int]bool{}
	ran := 0
	for i, e := range s.Entries {
		for k, x := range e.In {
			in := s.Instances[x]
			if holder[in.Buffer] != x {
				return "entry reads an instance that is not in its buffer"
			}
			if i < s.Buffers[in.Buffer].First || i >= s.Buffers[in.Buffer].End {
				return "entry reads a dead buffer"
			}
			if e.Kind == CopyOut {
				host[in.Tensor] = true
			} else if p.Ops[e.Op].In[k] != in.Tensor {
				return "entry reads another tensor than its op"
			}
		}
		for _, x := range e.Out {
			in := s.Instances[x]
			if i < s.Buffers[in.Buffer].First || i >= s.Buffers[in.Buffer].End {
				return "entry writes outside the buffer's life"
			}
			if e.Kind == CopyIn && !host[in.Tensor] {
				return "copy in before copy out"
			}
			holder[in.Buffer] = x
		}
		if e.Kind == Run {
			if e.Op != ran {
				return "ops run out of order"
			}
			ran++
		}
	}
	if ran != len(p.Ops) {
		return "an op is missing"
	}
	for x, in := range s.Instances {
		if p.Tensors[in.Tensor].Output && in.First >= 0 && in.End == len(s.Entries) && holder[in.Buffer] != x {
			return "an output was overwritten"
		}
	}
	return ""
}

// A batch of copies that fit the host one by one, but not together, is cut.
func TestNoRungHoldsMoreThanTheHost(t *testing.T) {
	p := chain(8, 1000, 10, 2000)
	p.HostBytes = 2500
	l, err := p.Search(Options{Rungs: 2})
	if err != nil {
		t.Fatal(err)
	}
	swaps := false
	for _, r := range l.Rungs {
		swaps = swaps || r.HostPeak > 0
		if r.HostPeak > p.HostBytes {
			t.Errorf("a rung holds %d bytes on a host of %d", r.HostPeak, p.HostBytes)
		}
	}
	if !swaps {
		t.Error("no rung swaps")
	}
}

// Half of what waits would fill the host. What is cheap to make again must not
// take its place: with every copy at its price the costly half goes there.
func TestTheHostIsForWhatIsDearToRecompute(t *testing.T) {
	const n = 16
	p := chain(n, 1000, 50, 4000) // copies both ways take 2000
	p.HostBytes = n * 1000
	l, err := p.Search(Options{})
	if err != nil {
		t.Fatal(err)
	}
	least := l.Rungs[0]
	for _, r := range l.Rungs {
		if r.Peak < least.Peak {
			least = r
		}
	}
	if limit := int64(n * 1000 / 2); least.Peak > limit || least.Extra > 2*n*50 {
		t.Errorf("least peak %d of %d with %d extra", least.Peak, 2*n*1000, least.Extra)
	}
}

package plan

import (
	"math"
	"testing"
)

// The paper's closed forms: the share that the bandwidth allows is
// (B*T/(tokens*unit) - 2)/14, that of the host (M/((n-2)*tokens*unit) - 2)/14.
// The log-sum-exp, which they leave out, is 4 bytes for each head beside 2*128.
func closedForm(s *stack, rate float64, host int64) (bandwidth, hosts float64) {
	unit := 2 * float64(s.tokens) * float64(s.h) / float64(s.tp)
	time := float64(s.tokens) * float64(s.h) * (24*float64(s.h) + 2*float64(s.tokens)) / s.rate / float64(s.tp)
	lse := 2.0 / 128
	return (rate*time/unit - 2 - lse) / 14, (float64(host)/float64(s.n-2)/unit - 2 - lse) / 14
}

func TestMemoAlpha(t *testing.T) {
	for _, c := range []struct {
		tokens int64
		rate   float64
		host   int64
		want   float64 // of the host, as the paper's figures have it
	}{
		{512 << 10, 12, 256 * gib, 1.08},
		{640 << 10, 12, 256 * gib, 0.83},
		{1024 << 10, 12, 256 * gib, 0.47},
		{128 << 10, 12, 256 * gib, 4.7},
		{64 << 10, 12, 256 * gib, 9.6},
	} {
		s := gpt7b(c.tokens)
		p := s.problem(c.rate, c.host)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		alpha, bandwidth, host := p.MemoAlpha()
		wantB, wantH := closedForm(s, c.rate, c.host)
		// The elementwise ops and the latencies are no part of the closed form.
		if math.Abs(bandwidth-wantB) > 0.02*math.Abs(wantB)+0.02 || math.Abs(host-wantH) > 1e-6 || math.Abs(host-c.want) > 0.01*c.want {
			t.Errorf("%d tokens: bandwidth %.4f, host %.4f; closed form %.4f, %.4f (%v)", c.tokens, bandwidth, host, wantB, wantH, c.want)
		}
		clip := max(0, min(1, bandwidth, host))
		if alpha > clip || clip-alpha > float64(s.tile)/float64(s.tokens)+1e-9 {
			t.Errorf("%d tokens: alpha %.6f is not the largest multiple of a tile below %.6f", c.tokens, alpha, clip)
		}
	}
}

// Where the copy of everything just hides: s* = 16F/B - 12h, 195 thousand
// tokens at 187 TFLOP/s and 12 GB/s.
func TestMemoCrossing(t *testing.T) {
	full := func(tokens int64) bool {
		alpha, _, _ := gpt7b(tokens).problem(12, 1<<60).MemoAlpha()
		return alpha == 1
	}
	lo, hi := int64(64<<10), int64(512<<10)
	for hi-lo > 1024 {
		if mid := (lo + hi) / 2 / 128 * 128; full(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	if want := 16*187e12/12e9 - 12*4096 - 0.0; math.Abs(float64(hi)-want) > 0.04*want {
		t.Errorf("everything hides from %d tokens on, want about %.0f", hi, want)
	}
}

func TestMemoPlan(t *testing.T) {
	for _, rows := range []int64{1, 8} {
		s := gpt7b(1 << 20)
		s.n, s.rows, s.tile = 9, rows, 8192
		p := s.problem(12, 60*gib)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		alpha, _, _ := p.MemoAlpha()
		if alpha < 0.1 || alpha > 0.9 {
			t.Fatalf("alpha %.3f tests little", alpha)
		}
		l, err := p.Search(Options{Policy: Memo})
		if err != nil {
			t.Fatal(err)
		}
		r := l.Rungs[len(l.Rungs)-1]
		for _, x := range l.Rungs {
			if x.Peak < r.Peak {
				r = x
			}
		}
		sch, err := p.Build(r.Choice)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := check(p, sch); err != nil {
			t.Fatal(err)
		}
		reloadsFollow(t, p, sch)
		unit := int64(2) * s.tokens * s.h / s.tp
		lse := unit * 2 / 128
		// Of seven layers two units, the log-sum-exp and a share of fourteen.
		want := 7 * (2*float64(unit) + float64(lse) + 14*alpha*float64(unit))
		if d := float64(sch.Moved) - want; math.Abs(d) > 1e-6*want || sch.HostPeak > p.HostBytes {
			t.Errorf("rows %d: %d bytes are moved, want %.0f; %d on a host of %d", rows, sch.Moved, want, sch.HostPeak, p.HostBytes)
		}
		// What is skeletal lies in two sets of buffers for the whole step.
		rolling, bytes := map[int]bool{}, int64(0)
		for x, in := range sch.Instances {
			if in.First >= 0 && sch.rolling(x) >= 0 && !rolling[in.Buffer] {
				rolling[in.Buffer] = true
				bytes += sch.Buffers[in.Buffer].Bytes
			}
		}
		if bytes != 2*(16*unit+lse) {
			t.Errorf("rows %d: the rolling buffers have %d bytes, want %d", rows, bytes, 2*(16*unit+lse))
		}
		// Beside them there are the widest transients: two of the wide layer's
		// gradients, and a few of one unit.
		if rest := sch.Peak - bytes; rest < 8*unit || rest > 13*unit {
			t.Errorf("rows %d: %.1f units beside the rolling buffers", rows, float64(rest)/float64(unit))
		}
		// Tails of q, k, v, the norms, the residual, the wide layer: the projections
		// are run again for the share that is not swapped.
		extra := (1 - alpha) * 7 * 16 * float64(s.tokens*s.h*s.h) / s.rate / float64(s.tp)
		if d := float64(sch.Extra)/extra - 1; d < 0 || d > 0.15 {
			t.Errorf("rows %d: %d ns are run again, the projections alone take %.0f", rows, sch.Extra, extra)
		}
		if float64(sch.Stall) > 0.02*float64(sch.Time) {
			t.Errorf("rows %d: %d of %d ns stalled", rows, sch.Stall, sch.Time)
		}
	}
}

// reloadsFollow checks that every layer is copied back when the layer two
// further on is done with, before anything else runs.
func reloadsFollow(t *testing.T, p *Problem, s *Schedule) {
	t.Helper()
	done, next := map[int]int{}, map[int]int{} // by layer: its last reader and the computation behind that
	for i, e := range s.Entries {
		if e.Lane() != 0 {
			continue
		}
		for l, d := range done {
			if next[l] <= d {
				next[l] = i
			}
		}
		for _, x := range e.In {
			if l := p.Tensors[s.Instances[x].Tensor].Layer; l > 0 {
				done[l] = i
			}
		}
	}
	copies := 0
	for i, e := range s.Entries {
		if e.Kind == CopyIn {
			copies++
			if l := p.Tensors[s.Instances[e.Out[0]].Tensor].Layer + 2; i < done[l] || i > next[l] {
				t.Errorf("entry %d copies layer %d back, layer %d is done at %d", i, l-2, l, done[l])
			}
		}
	}
	if copies < 7*11 {
		t.Errorf("%d copies back", copies)
	}
}

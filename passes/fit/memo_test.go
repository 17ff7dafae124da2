package fit_test

import (
	"math"
	"testing"

	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// What the policy memo does to the paper's 7B must be what the paper's closed
// forms say. They leave out the attention's log-sum-exp (4 bytes a head and
// token, swapped whole) and the mean and deviation of two norms (16 bytes a
// token, split like all else): here both are added.
type memoForms struct {
	paperModel
	whole, split float64 // bytes of one layer
}

func memoFormsOf(m paperModel, seq int64) memoForms {
	unit := 2 * float64(seq*m.hidden)
	return memoForms{m, 2*unit + float64(4*m.heads*seq), 14*unit + 16*float64(seq)}
}

func (m memoForms) alphaHost(host float64) float64 {
	return (host/float64(m.layers-2) - m.whole) / m.split
}

// node is the paper's: 8 A800 as one device, 2 TiB of host memory.
func node(t testing.TB) *cost.Device {
	d := *device(t, "a800")
	d.HostBytes = 256 * gib
	return d.Times(8)
}

// alpha_host of 7B: 1.08 (clipped to 1), 0.83 and 0.47; and the share taken is
// the largest multiple of a tile that keeps both limits.
func TestMemoAlphaOfTheGraph(t *testing.T) {
	for _, c := range []struct {
		seq  int64
		host float64
	}{{512 * kib, 1.08}, {640 * kib, 0.83}, {1024 * kib, 0.47}} {
		p := gpt(t, "7b", c.seq, node(t), false).Problem
		alpha, bandwidth, host := p.MemoAlpha()
		want := memoFormsOf(paperModels[0], c.seq).alphaHost(2 * tib)
		if !near(host, want, 1e-6) || math.Abs(host-c.host) > 0.006 {
			t.Errorf("%d: host alpha %.5f, the closed form says %.5f and the paper %v", c.seq, host, want, c.host)
		}
		if clip := max(0, min(1, host, bandwidth)); alpha > clip || clip-alpha > 1/float64(p.Tiles()) {
			t.Errorf("%d: alpha %.5f where %.5f and %.5f are allowed", c.seq, alpha, bandwidth, host)
		}
	}
}

// On a device that does matrix products and attention at 187 TFLOP/s, all else at
// once, and copies at 12 GB/s, everything hides from 16F/B - 12h = 195 K tokens
// on; the bytes that the paper leaves out move that by F/B (4 heads + 16)/(2h),
// 274 tokens.
func TestMemoCrossingOfTheGraph(t *testing.T) {
	d := *device(t, "a800")
	d.MatrixTFLOPS = map[string]float64{"float": 187, "bfloat16": 187}
	d.VectorTFLOPS = map[string]float64{"float": 1e9}
	d.GemmShare, d.AttnFwdShare, d.AttnBwdShare, d.MemoryShare, d.MemoryGBps = 1, 1, 1, 1, 1e12
	d.Launch, d.CopyLatency, d.OutGBps, d.InGBps, d.HostBytes = 0, 0, 12, 12, 64*tib
	full := func(seq int64) bool {
		alpha, _, _ := gpt(t, "7b", seq, &d, false).Problem.MemoAlpha()
		return alpha == 1
	}
	m := paperModels[0]
	want := m.crossing(187e12, 12e9) + 187e12/12e9*float64(4*m.heads+16)/(2*float64(m.hidden))
	lo, hi := int64(190*kib), int64(200*kib)
	if full(lo) || !full(hi) {
		t.Fatalf("everything hides at %d: %v, at %d: %v", lo, full(lo), hi, full(hi))
	}
	for hi-lo > 128 {
		if mid := (lo + hi) / 2 / 128 * 128; full(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	if math.Abs(float64(hi)-want) > 256 {
		t.Errorf("everything hides from %d tokens on, want about %.0f (%.1f K)", hi, want, want/kib)
	}
}

// Host bytes are 30 layers' shares, device bytes hold two sets of one layer's
// skeletal bytes: 4, 16 and 32 GiB a GPU at 128 K, 512 K and 1 M tokens.
func TestMemoBytesOfTheGraph(t *testing.T) {
	for _, c := range []struct {
		seq     int64
		buffers float64
	}{{128 * kib, 4 * gib}, {512 * kib, 16 * gib}, {1024 * kib, 32 * gib}} {
		ctx := gpt(t, "7b", c.seq, node(t), false)
		alpha, _, _ := ctx.Problem.MemoAlpha()
		m := memoFormsOf(paperModels[0], c.seq)
		s := memoSchedule(t, ctx)
		if want := 30 * (m.whole + alpha*m.split); !near(float64(s.HostPeak), want, 1e-6) {
			t.Errorf("%d: %v GiB on the host, want %v", c.seq, float64(s.HostPeak)/gib, want/gib)
		}
		got := rolling(ctx.Problem, s)
		if !near(got, 2*(m.whole+m.split), 1e-6) || math.Abs(got/8-c.buffers) > 0.01*c.buffers {
			t.Errorf("%d: two sets of buffers are %v GiB a GPU, want %v and what the paper leaves out", c.seq, got/8/gib, c.buffers/gib)
		}
	}
}

// memoSchedule is the plan of the policy memo.
func memoSchedule(t testing.TB, c *passes.Context) *plan.Schedule {
	t.Helper()
	l, err := c.Problem.Search(plan.Options{Policy: plan.Memo})
	if err != nil {
		t.Fatal(err)
	}
	least := l.Rungs[0]
	for _, r := range l.Rungs {
		if r.Peak < least.Peak {
			least = r
		}
	}
	s, err := c.Problem.Build(least.Choice)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rolling is the bytes of buffers that hold the same tensor of one layer after
// another.
func rolling(p *plan.Problem, s *plan.Schedule) float64 {
	type holder struct{ role, layer int }
	held := make([]map[holder]bool, len(s.Buffers))
	for _, in := range s.Instances {
		if x := &p.Tensors[in.Tensor]; in.First >= 0 && in.Buffer >= 0 {
			if held[in.Buffer] == nil {
				held[in.Buffer] = map[holder]bool{}
			}
			held[in.Buffer][holder{x.Role, x.Layer}] = true
		}
	}
	bytes := 0.0
	for b, hs := range held {
		layers := map[int]int{} // by role
		for h := range hs {
			layers[h.role]++
		}
		for role, n := range layers {
			if role > 0 && n > 2 {
				bytes += float64(s.Buffers[b].Bytes)
				break
			}
		}
	}
	return bytes
}

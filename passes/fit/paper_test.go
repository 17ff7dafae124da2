package fit_test

import (
	"math"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/models"
	_ "memoc/ir/ops"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/fit"
	"memoc/passes/liveness"
)

const (
	kib = 1 << 10
	gib = 1 << 30
	tib = 1 << 40
)

// gpt is a preset's training step on a device, run up to the plan. Whole keeps
// the loss head in one piece.
func gpt(t testing.TB, preset string, seq int64, device *cost.Device, whole bool) *passes.Context {
	t.Helper()
	cfg := models.Presets[preset]
	cfg.Arch, cfg.DType, cfg.Seq, cfg.Batch = "gpt", ir.BFloat16, seq, 1
	m, err := models.Build(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := passes.Options{Train: true, Loss: "loss", Device: device, HostBudget: -1}
	if whole {
		o.HeadBytes = math.MaxInt64
	}
	c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
	if err := (&passes.Runner{}).RunUntil(c, passes.Plan); err != nil {
		t.Fatal(err)
	}
	return c
}

func device(t testing.TB, name string) *cost.Device {
	t.Helper()
	d, err := cost.LoadDevice(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// layer is what a graph says of one of its repeated forward layers.
type layer struct {
	count                    int
	input, attention, others float64 // skeletal bytes
	small                    float64 // of what the paper leaves out: log-sum-exp, means and deviations
	lse                      float64 // of small
	flops                    float64 // of matrix products and attention, forward
}

func layerOf(t testing.TB, c *passes.Context) layer {
	t.Helper()
	var l layer
	for _, class := range passes.Layers(c.Live) {
		if class.Backward || class.Input == nil {
			continue
		}
		l.count += class.Count
		for i, s := range class.Skeletal {
			l.add(s, class.SameAs[i] >= 0, s.Root == class.Input)
		}
		for _, n := range class.Nodes[:class.Period] {
			k, err := cost.OfNode(n)
			if err != nil {
				t.Fatal(err)
			}
			if k.Unit == ir.Matrix || k.Unit == ir.AttnFwd {
				l.flops += float64(k.FLOPs)
			}
		}
	}
	return l
}

func (l *layer) add(s liveness.Storage, sameAsAnother, input bool) {
	bytes := float64(s.Bytes)
	switch {
	case sameAsAnother:
	case input:
		l.input += bytes
	case s.Root.Type.DType == ir.Float:
		l.small += bytes
		if strings.HasSuffix(s.Root.Name, "LSE") {
			l.lse += bytes
		}
	case s.Root.Def.Op == "FlashAttention":
		l.attention += bytes
	default:
		l.others += bytes
	}
}

// Skeletal bytes are 16 units of tokens*hidden, 1 for the input, 1 for the
// attention and 14 for the rest; beside them stand the log-sum-exp (4 bytes a
// head and token) and the means and deviations of two norms, which the paper
// does not list. The layer's FLOPs are its s*h*(24h+2s), with s+1 in place of s
// where a token attends to itself.
func TestSkeletalBytesAndLayerTime(t *testing.T) {
	d := device(t, "a800")
	for _, m := range paperModels {
		for _, seq := range []int64{2 * kib, 128 * kib} {
			l := layerOf(t, gpt(t, m.name, seq, d, false))
			unit := 2 * float64(seq*m.hidden)
			if l.count != int(m.layers) || l.input != unit || l.attention != unit || l.others != 14*unit {
				t.Errorf("%s at %d: %d layers leave %v, %v and %v units", m.name, seq, l.count, l.input/unit, l.attention/unit, l.others/unit)
			}
			if l.input+l.attention+l.others != m.skeletalBytes(seq) {
				t.Errorf("%s at %d: %v skeletal bytes, want %v", m.name, seq, l.input+l.attention+l.others, m.skeletalBytes(seq))
			}
			if want := float64(4 * m.heads * seq); l.lse != want || l.small != want+4*4*float64(seq) {
				t.Errorf("%s at %d: log-sum-exp %v bytes, want %v; with norms %v", m.name, seq, l.lse, want, l.small)
			}
			if want := m.layerFLOPs(seq) + 2*float64(seq*m.hidden); l.flops != want {
				t.Errorf("%s at %d: a layer does %v FLOPs, want %v", m.name, seq, l.flops, want)
			}
		}
	}
}

// Bytes of 7B at 1 M tokens: all skeletal ones 4096 GiB, layer inputs 256 GiB;
// two layers' buffers on each of 8 GPUs; and the logits.
func TestBytesOf7B(t *testing.T) {
	d, m := device(t, "a800"), paperModels[0]
	for _, c := range []struct {
		seq     int64
		buffers float64
	}{{128 * kib, 4 * gib}, {512 * kib, 16 * gib}, {1024 * kib, 32 * gib}} {
		l := layerOf(t, gpt(t, "7b", c.seq, d, false))
		perLayer := l.input + l.attention + l.others
		if got := 2 * perLayer / 8; got != c.buffers || 2*m.skeletalBytes(c.seq)/8 != c.buffers {
			t.Errorf("two layers at %d: %v GiB a GPU, want %v", c.seq, got/gib, c.buffers/gib)
		}
		if c.seq == 1024*kib && (float64(m.layers)*perLayer != 4096*gib || float64(m.layers)*l.input != 256*gib) {
			t.Errorf("all layers hold %v GiB, their inputs %v GiB", float64(m.layers)*perLayer/gib, float64(m.layers)*l.input/gib)
		}
	}
	c := gpt(t, "7b", 1024*kib, d, true)
	seen := map[ir.DType]bool{}
	for _, n := range c.Graph.Nodes {
		dims, _ := n.Out[0].Type.Shape.Static()
		if n.Backward || len(dims) == 0 || dims[len(dims)-1] != m.vocab || ir.Elems(dims) != m.vocab*1024*kib {
			continue
		}
		bytes, err := n.Out[0].Type.Bytes()
		want := map[ir.DType]float64{ir.BFloat16: 12.3, ir.Float: 24.5}[n.Out[0].Type.DType]
		if got := float64(bytes) / 8 / gib; err != nil || math.Abs(got-want) > 0.05 {
			t.Errorf("logits %q: %v GiB a GPU, want %v (%v)", n.Out[0].Name, got, want, err)
		}
		seen[n.Out[0].Type.DType] = true
	}
	if len(seen) != 2 {
		t.Errorf("logits of the types %v, want bfloat16 and float", seen)
	}
}

// alpha_host of 7B with 2 TiB a node: 1 (1.08 clipped), 0.83 and 0.47. The
// log-sum-exp takes its share of the same memory: 1/64 of a unit in 7B, which
// lowers alpha by 1/896.
func TestAlphaHost(t *testing.T) {
	d, m := device(t, "a800"), paperModels[0]
	for _, c := range []struct {
		seq  int64
		want float64
	}{{512 * kib, 1.08}, {640 * kib, 0.83}, {1024 * kib, 0.47}} {
		l := layerOf(t, gpt(t, "7b", c.seq, d, false))
		host := 2.0 * tib / float64(l.count-2)
		plain := (host - l.input - l.attention) / l.others
		if math.Abs(plain-c.want) > 0.005 || !near(plain, m.alphaHost(c.seq, 2*tib), 1e-12) {
			t.Errorf("at %d: alpha %.4f from the graph, %.4f from the formula, want %.2f", c.seq, plain, m.alphaHost(c.seq, 2*tib), c.want)
		}
		if with := (host - l.input - l.attention - l.lse) / l.others; !near(plain-with, 1.0/896, 1e-9) {
			t.Errorf("at %d: the log-sum-exp lowers alpha by %v", c.seq, plain-with)
		}
	}
}

// From about 195 K tokens on the forward pass of a 7B layer hides the copy of
// all that it leaves, at 187 TFLOP/s and 12 GB/s: the paper measured 192 K.
func TestCrossing(t *testing.T) {
	const flops, bandwidth = 187e12, 12e9
	m := paperModels[0]
	at := m.crossing(flops, bandwidth)
	if math.Abs(at/kib-195) > 0.6 || math.Abs(m.alphaBandwidth(int64(at), flops, bandwidth)-1) > 1e-4 {
		t.Errorf("crossing at %.1f K, where alpha is %v", at/kib, m.alphaBandwidth(int64(at), flops, bandwidth))
	}
	hides := func(seq int64) bool {
		l := layerOf(t, gpt(t, "7b", seq, device(t, "a800"), false))
		return (l.input+l.attention+l.others)/bandwidth <= l.flops/flops
	}
	if lo, hi := int64(194*kib), int64(197*kib); hides(lo) || !hides(hi) {
		t.Errorf("hidden at %d: %v, at %d: %v", lo, hides(lo), hi, hides(hi))
	}
}

// The profile of the A800 gives a layer of 7B at 1 M tokens a ceiling of 54.9 %:
// products and attention alone, forward and backward.
func TestCeiling(t *testing.T) {
	d, m := device(t, "a800"), paperModels[0]
	const seq = 1024 * kib
	want := m.ceiling(seq, 0.75, 0.73, 0.60)
	if math.Abs(want-0.549) > 0.0005 {
		t.Fatalf("the formula gives %v", want)
	}
	time := ir.Nanos(0)
	c := gpt(t, "7b", seq, d, false)
	for _, class := range passes.Layers(c.Live) {
		for _, n := range class.Nodes[:class.Period] {
			k, err := cost.OfNode(n)
			if err != nil {
				t.Fatal(err)
			}
			if k.Unit == ir.Matrix || k.Unit == ir.AttnFwd || k.Unit == ir.AttnBwd {
				time += d.Time(k)
			}
		}
	}
	got := 3 * m.layerFLOPs(seq) / 312e12 / (float64(time) / 1e9)
	if math.Abs(got-want) > 0.0005 {
		t.Errorf("a layer's ceiling is %.4f, want %.4f", got, want)
	}
}

// The FLOPs that utilization counts, taken from the operators of the graph, are
// the closed forms, whether the loss head works in chunks or not; and so are the
// parameters.
func TestWorkIsTheClosedForm(t *testing.T) {
	d := device(t, "a800")
	for _, m := range paperModels {
		for _, seq := range []int64{256, 2 * kib, 1024 * kib} {
			w, err := fit.WorkOf(gpt(t, m.name, seq, d, seq == 2*kib).Graph)
			if err != nil {
				t.Fatal(err)
			}
			causal, full := m.modelFLOPs(seq)
			causal += 3 * float64(m.layers) * 2 * float64(seq*m.hidden) // tokens attend to themselves
			if !near(w.Causal, causal, 1e-12) || !near(w.Full, full, 1e-12) {
				t.Errorf("%s at %d: %v and %v FLOPs, want %v and %v", m.name, seq, w.Causal, w.Full, causal, full)
			}
			if w.Params != m.params() || w.ParamBytes != 2*m.params() {
				t.Errorf("%s: %d parameters in %d bytes, want %d", m.name, w.Params, w.ParamBytes, m.params())
			}
		}
	}
}

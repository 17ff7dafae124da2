package fit_test

import "math"

// The closed forms of the MEMO paper (arXiv 2407.12117) and what follows from
// them for a GPT layer with causal attention and elements of 2 bytes. They know
// nothing of graphs: the tests hold graphs, costs and plans against them.

// paperModel is a model of the paper's section 5.
type paperModel struct {
	name                                string
	layers, hidden, heads, vocab, nodes int64
}

var paperModels = []paperModel{
	{"7b", 32, 4096, 32, 50257, 1},
	{"13b", 40, 5120, 40, 50257, 2},
	{"30b", 48, 7168, 56, 50257, 4},
	{"65b", 80, 8192, 64, 50257, 8},
}

// skeletalUnits is what a layer leaves for its backward pass in units of
// tokens*hidden elements: its input, the attention's output, all else.
const inputUnits, attentionUnits, otherUnits = 1.0, 1.0, 14.0

// skeletalBytes is those of one layer.
func (m paperModel) skeletalBytes(seq int64) float64 {
	return 2 * float64(seq*m.hidden) * (inputUnits + attentionUnits + otherUnits)
}

// layerFLOPs is the forward pass of one layer: s*h*(24h + 2s).
func (m paperModel) layerFLOPs(seq int64) float64 {
	s, h := float64(seq), float64(m.hidden)
	return s * h * (24*h + 2*s)
}

// modelFLOPs is a training step's, three times the forward pass's; with full
// attention (24h + 4s), as Megatron-LM counts.
func (m paperModel) modelFLOPs(seq int64) (causal, full float64) {
	s, h := float64(seq), float64(m.hidden)
	head := 2 * s * h * float64(m.vocab)
	n := float64(m.layers)
	return 3 * (n*m.layerFLOPs(seq) + head), 3 * (n*s*h*(24*h+4*s) + head)
}

// params is the weights: per layer 12 h^2 and 13 h of biases and norms, two
// tables of the vocabulary and the last norm.
func (m paperModel) params() int64 {
	return m.layers*(12*m.hidden*m.hidden+13*m.hidden) + 2*m.vocab*m.hidden + 2*m.hidden
}

// alphaHost is the share of the other tensors' tokens that host memory holds
// where the last two layers stay on the device; not clipped.
func (m paperModel) alphaHost(seq int64, host float64) float64 {
	return (host/(float64(m.layers-2)*2*float64(seq*m.hidden)) - inputUnits - attentionUnits) / otherUnits
}

// alphaBandwidth is the share that a layer's forward pass hides, at a sustained
// rate of flops a second and bandwidth bytes a second on each GPU; not clipped.
func (m paperModel) alphaBandwidth(seq int64, flops, bandwidth float64) float64 {
	return (bandwidth*(24*float64(m.hidden)+2*float64(seq))/(2*flops) - inputUnits - attentionUnits) / otherUnits
}

// crossing is the length from which a layer's forward pass hides the copy of all
// its skeletal bytes: 16 F/B - 12 h.
func (m paperModel) crossing(flops, bandwidth float64) float64 {
	return 16*flops/bandwidth - 12*float64(m.hidden)
}

// ceiling is the utilization of a layer at the shares of the peak rate that
// kernels sustain, nothing recomputed and nothing stalled: the backward pass of
// attention makes the scores once more, 2.5 times the forward's FLOPs of which
// the model counts 2.
func (m paperModel) ceiling(seq int64, gemm, attnFwd, attnBwd float64) float64 {
	s, h := float64(seq), float64(m.hidden)
	return 3 * (24*h + 2*s) / (3*24*h/gemm + 2*s/attnFwd + 2.5*2*s/attnBwd)
}

// near reports whether a and b differ by at most a share.
func near(a, b, share float64) bool { return math.Abs(a-b) <= share*math.Abs(b) }

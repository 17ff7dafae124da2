// Package models generates forward language models with a loss, of any size:
// GPT (LayerNormalization, GELU, full attention) and Llama (RMSNormalization,
// rotary positions, grouped-query attention, SwiGLU). Small weights are drawn
// and stored; large ones are references to a file that is never written, which
// is all that planning needs.
package models

import (
	"fmt"
	"math"

	"memoc/ir"
)

// Config is the shape of a model.
type Config struct {
	Arch    string // "gpt" or "llama"
	Layers  int
	Hidden  int64
	Heads   int64
	KVHeads int64 // llama: heads of key and value; 0: Heads
	FFN     int64 // width of the feed-forward layer; 0: 4*Hidden (gpt), or 8/3*Hidden rounded up to 256 (llama)
	Vocab   int64
	Seq     int64
	Batch   int64
	DType   ir.DType
	// InlineLimit is the size in bytes above which a weight is external; < 0
	// stores all weights.
	InlineLimit int64
	Seed        uint64
}

// Presets are the models of the MEMO paper, section 5.
var Presets = map[string]Config{
	"7b":  {Layers: 32, Hidden: 4096, Heads: 32, FFN: 16384, Vocab: 50257},
	"13b": {Layers: 40, Hidden: 5120, Heads: 40, FFN: 20480, Vocab: 50257},
	"30b": {Layers: 48, Hidden: 7168, Heads: 56, FFN: 28672, Vocab: 50257},
	"65b": {Layers: 80, Hidden: 8192, Heads: 64, FFN: 32768, Vocab: 50257},
}

// Opset is the version of the default domain that models are written in: the
// first with Attention, RMSNormalization and RotaryEmbedding.
const Opset = 23

// validate completes defaults and refuses shapes that do not divide.
func (c *Config) validate() error {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.FFN == 0 && c.Hidden > 0 {
		c.FFN = 4 * c.Hidden
		if c.Arch == "llama" {
			c.FFN = (8*c.Hidden/3 + 255) / 256 * 256
		}
	}
	switch {
	case c.Arch != "gpt" && c.Arch != "llama":
		return fmt.Errorf("no architecture is called %q; use gpt or llama", c.Arch)
	case c.Layers < 1 || c.Hidden < 1 || c.Heads < 1 || c.Vocab < 2 || c.Seq < 1 || c.Batch < 1 || c.FFN < 1:
		return fmt.Errorf("layers, hidden, heads, vocab, seq and batch must be positive (vocab at least 2)")
	case c.Hidden%c.Heads != 0:
		return fmt.Errorf("hidden %d is not a multiple of heads %d", c.Hidden, c.Heads)
	case c.KVHeads < 1 || c.Heads%c.KVHeads != 0:
		return fmt.Errorf("heads %d is not a multiple of kv-heads %d", c.Heads, c.KVHeads)
	case c.Arch == "llama" && c.Hidden/c.Heads%2 != 0:
		return fmt.Errorf("rotary positions need an even head size, not %d", c.Hidden/c.Heads)
	case !c.DType.IsFloat():
		return fmt.Errorf("no model has weights of type %s; use float, double, float16 or bfloat16", c.DType)
	}
	return nil
}

// Build makes the model: inputs "tokens" and "labels" (int64 [batch,seq]),
// output "loss" (float []), one token's label being its own position's (shift
// them when feeding). Label -100 is ignored.
func Build(c Config) (m *ir.Model, err error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	defer ir.Catch(&err)
	opsets := map[string]int{ir.OnnxDomain: Opset}
	g := ir.NewGraph(c.Arch, opsets)
	w := &writer{c: c, g: g, b: ir.NewBuilder(ir.NewEdit(g))}
	tokens := g.AddInput("tokens", ir.TensorOf(ir.Int64, ir.Ints64(c.Batch, c.Seq)))
	labels := g.AddInput("labels", ir.TensorOf(ir.Int64, ir.Ints64(c.Batch, c.Seq)))
	x := w.op("embed", "Gather", []*ir.Value{w.weight("embed.weight", c.Vocab, c.Hidden), tokens})
	if c.Arch == "llama" {
		w.cos, w.sin = w.rotary()
	}
	for i := range c.Layers {
		w.prefix = fmt.Sprintf("layer%d.", i)
		x = w.attention(x)
		x = w.feedForward(x)
	}
	w.prefix = ""
	g.Outputs = []*ir.Value{w.loss(w.norm("norm", x), labels)}
	w.b.Edit.Done()
	return &ir.Model{IRVersion: 11, ProducerName: "memoc", Opsets: opsets, Graph: g}, nil
}

type writer struct {
	c        Config
	g        *ir.Graph
	b        *ir.Builder
	prefix   string
	offset   int64 // in the external file
	cos, sin *ir.Value
}

// op makes one node whose output has the node's name.
func (w *writer) op(name, op string, in []*ir.Value, attrs ...ir.Attr) *ir.Value {
	w.b.Prefix = w.prefix + name + "/"
	return w.b.Node(ir.OnnxDomain, op, in, []string{w.g.Fresh(w.prefix + name)}, attrs...).Out[0]
}

// linear is x W + bias; llama has no biases.
func (w *writer) linear(name string, x *ir.Value, in, out int64) *ir.Value {
	if w.c.Arch == "llama" {
		return w.op(name, "MatMul", []*ir.Value{x, w.weight(name+".weight", in, out)})
	}
	y := w.op(name+".matmul", "MatMul", []*ir.Value{x, w.weight(name+".weight", in, out)})
	return w.op(name, "Add", []*ir.Value{y, w.weight(name+".bias", out)})
}

func (w *writer) norm(name string, x *ir.Value) *ir.Value {
	scale := w.weight(name+".weight", w.c.Hidden)
	if w.c.Arch == "llama" {
		return w.op(name, "RMSNormalization", []*ir.Value{x, scale}, ir.FloatAttr("epsilon", 1e-5))
	}
	return w.op(name, "LayerNormalization", []*ir.Value{x, scale, w.weight(name+".bias", w.c.Hidden)}, ir.FloatAttr("epsilon", 1e-5))
}

func (w *writer) attention(x *ir.Value) *ir.Value {
	c := w.c
	head := c.Hidden / c.Heads
	y := w.norm("attn_norm", x)
	q := w.linear("q", y, c.Hidden, c.Hidden)
	k := w.linear("k", y, c.Hidden, c.KVHeads*head)
	v := w.linear("v", y, c.Hidden, c.KVHeads*head)
	if c.Arch == "llama" {
		q = w.op("q_rot", "RotaryEmbedding", []*ir.Value{q, w.cos, w.sin}, ir.IntAttr("num_heads", c.Heads))
		k = w.op("k_rot", "RotaryEmbedding", []*ir.Value{k, w.cos, w.sin}, ir.IntAttr("num_heads", c.KVHeads))
	}
	a := w.op("attn", "Attention", []*ir.Value{q, k, v}, ir.IntAttr("is_causal", 1),
		ir.IntAttr("q_num_heads", c.Heads), ir.IntAttr("kv_num_heads", c.KVHeads))
	return w.op("attn_residual", "Add", []*ir.Value{x, w.linear("o", a, c.Hidden, c.Hidden)})
}

func (w *writer) feedForward(x *ir.Value) *ir.Value {
	c := w.c
	y := w.norm("ffn_norm", x)
	var h *ir.Value
	if c.Arch == "llama" {
		gate := w.linear("gate", y, c.Hidden, c.FFN)
		silu := w.op("silu", "Mul", []*ir.Value{gate, w.op("sigmoid", "Sigmoid", []*ir.Value{gate})})
		h = w.op("gated", "Mul", []*ir.Value{silu, w.linear("up", y, c.Hidden, c.FFN)})
	} else {
		h = w.op("gelu", "Gelu", []*ir.Value{w.linear("up", y, c.Hidden, c.FFN)})
	}
	return w.op("ffn_residual", "Add", []*ir.Value{x, w.linear("down", h, c.FFN, c.Hidden)})
}

// rotary makes the cosines and sines [batch,seq,head/2] of the positions.
func (w *writer) rotary() (cos, sin *ir.Value) {
	c, b := w.c, w.b
	half := c.Hidden / c.Heads / 2
	freq := make([]float64, half)
	for i := range freq {
		freq[i] = math.Pow(10000, -float64(i)/float64(half))
	}
	at := w.op("positions", "Range", []*ir.Value{b.Const(ir.FromInts(ir.Int64, []int64{0})),
		b.Const(ir.FromInts(ir.Int64, []int64{c.Seq})), b.Const(ir.FromInts(ir.Int64, []int64{1}))})
	angle := b.Mul(b.Reshape(b.Cast(at, ir.Float), 1, c.Seq, 1), b.Const(ir.FromFloats(ir.Float, freq, half)))
	shape := b.Int64s(c.Batch, c.Seq, half)
	wide := func(name, op string) *ir.Value {
		return w.op(name, "Expand", []*ir.Value{b.Cast(b.Op(op, []*ir.Value{angle}), c.DType), shape})
	}
	return wide("cos", "Cos"), wide("sin", "Sin")
}

// loss is the mean cross entropy of the projected hidden states, in float.
func (w *writer) loss(x, labels *ir.Value) *ir.Value {
	c := w.c
	logits := w.op("logits", "MatMul", []*ir.Value{x, w.weight("head.weight", c.Hidden, c.Vocab)})
	logits = w.b.Reshape(logits, c.Batch*c.Seq, c.Vocab)
	if c.DType == ir.Float16 || c.DType == ir.BFloat16 {
		logits = w.b.Cast(logits, ir.Float)
	}
	return w.op("loss", "SoftmaxCrossEntropyLoss", []*ir.Value{logits, w.b.Reshape(labels, c.Batch*c.Seq)},
		ir.IntAttr("ignore_index", -100), ir.StringAttr("reduction", "mean"))
}

// weight is an initializer: matrices are normal with deviation 0.02, norm
// scales and biases near one and zero.
func (w *writer) weight(name string, dims ...int64) *ir.Value {
	name = w.prefix + name
	t := ir.TensorOf(w.c.DType, ir.Ints64(dims...))
	bytes, err := t.Bytes()
	if err != nil {
		w.b.Fail(fmt.Errorf("weight %q: %w", name, err))
	}
	if w.c.InlineLimit >= 0 && bytes > w.c.InlineLimit {
		v := w.g.AddInit(name, &ir.Weight{Type: t, External: &ir.External{Location: "weights.bin", Offset: w.offset, Length: bytes}})
		w.offset += bytes
		return v
	}
	return w.g.AddInit(name, ir.WeightOf(w.draw(name, dims)))
}

func (w *writer) draw(name string, dims []int64) *ir.Tensor {
	r := ir.RandomStream{Seed: ir.RandomKey(w.c.Seed, name)}
	mean, dev := 0.0, 0.02
	if len(dims) == 1 && len(name) > 7 && name[len(name)-7:] == ".weight" {
		mean = 1
	}
	vals := make([]float64, ir.Elems(dims))
	for i := range vals {
		words := r.Words(uint64(i))
		u := (float64(words[0]) + 1) / (1 << 32)
		vals[i] = mean + dev*math.Sqrt(-2*math.Log(u))*math.Cos(2*math.Pi*float64(words[1])/(1<<32))
	}
	return ir.FromFloats(w.c.DType, vals, dims...)
}

package ops

import (
	"math"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "MultiHeadAttention",
	Doc:   "Multi-head attention on projected queries, keys and values of shape [B,S,H*D] (keys and values also [B,H,T,D]), with a cache.",
	Since: []int{1},
	In: ir.Ports("query:T, key:T?, value:T?, bias:T?, key_padding_mask:tensor(int32)?, attention_bias:T?, past_key:T?, past_value:T?, " +
		"past_sequence_length:tensor(int32)?, cache_indirection:tensor(int32)?"),
	Out:   ir.Ports("output:T, present_key:T?, present_value:T?, qk:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats},
	Infer: mhaInfer,
	Axes:  ir.NoAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		keys := int64(1)
		if k := c.InShape(1); len(k) >= 3 {
			keys = k[len(k)-2]
		}
		if p := c.InShape(6); len(p) == 4 {
			keys += p[2]
		}
		return ir.Cost{FLOPs: 4 * ir.Elems(c.OutShape(0)) * keys, Read: read, Write: write, Unit: ir.AttnFwd, DType: c.InDType(0)}
	},
	Grad:      ir.NoGrad("not derived yet: an inference fusion; export the model unfused, or with the standard Attention, to train it"),
	Recompute: ir.Pure,
	Eval:      mhaEval,
	Kernel:    ir.NoKernel("not written yet: com.microsoft MultiHeadAttention"),
	Samples: func() []ir.Sample {
		heads := func(more ...ir.Attr) []ir.Attr { return append([]ir.Attr{ir.IntAttr("num_heads", 2)}, more...) }
		q, k, v := wave(1, 2, 3, 4), wave(2, 2, 5, 4), wave(3, 2, 5, 6)
		return []ir.Sample{
			{Name: "cross", In: []*ir.Tensor{q, k, v, wave(4, 14)}, Attrs: heads()},
			{Name: "causal, cache", In: []*ir.Tensor{q, wave(2, 2, 3, 4), wave(3, 2, 3, 4), nil, nil, nil, wave(4, 2, 2, 1, 2), wave(5, 2, 2, 1, 2)},
				Absent: []int{3, 4, 5}, NumOut: 3, Attrs: heads(ir.IntAttr("unidirectional", 1))},
			{Name: "heads first", In: []*ir.Tensor{q, wave(2, 2, 2, 5, 2), wave(3, 2, 2, 5, 3)}, Attrs: heads()},
			{Name: "padding", In: []*ir.Tensor{q, k, v, nil, ir.FromInts(ir.Int32, []int64{1, 1, 1, 0, 0, 1, 1, 1, 1, 1}, 2, 5), wave(6, 1, 2, 3, 5)},
				Absent: []int{3}, Attrs: heads()},
		}
	},
})

func mhaInfer(c *ir.InferCtx) error {
	heads := c.Node.Int("num_heads", 0)
	if heads <= 0 {
		return c.Errorf("num_heads is %d; it must be positive", heads)
	}
	for i := range len(c.Node.Out) {
		c.SetTensor(i, c.DType(0), ir.Shape{})
	}
	q, k, v := c.Shape(0), c.Shape(1), c.Shape(2)
	if !c.Has(1) || !c.Has(2) {
		return c.Errorf("packed queries, keys and values are not supported: key and value are needed")
	}
	if !q.Ranked || !k.Ranked || !v.Ranked {
		return nil
	}
	if q.Rank() != 3 || k.Rank() != v.Rank() || k.Rank() != 3 && k.Rank() != 4 {
		return c.Errorf("query %s, key %s and value %s: ranks 3, and 3 or 4 are needed", q, k, v)
	}
	width := func(s ir.Shape) (all, head ir.Dim) {
		if s.Rank() == 4 {
			return s.Dims[3].Mul(ir.N(heads)), s.Dims[3]
		}
		head, ok := s.Dims[2].Div(ir.N(heads))
		if !ok {
			head = c.FreshDim()
		}
		return s.Dims[2], head
	}
	hidden, e := width(v)
	_, d := width(k)
	total := k.Dims[k.Rank()-2]
	switch past := c.Shape(6); {
	case past.Rank() == 4:
		total = total.Add(past.Dims[2])
	case c.Has(6):
		total = c.FreshDim()
	}
	c.SetTensor(0, c.DType(0), ir.Dims(q.Dims[0], q.Dims[1], hidden))
	c.SetTensor(1, c.DType(0), ir.Dims(q.Dims[0], ir.N(heads), total, d))
	c.SetTensor(2, c.DType(0), ir.Dims(q.Dims[0], ir.N(heads), total, e))
	c.SetTensor(3, c.DType(0), ir.Dims(q.Dims[0], ir.N(heads), q.Dims[1], total))
	return nil
}

// mhaOperand is a projected operand as [B,H,rows,width], its part of the bias
// added.
func mhaOperand(c *ir.EvalCtx, port int, heads, biasAt int64) (vals []float64, rows, width int64, ok bool) {
	x := c.In(port)
	if x == nil {
		return nil, 0, 0, false
	}
	if len(x.Dims) == 4 {
		return x.Floats(), x.Dims[2], x.Dims[3], x.Dims[1] == heads
	}
	if len(x.Dims) != 3 || x.Dims[2]%heads != 0 {
		return nil, 0, 0, false
	}
	vals = append([]float64{}, x.Floats()...)
	if c.Has(3) {
		bias := c.In(3).Floats()
		if biasAt+x.Dims[2] > int64(len(bias)) {
			return nil, 0, 0, false
		}
		for i := range vals {
			vals[i] += bias[biasAt+int64(i)%x.Dims[2]]
		}
	}
	rows, width = x.Dims[1], x.Dims[2]/heads
	return headsFirstValues(vals, true, x.Dims[0], heads, rows, width), rows, width, true
}

func mhaEval(c *ir.EvalCtx) error {
	heads := c.Node.Int("num_heads", 0)
	if heads <= 0 || c.HasOut(3) {
		return c.Errorf("num_heads is %d, or the output qk is asked for, which is not supported", heads)
	}
	q, s, d, okQ := mhaOperand(c, 0, heads, 0)
	k, t, dk, okK := mhaOperand(c, 1, heads, heads*d)
	v, tv, e, okV := mhaOperand(c, 2, heads, 2*heads*d)
	if !okQ || !okK || !okV || t != tv || d != dk {
		return c.Errorf("query, key, value and bias do not fit; packed forms are not supported")
	}
	b := c.In(0).Dims[0]
	past := int64(0)
	if c.Has(6) && c.Has(7) {
		past = c.In(6).Dims[2]
		k = withPast(c.In(6).Floats(), k, b*heads, past, t, d)
		v = withPast(c.In(7).Floats(), v, b*heads, past, t, e)
	}
	f := flashShape{b: b, h: heads, g: heads, s: s, t: past + t, d: d, e: e, left: -1, right: -1, offset: past, lengths: -1}
	f.scale = float64(c.Node.Float("scale", float32(1/math.Sqrt(float64(d)))))
	if c.Node.Int("unidirectional", 0) != 0 {
		f.right = 0
	}
	m, err := msMask(c, f, 4, 5)
	if err != nil {
		return err
	}
	y, _ := flashForward(f, q, k, v, m)
	dtype := c.In(0).DType
	c.Set(0, ir.FromFloats(dtype, headsLastValues(y, true, b, heads, s, e), b, s, heads*e))
	c.Set(1, ir.FromFloats(dtype, k, b, heads, f.t, d))
	c.Set(2, ir.FromFloats(dtype, v, b, heads, f.t, e))
	return nil
}

package ops

import "memoc/ir"

// broadcastShapes is ONNX's multidirectional broadcasting of ranked shapes.
// Two different symbols meet as a fresh one (either may be 1); a symbol and an
// integer other than 1 give the integer; two different integers are an error.
func broadcastShapes(c *ir.InferCtx, shapes ...ir.Shape) (ir.Shape, error) {
	rank := 0
	for _, s := range shapes {
		if !s.Ranked {
			return ir.Shape{}, nil
		}
		rank = max(rank, s.Rank())
	}
	dims := make([]ir.Dim, rank)
	for i := range dims {
		dims[i] = ir.N(1)
		for _, s := range shapes {
			j := i - (rank - s.Rank())
			if j < 0 {
				continue
			}
			d, ok := broadcastDim(c, dims[i], s.Dims[j])
			if !ok {
				return ir.Shape{}, c.Errorf("dims %s and %s do not broadcast (axis %d of %v)", dims[i], s.Dims[j], i, shapes)
			}
			dims[i] = d
		}
	}
	return ir.Dims(dims...), nil
}

func broadcastDim(c *ir.InferCtx, a, b ir.Dim) (ir.Dim, bool) {
	if a.Equal(b) {
		return a, true
	}
	an, aInt := a.Int()
	bn, bInt := b.Int()
	switch {
	case aInt && an == 1:
		return b, true
	case bInt && bn == 1:
		return a, true
	case aInt && bInt:
		return a, false
	case aInt:
		return a, true
	case bInt:
		return b, true
	}
	return c.FreshDim(), true
}

// broadcastDims is broadcasting of static shapes at run time; ok is false
// where they do not broadcast.
func broadcastDims(shapes ...[]int64) (out []int64, ok bool) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out = make([]int64, rank)
	for i := range out {
		out[i] = 1
		for _, s := range shapes {
			j := i - (rank - len(s))
			if j < 0 || s[j] == 1 || s[j] == out[i] {
				continue
			}
			if out[i] != 1 {
				return nil, false
			}
			out[i] = s[j]
		}
	}
	return out, true
}

// broadcastIndex calls f(i, j) for every linear index i of a tensor of shape
// out with the linear index j of the element of a tensor of shape in that
// broadcasts to it.
func broadcastIndex(out, in []int64, f func(i, j int)) {
	strides := broadcastStrides(out, in)
	n := int(ir.Elems(out))
	idx := make([]int64, len(out))
	j := int64(0)
	for i := 0; i < n; i++ {
		f(i, int(j))
		for a := len(out) - 1; a >= 0; a-- {
			idx[a]++
			j += strides[a]
			if idx[a] < out[a] {
				break
			}
			j -= strides[a] * out[a]
			idx[a] = 0
		}
	}
}

// broadcastStrides is, for every axis of out, the step in elements through a
// tensor of shape in (0 where it is broadcast).
func broadcastStrides(out, in []int64) []int64 {
	strides := make([]int64, len(out))
	step := int64(1)
	for a := len(in) - 1; a >= 0; a-- {
		o := a + len(out) - len(in)
		if in[a] != 1 {
			strides[o] = step
		}
		step *= in[a]
	}
	return strides
}

// broadcastEval applies f pointwise to broadcast inputs in float64 and rounds
// to dtype d.
func broadcastEval(c *ir.EvalCtx, d ir.DType, f func(args []float64) float64) error {
	return broadcastApply(c, d, (*ir.Tensor).Floats, ir.SetFloats, f)
}

// broadcastEvalInt is broadcastEval in int64, for integer types and bool.
func broadcastEvalInt(c *ir.EvalCtx, d ir.DType, f func(args []int64) int64) error {
	return broadcastApply(c, d, (*ir.Tensor).Ints, ir.SetInts, f)
}

func broadcastApply[E, R any](c *ir.EvalCtx, d ir.DType, load func(*ir.Tensor) []E, store func(*ir.Tensor, []R), f func([]E) R) error {
	in, err := operands(c)
	if err != nil {
		return err
	}
	return broadcastTensors(c, d, in, load, store, f)
}

// broadcastTensors is broadcastApply of given operands.
func broadcastTensors[E, R any](c *ir.EvalCtx, d ir.DType, in []*ir.Tensor, load func(*ir.Tensor) []E, store func(*ir.Tensor, []R), f func([]E) R) error {
	shapes := make([][]int64, len(in))
	for i, x := range in {
		shapes[i] = x.Dims
	}
	dims, ok := broadcastDims(shapes...)
	if !ok {
		return c.Errorf("shapes %v do not broadcast", shapes)
	}
	n := int(ir.Elems(dims))
	flat := make([]E, n*len(in))
	for k, x := range in {
		vals := load(x)
		broadcastIndex(dims, x.Dims, func(i, j int) { flat[i*len(in)+k] = vals[j] })
	}
	res := make([]R, n)
	for i := range res {
		res[i] = f(flat[i*len(in) : (i+1)*len(in)])
	}
	t := ir.NewTensor(d, dims...)
	store(t, res)
	c.Set(0, t)
	return nil
}

// operands are the present inputs, the second in today's broadcasting form.
func operands(c *ir.EvalCtx) ([]*ir.Tensor, error) {
	var in []*ir.Tensor
	for i := range c.NumIn() {
		if x := c.In(i); x != nil {
			in = append(in, x)
		}
	}
	if len(in) != 2 || c.Version >= 7 {
		return in, nil
	}
	s, ok := legacyShape(c.Node, c.Version, in[0].Type().Shape, in[1].Type().Shape)
	if !ok {
		return nil, c.Errorf("shape %v does not fit into %v at that axis", in[1].Dims, in[0].Dims)
	}
	dims, _ := s.Static()
	return []*ir.Tensor{in[0], in[1].Reshaped(dims...)}, nil
}

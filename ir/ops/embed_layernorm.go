package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain, Name: "EmbedLayerNormalization",
	Doc:   "Layer normalization of the sum of word, position and segment embeddings; mask_index counts the mask's ones.",
	Since: []int{1},
	In: ir.Ports("input_ids:I, segment_ids:I?, word_embedding:T, position_embedding:T, segment_embedding:T?, gamma:T, beta:T, " +
		"mask:I?, position_ids:I?"),
	Out:   ir.Ports("output:T, mask_index:I?, embedding_sum:T?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "I": ir.Indices},
	Infer: func(c *ir.InferCtx) error {
		ids, table := c.Shape(0), c.Shape(2)
		if ids.Ranked && ids.Rank() != 2 || table.Ranked && table.Rank() != 2 {
			return c.Errorf("ids of shape %s and a table of shape %s; both need rank 2", ids, table)
		}
		out, batch := ir.Shape{}, ir.Shape{}
		if ids.Ranked {
			batch = ir.Dims(ids.Dims[0])
			if table.Ranked {
				out = ir.Dims(ids.Dims[0], ids.Dims[1], table.Dims[1])
			}
		}
		c.SetTensor(0, c.DType(2), out)
		c.SetTensor(1, c.DType(0), batch)
		c.SetTensor(2, c.DType(2), out)
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      ir.PointwiseCost(12),
	Grad:      ir.NoGrad("not derived yet: an inference fusion; export the model unfused to train it"),
	Recompute: ir.Pure,
	Eval:      embedEval,
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		ids, table := c.InShape(0), c.InShape(2)
		return ir.Kernel{Func: "embed_norm", Source: embedCUDA, Types: []ir.DType{c.InDType(2), c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(3), ir.InArg(4), ir.InArg(5), ir.InArg(6), ir.InArg(7), ir.InArg(8),
			ir.OutArg(0), ir.OutArg(1), ir.OutArg(2), ir.IntArg(ids[0]), ir.IntArg(ids[1]), ir.IntArg(table[1]),
			ir.IntArg(ir.Elems(c.InShape(8))), ir.FloatArg(skipEpsilon(c.Node))}}, nil
	}),
	Samples: func() []ir.Sample {
		ids := func(vals ...int64) *ir.Tensor { return ir.FromInts(ir.Int32, vals, 2, 3) }
		word, pos, seg := wave(1, 5, 4), wave(2, 4, 4), wave(3, 2, 4)
		gamma, beta := wave(4, 4), wave(5, 4)
		return []ir.Sample{
			{Name: "all", In: []*ir.Tensor{ids(0, 4, 1, 2, 2, 3), ids(0, 1, 1, 0, 0, 1), word, pos, seg, gamma, beta, ids(1, 1, 0, 1, 1, 1)}, NumOut: 3},
			{Name: "positions", In: []*ir.Tensor{ids(0, 4, 1, 2, 2, 3), nil, word, pos, nil, gamma, beta, nil, ids(0, 1, 2, 1, 2, 3)}, Absent: []int{1, 4, 7}, NumOut: 3},
			{Name: "one row of positions", In: []*ir.Tensor{ids(0, 4, 1, 2, 2, 3), nil, word, pos, nil, gamma, beta, nil, ir.FromInts(ir.Int32, []int64{3, 0, 1}, 1, 3)}, Absent: []int{1, 4, 7}},
		}
	},
})

func embedEval(c *ir.EvalCtx) error {
	ids, table := c.In(0), c.In(2)
	if len(ids.Dims) != 2 || len(table.Dims) != 2 {
		return c.Errorf("ids of shape %v and a table of shape %v; both need rank 2", ids.Dims, table.Dims)
	}
	b, s, n := ids.Dims[0], ids.Dims[1], table.Dims[1]
	sum := make([]float64, b*s*n)
	add := func(t *ir.Tensor, row, at int64) error {
		if row < 0 || row >= t.Dims[0] {
			return c.Errorf("index %d is not in a table of %d rows", row, t.Dims[0])
		}
		for j, v := range t.Floats()[row*n : (row+1)*n] {
			sum[at*n+int64(j)] += v
		}
		return nil
	}
	for at := range b * s {
		position := at % s
		if c.Has(8) {
			position = c.In(8).Ints()[at%c.In(8).Len()]
		}
		err := add(table, ids.Ints()[at], at)
		if err == nil {
			err = add(c.In(3), position, at)
		}
		if err == nil && c.Has(1) && c.Has(4) {
			err = add(c.In(4), c.In(1).Ints()[at], at)
		}
		if err != nil {
			return err
		}
	}
	y, _, _ := normRows(sum, n, skipEpsilon(c.Node), true)
	gamma, beta := c.In(5).Floats(), c.In(6).Floats()
	for i := range y {
		y[i] = y[i]*gamma[int64(i)%n] + beta[int64(i)%n]
	}
	counts := make([]int64, b)
	if c.Has(7) {
		for i, m := range c.In(7).Ints() {
			if m == 1 {
				counts[int64(i)/s]++
			}
		}
	}
	c.Set(0, ir.FromFloats(table.DType, y, b, s, n))
	c.Set(1, ir.FromInts(ids.DType, counts, b))
	c.Set(2, ir.FromFloats(table.DType, sum, b, s, n))
	return nil
}

const embedCUDA = `
template <class T, class I>
void embed_norm(Stream& st, const I* ids, const I* segments, const T* word, const T* position, const T* segment, const T* gamma, const T* beta,
                const I* mask, const I* positions, T* y, I* mask_index, T* sum, int64_t b, int64_t s, int64_t n, int64_t position_count, double eps) {
  using A = Acc<T>;
  block_rows(st, b * s, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    const T* w = word + int64_t(ids[row]) * n;
    const T* p = position + (positions == nullptr ? row % s : int64_t(positions[row % position_count])) * n;
    const T* g = segments == nullptr || segment == nullptr ? nullptr : segment + int64_t(segments[row]) * n;
    A m = A(0), q = A(0);
    for (int64_t i = c.tid; i < n; i += c.size) m += to<A>(w[i]) + to<A>(p[i]) + (g == nullptr ? A(0) : to<A>(g[i]));
    m = c.sum(m) / A(n);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A d = to<A>(w[i]) + to<A>(p[i]) + (g == nullptr ? A(0) : to<A>(g[i])) - m;
      q += d * d;
    }
    A r = A(1) / sqrt_of(A(c.sum(q) / A(n) + A(eps)));
    for (int64_t i = c.tid; i < n; i += c.size) {
      A v = to<A>(w[i]) + to<A>(p[i]) + (g == nullptr ? A(0) : to<A>(g[i]));
      if (sum != nullptr) sum[row * n + i] = to<T>(v);
      y[row * n + i] = to<T>((v - m) * r * to<A>(gamma[i]) + to<A>(beta[i]));
    }
  });
  parallel_for(st, mask_index == nullptr ? 0 : b, [=] MEMOC_DEVICE(int64_t i) {
    int64_t count = 0;
    for (int64_t j = 0; mask != nullptr && j < s; j++) count += mask[i * s + j] == I(1) ? 1 : 0;
    mask_index[i] = I(count);
  });
}`

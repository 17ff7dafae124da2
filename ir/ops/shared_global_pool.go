package ops

import "memoc/ir"

// globalPool is the declaration of an operator that reduces every plane
// [N, C, spatial…] to one element [N, C, 1…].
type globalPool struct {
	name, doc string
	since     []int
	grad      ir.Grad
	// reduce is the value of one plane.
	reduce func(n *ir.Node, plane []float64) float64
	mode   int64 // which reduction the kernel does: 0 mean, 1 max, 2 p-norm
	attrs  []ir.Attr
}

func (p globalPool) declare() ir.Op {
	return ir.Op{
		Name:  p.name,
		Doc:   p.doc,
		Since: p.since,
		In:    ir.Ports("X:T"), Out: ir.Ports("Y:T"),
		Types: map[string]ir.DTypeSet{"T": ir.Floats},
		Infer: globalPoolInfer,
		Axes: func(n *ir.Node) ir.AxisMap {
			if len(n.Out) == 0 || n.Out[0] == nil || n.Out[0].Type.Shape.Rank() < 2 {
				return ir.AxisMap{}
			}
			axes := make([]ir.OutAxis, n.Out[0].Type.Shape.Rank())
			axes[0], axes[1] = ir.OutAxis{{In: 0, Axis: 0}}, ir.OutAxis{{In: 0, Axis: 1}}
			return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
		},
		Cost: func(c *ir.CostCtx) ir.Cost {
			read, write := c.Traffic()
			return ir.Cost{FLOPs: ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
		},
		Grad:      p.grad,
		Recompute: ir.Pure,
		Eval:      p.eval,
		Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
			x := c.InShape(0)
			return ir.Kernel{Func: "global_pool", Source: globalPoolCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
				ir.InArg(0), ir.OutArg(0), ir.IntArg(ir.Elems(x[:2])), ir.IntArg(ir.Elems(x[2:])), ir.IntArg(p.mode),
				ir.FloatArg(lpPower(c.Node))}}, nil
		}),
		Samples: func() []ir.Sample {
			return []ir.Sample{
				{Name: "1d", In: []*ir.Tensor{ramp(2, 3, 4)}, Attrs: p.attrs},
				{Name: "no batch", In: []*ir.Tensor{ramp(0, 3, 4)}, Attrs: p.attrs},
				{Name: "2d", In: []*ir.Tensor{ramp(1, 2, 3, 2)}, Attrs: p.attrs},
			}
		},
	}
}

func globalPoolInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if !x.Ranked {
		c.SetTensor(0, c.DType(0), x)
		return nil
	}
	if x.Rank() < 2 {
		return c.Errorf("input %s has no batch and channel axes", x)
	}
	dims := append([]ir.Dim{}, x.Dims[:2]...)
	for range x.Dims[2:] {
		dims = append(dims, ir.N(1))
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

func (p globalPool) eval(c *ir.EvalCtx) error {
	x := c.In(0)
	if len(x.Dims) < 2 {
		return c.Errorf("input %v has no batch and channel axes", x.Dims)
	}
	dims := append([]int64{}, x.Dims[:2]...)
	for range x.Dims[2:] {
		dims = append(dims, 1)
	}
	in, size := x.Floats(), int(ir.Elems(x.Dims[2:]))
	out := make([]float64, ir.Elems(dims))
	for i := range out {
		out[i] = p.reduce(c.Node, in[i*size:(i+1)*size])
	}
	c.Set(0, ir.FromFloats(x.DType, out, dims...))
	return nil
}

const globalPoolCUDA = `
template <class T>
void global_pool(Stream& s, const T* x, T* y, int64_t planes, int64_t n, int64_t mode, double p) {
  block_rows(s, planes, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    using A = Acc<T>;
    A v = mode == 1 ? lowest<A>() : A(0);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A e = to<A>(x[row * n + i]);
      if (mode == 0) v += e;
      else if (mode == 1) v = m::max(v, e);
      else v += m::pow(m::abs(e), A(p));
    }
    v = mode == 1 ? c.max(v) : c.sum(v);
    if (mode == 0) v /= A(n);
    else if (mode == 2) v = m::pow(v, A(1) / A(p));
    if (c.tid == 0) y[row] = to<T>(v);
  });
}`

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "ScatterElements",
	Doc:   "The data with updates written where the indices, as coordinates along an axis, say.",
	Since: []int{11, 13, 16, 18},
	In:    ir.Ports("data:T, indices:Tind, updates:T"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer:     scatterElementsInfer,
	Axes:      scatterElementsAxes,
	Cost:      scatterCost,
	Grad:      ir.GradOf(scatterElementsGrad),
	Recompute: ir.Pure,
	Eval:      scatterElementsEval,
	Kernel:    ir.KernelOf(scatterElementsKernel),
	InPlace:   []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		reduce := func(r string) []ir.Attr { return []ir.Attr{ir.IntAttr("axis", -1), ir.StringAttr("reduction", r)} }
		samples := scatterElementsSamples(nil)
		twice := []*ir.Tensor{floats([]int64{2, 3}, iota64(6)...), ir.FromInts(ir.Int64, []int64{1, -2, 0, 0}, 2, 2), floats([]int64{2, 2}, 2, 3, -4, 7)}
		for _, r := range scatterReductions[1:] {
			s := ir.Sample{Name: r, In: twice, Attrs: reduce(r)}
			if r != "add" {
				s.In = []*ir.Tensor{asInts(twice[0]), twice[1], asInts(twice[2])}
			}
			samples = append(samples, s)
		}
		return samples
	},
})

// asInts is x in integers: a sample that is not differentiated.
func asInts(x *ir.Tensor) *ir.Tensor { return ir.FromInts(ir.Int32, x.Ints(), x.Dims...) }

// scatterElementsSamples have no reduction: Scatter's too.
func scatterElementsSamples(attrs []ir.Attr) []ir.Sample {
	x := floats([]int64{3, 3}, iota64(9)...)
	axis := func(n int64) []ir.Attr { return append([]ir.Attr{ir.IntAttr("axis", n)}, attrs...) }
	return []ir.Sample{
		{Name: "rows", In: []*ir.Tensor{x, ir.FromInts(ir.Int64, []int64{1, 0, 2, 0, 2, 1}, 2, 3), floats([]int64{2, 3}, 21, 22, 23, 24, 25, 26)}, Attrs: attrs},
		{Name: "columns", In: []*ir.Tensor{x, ir.FromInts(ir.Int32, []int64{1, 0, 2}, 3, 1), floats([]int64{3, 1}, 21, 22, 23)}, Attrs: axis(1)},
	}
}

func scatterElementsInfer(c *ir.InferCtx) error {
	data, ids := c.Shape(0), c.Shape(1)
	if data.Ranked {
		if _, err := c.Axis(c.Node.Int("axis", 0), data.Rank()); err != nil {
			return err
		}
		if ids.Ranked && ids.Rank() != data.Rank() {
			return c.Errorf("data has %d axes and indices %d, which must be equal", data.Rank(), ids.Rank())
		}
	}
	return scatterInfer(c)
}

// scatterElementsAxes: axes other than the scattered one follow all inputs if
// these have that extent.
func scatterElementsAxes(n *ir.Node) ir.AxisMap {
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	data := n.In[0].Type.Shape
	axis, ok := ir.NormAxis(n.Int("axis", 0), data.Rank())
	if !ok {
		return m
	}
	axes := make([]ir.OutAxis, data.Rank())
	for a := range axes {
		if a == axis {
			continue
		}
		for i, v := range n.In {
			if s := v.Type.Shape; s.Rank() != len(axes) || !s.Dims[a].Equal(data.Dims[a]) {
				axes[a] = nil
				break
			}
			axes[a] = append(axes[a], ir.AxisLink{In: i, Axis: a})
		}
	}
	m.Out[0] = axes
	return m
}

func scatterElementsEval(c *ir.EvalCtx) error {
	idx, err := elementIndex(c, c.In(0).Dims, c.In(1))
	if err != nil {
		return err
	}
	if c.In(2).Len() != int64(len(idx)) {
		return c.Errorf("%d indices for %d updates", len(idx), c.In(2).Len())
	}
	code, _ := scatterReduction(c.Node)
	c.Set(0, scatterInto(c.In(0), c.In(2), idx, code))
	return nil
}

func scatterElementsGrad(c *ir.GradCtx) error {
	ids, axis := c.In(1), ir.IntAttr("axis", c.Node.Int("axis", 0))
	if c.Opset() < 11 {
		return c.Node.Errorf("grad", "the gradient needs GatherElements, which came with opset 11")
	}
	return scatterGrad(c,
		func(dy *ir.Value) *ir.Value { return c.Op("GatherElements", []*ir.Value{dy, ids}, axis) },
		func(dy *ir.Value) *ir.Value {
			return c.Op("ScatterElements", []*ir.Value{dy, ids, c.ZerosLike(c.In(2))}, axis)
		})
}

func scatterElementsKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	if err := kernelDType(c, c.OutDType(0)); err != nil {
		return ir.Kernel{}, err
	}
	dims := c.OutShape(0)
	axis, _ := ir.NormAxis(c.Node.Int("axis", 0), len(dims))
	code, _ := scatterReduction(c.Node)
	return ir.Kernel{Func: "scatter_elements", Source: scatterCombineCUDA + scatterElementsCUDA, Types: []ir.DType{c.OutDType(0), c.InDType(1)},
		Args: []ir.KernelArg{ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.DimsArg(dims...), ir.DimsArg(c.InShape(1)...),
			ir.IntArg(int64(axis)), ir.IntArg(int64(code))}}, nil
}

const scatterElementsCUDA = `
// Updates can only meet within one line along the axis: a thread takes a line, in order. Half types gather all updates
// of one element before they round.
template <class T, class I>
void scatter_elements(Stream& s, const T* x, const I* ids, const T* u, T* y, Dims shape, Dims count, int64_t axis,
                      int64_t reduction) {
  using A = Acc<T>;
  if (y != x) copy(s, y, x, shape.numel() * int64_t(sizeof(T)));
  Dims lines = count, to_y = strides_of(shape), to_u = strides_of(count);
  lines.d[axis] = 1;
  int64_t len = count.d[axis], n = shape.d[axis], step = to_y.d[axis], ustep = to_u.d[axis];
  bool once = is_small_float<T>::value && reduction != 0;
  parallel_for(s, count.numel() == 0 ? 0 : lines.numel(), [=] MEMOC_DEVICE(int64_t line) {
    T* out = y + offset_of(line, lines, to_y);
    int64_t from = offset_of(line, lines, to_u);
    for (int64_t j = 0; j < len; j++) {
      int64_t id = int64_t(ids[from + j * ustep]);
      if (id < 0) id += n;
      if (id < 0 || id >= n) continue;
      if (!once) {
        out[id * step] = to<T>(scatter_combine(reduction, to<A>(out[id * step]), to<A>(u[from + j * ustep])));
        continue;
      }
      bool seen = false;
      for (int64_t k = 0; k < j && !seen; k++) {
        int64_t other = int64_t(ids[from + k * ustep]);
        seen = (other < 0 ? other + n : other) == id;
      }
      if (seen) continue;
      A acc = to<A>(out[id * step]);
      for (int64_t k = j; k < len; k++) {
        int64_t other = int64_t(ids[from + k * ustep]);
        if ((other < 0 ? other + n : other) == id) acc = scatter_combine(reduction, acc, to<A>(u[from + k * ustep]));
      }
      out[id * step] = to<T>(acc);
    }
  });
}`

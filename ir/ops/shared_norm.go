package ops

import (
	"math"

	"memoc/ir"
)

// The layer and RMS normalizations see X as rows of the n elements of its
// axes [axis, rank). With d = X - mean (RMS: d = X), r = 1/sqrt(mean(d*d) + eps):
// Y = d*r * scale + bias.

// normAxis is the first normalized axis.
func normAxis(n *ir.Node, rank int) (int, bool) { return ir.NormAxis(n.Int("axis", -1), rank) }

func normEpsilon(n *ir.Node) float64 { return float64(n.Float("epsilon", 1e-5)) }

// normInfer sets Y like X and, if stats >= 0, the outputs from stats on to the
// shape of a row's statistics in type stash.
func normInfer(c *ir.InferCtx, stats int, stash ir.DType) error {
	x := c.Shape(0)
	y := c.DType(0)
	if c.Has(1) && c.DType(1) != ir.Undefined {
		y = c.DType(1) // Simplified…: scale and Y share a type that may differ from X's
	}
	c.SetTensor(0, y, x)
	if !x.Ranked {
		for i := stats; stats > 0 && i < len(c.Node.Out); i++ {
			c.SetTensor(i, stash, ir.Shape{})
		}
		return nil
	}
	axis, ok := normAxis(c.Node, x.Rank())
	if !ok {
		return c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), x.Rank())
	}
	for i := 1; i < min(len(c.Node.In), 3); i++ {
		if err := unidirectional(c, c.Shape(i), ir.Dims(x.Dims[axis:]...)); err != nil {
			return err
		}
	}
	for i := stats; stats > 0 && i < len(c.Node.Out); i++ {
		c.SetTensor(i, stash, statsShape(x, axis))
	}
	return nil
}

// statsShape is x's shape with the axes from axis on reduced to 1.
func statsShape(x ir.Shape, axis int) ir.Shape {
	dims := append([]ir.Dim{}, x.Dims...)
	for i := axis; i < len(dims); i++ {
		dims[i] = ir.N(1)
	}
	return ir.Dims(dims...)
}

// unidirectional checks that s broadcasts to the shape to.
func unidirectional(c *ir.InferCtx, s, to ir.Shape) error {
	if !s.Ranked || !to.Ranked {
		return nil
	}
	ok := s.Rank() <= to.Rank()
	for i := 0; ok && i < s.Rank(); i++ {
		d, want := s.Dims[i], to.Dims[i+to.Rank()-s.Rank()]
		n, isInt := d.Int()
		ok = !d.Differ(want) || isInt && n == 1
	}
	if !ok {
		return c.Errorf("shape %s does not broadcast to the normalized shape %s", s, to)
	}
	return nil
}

// rowAxes: the axes before the normalized ones follow X, in every output.
func rowAxes(n *ir.Node) ir.AxisMap {
	x := inShapeOf(n, 0)
	axis, ok := normAxis(n, x.Rank())
	if !ok {
		return ir.AxisMap{}
	}
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	for o, v := range n.Out {
		if v == nil || v.Type.Shape.Rank() != x.Rank() {
			continue
		}
		m.Out[o] = make([]ir.OutAxis, x.Rank())
		for a := range axis {
			m.Out[o][a] = ir.OutAxis{{In: 0, Axis: a}}
		}
	}
	return m
}

func normCost(c *ir.CostCtx) ir.Cost {
	read, write := c.Traffic()
	return ir.Cost{FLOPs: 8 * ir.Elems(c.InShape(0)), Read: read, Write: write, DType: c.InDType(0)}
}

// normRows computes the normalized rows and their statistics.
func normRows(x []float64, n int64, eps float64, centered bool) (xhat, mean, rstd []float64) {
	rows := int64(0)
	if n > 0 {
		rows = int64(len(x)) / n
	}
	xhat, mean, rstd = make([]float64, len(x)), make([]float64, rows), make([]float64, rows)
	for r := range rows {
		row := x[r*n : (r+1)*n]
		if centered {
			for _, v := range row {
				mean[r] += v
			}
			mean[r] /= float64(n)
		}
		square := 0.0
		for _, v := range row {
			square += (v - mean[r]) * (v - mean[r])
		}
		rstd[r] = 1 / math.Sqrt(square/float64(n)+eps)
		for j, v := range row {
			xhat[r*n+int64(j)] = (v - mean[r]) * rstd[r]
		}
	}
	return xhat, mean, rstd
}

// normEval evaluates a layer or RMS normalization; statistics go to the
// outputs meanOut and rstdOut (-1: the operator has none).
func normEval(c *ir.EvalCtx, eps float64, centered bool, stash ir.DType, meanOut, rstdOut int) error {
	x := c.In(0)
	axis, ok := normAxis(c.Node, len(x.Dims))
	if !ok {
		return c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), len(x.Dims))
	}
	norm := x.Dims[axis:]
	n := ir.Elems(norm)
	y, mean, rstd := normRows(x.Floats(), n, eps, centered)
	out := x.DType
	if c.Has(1) {
		out = c.In(1).DType
	}
	for i := 1; i < min(c.NumIn(), 3); i++ {
		if !c.Has(i) {
			continue
		}
		if all, ok := broadcastDims(norm, c.In(i).Dims); !ok || ir.Elems(all) != n {
			return c.Errorf("shape %v does not broadcast to the normalized shape %v", c.In(i).Dims, norm)
		}
		per := c.In(i).Floats()
		broadcastIndex(norm, c.In(i).Dims, func(at, j int) {
			for k := at; k < len(y); k += int(n) {
				if i == 1 {
					y[k] *= per[j]
				} else {
					y[k] += per[j]
				}
			}
		})
	}
	c.Set(0, ir.FromFloats(out, y, x.Dims...))
	stats := append([]int64{}, x.Dims...)
	for i := axis; i < len(stats); i++ {
		stats[i] = 1
	}
	if n == 0 {
		mean = make([]float64, ir.Elems(stats))
		rstd = mean
	}
	if meanOut > 0 {
		c.Set(meanOut, ir.FromFloats(stash, mean, stats...))
	}
	if rstdOut > 0 {
		c.Set(rstdOut, ir.FromFloats(stash, rstd, stats...))
	}
	return nil
}

// normCUDA normalizes one row per block. scale and bias are read through steps
// over the normalized dims, or straight where they are dense.
const normCUDA = `
template <class T, class V, class U>
void norm_rows(Stream& s, const T* x, const V* scale, Dims scale_step, const V* bias, Dims bias_step, V* y, U* mean, U* rstd,
               int64_t rows, Dims norm, bool dense, double eps, bool centered) {
  int64_t n = norm.numel();
  block_rows(s, rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    using A = Acc<T>;
    const T* xr = x + row * n;
    A m = A(0), q = A(0);
    if (centered) {
      for (int64_t i = c.tid; i < n; i += c.size) m += to<A>(xr[i]);
      m = c.sum(m) / A(n);
    }
    for (int64_t i = c.tid; i < n; i += c.size) q += (to<A>(xr[i]) - m) * (to<A>(xr[i]) - m);
    A r = A(1) / sqrt_of(A(c.sum(q) / A(n) + A(eps)));
    if (c.tid == 0 && mean != nullptr) mean[row] = to<U>(m);
    if (c.tid == 0 && rstd != nullptr) rstd[row] = to<U>(r);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A v = (to<A>(xr[i]) - m) * r;
      if (scale != nullptr) v *= to<A>(scale[dense ? i : offset_of(i, norm, scale_step)]);
      if (bias != nullptr) v += to<A>(bias[dense ? i : offset_of(i, norm, bias_step)]);
      y[row * n + i] = to<V>(v);
    }
  });
}`

// normKernel is the kernel of a layer or RMS normalization.
func normKernel(c *ir.NodeCtx, eps float64, centered bool, stash ir.DType, meanOut, rstdOut int) (ir.Kernel, error) {
	x := c.InShape(0)
	axis, ok := normAxis(c.Node, len(x))
	if !ok {
		return ir.Kernel{}, c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), len(x))
	}
	norm := x[axis:]
	dense := true
	step := func(i int) ir.KernelArg {
		if !c.Has(i) {
			return ir.DimsArg(make([]int64, len(norm))...)
		}
		dense = dense && ir.Elems(c.InShape(i)) == ir.Elems(norm)
		return ir.DimsArg(broadcastStrides(norm, c.InShape(i))...)
	}
	stepScale, stepBias := step(1), step(2)
	if rstdOut < 0 {
		rstdOut = len(c.Node.Out) // no such output: nullptr
	}
	if meanOut < 0 {
		meanOut = len(c.Node.Out)
	}
	return ir.Kernel{Func: "norm_rows", Source: normCUDA, Types: []ir.DType{c.InDType(0), c.OutDType(0), stash}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), stepScale, ir.InArg(2), stepBias, ir.OutArg(0), ir.OutArg(meanOut), ir.OutArg(rstdOut),
		ir.IntArg(ir.Elems(x[:axis])), ir.DimsArg(norm...), ir.BoolArg(dense), ir.FloatArg(eps), ir.BoolArg(centered),
	}}, nil
}

// stashType is the type of the statistics: the attribute, or float.
func stashType(n *ir.Node) ir.DType { return ir.DType(n.Int("stash_type", int64(ir.Float))) }

// normGrad emits the gradient node of a layer (centered) or RMS
// normalization: x, scale and the statistics if they are at hand (else nil),
// and returns the gradients of x, scale and bias.
func normGrad(c *ir.GradCtx, op ir.OpName, dy, x, scale *ir.Value, stats []*ir.Value, axis int64, eps float64) []*ir.Value {
	at, ok := ir.NormAxis(axis, x.Type.Shape.Rank())
	if !ok {
		c.Fail(c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name))
	}
	full := scale
	if norm := ir.Dims(x.Type.Shape.Dims[at:]...); !scale.Type.Shape.Equal(norm) {
		full = c.Op("Expand", []*ir.Value{scale, normShapeOf(c, x, at)})
		full.Type.Shape = norm
	}
	out := c.OpN(ir.MemocDomain, op, 3, append([]*ir.Value{dy, x, full}, stats...), ir.IntAttr("axis", axis), ir.FloatAttr("epsilon", float32(eps)))
	return []*ir.Value{out[0], c.SumTo(out[1], scale), out[2]}
}

// normShapeOf is the shape of x's axes from axis on.
func normShapeOf(c *ir.GradCtx, x *ir.Value, axis int) *ir.Value {
	if ns, ok := ir.Dims(x.Type.Shape.Dims[axis:]...).Static(); ok {
		return c.Int64s(ns...)
	}
	idx := make([]int64, 0, x.Type.Shape.Rank()-axis)
	for i := axis; i < x.Type.Shape.Rank(); i++ {
		idx = append(idx, int64(i))
	}
	return c.Op("Gather", []*ir.Value{c.ShapeOf(x), c.Int64s(idx...)})
}

package ops

import (
	"memoc/ir"
)

// The gradients of the layer and RMS normalizations. With xhat the normalized
// X, g = dY * scale and means over a row:
//
//	dX = rstd * (g - mean(g) - xhat * mean(g * xhat))   (RMS: without mean(g))
//	dscale = sum over rows of dY * xhat, dbias = sum over rows of dY
//
// The ai.memoc forms derive the statistics again where they are not given.
// LayerNormalizationGrad of com.microsoft is also written by Deeploy with the
// bias as fourth and last input, and no statistics.
var _ = []*ir.Op{
	normGradOp(ir.MemocDomain, "LayerNormalizationGrad", "dY:T, X:T, scale:T, mean:U?, inv_std_dev:U?", "dX:T, dscale:T?, dbias:T?", true),
	normGradOp(ir.MsDomain, "LayerNormalizationGrad", "Y_grad:T, X:T, scale:T, mean:U?, inv_std_dev:U?", "X_grad:T, scale_grad:T?, bias_grad:T?", true),
	normGradOp(ir.MemocDomain, "RMSNormalizationGrad", "dY:V, X:T, scale:V, inv_std_var:U?", "dX:T, dscale:V?, dbias:V?", false),
	normGradOp(ir.MsDomain, "SimplifiedLayerNormalizationGrad", "Y_grad:V, X:T, scale:V, inv_std_var:U?", "X_grad:T, scale_grad:V?", false),
}

func normGradOp(domain string, name ir.OpName, in, out string, centered bool) *ir.Op {
	op := ir.Op{
		Domain: domain, Name: name, Since: []int{1},
		Doc: "Gradients of a layer or RMS normalization: of X, of the scale, of the bias.",
		In:  ir.Ports(in), Out: ir.Ports(out),
		Types: map[string]ir.DTypeSet{"T": ir.Floats, "V": ir.Floats, "U": ir.Floats},
		Infer: func(c *ir.InferCtx) error { return normGradInfer(c) },
		Axes: func(n *ir.Node) ir.AxisMap {
			return normGradAxes(n, centered)
		},
		Cost: func(c *ir.CostCtx) ir.Cost {
			read, write := c.Traffic()
			v := normGradView(c)
			size := int64(4)
			if c.InDType(1) == ir.Double {
				size = 8
			}
			return ir.Cost{FLOPs: 14 * ir.Elems(c.InShape(1)), Read: read, Write: write,
				Workspace: size * (2*v.rows + 2*v.parts*v.n), DType: c.InDType(1)}
		},
		Grad:      ir.NoGrad("not derived yet: second derivatives"),
		Recompute: ir.Pure,
		Eval:      func(c *ir.EvalCtx) error { return normGradEval(c, centered) },
		Kernel:    ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) { return normGradKernel(c, centered) }),
		InPlace:   []ir.Alias{{In: 0, Out: 0}, {In: 1, Out: 0}},
		Samples: func() []ir.Sample {
			dy, x, w := wave(1, 2, 3, 4), wave(2, 2, 3, 4), wave(3, 4)
			return []ir.Sample{
				{Name: "derived again", In: []*ir.Tensor{dy, x, w}, NumOut: 2},
				{Name: "axis", In: []*ir.Tensor{dy, x, wave(3, 3, 4)}, NumOut: 2, Attrs: []ir.Attr{ir.IntAttr("axis", 1)}},
				{Name: "no rows", In: []*ir.Tensor{wave(1, 0, 4), wave(1, 0, 4), w}, NumOut: 2},
			}
		},
	}
	if domain == ir.MemocDomain {
		op.Function = functionOf(func(b *ir.Builder, n *ir.Node, in []*ir.Value) []*ir.Value {
			return normGradFunction(b, n, in, centered)
		})
	}
	return ir.Register(op)
}

func normGradInfer(c *ir.InferCtx) error {
	x := c.Shape(1)
	c.SetTensor(0, c.DType(1), x)
	norm := ir.Shape{}
	if x.Ranked {
		axis, ok := normAxis(c.Node, x.Rank())
		if !ok {
			return c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), x.Rank())
		}
		norm = ir.Dims(x.Dims[axis:]...)
	}
	if s := c.Shape(2); s.Ranked && norm.Ranked {
		n, okN := s.NumElements()
		want, okW := norm.NumElements()
		if okN && okW && n.Differ(want) {
			return c.Errorf("the scale has shape %s, the normalized axes have %s", s, norm)
		}
		norm = s
	}
	for i := 1; i < len(c.Node.Out); i++ {
		c.SetTensor(i, c.DType(2), norm)
	}
	return nil
}

func normGradAxes(n *ir.Node, centered bool) ir.AxisMap {
	x := inShapeOf(n, 1)
	axis, ok := normAxis(n, x.Rank())
	if !ok {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	for a := range axis {
		axes[a] = ir.OutAxis{{In: 0, Axis: a}, {In: 1, Axis: a}}
		for i := 3; i < len(n.In); i++ {
			if n.In[i] != nil && n.In[i].Type.Shape.Rank() == x.Rank() {
				axes[a] = append(axes[a], ir.AxisLink{In: i, Axis: a})
			}
		}
	}
	m := ir.AxisMap{Out: make([][]ir.OutAxis, len(n.Out))}
	m.Out[0] = axes
	return m
}

// normGradShape is the sizes of a gradient node: rows of n elements, and the
// number of parts into which the sums over rows are cut.
type normGradShape struct{ rows, n, parts int64 }

func normGradView(c *ir.NodeCtx) normGradShape {
	x := c.InShape(1)
	axis, ok := normAxis(c.Node, len(x))
	if !ok {
		return normGradShape{}
	}
	v := normGradShape{rows: ir.Elems(x[:axis]), n: ir.Elems(x[axis:])}
	v.parts = max(1, min(128, v.rows/32))
	return v
}

// normGradStats says which inputs hold mean and reciprocal deviation (-1:
// derived again).
func normGradStats(numIn int, has func(int) bool, centered bool) (mean, rstd int) {
	if centered {
		if numIn >= 5 && has(3) && has(4) {
			return 3, 4
		}
		return -1, -1
	}
	if has(3) {
		return -1, 3
	}
	return -1, -1
}

func normGradEval(c *ir.EvalCtx, centered bool) error {
	x, scale := c.In(1), c.In(2)
	axis, ok := normAxis(c.Node, len(x.Dims))
	if !ok {
		return c.Errorf("axis %d is out of range for rank %d", c.Node.Int("axis", -1), len(x.Dims))
	}
	n := ir.Elems(x.Dims[axis:])
	if scale.Len() != n || c.In(0).Len() != x.Len() {
		return c.Errorf("dY %v, X %v and scale %v do not fit", c.In(0).Dims, x.Dims, scale.Dims)
	}
	dy, w, xs := c.In(0).Floats(), scale.Floats(), x.Floats()
	xhat, _, rstd := normRows(xs, n, normEpsilon(c.Node), centered)
	if m, r := normGradStats(c.NumIn(), c.Has, centered); r >= 0 {
		rstd = c.In(r).Floats()
		for i := range xhat {
			xhat[i] = xs[i] * rstd[int64(i)/n]
			if m >= 0 {
				xhat[i] = (xs[i] - c.In(m).Floats()[int64(i)/n]) * rstd[int64(i)/n]
			}
		}
	}
	dx, dscale, dbias := make([]float64, len(xs)), make([]float64, n), make([]float64, n)
	for r := range rstd {
		base := int64(r) * n
		meanG, meanGX := 0.0, 0.0
		for j := range n {
			g := dy[base+j] * w[j]
			if centered {
				meanG += g / float64(n)
			}
			meanGX += g * xhat[base+j] / float64(n)
			dscale[j] += dy[base+j] * xhat[base+j]
			dbias[j] += dy[base+j]
		}
		for j := range n {
			dx[base+j] = rstd[r] * (dy[base+j]*w[j] - meanG - xhat[base+j]*meanGX)
		}
	}
	c.Set(0, ir.FromFloats(x.DType, dx, x.Dims...))
	c.Set(1, ir.FromFloats(scale.DType, dscale, scale.Dims...))
	c.Set(2, ir.FromFloats(scale.DType, dbias, scale.Dims...))
	return nil
}

const normGradCUDA = `
// Three launches: statistics of each row (unless given), sums over rows in parts and then over parts, and dx, which may
// overwrite dy or x. The workspace holds mean and rstd of each row, then the parts of dscale and of dbias.
template <class T, class V, class U>
void norm_grad(Stream& s, const V* dy, const T* x, const V* scale, const U* mean, const U* rstd, T* dx, V* dscale, V* dbias,
               int64_t rows, int64_t n, int64_t parts, double eps, bool centered, void* workspace) {
  using A = Acc<T>;
  A* m = static_cast<A*>(workspace);
  A* r = m + rows;
  A* part = r + rows;
  block_rows(s, rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    const T* xr = x + row * n;
    A mu = A(0), q = A(0), rs;
    if (rstd != nullptr) {
      if (centered) mu = to<A>(mean[row]);
      rs = to<A>(rstd[row]);
    } else {
      if (centered) {
        for (int64_t i = c.tid; i < n; i += c.size) mu += to<A>(xr[i]);
        mu = c.sum(mu) / A(n);
      }
      for (int64_t i = c.tid; i < n; i += c.size) q += (to<A>(xr[i]) - mu) * (to<A>(xr[i]) - mu);
      rs = A(1) / sqrt_of(A(c.sum(q) / A(n) + A(eps)));
    }
    if (c.tid == 0) {
      m[row] = mu;
      r[row] = rs;
    }
  });
  if (dscale != nullptr || dbias != nullptr) {
    parallel_for(s, parts * n, [=] MEMOC_DEVICE(int64_t i) {
      int64_t j = i % n, p = i / n;
      A ds = A(0), db = A(0);
      for (int64_t row = rows * p / parts; row < rows * (p + 1) / parts; row++) {
        A g = to<A>(dy[row * n + j]);
        ds += g * (to<A>(x[row * n + j]) - m[row]) * r[row];
        db += g;
      }
      part[i] = ds;
      part[parts * n + i] = db;
    });
    parallel_for(s, n, [=] MEMOC_DEVICE(int64_t j) {
      A ds = A(0), db = A(0);
      for (int64_t p = 0; p < parts; p++) {
        ds += part[p * n + j];
        db += part[(parts + p) * n + j];
      }
      if (dscale != nullptr) dscale[j] = to<V>(ds);
      if (dbias != nullptr) dbias[j] = to<V>(db);
    });
  }
  block_rows(s, rows, [=] MEMOC_DEVICE(RowCtx& c, int64_t row) {
    A mu = m[row], rs = r[row], g1 = A(0), g2 = A(0);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A g = to<A>(dy[row * n + i]) * to<A>(scale[i]);
      g1 += g;
      g2 += g * (to<A>(x[row * n + i]) - mu) * rs;
    }
    g1 = centered ? c.sum(g1) / A(n) : A(0);
    g2 = c.sum(g2) / A(n);
    for (int64_t i = c.tid; i < n; i += c.size) {
      A g = to<A>(dy[row * n + i]) * to<A>(scale[i]);
      dx[row * n + i] = to<T>(rs * (g - g1 - (to<A>(x[row * n + i]) - mu) * rs * g2));
    }
  });
}`

func normGradKernel(c *ir.NodeCtx, centered bool) (ir.Kernel, error) {
	v := normGradView(c)
	mean, rstd := normGradStats(len(c.Node.In), c.Has, centered)
	stash := c.InDType(1)
	if rstd >= 0 {
		stash = c.InDType(rstd)
	}
	absent := len(c.Node.In)
	if mean < 0 {
		mean = absent
	}
	if rstd < 0 {
		rstd = absent
	}
	return ir.Kernel{Func: "norm_grad", Source: normGradCUDA, Types: []ir.DType{c.InDType(1), c.InDType(2), stash}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.InArg(mean), ir.InArg(rstd), ir.OutArg(0), ir.OutArg(1), ir.OutArg(2),
		ir.IntArg(v.rows), ir.IntArg(v.n), ir.IntArg(v.parts), ir.FloatArg(normEpsilon(c.Node)), ir.BoolArg(centered), ir.WorkspaceArg(),
	}}, nil
}

// normGradFunction is the gradient in standard operators, computed in float
// (double for double) and rounded once.
func normGradFunction(b *ir.Builder, n *ir.Node, in []*ir.Value, centered bool) []*ir.Value {
	at := func(i int) *ir.Value {
		if i < 0 || i >= len(in) {
			return nil
		}
		return in[i]
	}
	work := workType(at(1).Type.DType)
	rank := at(1).Type.Shape.Rank()
	axis, _ := normAxis(n, rank)
	var lead, norm []int64
	for a := range rank {
		if a < axis {
			lead = append(lead, int64(a))
		} else {
			norm = append(norm, int64(a))
		}
	}
	dy, x, scale := b.Cast(at(0), work), b.Cast(at(1), work), b.Cast(at(2), work)
	m, r := normGradStats(len(in), func(i int) bool { return at(i) != nil }, centered)
	d := x
	switch {
	case m >= 0:
		d = b.Sub(x, b.Cast(at(m), work))
	case centered && r < 0:
		d = b.Sub(x, b.ReduceMean(x, true, norm...))
	}
	var rstd *ir.Value
	if r >= 0 {
		rstd = b.Cast(at(r), work)
	} else {
		root := b.Op("Sqrt", []*ir.Value{b.AddScalar(b.ReduceMean(b.Mul(d, d), true, norm...), normEpsilon(n))})
		rstd = b.Op("Reciprocal", []*ir.Value{root})
	}
	xhat := b.Mul(d, rstd)
	g := b.Mul(dy, scale)
	inner := b.Sub(g, b.Mul(xhat, b.ReduceMean(b.Mul(g, xhat), true, norm...)))
	if centered {
		inner = b.Sub(inner, b.ReduceMean(g, true, norm...))
	}
	return []*ir.Value{
		b.Cast(b.Mul(rstd, inner), at(1).Type.DType),
		b.Cast(b.ReduceSum(b.Mul(dy, xhat), false, lead...), at(2).Type.DType),
		b.Cast(b.ReduceSum(dy, false, lead...), at(2).Type.DType),
	}
}

// workType is the type to compute in: float for half types.
func workType(d ir.DType) ir.DType {
	if d == ir.Double {
		return d
	}
	return ir.Float
}

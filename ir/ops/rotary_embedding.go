package ops

import "memoc/ir"

// Pairs (x1, x2) of a head turn by the angle of their position:
// (x1 cos - x2 sin, x1 sin + x2 cos). The gradient turns back. The standard
// operator and com.microsoft's differ in the order of inputs, and the latter
// takes one start position for all.
var _ = []*ir.Op{
	rotaryOp(ir.OnnxDomain, 23, "X:T, cos_cache:T, sin_cache:T, position_ids:tensor(int64)?"),
	rotaryOp(ir.MsDomain, 1, "input:T, position_ids:tensor(int64), cos_cache:T, sin_cache:T"),
}

type rotaryPorts struct{ cos, sin, ids int }

func rotaryPortsOf(n *ir.Node) rotaryPorts {
	if n.Domain == ir.MsDomain {
		return rotaryPorts{cos: 2, sin: 3, ids: 1}
	}
	return rotaryPorts{cos: 1, sin: 2, ids: 3}
}

func rotaryOp(domain string, since int, in string) *ir.Op {
	return ir.Register(ir.Op{
		Domain: domain, Name: "RotaryEmbedding", Since: []int{since},
		Doc: "Rotary position embedding of [B,S,H*D] or [B,H,S,D], halves or interleaved pairs.",
		In:  ir.Ports(in), Out: ir.Ports("Y:T"),
		Types: map[string]ir.DTypeSet{"T": ir.Floats},
		Infer: rotaryInfer,
		Axes:  rotaryAxes,
		Cost:  ir.PointwiseCost(3),
		Grad: ir.GradOf(func(c *ir.GradCtx) error {
			p := rotaryPortsOf(c.Node)
			if c.Needs(p.cos) || c.Needs(p.sin) {
				if err := rotaryTableGrad(c, p); err != nil {
					return err
				}
			}
			in := make([]*ir.Value, len(c.Node.In))
			copy(in, c.Node.In)
			in[0], in[p.sin] = c.OutGrad(0), c.Neg(c.In(p.sin))
			c.Set(0, c.OpN(domain, "RotaryEmbedding", 1, in, c.Node.Attrs...)[0])
			return nil
		}),
		Recompute: ir.Pure,
		Eval:      rotaryEval,
		Kernel:    ir.KernelOf(rotaryKernel),
		Samples:   func() []ir.Sample { return rotarySamples(domain) },
	})
}

// rotaryAxes: heads turn alike; batch and positions follow the position ids,
// or the tables where these have a row for each. Where there is one id, the
// first position's, every position depends on its place.
func rotaryAxes(n *ir.Node) ir.AxisMap {
	x, p := inShapeOf(n, 0), rotaryPortsOf(n)
	if x.Rank() != 3 && x.Rank() != 4 {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, x.Rank())
	if x.Rank() == 4 {
		axes[1] = ir.OutAxis{{In: 0, Axis: 1}}
	}
	rows := []int{p.cos, p.sin}
	if p.ids < len(n.In) && n.In[p.ids] != nil {
		rows = []int{p.ids}
	}
	for k, a := range []int{0, x.Rank() - 2} { // batch, positions
		links := ir.OutAxis{{In: 0, Axis: a}}
		for _, in := range rows {
			s := inShapeOf(n, in)
			if s.Rank() < 2 || !s.Dims[k].Equal(x.Dims[a]) {
				links = nil
				break
			}
			links = append(links, ir.AxisLink{In: in, Axis: k})
		}
		axes[a] = links
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

// rotaryTableGrad: with x1, x2 and g1, g2 the pairs of X and of dY, a cosine
// gets g1 x1 + g2 x2 and a sine g2 x1 - g1 x2, summed over all that use it.
func rotaryTableGrad(c *ir.GradCtx, p rotaryPorts) error {
	x, cos := c.In(0), c.In(p.cos)
	half, ok := constantLast(cos)
	if !ok || x.Type.Shape.Rank() < 3 {
		return c.Node.Errorf("grad", "the gradient of the tables needs their width, and the rank of %q", x.Name)
	}
	if ids := c.In(p.ids); ids != nil && ids.Type.Shape.Rank() != 2 {
		return c.Node.Errorf("grad", "not derived yet: the gradient of tables read from one start position")
	}
	work := workType(x.Type.DType)
	pair := func(v *ir.Value) (first, second *ir.Value) {
		v = c.Cast(v, work)
		if v.Type.Shape.Rank() == 4 {
			v = c.Transpose(v, 0, 2, 1, 3)
		} else {
			heads := c.Node.Int("num_heads", 0)
			width := int64(-1)
			if n, ok := constantLast(v); ok && heads > 0 {
				width = n / heads
			} else if heads == 0 {
				heads, width = -1, 2*half
			}
			v = c.Reshape(v, 0, 0, heads, width)
		}
		if c.Node.Int("interleaved", 0) != 0 {
			return c.SliceAxis(v, 3, 0, 2*half, 2), c.SliceAxis(v, 3, 1, 2*half, 2)
		}
		return c.SliceAxis(v, 3, 0, half, 1), c.SliceAxis(v, 3, half, 2*half, 1)
	}
	x1, x2 := pair(x)
	g1, g2 := pair(c.OutGrad(0))
	set := func(port int, g *ir.Value) {
		table := c.In(port)
		g = c.ReduceSum(g, false, 2)
		if ids := c.In(p.ids); ids != nil {
			g = c.ScatterSum(c.Cast(flattenRows(c, g), table.Type.DType), 0, c.Reshape(ids, -1), table, false)
		}
		c.Set(port, c.Like(c.Cast(g, table.Type.DType), table))
	}
	set(p.cos, c.Add(c.Mul(g1, x1), c.Mul(g2, x2)))
	set(p.sin, c.Sub(c.Mul(g2, x1), c.Mul(g1, x2)))
	return nil
}

// constantLast is the extent of the last axis where it is an integer.
func constantLast(v *ir.Value) (n int64, ok bool) {
	s := v.Type.Shape
	if s.Rank() < 1 {
		return 0, false
	}
	return s.Dims[s.Rank()-1].Int()
}

func rotaryInfer(c *ir.InferCtx) error {
	x := c.Shape(0)
	if x.Ranked && x.Rank() != 3 && x.Rank() != 4 {
		return c.Errorf("input of shape %s; [B,S,H*D] or [B,H,S,D] is needed", x)
	}
	p := rotaryPortsOf(c.Node)
	if a, b := c.Shape(p.cos), c.Shape(p.sin); a.Ranked && b.Ranked && a.Rank() != b.Rank() {
		return c.Errorf("cosines of shape %s and sines of shape %s differ", a, b)
	}
	dims, ok := x.Static()
	cos, okCos := c.Shape(p.cos).Static()
	if ok && okCos {
		if _, fits := rotaryViewOf(c.Node, dims, cos, c.Has(p.ids)); !fits {
			return c.Errorf("input %s, cosines %s, num_heads %d and rotary_embedding_dim %d do not fit", x, c.Shape(p.cos),
				c.Node.Int("num_heads", 0), c.Node.Int("rotary_embedding_dim", 0))
		}
	}
	c.SetTensor(0, c.DType(0), x)
	return nil
}

// rotaryView is the sizes of a rotary embedding.
type rotaryView struct {
	b, h, s, d  int64
	rot         int64 // width that turns; its half is the width of the tables
	rank3       bool
	interleaved bool
}

func rotaryViewOf(n *ir.Node, x, cos []int64, ids bool) (v rotaryView, ok bool) {
	if n.Int("is_packed_batching", 0) != 0 || n.Float("scale", 1) != 1 {
		return v, false // forms of com.microsoft whose meaning is not known here
	}
	if len(cos) == 0 || len(cos) != 2 && ids || len(cos) != 3 && !ids {
		return v, false
	}
	half := cos[len(cos)-1]
	v.rot = n.Int("rotary_embedding_dim", 0)
	v.interleaved = n.Int("interleaved", 0) != 0
	switch len(x) {
	case 4:
		v.b, v.h, v.s, v.d = x[0], x[1], x[2], x[3]
	case 3:
		v.rank3, v.b, v.s, v.h = true, x[0], x[1], n.Int("num_heads", 0)
		if v.h == 0 && n.Domain == ir.MsDomain && half > 0 {
			v.h = x[2] / (2 * half)
		}
		if v.h <= 0 || x[2]%v.h != 0 {
			return v, false
		}
		v.d = x[2] / v.h
	default:
		return v, false
	}
	if v.rot == 0 {
		v.rot = v.d
	}
	return v, v.rot <= v.d && v.rot == 2*half
}

// pair is the two positions in a head that element e of it depends on, the
// column of the tables, and whether e is the first of its pair.
func (v rotaryView) pair(e int64) (x1, x2, col int64, first bool) {
	if v.interleaved {
		return e - e%2, e - e%2 + 1, e / 2, e%2 == 0
	}
	half := v.rot / 2
	return e % half, e%half + half, e % half, e < half
}

func rotaryEval(c *ir.EvalCtx) error {
	p := rotaryPortsOf(c.Node)
	x, cosT := c.In(0), c.In(p.cos)
	v, ok := rotaryViewOf(c.Node, x.Dims, cosT.Dims, c.Has(p.ids))
	if !ok {
		return c.Errorf("input %v and cosines %v do not fit", x.Dims, cosT.Dims)
	}
	in, cos, sin := x.Floats(), cosT.Floats(), c.In(p.sin).Floats()
	out := make([]float64, len(in))
	for i := range out {
		at := int64(i)
		e, s, b := at%v.d, at/v.d%v.s, at/v.d/v.s/v.h
		if v.rank3 {
			s, b = at/v.d/v.h%v.s, at/v.d/v.h/v.s
		}
		if e >= v.rot {
			out[i] = in[i]
			continue
		}
		row := b*v.s + s
		if c.Has(p.ids) {
			ids := c.In(p.ids).Ints()
			if len(ids) == 1 && c.Node.Domain == ir.MsDomain {
				row = ids[0] + s
			} else {
				row = ids[row]
			}
			if row < 0 || row >= cosT.Dims[0] {
				return c.Errorf("position %d is not in the tables of %d rows", row, cosT.Dims[0])
			}
		}
		x1, x2, col, first := v.pair(e)
		co, si := cos[row*v.rot/2+col], sin[row*v.rot/2+col]
		a, z := in[at-e+x1], in[at-e+x2]
		if first {
			out[i] = co*a - si*z
		} else {
			out[i] = si*a + co*z
		}
	}
	c.Set(0, ir.FromFloats(x.DType, out, x.Dims...))
	return nil
}

const rotaryCUDA = `
// bhsd: sizes; start says that ids holds one start position.
template <class T>
void rotary(Stream& st, const T* x, const T* cos_table, const T* sin_table, const int64_t* ids, T* y, Dims bhsd, int64_t rot, bool rank3,
            bool interleaved, bool start) {
  int64_t b = bhsd[0], h = bhsd[1], s = bhsd[2], d = bhsd[3], half = rot / 2;
  parallel_for(st, b * h * s * d, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    int64_t e = i % d, p = i / d % s, batch = i / d / s / h;
    if (rank3) p = i / d / h % s, batch = i / d / h / s;
    if (e >= rot) {
      y[i] = x[i];
      return;
    }
    int64_t row = batch * s + p;
    if (ids != nullptr) row = start ? ids[0] + p : ids[row];
    int64_t col = interleaved ? e / 2 : e % half, one = interleaved ? e - e % 2 : col, two = interleaved ? one + 1 : col + half;
    A co = to<A>(cos_table[row * half + col]), si = to<A>(sin_table[row * half + col]);
    A a = to<A>(x[i - e + one]), z = to<A>(x[i - e + two]);
    y[i] = to<T>(e == one ? co * a - si * z : si * a + co * z);
  });
}`

func rotaryKernel(c *ir.NodeCtx) (ir.Kernel, error) {
	p := rotaryPortsOf(c.Node)
	v, ok := rotaryViewOf(c.Node, c.InShape(0), c.InShape(p.cos), c.Has(p.ids))
	if !ok {
		return ir.Kernel{}, c.Errorf("input %v and cosines %v do not fit", c.InShape(0), c.InShape(p.cos))
	}
	start := c.Node.Domain == ir.MsDomain && ir.Elems(c.InShape(p.ids)) == 1
	return ir.Kernel{Func: "rotary", Source: rotaryCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
		ir.InArg(0), ir.InArg(p.cos), ir.InArg(p.sin), ir.InArg(p.ids), ir.OutArg(0), ir.DimsArg(v.b, v.h, v.s, v.d),
		ir.IntArg(v.rot), ir.BoolArg(v.rank3), ir.BoolArg(v.interleaved), ir.BoolArg(start)}}, nil
}

func rotarySamples(domain string) []ir.Sample {
	ids := ir.FromInts(ir.Int64, []int64{1, 0, 2, 3, 1, 1}, 2, 3)
	cos, sin := wave(2, 4, 2), wave(3, 4, 2)
	in := func(x, co, si, id *ir.Tensor) []*ir.Tensor {
		if domain == ir.MsDomain {
			return []*ir.Tensor{x, id, co, si}
		}
		if id == nil {
			return []*ir.Tensor{x, co, si}
		}
		return []*ir.Tensor{x, co, si, id}
	}
	out := []ir.Sample{
		{Name: "4-D", In: in(wave(1, 2, 2, 3, 4), cos, sin, ids)},
		{Name: "interleaved", In: in(wave(1, 2, 2, 3, 4), cos, sin, ids), Attrs: []ir.Attr{ir.IntAttr("interleaved", 1)}},
		{Name: "3-D, part", In: in(wave(1, 2, 3, 12), cos, sin, ids),
			Attrs: []ir.Attr{ir.IntAttr("num_heads", 2), ir.IntAttr("rotary_embedding_dim", 4)}},
	}
	if domain == ir.MsDomain {
		return append(out, ir.Sample{Name: "start, 3-D", In: in(wave(1, 2, 3, 8), cos, sin, ir.FromInts(ir.Int64, []int64{1}, 1)),
			NoGradCheck: map[int]string{2: "not derived for a start position", 3: "not derived for a start position"}})
	}
	return append(out, ir.Sample{Name: "no ids", In: in(wave(1, 2, 2, 3, 4), wave(2, 2, 3, 2), wave(3, 2, 3, 2), nil)})
}

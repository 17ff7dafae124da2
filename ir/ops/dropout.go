package ops

import "memoc/ir"

// drawnByIndex says of operators that draw a number by an element's index in
// the whole tensor: elements follow, but a slice would draw other numbers.
func drawnByIndex(m ir.AxisMap) {
	for _, axes := range m.Out {
		for a, links := range axes {
			axes[a] = wholeToo(links)
		}
	}
}

var _ = ir.Register(ir.Op{
	Name: "Dropout",
	Doc: "Zeroes elements with probability ratio and scales the others by 1/(1-ratio) in training; otherwise hands the input on. " +
		"The mask is stashed for the gradient.",
	Since: []int{1, 6, 7, 10, 12, 13, 22},
	In:    ir.Ports("data:T, ratio:R?, training_mode:tensor(bool)?"), Out: ir.Ports("output:T, mask:M?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "R": ir.Floats, "M": ir.Floats | ir.Bools},
	Infer: func(c *ir.InferCtx) error {
		c.SetTensor(0, c.DType(0), c.Shape(0))
		mask := ir.Bool
		if c.Version < 10 {
			mask = c.DType(0)
		}
		c.SetTensor(1, mask, c.Shape(0))
		return nil
	},
	Axes: func(n *ir.Node) ir.AxisMap {
		one := *n
		one.In = n.In[:min(1, len(n.In))]
		m := ir.FollowAll(&one)
		if on, known := dropoutTraining(n, dropoutPorts); on || !known {
			drawnByIndex(m)
		}
		return m
	},
	Cost:      ir.PointwiseCost(8),
	Grad:      ir.GradOf(func(c *ir.GradCtx) error { c.Set(0, dropoutGrad(c, dropoutPorts)); return nil }),
	Recompute: ir.Never("random: its mask is stashed"),
	Eval: func(c *ir.EvalCtx) error {
		x := c.In(0)
		y, mask := dropoutEval(c, dropoutPorts, x.Floats())
		c.Set(0, ir.FromFloats(x.DType, y, x.Dims...))
		d := ir.Bool
		if c.Version < 10 {
			d = x.DType
		}
		c.Set(1, ir.FromInts(d, mask, x.Dims...))
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		return dropoutKernel(c, dropoutPorts, -1, -1)
	}),
	InPlace: []ir.Alias{{In: 0, Out: 0}},
	Samples: func() []ir.Sample {
		x := wave(1, 3, 5)
		on, off := ir.FromInts(ir.Bool, []int64{1}), ir.FromInts(ir.Bool, []int64{0})
		return []ir.Sample{
			{Name: "inference", In: []*ir.Tensor{x}},
			{Name: "inference, mask", In: []*ir.Tensor{x, floats(nil, 0.3), off}, NumOut: 2},
			{Name: "training", In: []*ir.Tensor{x, floats(nil, 0.3), on}, NoGradCheck: ratioIsFixed},
			{Name: "training, mask", In: []*ir.Tensor{x, floats(nil, 0.3), on}, NumOut: 2, NoGradCheck: ratioIsFixed},
			{Name: "training, default ratio", In: []*ir.Tensor{x, nil, on}, Absent: []int{1}, NumOut: 2},
			{Name: "training, ratio 0", In: []*ir.Tensor{x, floats(nil, 0), on}, NoGradCheck: ratioIsFixed},
			{Name: "training, nothing left", In: []*ir.Tensor{x, floats(nil, 1), on}, NoGradCheck: ratioIsFixed},
			{Name: "empty", In: []*ir.Tensor{wave(1, 0, 3), floats(nil, 0.3), on}, NumOut: 2, NoGradCheck: ratioIsFixed},
			{Name: "opset 10", Version: 10, In: []*ir.Tensor{x}, NumOut: 2, Attrs: []ir.Attr{ir.FloatAttr("ratio", 0.3)}},
			{Name: "opset 7", Version: 7, In: []*ir.Tensor{x}, NumOut: 2},
			{Name: "opset 6", Version: 6, In: []*ir.Tensor{x}, Attrs: []ir.Attr{ir.IntAttr("is_test", 1)}},
			{Name: "opset 6, training", Version: 6, In: []*ir.Tensor{x}, NumOut: 2, Attrs: []ir.Attr{ir.FloatAttr("ratio", 0.25)}},
		}
	},
})

var ratioIsFixed = map[int]string{1: "the ratio decides which elements stay: no derivative"}

// dropoutInputs is where an operator has the inputs of a dropout.
type dropoutInputs struct{ ratio, training int }

var dropoutPorts = dropoutInputs{ratio: 1, training: 2}

// dropoutTraining says whether a node drops elements; known is false where a
// run-time input decides.
func dropoutTraining(n *ir.Node, p dropoutInputs) (on, known bool) {
	given := p.training < len(n.In) && n.In[p.training] != nil
	// Files have the input at opsets that know the attribute alone.
	if n.Domain == ir.OnnxDomain && n.Version > 0 && n.Version < 12 && !given {
		return n.Version < 7 && n.Int("is_test", 0) == 0, true
	}
	if !given {
		return false, true
	}
	t := n.In[p.training].Const()
	if t == nil || t.Len() != 1 {
		return false, false
	}
	return t.Ints()[0] != 0, true
}

// dropoutEval drops elements of x, drawing number i for element i.
func dropoutEval(c *ir.EvalCtx, p dropoutInputs, x []float64) (y []float64, mask []int64) {
	ratio := float64(c.Node.Float("ratio", 0.5))
	if c.Has(p.ratio) {
		ratio = c.In(p.ratio).Floats()[0]
	}
	on, known := dropoutTraining(c.Node, p)
	if !known || c.Has(p.training) {
		on = c.Has(p.training) && c.In(p.training).Ints()[0] != 0
	}
	y, mask = make([]float64, len(x)), make([]int64, len(x))
	scale := 1 / (1 - ratio)
	for i, v := range x {
		if !on {
			y[i], mask[i] = v, 1
			continue
		}
		if c.Random.Uniform(uint64(i)) >= float32(ratio) {
			y[i], mask[i] = v*scale, 1
		}
	}
	return y, mask
}

// dropoutGrad emits the gradient of what is dropped: dy * mask / (1 - ratio)
// in training, dy otherwise. The mask is output 1.
func dropoutGrad(c *ir.GradCtx, p dropoutInputs) *ir.Value {
	dy := c.OutGrad(0)
	if dy == nil {
		return nil
	}
	on, known := dropoutTraining(c.Node, p)
	if known && !on {
		return dy
	}
	work := workType(dy.Type.DType)
	scale := dropoutScale(c, p, work)
	if !known {
		scale = c.Op("Where", []*ir.Value{c.In(p.training), scale, c.Scalar(work, 1)})
	}
	kept := c.Cast(dy, work)
	if c.Opset() < 9 { // before Where
		kept = c.Mul(kept, c.Cast(c.Out(1), work))
	} else {
		kept = c.Op("Where", []*ir.Value{c.Cast(c.Out(1), ir.Bool), kept, c.Scalar(work, 0)})
	}
	return c.Like(c.Cast(c.Mul(kept, scale), dy.Type.DType), dy)
}

// dropoutScale is 1/(1-ratio) in type work. With a ratio of 1 nothing is kept,
// and the scale is never used: 0 spares 0 * infinity.
func dropoutScale(c *ir.GradCtx, p dropoutInputs, work ir.DType) *ir.Value {
	ratio := c.In(p.ratio)
	if t := ratio.Const(); ratio == nil || t != nil && t.Len() == 1 {
		r := float64(c.Node.Float("ratio", 0.5))
		if t != nil {
			r = t.Floats()[0]
		}
		if r >= 1 {
			return c.Scalar(work, 0)
		}
		return c.Scalar(work, 1/(1-r))
	}
	keep := c.Sub(c.Scalar(work, 1), c.Cast(ratio, work))
	none := c.Op("Equal", []*ir.Value{keep, c.Scalar(work, 0)})
	return c.Div(c.Scalar(work, 1), c.Op("Where", []*ir.Value{none, c.Scalar(work, 1), keep}))
}

const dropoutCUDA = `
// y = dropout(x + bias) + residual; bias (n elements) and residual may be null, and so may mask. training is a pointer,
// or null and on says.
template <class T, class R, class M>
void dropout(Stream& s, const T* x, const T* bias, int64_t n, const T* residual, const R* ratio_at, const bool* training, T* y, M* mask,
             int64_t count, double ratio_default, bool on, Random random) {
  parallel_for(s, count, [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    double ratio = ratio_at == nullptr ? ratio_default : to<double>(ratio_at[0]);
    A v = to<A>(x[i]);
    if (bias != nullptr) v += to<A>(bias[i % n]);
    bool keep = true;
    if (training == nullptr ? on : training[0]) {
      keep = random.uniform(i) >= float(ratio);
      v = keep ? A(double(v) * (1.0 / (1.0 - ratio))) : A(0);
    }
    if (residual != nullptr) v += to<A>(residual[i]);
    y[i] = to<T>(v);
    if (mask != nullptr) mask[i] = to<M>(keep ? 1.0f : 0.0f);
  });
}`

// dropoutKernel is the kernel of Dropout, or with bias and residual ports of
// BiasDropout.
func dropoutKernel(c *ir.NodeCtx, p dropoutInputs, bias, residual int) (ir.Kernel, error) {
	d, r, m := c.InDType(0), c.InDType(p.ratio), c.OutDType(1)
	if r == ir.Undefined {
		r = ir.Float
	}
	if m == ir.Undefined {
		m = ir.Bool
	}
	on, _ := dropoutTraining(c.Node, p)
	width := int64(1)
	if bias >= 0 {
		width = ir.Elems(c.InShape(bias))
	}
	training := inArgOrNull(c, p.training)
	return ir.Kernel{Func: "dropout", Source: dropoutCUDA, Types: []ir.DType{d, r, m}, Args: []ir.KernelArg{
		ir.InArg(0), inArgOrNull(c, bias), ir.IntArg(width), inArgOrNull(c, residual), ir.InArg(p.ratio), training,
		ir.OutArg(0), ir.OutArg(1), ir.IntArg(ir.Elems(c.OutShape(0))), ir.FloatArg(float64(c.Node.Float("ratio", 0.5))),
		ir.BoolArg(on), ir.RandomArg()}}, nil
}

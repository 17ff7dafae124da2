package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Loop",
	Doc:   "A subgraph run a number of times or while a condition holds; it carries values and collects others.",
	Since: []int{1, 11, 13, 16, 19, 21, 23, 24, 25},
	In:    ir.Ports("M:tensor(int64)?, cond:tensor(bool)?, v_initial:V*"), Out: ir.Ports("v_final_and_scan_outputs:V*"),
	Types:     map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer:     loopInfer,
	Axes:      ir.NoAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: gradients through subgraphs"),
	Recompute: ir.Never("a subgraph may hold random or stateful operators"),
	Eval:      loopEval,
	Kernel:    ir.NoKernel("control flow is planned, not launched"),
	Samples: func() []ir.Sample {
		// The body doubles what it carries and collects it.
		g := ir.NewGraph("body", map[string]int{ir.OnnxDomain: 24})
		g.AddInput("iter", ir.TensorOf(ir.Int64, ir.Dims()))
		cond := g.AddInput("cond_in", ir.TensorOf(ir.Bool, ir.Dims()))
		x := g.AddInput("carried", ir.TensorOf(ir.Float, ir.Shape{}))
		y := g.Append(ir.NodeSpec{Name: "double", Op: "Add", In: []*ir.Value{x, x}, Out: []string{"doubled"}}).Out[0]
		again := g.Append(ir.NodeSpec{Name: "again", Op: "Identity", In: []*ir.Value{cond}, Out: []string{"cond_out"}}).Out[0]
		g.Outputs = []*ir.Value{again, y, y}
		attrs := []ir.Attr{{Name: "body", Kind: ir.AttrGraph, G: g}}
		m := ir.FromInts(ir.Int64, []int64{3})
		yes := ir.FromInts(ir.Bool, []int64{1})
		start := ir.FromFloats(ir.Float, []float64{1, -2}, 2)
		return []ir.Sample{
			{Name: "three times", NumOut: 2, In: []*ir.Tensor{m, yes, start}, Attrs: attrs, Want: []*ir.Tensor{
				ir.FromFloats(ir.Float, []float64{8, -16}, 2), ir.FromFloats(ir.Float, []float64{2, -4, 4, -8, 8, -16}, 3, 2)}},
			{Name: "no condition", NumOut: 1, In: []*ir.Tensor{m, nil, start}, Absent: []int{1}, Attrs: attrs},
		}
	},
})

// loopInfer finds types of the carried values that hold before and after every
// round, widening what the body changes.
func loopInfer(c *ir.InferCtx) error {
	body := bodyOf(c.Node, "body")
	if body == nil {
		return c.Errorf("the attribute body is missing")
	}
	carried := max(len(c.Node.In)-2, 0)
	if len(body.Inputs) != carried+2 || len(body.Outputs) < carried+1 || len(body.Outputs)-1 < len(c.Node.Out) {
		return c.Errorf("the body has %d inputs and %d outputs, which do not fit %d carried values and %d outputs",
			len(body.Inputs), len(body.Outputs), carried, len(c.Node.Out))
	}
	if c.Subgraph == nil {
		return nil
	}
	start := []ir.Type{ir.TensorOf(ir.Int64, ir.Dims()), ir.TensorOf(ir.Bool, ir.Dims())}
	for i := range carried {
		start = append(start, c.In(2+i))
	}
	out, err := widenCarried(c, body, start, 2, 1, carried)
	if err != nil {
		return err
	}
	for i := range carried {
		c.Set(i, start[2+i])
	}
	for i := carried; i < len(c.Node.Out); i++ {
		t := out[1+i]
		if t.Kind != ir.TensorKind {
			continue
		}
		if t.Shape.Ranked {
			t.Shape = ir.Dims(append([]ir.Dim{c.FreshDim()}, t.Shape.Dims...)...)
		}
		c.Set(i, t)
	}
	return nil
}

// widenCarried infers the body until the types of its count carried inputs
// (from input in on, outputs from out on) hold for the outputs too. types is
// changed in place; the result is the body's output types.
func widenCarried(c *ir.InferCtx, body *ir.Graph, types []ir.Type, in, out, count int) ([]ir.Type, error) {
	widened := map[string]bool{} // symbols that stand for "it varies"
	for round := 0; ; round++ {
		result, err := c.Subgraph(body, types)
		if err != nil {
			return nil, err
		}
		changed := false
		for i := range count {
			before, after := types[in+i], result[out+i]
			if holds(before, after, widened) {
				continue
			}
			t, ok := joinTypes(c, before, after)
			if !ok {
				return nil, c.Errorf("carried value %d is %s before and %s after a round", i, before, after)
			}
			if round > 8 {
				t.Shape = ir.Shape{}
			}
			markFresh(before, t, widened)
			types[in+i], changed = t, true
		}
		if !changed {
			return result, nil
		}
	}
}

// holds reports whether every value of type u has type t, where the given
// symbols stand for any extent.
func holds(t, u ir.Type, anyExtent map[string]bool) bool {
	if t.Kind == ir.NoType {
		return true
	}
	if t.Kind == ir.OptionalKind && u.Kind != ir.OptionalKind {
		return holds(*t.Elem, u, anyExtent)
	}
	if t.Kind != u.Kind || t.DType != u.DType {
		return false
	}
	if t.Elem != nil && u.Elem != nil {
		return holds(*t.Elem, *u.Elem, anyExtent)
	}
	if !t.Shape.Ranked {
		return true
	}
	if u.Shape.Rank() != t.Shape.Rank() {
		return false
	}
	for a, d := range t.Shape.Dims {
		if name, ok := d.IsSym(); ok && anyExtent[name] {
			continue
		}
		if !d.Equal(u.Shape.Dims[a]) {
			return false
		}
	}
	return true
}

func markFresh(before, after ir.Type, widened map[string]bool) {
	if after.Elem != nil && before.Elem != nil {
		markFresh(*before.Elem, *after.Elem, widened)
		return
	}
	for a, d := range after.Shape.Dims {
		if name, ok := d.IsSym(); ok && !d.Equal(before.Shape.Dims[a]) {
			widened[name] = true
		}
	}
}

func loopEval(c *ir.EvalCtx) error {
	body := bodyOf(c.Node, "body")
	if body == nil {
		return c.Errorf("the attribute body is missing")
	}
	limit := int64(1<<63 - 1)
	if c.Has(0) {
		limit = c.In(0).Ints()[0]
	}
	again := !c.Has(1) || c.In(1).Ints()[0] != 0
	carried := make([]ir.Datum, 0, c.NumIn())
	for i := 2; i < c.NumIn(); i++ {
		carried = append(carried, c.InDatum(i))
	}
	n := len(carried)
	scans := make([][]*ir.Tensor, len(body.Outputs)-1-n)
	for i := int64(0); i < limit && again; i++ {
		in := append([]ir.Datum{ir.FromInts(ir.Int64, []int64{i}), ir.FromInts(ir.Bool, []int64{1})}, carried...)
		out, err := c.Subgraph(body, in)
		if err != nil {
			return err
		}
		again = out[0].(*ir.Tensor).Ints()[0] != 0
		carried = append([]ir.Datum{}, out[1:1+n]...)
		for k := range scans {
			x, ok := out[1+n+k].(*ir.Tensor)
			if !ok {
				return c.Errorf("scan output %d is no tensor", k)
			}
			scans[k] = append(scans[k], x)
		}
	}
	for i, d := range carried {
		c.Set(i, d)
	}
	for k, xs := range scans {
		y, msg := stackTensors(xs, 0, body.Outputs[1+n+k].Type)
		if msg != "" {
			return c.Errorf("scan output %d: %s", k, msg)
		}
		c.Set(n+k, y)
	}
	return nil
}

// stackTensors joins tensors along a new axis; of none, the type of one tells
// the shape as far as it is known.
func stackTensors(xs []*ir.Tensor, axis int64, one ir.Type) (*ir.Tensor, string) {
	if len(xs) == 0 {
		dims := []int64{0}
		for _, d := range one.Shape.Dims {
			n, ok := d.Int()
			if !ok {
				n = 0
			}
			dims = append(dims, n)
		}
		return ir.NewTensor(one.DType, dims...), ""
	}
	a, ok := ir.NormAxis(axis, len(xs[0].Dims)+1)
	if !ok {
		return nil, "the axis is out of range"
	}
	wide := make([]*ir.Tensor, len(xs))
	for i, x := range xs {
		if len(x.Dims) != len(xs[0].Dims) {
			return nil, "the rounds give different ranks"
		}
		wide[i] = x.Reshaped(dimsWith(x.Dims, []int{a}, 1)...)
	}
	return concatTensors(wide, int64(a))
}

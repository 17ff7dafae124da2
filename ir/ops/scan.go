package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Scan",
	Doc:   "A subgraph run over the positions of an axis of its inputs; it carries state and stacks outputs.",
	Since: []int{8, 9, 11, 16, 19, 21, 23, 24, 25},
	In:    ir.Ports("initial_state_and_scan_inputs:V*"), Out: ir.Ports("final_state_and_scan_outputs:V*"),
	Types:     map[string]ir.DTypeSet{"V": ir.AnyDType},
	Infer:     scanInfer,
	Axes:      ir.NoAxes,
	Cost:      ir.MoveCost,
	Grad:      ir.NoGrad("not derived yet: gradients through subgraphs"),
	Recompute: ir.Never("a subgraph may hold random or stateful operators"),
	Eval:      scanEval,
	Kernel:    ir.NoKernel("control flow is planned, not launched"),
	Samples: func() []ir.Sample {
		// The body adds up the rows and stacks the sums so far.
		g := ir.NewGraph("body", map[string]int{ir.OnnxDomain: 24})
		sum := g.AddInput("sum_in", ir.TensorOf(ir.Float, ir.Shape{}))
		row := g.AddInput("row", ir.TensorOf(ir.Float, ir.Shape{}))
		next := g.Append(ir.NodeSpec{Name: "add", Op: "Add", In: []*ir.Value{sum, row}, Out: []string{"sum_out"}}).Out[0]
		g.Outputs = []*ir.Value{next, next}
		attrs := []ir.Attr{{Name: "body", Kind: ir.AttrGraph, G: g}, ir.IntAttr("num_scan_inputs", 1)}
		x := ir.FromFloats(ir.Float, []float64{1, 2, 3, 4, 5, 6}, 3, 2)
		return []ir.Sample{
			{Name: "rows", NumOut: 2, In: []*ir.Tensor{ir.NewTensor(ir.Float, 2), x}, Attrs: attrs, Want: []*ir.Tensor{
				ir.FromFloats(ir.Float, []float64{9, 12}, 2), ir.FromFloats(ir.Float, []float64{1, 2, 4, 6, 9, 12}, 3, 2)}},
			{Name: "columns backward", NumOut: 2, In: []*ir.Tensor{ir.NewTensor(ir.Float, 3), x},
				Attrs: append(attrs, ir.IntsAttr("scan_input_axes", 1), ir.IntsAttr("scan_input_directions", 1), ir.IntsAttr("scan_output_axes", -1))},
		}
	},
})

// scanForm is what the attributes of a Scan node say. Opset 8 has a first
// input with lengths, and a batch axis before all others.
type scanForm struct {
	body          *ir.Graph
	first         int // input of the first state
	states, scans int
	batch         int // 1 where there is a batch axis
}

func scanFormOf(n *ir.Node, since int) (f scanForm, msg string) {
	f.body = bodyOf(n, "body")
	f.scans = int(n.Int("num_scan_inputs", 0))
	if since < 9 {
		f.first, f.batch = 1, 1
	}
	f.states = len(n.In) - f.first - f.scans
	switch {
	case f.body == nil:
		return f, "the attribute body is missing"
	case f.scans < 1 || f.states < 0:
		return f, "num_scan_inputs does not fit the number of inputs"
	case len(f.body.Inputs) != f.states+f.scans || len(f.body.Outputs) < f.states || len(f.body.Outputs) < len(n.Out):
		return f, "the body's inputs and outputs do not fit the node's"
	}
	return f, ""
}

// entry i of a list attribute, def where the list is left out.
func entry(n *ir.Node, name string, i int, def int64) int64 {
	if list, ok := n.IntList(name); ok && i < len(list) {
		return list[i]
	}
	return def
}

func scanInfer(c *ir.InferCtx) error {
	f, msg := scanFormOf(c.Node, c.Version)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	if c.Subgraph == nil {
		return nil
	}
	var types []ir.Type
	length := c.FreshDim()
	batch := c.FreshDim()
	for i := range f.states + f.scans {
		t := c.In(f.first + i)
		shape := t.Shape
		if f.batch == 1 && shape.Ranked {
			if shape.Rank() < 1 {
				return c.Errorf("input %d has no batch axis", f.first+i)
			}
			batch = known(batch, shape.Dims[0])
			shape = ir.Dims(shape.Dims[1:]...)
		}
		if i >= f.states && shape.Ranked {
			axis, err := c.Axis(entry(c.Node, "scan_input_axes", i-f.states, 0), shape.Rank())
			if err != nil {
				return err
			}
			length = known(length, shape.Dims[axis])
			shape = ir.Dims(dimsWithout(shape.Dims, []int{axis})...)
		}
		t.Shape = shape
		types = append(types, t)
	}
	out, err := widenCarried(c, f.body, types, 0, 0, f.states)
	if err != nil {
		return err
	}
	return scanOutputs(c, f, out, types, batch, length)
}

// known prefers a number, and any extent to a symbol nobody shares.
func known(old, d ir.Dim) ir.Dim {
	if isInt(old) {
		return old
	}
	return d
}

func scanOutputs(c *ir.InferCtx, f scanForm, out, types []ir.Type, batch, length ir.Dim) error {
	for i := range c.Node.Out {
		t := out[i]
		if i < f.states {
			t = types[i]
		}
		if t.Kind == ir.TensorKind && t.Shape.Ranked {
			dims := append([]ir.Dim{}, t.Shape.Dims...)
			if i >= f.states {
				axis, err := c.Axis(entry(c.Node, "scan_output_axes", i-f.states, 0), len(dims)+1)
				if err != nil {
					return err
				}
				dims = dimsWith(dims, []int{axis}, length)
			}
			if f.batch == 1 {
				dims = append([]ir.Dim{batch}, dims...)
			}
			t.Shape = ir.Dims(dims...)
		}
		c.Set(i, t)
	}
	return nil
}

func scanEval(c *ir.EvalCtx) error {
	f, msg := scanFormOf(c.Node, c.Version)
	if msg != "" {
		return c.Errorf("%s", msg)
	}
	in := make([]*ir.Tensor, f.states+f.scans)
	for i := range in {
		if in[i] = c.In(f.first + i); in[i] == nil {
			return c.Errorf("input %d is no tensor", f.first+i)
		}
	}
	if f.batch == 0 {
		out, err := scanOnce(c, f, in, -1)
		for i, t := range out {
			c.Set(i, t)
		}
		return err
	}
	return scanBatches(c, f, in)
}

// scanBatches is opset 8: every batch entry by itself, up to its own length.
func scanBatches(c *ir.EvalCtx, f scanForm, in []*ir.Tensor) error {
	var parts [][]*ir.Tensor
	for b := range in[0].Dims[0] {
		one := make([]*ir.Tensor, len(in))
		for i, x := range in {
			if len(x.Dims) < 1 || b >= x.Dims[0] {
				return c.Errorf("the inputs differ in their batch axis")
			}
			one[i] = sliceOne(x, 0, b, 1).Reshaped(x.Dims[1:]...)
		}
		length := int64(-1)
		if c.Has(0) {
			length = c.In(0).Ints()[b]
		}
		out, err := scanOnce(c, f, one, length)
		if err != nil {
			return err
		}
		parts = append(parts, out)
	}
	for i := range c.Node.Out {
		var xs []*ir.Tensor
		for _, p := range parts {
			xs = append(xs, p[i])
		}
		y, msg := stackTensors(xs, 0, ir.Type{})
		if msg != "" {
			return c.Errorf("output %d: %s", i, msg)
		}
		c.Set(i, y)
	}
	return nil
}

// scanOnce runs the body over the positions; length -1 means all.
func scanOnce(c *ir.EvalCtx, f scanForm, in []*ir.Tensor, length int64) ([]*ir.Tensor, error) {
	axes := make([]int, f.scans)
	for i, x := range in[f.states:] {
		var ok bool
		if axes[i], ok = ir.NormAxis(entry(c.Node, "scan_input_axes", i, 0), len(x.Dims)); !ok {
			return nil, c.Errorf("scan_input_axes is out of range")
		}
		if n := x.Dims[axes[i]]; length < 0 || n < length {
			length = n
		}
	}
	directions := "scan_input_directions"
	if c.Version < 9 {
		directions = "directions"
	}
	state := make([]ir.Datum, f.states)
	for i := range state {
		state[i] = in[i]
	}
	stacks := make([][]*ir.Tensor, len(f.body.Outputs)-f.states)
	for t := range length {
		args := append([]ir.Datum{}, state...)
		for i, x := range in[f.states:] {
			p := t
			if entry(c.Node, directions, i, 0) != 0 {
				p = x.Dims[axes[i]] - 1 - t
			}
			part := sliceOne(x, axes[i], p, 1)
			args = append(args, part.Reshaped(dimsWithout(part.Dims, axes[i:i+1])...))
		}
		out, err := c.Subgraph(f.body, args)
		if err != nil {
			return nil, err
		}
		state = append([]ir.Datum{}, out[:f.states]...)
		for k := range stacks {
			x, ok := out[f.states+k].(*ir.Tensor)
			if !ok {
				return nil, c.Errorf("scan output %d is no tensor", k)
			}
			stacks[k] = append(stacks[k], x)
		}
	}
	return scanResults(c, f, state, stacks)
}

func scanResults(c *ir.EvalCtx, f scanForm, state []ir.Datum, stacks [][]*ir.Tensor) ([]*ir.Tensor, error) {
	var out []*ir.Tensor
	for i, d := range state {
		x, ok := d.(*ir.Tensor)
		if !ok {
			return nil, c.Errorf("state %d is no tensor", i)
		}
		out = append(out, x)
	}
	for k, xs := range stacks {
		if entry(c.Node, "scan_output_directions", k, 0) != 0 {
			for i, j := 0, len(xs)-1; i < j; i, j = i+1, j-1 {
				xs[i], xs[j] = xs[j], xs[i]
			}
		}
		y, msg := stackTensors(xs, entry(c.Node, "scan_output_axes", k, 0), f.body.Outputs[f.states+k].Type)
		if msg != "" {
			return nil, c.Errorf("scan output %d: %s", k, msg)
		}
		out = append(out, y)
	}
	return out, nil
}

package ops

import "memoc/ir"

// sliceGrad puts the gradient back where the slice was taken, zeros elsewhere.
func sliceGrad(c *ir.GradCtx) error {
	dy, x := c.OutGrad(0), c.In(0)
	in, out := x.Type.Shape, c.Node.Out[0].Type.Shape
	if dy == nil || !c.Needs(0) {
		return nil
	}
	if !in.Ranked || !out.Ranked {
		return c.Node.Errorf("grad", "the gradient needs the rank of %q", x.Name)
	}
	args, known := sliceArgsOf(c.Node)
	if known {
		at, msg := args.axesFor(in.Rank())
		if msg != "" {
			return c.Node.Errorf("grad", "%s", msg)
		}
		if g, ok := slicePadGrad(c, dy, args, at); ok {
			c.Set(0, c.Like(g, x))
			return nil
		}
	}
	g, err := sliceScatterGrad(c, dy)
	if err != nil {
		return err
	}
	c.Set(0, c.Like(g, x))
	return nil
}

// slicePadGrad pads with zeros, for steps of 1 and -1 (turned round first) or
// static extents (spread first); ok is false if an amount is not known.
func slicePadGrad(c *ir.GradCtx, dy *ir.Value, args sliceArgs, at []int) (*ir.Value, bool) {
	in, out := c.In(0).Type.Shape, c.Node.Out[0].Type.Shape
	before, after := make([]int64, in.Rank()), make([]int64, in.Rank())
	steps := make([]int64, in.Rank())
	for i, a := range at {
		steps[a] = 1
		if args.hasSteps {
			steps[a] = args.steps[i]
		}
		low, high, ok := padAmounts(in.Dims[a], out.Dims[a], args.starts[i], args.ends[i], steps[a])
		if !ok {
			return nil, false
		}
		before[a], after[a] = low, high
	}
	for a, step := range steps {
		if out.Dims[a].Equal(ir.N(0)) {
			continue
		}
		if step < 0 {
			if c.Opset() < 10 {
				return nil, false
			}
			dy = c.ReverseAxis(dy, int64(a))
		}
		if n, ok := out.Dims[a].Int(); magnitude(max(step, -step)) > 1 && ok && n > 1 {
			dy = spread(c, dy, a, n, max(step, -step))
		}
	}
	return c.Pad(dy, before, after), true
}

// padAmounts is how many zeros go before and after the (turned round, spread)
// gradient along an axis of extent d of which count positions were taken.
func padAmounts(d, count ir.Dim, start, end, step int64) (low, high int64, ok bool) {
	n, okN := d.Int()
	k, okK := count.Int()
	if okN && okK {
		r := clampRange(n, start, end, step)
		if k == 0 {
			return n, 0, true
		}
		low = min(r.start, r.start+(k-1)*r.step)
		length := int64(1)
		if k > 1 { // spread leaves k*|step| positions
			length = k * max(step, -step)
		}
		return low, n - low - length, true
	}
	// Symbolic: only whole ranges with known amounts cut off.
	if step != 1 && step != -1 {
		return 0, 0, false
	}
	from, okFrom := sliceStart(d, ir.N(start))
	if step == -1 {
		from, okFrom = sliceTop(d, ir.N(start))
		from = from.Sub(count).Add(ir.N(1))
	}
	low, okLow := from.Int()
	high, okHigh := d.Sub(from).Sub(count).Int()
	return low, high, okFrom && okLow && okHigh && low >= 0 && high >= 0
}

// spread puts step-1 zeros behind every position of an axis of extent n.
func spread(c *ir.GradCtx, dy *ir.Value, axis int, n, step int64) *ir.Value {
	rank := dy.Type.Shape.Rank()
	wide := c.Unsqueeze(dy, int64(axis)+1)
	after := make([]int64, rank+1)
	after[axis+1] = step - 1
	wide = c.Pad(wide, make([]int64, rank+1), after)
	parts := append([]ir.Dim{}, dy.Type.Shape.Dims...)
	parts[axis] = ir.N(n * step)
	shape, _ := c.DimsValue(parts, dy)
	return c.Op("Reshape", []*ir.Value{wide, shape})
}

// sliceScatterGrad writes the gradient back axis by axis, by the positions
// that the same slice takes from 0, 1, 2, …. It needs no bound to be known.
func sliceScatterGrad(c *ir.GradCtx, dy *ir.Value) (*ir.Value, error) {
	n := c.Node
	if len(n.In) < 3 {
		return nil, n.Errorf("grad", "the gradient of a slice with these bounds needs static extents; bind them with --dim")
	}
	axes, given, known := axesOf(n, 3)
	if !known {
		return nil, n.Errorf("grad", "the gradient needs to know the axes, which are computed at run time")
	}
	x := c.In(0)
	count := x.Type.Shape.Rank()
	if given {
		count = len(axes)
	} else if d, ok := n.In[1].Type.Shape.Static(); ok && len(d) == 1 {
		count = int(d[0])
	}
	for i := range count {
		a, ok := i, i < x.Type.Shape.Rank()
		if given {
			a, ok = ir.NormAxis(axes[i], x.Type.Shape.Rank())
		}
		if !ok {
			return nil, n.Errorf("grad", "an axis is out of range")
		}
		scalar := func(v *ir.Value) *ir.Value { return c.Op("Reshape", []*ir.Value{v, c.Int64s()}) }
		all := c.Op("Range", []*ir.Value{c.Scalar(ir.Int64, 0), scalar(c.DimOf(x, a)), c.Scalar(ir.Int64, 1)})
		bound := func(port int) *ir.Value {
			if port >= len(n.In) || n.In[port] == nil {
				return nil
			}
			return c.Cast(c.SliceAxis(n.In[port], 0, int64(i), int64(i)+1, 1), ir.Int64)
		}
		idx := c.Op("Slice", []*ir.Value{all, bound(1), bound(2), c.Int64s(0), bound(4)})
		dy = c.ScatterSum(dy, a, idx, x, true)
	}
	return dy, nil
}

package mask

import (
	"slices"

	"memoc/ir"
)

// moves are the operators that put elements elsewhere: an element of the
// result is an element of an input, at a place that follows from its own.
var moves map[ir.OpName]func(w *walk, n *ir.Node, at []*Expr) *Expr

func init() {
	moves = map[ir.OpName]func(w *walk, n *ir.Node, at []*Expr) *Expr{
		"Identity":        func(w *walk, n *ir.Node, at []*Expr) *Expr { return w.element(n.In[0], at) },
		"Expand":          moveExpand,
		"Transpose":       moveTranspose,
		"Reshape":         moveReshape,
		"Unsqueeze":       moveReshape,
		"Squeeze":         moveReshape,
		"Flatten":         moveReshape,
		"Slice":           moveSlice,
		"Concat":          moveConcat,
		"Gather":          moveGather,
		"GatherND":        moveGatherND,
		"Range":           moveRange,
		"ConstantOfShape": moveFill,
		"Trilu":           moveTrilu,
		"CumSum":          moveCumSum,
	}
}

func moveExpand(w *walk, n *ir.Node, at []*Expr) *Expr {
	place := w.broadcast(n.In[0], n.Out[0], at)
	if place == nil {
		return nil
	}
	return w.element(n.In[0], place)
}

func moveTranspose(w *walk, n *ir.Node, at []*Expr) *Expr {
	perm, _ := n.IntList("perm")
	place := make([]*Expr, len(at))
	for k := range at {
		from := len(at) - 1 - k
		if len(perm) == len(at) {
			from = int(perm[k])
		}
		place[from] = at[k]
	}
	return w.element(n.In[0], place)
}

// moveReshape sees through reshapes that insert and drop axes of extent 1.
func moveReshape(w *walk, n *ir.Node, at []*Expr) *Expr {
	in, out := n.In[0].Type.Shape, n.Out[0].Type.Shape
	if !in.Ranked {
		return nil
	}
	wide := func(s ir.Shape) []int {
		var list []int
		for k, d := range s.Dims {
			if !d.Equal(ir.N(1)) {
				list = append(list, k)
			}
		}
		return list
	}
	from, to := wide(in), wide(out)
	if len(from) != len(to) {
		return nil
	}
	place := make([]*Expr, in.Rank())
	for k := range place {
		place[k] = intOf(0)
	}
	for k := range from {
		if !in.Dims[from[k]].Equal(out.Dims[to[k]]) {
			return nil
		}
		place[from[k]] = at[to[k]]
	}
	return w.element(n.In[0], place)
}

// moveSlice sees through slices with positive steps whose start is known.
func moveSlice(w *walk, n *ir.Node, at []*Expr) *Expr {
	list := func(port int, attr string) []ir.Dim {
		if port < len(n.In) && n.In[port] != nil {
			return intsOf(n.In[port])
		}
		if n.Attr(attr) != nil {
			list, _ := n.IntList(attr)
			return ir.Ints64(list...).Dims
		}
		return nil
	}
	starts, axisList, steps := list(1, "starts"), list(3, "axes"), list(4, "steps")
	if starts == nil || len(n.In) > 3 && n.In[3] != nil && axisList == nil || len(n.In) > 4 && n.In[4] != nil && steps == nil {
		return nil
	}
	place := slices.Clone(at)
	for k, start := range starts {
		axis := k
		if axisList != nil {
			a, _ := axisList[k].Int()
			axis, _ = ir.NormAxis(a, len(at))
		}
		step := int64(1)
		if steps != nil {
			step, _ = steps[k].Int()
		}
		if axis < 0 || axis >= len(at) || step <= 0 {
			return nil
		}
		first := w.firstOf(start, n.In[0].Type.Shape, axis)
		if first == nil {
			return nil
		}
		place[axis] = first.plus(at[axis], step)
	}
	return w.element(n.In[0], place)
}

// firstOf is the place of a slice's first element, which exists: a start past
// the end makes no element.
func (w *walk) firstOf(start ir.Dim, in ir.Shape, axis int) *Expr {
	if start.NonNegative() {
		return dimOf(start)
	}
	if !in.Ranked {
		return nil
	}
	n, ok := start.Int()
	if !ok {
		return nil
	}
	extent := in.Dims[axis]
	if e, static := extent.Int(); static {
		return intOf(max(0, n+e))
	}
	if n == -1 || extent.Add(start).NonNegative() {
		return dimOf(extent.Add(start))
	}
	return nil
}

// intsOf is the elements of a small integer value, nil if they are not known.
func intsOf(v *ir.Value) []ir.Dim {
	if v.Ints != nil {
		return v.Ints
	}
	if t := v.Const(); t != nil && t.DType.IsInt() {
		return ir.Ints64(t.Ints()...).Dims
	}
	return nil
}

func moveConcat(w *walk, n *ir.Node, at []*Expr) *Expr {
	axis, ok := ir.NormAxis(n.Int("axis", 0), len(at))
	if !ok {
		return nil
	}
	return w.concatFrom(n, 0, axis, at)
}

// concatFrom is the element among the inputs from the given one on; at counts
// from where that one starts.
func (w *walk) concatFrom(n *ir.Node, i, axis int, at []*Expr) *Expr {
	in := n.In[i]
	if i == len(n.In)-1 {
		return w.element(in, at)
	}
	if !in.Type.Shape.Ranked {
		return nil
	}
	extent := dimOf(in.Type.Shape.Dims[axis])
	here := w.atMostZero(at[axis].plus(extent, -1).plus(intOf(1), 1))
	if here.isTrue() {
		return w.element(in, at)
	}
	next := slices.Clone(at)
	next[axis] = at[axis].plus(extent, -1)
	rest := w.concatFrom(n, i+1, axis, next)
	if here.isFalse() || rest == nil {
		return rest
	}
	return w.pickOf(here, w.element(in, at), rest)
}

// position makes an index of ONNX, which may count from the end, a place. It
// is nil where the sign is not proven.
func (w *walk) position(e *Expr, extent ir.Dim) *Expr {
	switch {
	case e.kind != affine:
		return nil
	case w.nonNegative(e):
		return e
	case e.constant():
		if n, ok := e.c.Int(); ok && n < 0 {
			return dimOf(extent.Add(e.c))
		}
	}
	return nil
}

func moveGather(w *walk, n *ir.Node, at []*Expr) *Expr {
	data, index := n.In[0], n.In[1]
	if !data.Type.Shape.Ranked || !index.Type.Shape.Ranked {
		return nil
	}
	axis, ok := ir.NormAxis(n.Int("axis", 0), data.Type.Shape.Rank())
	if !ok {
		return nil
	}
	q := index.Type.Shape.Rank()
	i := w.position(w.element(index, at[axis:axis+q]), data.Type.Shape.Dims[axis])
	if i == nil {
		return nil
	}
	return w.element(data, slices.Concat(at[:axis], []*Expr{i}, at[axis+q:]))
}

func moveGatherND(w *walk, n *ir.Node, at []*Expr) *Expr {
	data, index := n.In[0], n.In[1]
	if !data.Type.Shape.Ranked || !index.Type.Shape.Ranked {
		return nil
	}
	q := index.Type.Shape.Rank()
	k, ok := index.Type.Shape.Dims[q-1].Int()
	batch := int(n.Int("batch_dims", 0))
	if !ok || batch+int(k) > data.Type.Shape.Rank() || q-1 > len(at) {
		return nil
	}
	place := slices.Clone(at[:batch])
	for c := range k {
		i := w.position(w.element(index, append(slices.Clone(at[:q-1]), intOf(c))), data.Type.Shape.Dims[batch+int(c)])
		if i == nil {
			return nil
		}
		place = append(place, i)
	}
	return w.element(data, append(place, at[q-1:]...))
}

func moveRange(w *walk, n *ir.Node, at []*Expr) *Expr {
	scalar := func(v *ir.Value) *Expr {
		place := make([]*Expr, max(0, v.Type.Shape.Rank()))
		for k := range place {
			place[k] = intOf(0)
		}
		return w.element(v, place).asAffine()
	}
	start, delta := scalar(n.In[0]), scalar(n.In[2])
	if start == nil || delta == nil || !start.constant() || !delta.constant() {
		return nil
	}
	step, ok := delta.c.Int()
	if !ok {
		return nil
	}
	return w.exact(start.plus(at[0], step), n.Out[0].Type.DType)
}

// exact is an integer form held in type d, nil where d may round it.
func (w *walk) exact(e *Expr, d ir.DType) *Expr {
	if !d.IsFloat() || e.constant() && e.c.Equal(ir.N(0)) {
		return e
	}
	limit := map[ir.DType]int64{ir.Float16: 1 << 11, ir.BFloat16: 1 << 8, ir.Float: 1 << 24, ir.Double: 1 << 53}[d]
	for _, sign := range []int64{1, -1} {
		if n, ok := w.most(e, sign).Int(); !ok || n > limit {
			return nil
		}
	}
	return e
}

func moveFill(w *walk, n *ir.Node, at []*Expr) *Expr {
	d := n.Out[0].Type.DType
	a := n.Attr("value")
	switch {
	case a == nil || a.T == nil:
		return constantExpr(d, 0)
	case d.IsFloat():
		return numberOf(a.T.Floats()[0])
	}
	return constantExpr(d, float64(a.T.Ints()[0]))
}

// constantExpr is x as an element of type d.
func constantExpr(d ir.DType, x float64) *Expr {
	switch {
	case d == ir.Bool:
		return truthOf(x != 0)
	case d.IsFloat():
		return numberOf(round(d, x))
	}
	return intOf(int64(x))
}

func moveTrilu(w *walk, n *ir.Node, at []*Expr) *Expr {
	r := len(at)
	if r < 2 {
		return nil
	}
	k := intOf(0)
	if len(n.In) > 1 && n.In[1] != nil {
		d := intsOf(n.In[1])
		if len(d) != 1 {
			return nil
		}
		k = dimOf(d[0])
	}
	above := at[r-1].plus(at[r-2], -1).plus(k, -1) // column - row - k
	kept := w.atMostZero(above)
	if n.Int("upper", 1) != 0 {
		kept = w.atMostZero(intOf(0).plus(above, -1))
	}
	return w.pickOf(kept, w.element(n.In[0], at), constantExpr(n.Out[0].Type.DType, 0))
}

// moveCumSum knows sums of a constant.
func moveCumSum(w *walk, n *ir.Node, at []*Expr) *Expr {
	d := intsOf(n.In[1])
	if len(d) != 1 {
		return nil
	}
	a, _ := d[0].Int()
	axis, ok := ir.NormAxis(a, len(at))
	if !ok {
		return nil
	}
	each := w.element(n.In[0], at)
	if each.kind == number {
		each = each.asAffine()
	}
	if each == nil || !each.constant() {
		return nil
	}
	step, ok := each.c.Int()
	if !ok {
		return nil
	}
	count := at[axis]
	if n.Int("reverse", 0) != 0 {
		count = dimOf(n.Out[0].Type.Shape.Dims[axis]).plus(count, -1).plus(intOf(1), -1)
	}
	if n.Int("exclusive", 0) == 0 {
		count = count.plus(intOf(1), 1)
	}
	return w.exact(intOf(0).plus(count, step), n.Out[0].Type.DType)
}

package ops

import (
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "Einsum",
	Doc:   "Einstein summation: products over shared labels, summed over those the output lacks; an ellipsis broadcasts.",
	Since: []int{12},
	In:    ir.Ports("Inputs:T*"), Out: ir.Ports("Output:T"),
	Types: map[string]ir.DTypeSet{"T": ir.Numeric},
	Infer: einsumInfer,
	Axes:  einsumAxes,
	Cost: func(c *ir.CostCtx) ir.Cost {
		read, write := c.Traffic()
		flops := ir.Elems(c.OutShape(0))
		if p, err := einsumPlanOf(c.Node, c.InShape); err == nil {
			flops = max(1, int64(len(p.terms))) * ir.Elems(p.outDims) * ir.Elems(p.sumDims)
		}
		return ir.Cost{FLOPs: flops, Read: read, Write: write, DType: c.InDType(0)}
	},
	Grad:      ir.GradOf(einsumGrad),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		p, err := einsumPlanOf(c.Node, func(i int) []int64 { return c.In(i).Dims })
		if err != nil {
			return c.Errorf("%v", err)
		}
		d := c.In(0).DType
		if d.IsFloat() {
			c.Set(0, ir.FromFloats(d, einsumValues(c, p, (*ir.Tensor).Floats), p.outDims...))
		} else {
			c.Set(0, ir.FromInts(d, einsumValues(c, p, (*ir.Tensor).Ints), p.outDims...))
		}
		return nil
	},
	Kernel: ir.KernelOf(func(c *ir.NodeCtx) (ir.Kernel, error) {
		p, err := einsumPlanOf(c.Node, c.InShape)
		if err != nil {
			return ir.Kernel{}, c.Errorf("%v", err)
		}
		if len(p.terms) > 3 {
			return ir.Kernel{}, c.Errorf("there is no kernel for Einsum of %d operands", len(p.terms))
		}
		k := ir.Kernel{Func: "einsum", Source: einsumCUDA, Types: []ir.DType{c.InDType(0)}, Args: []ir.KernelArg{
			ir.InArg(0), ir.InArg(1), ir.InArg(2), ir.OutArg(0), ir.DimsArg(p.outDims...), ir.DimsArg(p.sumDims...)}}
		for i := range 3 {
			if i < len(p.terms) {
				k.Args = append(k.Args, ir.DimsArg(p.outStep[i]...), ir.DimsArg(p.sumStep[i]...))
			} else {
				k.Args = append(k.Args, ir.DimsArg(make([]int64, len(p.outDims))...), ir.DimsArg(make([]int64, len(p.sumDims))...))
			}
		}
		return k, nil
	}),
	Samples: einsumSamples,
})

// einsumTerms is an equation with an ellipsis spelled out: one label for each
// axis of each operand, and of the output.
type einsumTerms struct {
	in  [][]rune
	out []rune
}

// Labels of ellipsis axes count from the last one, so that they align there.
const einsumEllipsis = rune(0x1000)

// parseEinsum reads an equation for operands of the given ranks.
func parseEinsum(equation string, ranks []int) (e einsumTerms, err error) {
	equation = strings.ReplaceAll(equation, " ", "")
	left, right, explicit := strings.Cut(equation, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(ranks) {
		return e, fmt.Errorf("equation %q has %d operands, the node %d", equation, len(terms), len(ranks))
	}
	widest := 0
	for i, t := range terms {
		labels, wide, err := einsumLabels(t, ranks[i])
		if err != nil {
			return e, fmt.Errorf("equation %q: %v", equation, err)
		}
		e.in = append(e.in, labels)
		widest = max(widest, wide)
	}
	if explicit {
		rank := len(strings.ReplaceAll(right, "...", ""))
		if strings.Contains(right, "...") {
			rank += widest
		}
		e.out, _, err = einsumLabels(right, rank)
		if err != nil {
			return e, fmt.Errorf("equation %q: %v", equation, err)
		}
		for i, l := range e.out {
			if slices.Contains(e.out[:i], l) || !slices.ContainsFunc(e.in, func(t []rune) bool { return slices.Contains(t, l) }) {
				return e, fmt.Errorf("equation %q: output label %q is repeated or in no operand", equation, l)
			}
		}
		return e, nil
	}
	for k := widest - 1; k >= 0; k-- {
		e.out = append(e.out, einsumEllipsis+rune(k))
	}
	counts := map[rune]int{}
	for _, t := range e.in {
		for _, l := range t {
			counts[l]++
		}
	}
	for l := rune('A'); l <= 'z'; l++ {
		if counts[l] == 1 {
			e.out = append(e.out, l)
		}
	}
	return e, nil
}

// einsumLabels spells a term out for an operand of that rank; wide is the
// number of axes of its ellipsis.
func einsumLabels(term string, rank int) (labels []rune, wide int, err error) {
	head, tail, dots := strings.Cut(term, "...")
	wide = rank - len(head) - len(tail)
	if wide < 0 || !dots && wide != 0 {
		return nil, 0, fmt.Errorf("term %q does not fit an operand of rank %d", term, rank)
	}
	for _, l := range head + tail {
		if (l < 'a' || l > 'z') && (l < 'A' || l > 'Z') {
			return nil, 0, fmt.Errorf("term %q has the label %q; a label is a letter", term, l)
		}
	}
	labels = []rune(head)
	for k := wide - 1; k >= 0; k-- {
		labels = append(labels, einsumEllipsis+rune(k))
	}
	return append(labels, []rune(tail)...), wide, nil
}

func einsumInfer(c *ir.InferCtx) error {
	c.SetTensor(0, c.DType(0), ir.Shape{})
	ranks := make([]int, len(c.Node.In))
	for i := range ranks {
		if ranks[i] = c.Shape(i).Rank(); ranks[i] < 0 {
			return nil
		}
	}
	e, err := parseEinsum(c.Node.Str("equation", ""), ranks)
	if err != nil {
		return c.Errorf("%v", err)
	}
	size := map[rune]ir.Dim{}
	for i, t := range e.in {
		for a, l := range t {
			d := c.Shape(i).Dims[a]
			if old, ok := size[l]; ok {
				if d, ok = broadcastDim(c, old, d); !ok {
					return c.Errorf("label %q stands for %s and for %s", l, old, c.Shape(i).Dims[a])
				}
			}
			size[l] = d
		}
	}
	dims := make([]ir.Dim, len(e.out))
	for i, l := range e.out {
		dims[i] = size[l]
	}
	c.SetTensor(0, c.DType(0), ir.Dims(dims...))
	return nil
}

// einsumPlan is an equation on static shapes: the extents of output and summed
// labels, and the step of each operand along them.
type einsumPlan struct {
	terms            [][]rune
	outDims, sumDims []int64
	outStep, sumStep [][]int64
}

func einsumPlanOf(n *ir.Node, shape func(int) []int64) (p einsumPlan, err error) {
	ranks := make([]int, len(n.In))
	for i := range ranks {
		ranks[i] = len(shape(i))
	}
	e, err := parseEinsum(n.Str("equation", ""), ranks)
	if err != nil {
		return p, err
	}
	p.terms = e.in
	size := map[rune]int64{}
	var order []rune
	for i, t := range e.in {
		for a, l := range t {
			d := shape(i)[a]
			old, ok := size[l]
			switch {
			case !ok:
				order = append(order, l)
				size[l] = d
			case old == 1:
				size[l] = d
			case d != 1 && d != old:
				return p, fmt.Errorf("label %q stands for %d and for %d", l, old, d)
			}
		}
	}
	sum := slices.DeleteFunc(order, func(l rune) bool { return slices.Contains(e.out, l) })
	for _, l := range e.out {
		p.outDims = append(p.outDims, size[l])
	}
	for _, l := range sum {
		p.sumDims = append(p.sumDims, size[l])
	}
	for i, t := range e.in {
		step := denseView([]float64(nil), shape(i)).step
		along := func(labels []rune) []int64 {
			out := make([]int64, len(labels))
			for k, l := range labels {
				for a, m := range t {
					if l == m && shape(i)[a] != 1 {
						out[k] += step[a] // a repeated label walks the diagonal
					}
				}
			}
			return out
		}
		p.outStep, p.sumStep = append(p.outStep, along(e.out)), append(p.sumStep, along(sum))
	}
	return p, nil
}

func einsumValues[E number](c *ir.EvalCtx, p einsumPlan, load func(*ir.Tensor) []E) []E {
	data := make([][]E, len(p.terms))
	for i := range data {
		data[i] = load(c.In(i))
	}
	out := make([]E, ir.Elems(p.outDims))
	count := ir.Elems(p.sumDims)
	base := make([]int64, len(data))
	for at := range out {
		for i := range data {
			base[i] = offsetOf(int64(at), p.outDims, p.outStep[i])
		}
		for s := range count {
			prod := E(1)
			for i, x := range data {
				prod *= x[base[i]+offsetOf(s, p.sumDims, p.sumStep[i])]
			}
			out[at] += prod
		}
	}
	return out
}

const einsumCUDA = `
// One thread for each output element; absent operands are null.
template <class T>
void einsum(Stream& s, const T* x0, const T* x1, const T* x2, T* y, Dims out, Dims sum, Dims o0, Dims s0, Dims o1, Dims s1, Dims o2, Dims s2) {
  parallel_for(s, out.numel(), [=] MEMOC_DEVICE(int64_t i) {
    using A = Acc<T>;
    int64_t n = sum.numel(), b0 = offset_of(i, out, o0), b1 = offset_of(i, out, o1), b2 = offset_of(i, out, o2);
    A total = A(0);
    for (int64_t k = 0; k < n; k++) {
      A v = to<A>(x0[b0 + offset_of(k, sum, s0)]);
      if (x1 != nullptr) v *= to<A>(x1[b1 + offset_of(k, sum, s1)]);
      if (x2 != nullptr) v *= to<A>(x2[b2 + offset_of(k, sum, s2)]);
      total += v;
    }
    y[i] = to<T>(total);
  });
}`

func einsumAxes(n *ir.Node) ir.AxisMap {
	ranks := make([]int, len(n.In))
	for i := range ranks {
		if ranks[i] = inShapeOf(n, i).Rank(); ranks[i] < 0 {
			return ir.AxisMap{}
		}
	}
	e, err := parseEinsum(n.Str("equation", ""), ranks)
	if err != nil || outShapeOf(n, 0).Rank() != len(e.out) {
		return ir.AxisMap{}
	}
	axes := make([]ir.OutAxis, len(e.out))
	for o, l := range e.out {
		axes[o] = einsumLinks(n, e, l, n.Out[0].Type.Shape.Dims[o])
	}
	return ir.AxisMap{Out: [][]ir.OutAxis{axes}}
}

// einsumLinks links a label to the operand axes that have it, nil where an
// operand has it twice.
func einsumLinks(n *ir.Node, e einsumTerms, l rune, extent ir.Dim) ir.OutAxis {
	links := ir.OutAxis{}
	for i, t := range e.in {
		seen := false
		for a, m := range t {
			if m != l || !n.In[i].Type.Shape.Dims[a].Equal(extent) {
				continue
			}
			if seen {
				return nil
			}
			seen = true
			links = append(links, ir.AxisLink{In: i, Axis: a})
		}
	}
	return links
}

// einsumGrad: the gradient of an operand is the einsum of the output's
// gradient with the other operands, over the operand's labels; along labels
// that are nowhere else it is constant.
func einsumGrad(c *ir.GradCtx) error {
	ranks := make([]int, len(c.Node.In))
	for i := range ranks {
		if ranks[i] = inShapeOf(c.Node, i).Rank(); ranks[i] < 0 {
			return c.Node.Errorf("grad", "the gradient needs the rank of %q", c.Node.In[i].Name)
		}
	}
	e, err := parseEinsum(c.Node.Str("equation", ""), ranks)
	if err != nil {
		return c.Node.Errorf("grad", "%v", err)
	}
	letter := einsumLetters(e)
	for i, t := range e.in {
		if !c.Needs(i) {
			continue
		}
		operands, terms := []*ir.Value{c.OutGrad(0)}, []string{letter(e.out)}
		known := slices.Clone(e.out)
		for j, u := range e.in {
			if j != i {
				operands, terms = append(operands, c.In(j)), append(terms, letter(u))
				known = append(known, u...)
			}
		}
		var have []rune
		var missing []int64
		for a, l := range t {
			switch {
			case slices.Contains(t[:a], l):
				return c.Node.Errorf("grad", "not derived yet: label %q stands twice in one operand", l)
			case slices.Contains(known, l):
				have = append(have, l)
			default:
				missing = append(missing, int64(a))
			}
		}
		g := c.Op("Einsum", operands, ir.StringAttr("equation", strings.Join(terms, ",")+"->"+letter(have)))
		g = c.Unsqueeze(g, missing...)
		if len(missing) > 0 {
			// Along those axes g is constant: x's own extent, whatever else broadcasts.
			dims := slices.Clone(g.Type.Shape.Dims)
			for _, a := range missing {
				dims[a] = c.In(i).Type.Shape.Dims[a]
			}
			g = einsumExpand(c, g, dims, c.In(i))
		}
		c.Set(i, c.SumTo(g, c.In(i)))
	}
	return nil
}

// einsumExpand repeats g along its axes of extent 1 to dims, those of x there.
func einsumExpand(c *ir.GradCtx, g *ir.Value, dims []ir.Dim, x *ir.Value) *ir.Value {
	shape, ok := c.DimsValue(dims, g, x)
	if !ok {
		c.Fail(c.Node.Errorf("grad", "the extents %v are not known", dims))
	}
	out := c.Op("Expand", []*ir.Value{g, shape})
	out.Type.Shape = ir.Dims(dims...)
	return out
}

// einsumLetters writes labels as letters, those of an ellipsis as unused ones.
func einsumLetters(e einsumTerms) func([]rune) string {
	used := map[rune]bool{}
	for _, t := range e.in {
		for _, l := range t {
			used[l] = true
		}
	}
	names := map[rune]rune{}
	next := 'a'
	return func(labels []rune) string {
		var b strings.Builder
		for _, l := range labels {
			if l < einsumEllipsis {
				b.WriteRune(l)
				continue
			}
			if names[l] == 0 {
				for used[next] {
					next++
				}
				names[l], used[next] = next, true
			}
			b.WriteRune(names[l])
		}
		return b.String()
	}
}

func einsumSamples() []ir.Sample {
	eq := func(s string) []ir.Attr { return []ir.Attr{ir.StringAttr("equation", s)} }
	in := func(ts ...*ir.Tensor) []*ir.Tensor { return ts }
	return []ir.Sample{
		{Name: "matmul", In: in(wave(1, 2, 3), wave(2, 3, 4)), Attrs: eq("ij,jk->ik")},
		{Name: "implicit", In: in(wave(1, 2, 3), wave(2, 3, 4)), Attrs: eq("ij, jk")},
		{Name: "batch", In: in(wave(1, 2, 2, 3), wave(2, 2, 4, 3)), Attrs: eq("bij,bkj->bki")},
		{Name: "ellipsis", In: in(wave(1, 2, 2, 3), wave(2, 2, 3, 2)), Attrs: eq("...ij,...jk->...ik")},
		{Name: "ellipsis, broadcast", In: in(wave(1, 2, 2, 3), wave(2, 3, 2)), Attrs: eq("...ij,jk->...ik")},
		{Name: "transpose", In: in(wave(1, 2, 3)), Attrs: eq("ij->ji")},
		{Name: "sum of one", In: in(wave(1, 2, 3), wave(2, 2)), Attrs: eq("ij,i->i")},
		{Name: "total", In: in(wave(1, 2, 3)), Attrs: eq("ij->")},
		{Name: "outer", In: in(wave(1, 2), wave(2, 3)), Attrs: eq("i,j->ij")},
		{Name: "three", In: in(wave(1, 2, 3), wave(2, 3, 2), wave(3, 2)), Attrs: eq("ab,bc,c->a")},
		{Name: "diagonal", In: in(wave(1, 3, 3)), Attrs: eq("ii->i"), NoGradCheck: map[int]string{0: "not derived"}},
		{Name: "empty", In: in(wave(1, 0, 3), wave(2, 3, 4)), Attrs: eq("ij,jk->ik")},
		{Name: "nothing summed", In: in(wave(1, 2, 0), wave(2, 0, 4)), Attrs: eq("ij,jk->ik")},
		{Name: "integers", In: in(ir.FromInts(ir.Int64, []int64{1, 2, 3, 4}, 2, 2), ir.FromInts(ir.Int64, []int64{5, -6}, 2)), Attrs: eq("ij,j->i")},
	}
}

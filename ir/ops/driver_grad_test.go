package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
)

// TestGrad compares each gradient rule with central differences in double,
// then builds it again for symbolic dims and for the shorter types.
func TestGrad(t *testing.T) { checkEach(t, gradSample) }

func gradSample(t testing.TB, op *ir.Op, s ir.Sample) {
	if op.Grad.Rule == nil || !hasFloatOutput(t, op, s) {
		return
	}
	g := checkDifferences(t, op, s)
	if g == nil {
		return
	}
	checkOneAtATime(t, op, s, g)
	checkSymbolic(t, op, s, g)
	checkOpsets(t, op, s, g)
	for _, d := range []ir.DType{ir.Float, ir.Float16, ir.BFloat16} {
		checkShorter(t, op, s, d, g)
	}
}

func hasFloatOutput(t testing.TB, op *ir.Op, s ir.Sample) bool {
	return slices.ContainsFunc(mustBuild(t, op, s, asInputs).node.Out, func(v *ir.Value) bool {
		return v != nil && v.Type.DType.IsFloat()
	})
}

// gradients is a backward graph and what it gave.
type gradients struct {
	b    *built
	seed map[int]bool // outputs that had a gradient
	up   []*ir.Tensor // by output, nil for none
	in   []*ir.Tensor // by input, nil for zero or none
	vals []*ir.Value  // by input
	outs []ir.Datum   // forward outputs
}

// upstream is the gradient of an output: noise that is a function of the
// element alone.
func upstream(o int, y *ir.Tensor, d ir.DType) *ir.Tensor {
	r := rand.New(rand.NewPCG(7, uint64(o)))
	vals := make([]float64, y.Len())
	for i := range vals {
		vals[i] = 2*r.Float64() - 1
	}
	return ir.FromFloats(d, vals, y.Dims...)
}

// differentiate builds the backward graph of a sample in a mode and runs it.
// outputs selects which outputs have a gradient, inputs which want one.
func differentiate(op *ir.Op, s ir.Sample, m mode, outputs, inputs func(int) bool) (g *gradients, err error) {
	return differentiateAt(op, s, m, 0, outputs, inputs)
}

// differentiateAt does so in a graph of a default opset (0: the sample's).
func differentiateAt(op *ir.Op, s ir.Sample, m mode, opset int, outputs, inputs func(int) bool) (g *gradients, err error) {
	b, err := buildAt(op, s, m, opset)
	if err != nil {
		return nil, err
	}
	y, err := b.eval()
	if err != nil {
		return nil, err
	}
	g = &gradients{b: b, seed: map[int]bool{}}
	env := map[*ir.Value]ir.Datum{}
	grads := make([]*ir.Value, len(y))
	for o, v := range b.node.Out {
		g.up = append(g.up, nil)
		x, ok := y[o].(*ir.Tensor)
		if !ok || !x.DType.IsFloat() || !outputs(o) {
			continue
		}
		g.up[o], g.seed[o] = upstream(o, x, x.DType), true
		grads[o] = b.graph.AddInput(fmt.Sprintf("up%d", o), v.Type)
		env[grads[o]] = g.up[o]
	}
	needs := make([]bool, len(s.In))
	for i, v := range b.node.In {
		needs[i] = v != nil && v.Type.DType.IsFloat() && inputs(i)
	}
	builder := ir.NewBuilder(ir.NewEdit(b.graph))
	builder.Prefix, builder.Backward = "grad/", true
	c := ir.NewGradCtx(builder, b.node, grads, needs)
	err = func() (err error) {
		defer ir.Catch(&err)
		return op.Grad.Rule(c)
	}()
	if err != nil {
		return nil, fmt.Errorf("gradient rule: %w", err)
	}
	builder.Edit.Done()
	for i, v := range b.node.In {
		if v != nil {
			env[v] = b.args[i]
		}
	}
	if err := b.evalGraph(b.graph, env); err != nil {
		return nil, fmt.Errorf("backward graph: %w", err)
	}
	return g, g.collect(c.InGrads(), env, needs)
}

// collect reads the input gradients and checks their types.
func (g *gradients) collect(vals []*ir.Value, env map[*ir.Value]ir.Datum, needs []bool) error {
	g.vals, g.in = vals, make([]*ir.Tensor, len(vals))
	for i, v := range vals {
		if v == nil {
			continue
		}
		x := g.b.args[i].(*ir.Tensor)
		got, ok := env[v].(*ir.Tensor)
		if !ok {
			return fmt.Errorf("the gradient of input %d has no value", i)
		}
		if got.DType != x.DType || !slices.Equal(got.Dims, x.Dims) {
			return fmt.Errorf("the gradient of input %d is %s, the input %s", i, got.Type(), x.Type())
		}
		if in := g.b.node.In[i].Type; needs[i] && !v.Type.Equal(in) {
			return fmt.Errorf("the gradient of input %d has the type %s, the input %s", i, v.Type, in)
		}
		g.in[i] = got
	}
	return nil
}

func all(int) bool { return true }

// checkDifferences compares all input gradients with central differences.
func checkDifferences(t testing.TB, op *ir.Op, s ir.Sample) *gradients {
	g, err := differentiate(op, s, asConstants, all, all)
	if err != nil {
		// A rule may refuse gradients of secondary outputs, but not of the first
		// (unless it says that it is "not derived" for this form of the node).
		first := func(o int) bool { return o == 0 }
		if strings.Contains(err.Error(), "not derived") {
			t.Logf("refused: %v", err)
			return nil
		}
		var err2 error
		if g, err2 = differentiate(op, s, asConstants, first, all); err2 != nil {
			t.Errorf("%v", err)
			return nil
		}
	}
	for i, x := range s.In {
		if absent(s, i) || x.DType != ir.Double {
			continue
		}
		if why, skip := s.NoGradCheck[i]; skip {
			if why == "" {
				t.Errorf("NoGradCheck of input %d gives no reason", i)
			}
			continue
		}
		checkInputDifferences(t, op, s, g, i)
	}
	return g
}

func checkInputDifferences(t testing.TB, op *ir.Op, s ir.Sample, g *gradients, i int) {
	x := s.In[i].Floats()
	want := make([]float64, len(x))
	for k := range x {
		// The error of a central difference is O(h^2) + O(ulp/h).
		h := 1e-5 * max(1, math.Abs(x[k]))
		want[k] = (g.objective(t, op, s, i, k, x[k]+h) - g.objective(t, op, s, i, k, x[k]-h)) / (2 * h)
	}
	got := make([]float64, len(x)) // nil is zero
	if g.in[i] != nil {
		got = g.in[i].Floats()
	}
	if diff := compareFloats(got, want, 1e-6); diff != "" {
		t.Errorf("gradient of input %d: %s", i, diff)
	}
}

// objective is sum(up * out) with element k of input i replaced.
func (g *gradients) objective(t testing.TB, op *ir.Op, s ir.Sample, i, k int, v float64) float64 {
	m := s
	m.In = slices.Clone(s.In)
	vals := slices.Clone(s.In[i].Floats())
	vals[k] = v
	m.In[i] = ir.FromFloats(ir.Double, vals, s.In[i].Dims...)
	b := mustBuild(t, op, m, asConstants)
	out, err := b.eval()
	if err != nil {
		t.Fatalf("evaluation: %v", err)
	}
	sum := 0.0
	for o, up := range g.up {
		if up == nil {
			continue
		}
		w := up.Floats()
		for j, y := range out[o].(*ir.Tensor).Floats() {
			sum += w[j] * y
		}
	}
	return sum
}

// checkOneAtATime asks for one input's gradient alone, and gives one output's
// gradient alone: no rule may lean on the others being there.
func checkOneAtATime(t testing.TB, op *ir.Op, s ir.Sample, g *gradients) {
	seeded := func(o int) bool { return g.seed[o] }
	for i := range s.In {
		one, err := differentiate(op, s, asConstants, seeded, func(j int) bool { return j == i })
		if err != nil {
			t.Errorf("gradient of input %d alone: %v", i, err)
			continue
		}
		compareGrads(t, fmt.Sprintf("gradient of input %d alone", i), one.in[i:i+1], g.in[i:i+1], 1e-12)
	}
	if len(g.seed) < 2 {
		return
	}
	sum := make([][]float64, len(g.in))
	for o := range g.up {
		if !g.seed[o] {
			continue
		}
		one, err := differentiate(op, s, asConstants, func(p int) bool { return p == o }, all)
		if err != nil {
			t.Errorf("with the gradient of output %d alone: %v", o, err)
			return
		}
		for i, x := range one.in {
			if x == nil {
				continue
			}
			if sum[i] == nil {
				sum[i] = make([]float64, x.Len())
			}
			for k, v := range x.Floats() {
				sum[i][k] += v
			}
		}
	}
	for i, x := range g.in {
		if x == nil || sum[i] == nil {
			continue
		}
		if diff := compareFloats(sum[i], x.Floats(), 1e-6); diff != "" {
			t.Errorf("gradient of input %d: output by output: %s", i, diff)
		}
	}
}

// checkSymbolic builds the backward graph with symbols for extents and holds
// its values against the static one's. A rule may refuse, naming the dims.
func checkSymbolic(t testing.TB, op *ir.Op, s ir.Sample, g *gradients) {
	seeded := func(o int) bool { return g.seed[o] }
	for _, m := range []mode{sharedSymbols, ownSymbols} {
		sym, err := differentiate(op, s, m, seeded, all)
		switch {
		case err != nil && m == sharedSymbols && !strings.HasPrefix(err.Error(), "gradient rule") && !hasEmpty(s):
			t.Errorf("with %s: %v", m, err)
			continue
		case err != nil: // among them extents that are equal but have different symbols
			t.Logf("refused with %s: %v", m, err)
			continue
		}
		compareGrads(t, fmt.Sprintf("gradient with %s", m), sym.in, g.in, 1e-9)
	}
}

// hasEmpty reports whether an input has no elements. A Reshape to a run-time
// shape takes a 0 there for "as before".
func hasEmpty(s ir.Sample) bool {
	return slices.ContainsFunc(s.In, func(x *ir.Tensor) bool { return x != nil && x.Len() == 0 })
}

// refusedOpset is how a rule says that an opset has no means for it.
var refusedOpset = regexp.MustCompile("came with opset|has no form in opset")

// checkOpsets builds the backward graph in the opsets that exporters write:
// a rule may use what its opset has alone.
func checkOpsets(t testing.TB, op *ir.Op, s ir.Sample, g *gradients) {
	want, err := g.b.eval()
	if err != nil || s.Version != 0 {
		return
	}
	for _, opset := range []int{9, 11, 13, 17, 18, 21} {
		b, err := buildAt(op, s, asConstants, opset)
		if err != nil {
			continue // the operator is younger, or had another form
		}
		if y, err := b.eval(); err != nil || !slices.EqualFunc(y, want, sameBits) {
			continue // or another meaning
		}
		got, err := differentiateAt(op, s, asConstants, opset, func(o int) bool { return g.seed[o] }, all)
		switch {
		case err != nil && refusedOpset.MatchString(err.Error()):
			continue
		case err != nil:
			t.Errorf("gradient in opset %d: %v", opset, err)
			continue
		}
		for i := range s.NoGradCheck {
			got.in[i] = g.in[i]
		}
		compareGrads(t, fmt.Sprintf("gradient in opset %d", opset), got.in, g.in, 1e-12)
	}
}

// checkShorter builds the backward graph for a shorter type: gradients keep
// the stored type and stay near.
func checkShorter(t testing.TB, op *ir.Op, s ir.Sample, d ir.DType, g *gradients) {
	short, ok := retyped(op, s, d)
	if !ok {
		return
	}
	seeded := func(o int) bool { return g.seed[o] }
	got, err := differentiate(op, short, asConstants, seeded, all)
	if err != nil {
		t.Errorf("gradient in %s: %v", d, err)
		return
	}
	if d == ir.Float { // halves lose too much in the intermediate values
		compareGrads(t, "gradient in float", got.in, g.in, 2e-4)
	}
}

func compareGrads(t testing.TB, what string, got, want []*ir.Tensor, tol float64) {
	t.Helper()
	for i := range want {
		var a, b []float64
		switch {
		case got[i] == nil && want[i] == nil:
			continue
		case got[i] != nil && want[i] != nil:
			a, b = got[i].Floats(), want[i].Floats()
		case got[i] != nil:
			a, b = got[i].Floats(), make([]float64, got[i].Len())
		default:
			a, b = make([]float64, want[i].Len()), want[i].Floats()
		}
		if diff := compareFloats(a, b, tol); diff != "" {
			t.Errorf("%s: input %d: %s", what, i, diff)
		}
	}
}

// retyped is the sample with its double inputs in another type; ok is false
// where the operator does not take it.
func retyped(op *ir.Op, s ir.Sample, d ir.DType) (ir.Sample, bool) {
	m := s
	m.In = slices.Clone(s.In)
	m.Want = nil
	changed := false
	for i, x := range s.In {
		if absent(s, i) || x.DType != ir.Double {
			continue
		}
		p, _ := port(op.In, i)
		if set, ok := portTypes(op, p); !ok || !set.Has(d) {
			return s, false
		}
		m.In[i] = ir.FromFloats(d, x.Floats(), x.Dims...)
		changed = true
	}
	if !changed {
		return s, false
	}
	if _, err := build(op, m, asConstants); err != nil {
		return s, false
	}
	return m, true
}

package ops

import (
	"bytes"
	cmdline "flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
)

// The driver runs every sample of every operator through every promise of its
// declaration. Nothing lists operators: a new file is found by itself.
//
//	go test ./ir/ops -ops 'Softmax|^Add$'
//
// looks at those operators alone.
var (
	opsFlag = cmdline.String("ops", "", "regular expression of the operators that the driver looks at (\"com.microsoft::Gelu\")")
	update  = cmdline.Bool("update", false, "rewrite the generated pages instead of comparing them")
)

// newestOpset is the default domain's version in a graph around a sample that
// names none.
const newestOpset = 24

// selected lists the operators that -ops selects.
func selected(t *testing.T) []*ir.Op {
	re, err := regexp.Compile(*opsFlag)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(ir.Operators(), func(op *ir.Op) bool {
		return op.Domain == "test" || !re.MatchString(ir.FullOp(op.Domain, op.Name))
	})
}

// eachSample runs f as one subtest for every sample of every operator.
func eachSample(t *testing.T, f func(t *testing.T, op *ir.Op, s ir.Sample)) {
	for _, op := range selected(t) {
		t.Run(ir.FullOp(op.Domain, op.Name), func(t *testing.T) {
			for _, s := range op.Samples() {
				t.Run(s.Name, func(t *testing.T) { f(t, op, s) })
			}
		})
	}
}

// checkEach is eachSample of a check that a recorder can run, too.
func checkEach(t *testing.T, check func(t testing.TB, op *ir.Op, s ir.Sample)) {
	eachSample(t, func(t *testing.T, op *ir.Op, s ir.Sample) { check(t, op, s) })
}

func TestSamplesNamed(t *testing.T) {
	for _, op := range selected(t) {
		seen := map[string]bool{}
		samples := op.Samples()
		if len(samples) == 0 && withoutSamples[ir.FullOp(op.Domain, op.Name)] == "" {
			t.Errorf("%s has no samples", ir.FullOp(op.Domain, op.Name))
		}
		for _, s := range samples {
			if s.Name == "" || seen[s.Name] {
				t.Errorf("%s: sample name %q is empty or used twice", ir.FullOp(op.Domain, op.Name), s.Name)
			}
			seen[s.Name] = true
		}
	}
}

// withoutSamples lists the operators that a sample, a node of tensors, cannot
// describe.
var withoutSamples = map[string]string{
	"ImageDecoder":                       "it is refused: image formats are not decoded",
	"com.microsoft::BeamSearch":          "it is refused: a search with subgraphs of its own kind",
	"ai.onnx.preview.training::Gradient": "inputs are values of the graph it differentiates",
}

// TestInfer holds inference against evaluation, however much of the inputs is
// known: everything, types alone, symbols for dims, no ranks.
func TestInfer(t *testing.T) { checkEach(t, inferSample) }

func inferSample(t testing.TB, op *ir.Op, s ir.Sample) {
	checkPorts(t, op, s)
	want := mustEval(t, mustBuild(t, op, s, asConstants))
	for _, m := range []mode{asConstants, asInputs, ownSymbols, sharedSymbols, unranked} {
		b, err := build(op, s, m)
		if err != nil {
			if m != unranked { // a rule may need ranks, and say so
				t.Errorf("inference with %s: %v", m, err)
			}
			continue
		}
		for i, v := range b.node.Out {
			if v != nil {
				checkInferred(t, fmt.Sprintf("%s, output %d", m, i), b, v, want[i])
			}
		}
	}
	checkBadNodes(t, op, s)
}

// checkPorts holds the sample's types against the declared ones.
func checkPorts(t testing.TB, op *ir.Op, s ir.Sample) {
	bound := map[string]ir.DType{}
	for i, x := range s.In {
		if absent(s, i) {
			continue
		}
		p, ok := port(op.In, i)
		if !ok {
			t.Errorf("the sample has an input %d but the operator declares %d", i, len(op.In))
			return
		}
		set, ok := portTypes(op, p)
		if !ok {
			t.Errorf("input %s has type %q, which Types does not bind", p.Name, p.Type)
			return
		}
		if !set.Has(x.DType) {
			t.Errorf("input %d (%s) is %s, which %s does not allow", i, p.Name, x.DType, p.Type)
		}
		if d, ok := bound[p.Type]; ok && d != x.DType && !p.Variadic {
			t.Errorf("type variable %s is %s and %s", p.Type, d, x.DType)
		}
		bound[p.Type] = x.DType
	}
}

// port is the formal port of position i; the last one repeats if variadic.
func port(ps []ir.Port, i int) (ir.Port, bool) {
	if i < len(ps) {
		return ps[i], true
	}
	if n := len(ps); n > 0 && ps[n-1].Variadic {
		return ps[n-1], true
	}
	return ir.Port{}, false
}

// portTypes is the set of element types a port takes.
func portTypes(op *ir.Op, p ir.Port) (ir.DTypeSet, bool) {
	if set, ok := op.Types[p.Type]; ok {
		return set, true
	}
	name, ok := strings.CutPrefix(p.Type, "tensor(")
	if !ok {
		return 0, false
	}
	d, ok := ir.ParseDType(strings.TrimSuffix(name, ")"))
	return ir.SetOf(d), ok
}

// checkInferred compares an inferred type and known elements with the value.
func checkInferred(t testing.TB, what string, b *built, v *ir.Value, got ir.Datum) {
	t.Helper()
	x, ok := got.(*ir.Tensor)
	if !ok {
		return
	}
	typ := v.Type.Bind(b.env)
	if typ.Kind == ir.OptionalKind {
		typ = *typ.Elem
	}
	if typ.Kind == ir.NoType && b.mode == unranked {
		return
	}
	if typ.Kind != ir.TensorKind || typ.DType != x.DType && !(typ.DType == ir.Undefined && b.mode == unranked) {
		t.Errorf("%s: inferred %s, evaluated %s", what, v.Type, x.Type())
		return
	}
	if typ.Shape.Ranked && typ.Shape.Rank() != len(x.Dims) {
		t.Errorf("%s: inferred %s, evaluated %s", what, v.Type, x.Type())
		return
	}
	for a, d := range typ.Shape.Dims {
		if n, ok := d.Int(); ok && n != x.Dims[a] {
			t.Errorf("%s: inferred %s (axis %d is %d), evaluated %s", what, v.Type, a, n, x.Type())
			return
		}
	}
	if v.Ints == nil {
		return
	}
	vals := x.Ints()
	if len(vals) != len(v.Ints) {
		t.Errorf("%s: %d known elements of %d", what, len(v.Ints), len(vals))
		return
	}
	for i, d := range v.Ints {
		if n, ok := d.Bind(b.env).Int(); ok && n != vals[i] {
			t.Errorf("%s: element %d inferred as %s = %d, evaluated %d", what, i, d, n, vals[i])
		}
	}
}

// checkBadNodes hands the rules nodes that no valid model has. Any error will
// do; a panic will not.
func checkBadNodes(t testing.TB, op *ir.Op, s ir.Sample) {
	try := func(what string, s ir.Sample) {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic on a bad node (%s): %v", what, r)
			}
		}()
		if b, err := build(op, s, asConstants); err == nil {
			op.Axes(b.node)
		}
	}
	for i, a := range s.Attrs {
		bad := []ir.Attr{ir.IntAttr(a.Name, 99), ir.IntAttr(a.Name, -99), ir.IntsAttr(a.Name), ir.IntsAttr(a.Name, 7, -9, 7, 7, 0)}
		for _, b := range append(bad, ir.StringAttr(a.Name, "no such thing")) {
			m := s
			m.Attrs = slices.Clone(s.Attrs)
			m.Attrs[i] = b
			try(fmt.Sprintf("attribute %s", a.Name), m)
		}
	}
	for i, x := range s.In {
		if absent(s, i) || x.DType == ir.String {
			continue
		}
		for _, dims := range [][]int64{{}, {2}, {1, 1, 1, 1, 1, 1, 1}, {0}} {
			m := s
			m.In = slices.Clone(s.In)
			m.In[i] = ir.NewTensor(x.DType, dims...)
			try(fmt.Sprintf("input %d of shape %v", i, dims), m)
		}
		m := s
		m.In = s.In[:i]
		try(fmt.Sprintf("%d inputs", i), m)
	}
}

// TestEval compares evaluation with the sample's expected values, and with
// itself: a pure operator gives the same bits under any random stream.
func TestEval(t *testing.T) { checkEach(t, evalSample) }

func evalSample(t testing.TB, op *ir.Op, s ir.Sample) {
	b := mustBuild(t, op, s, asConstants)
	first := mustEval(t, b)
	b2 := mustBuild(t, op, s, asConstants)
	if pure, _ := op.Recompute.OK(); pure {
		b2.seed, b2.step = 99, 77
	}
	again := mustEval(t, b2)
	for i := range first {
		if !sameBits(first[i], again[i]) {
			t.Errorf("output %d differs between two evaluations; is the operator pure?", i)
		}
	}
	for i, w := range s.Want {
		if w == nil {
			continue
		}
		got, ok := first[i].(*ir.Tensor)
		if !ok {
			t.Errorf("output %d is missing", i)
			continue
		}
		if diff := compare(got, w, tolerance(w.DType)); diff != "" {
			t.Errorf("output %d: %s", i, diff)
		}
	}
}

// TestCost bounds what a node may claim to do.
func TestCost(t *testing.T) { checkEach(t, costSample) }

func costSample(t testing.TB, op *ir.Op, s ir.Sample) {
	b := mustBuild(t, op, s, asConstants)
	c, err := ir.NewNodeCtx(b.node)
	if err != nil {
		return // data-dependent sizes have no cost
	}
	cost := op.Cost(c)
	read, write := c.Traffic()
	if cost.FLOPs < 0 || cost.Workspace < 0 || cost.Read < 0 || cost.Write < 0 {
		t.Errorf("negative cost %+v", cost)
	}
	if cost.Unit == ir.NoCompute {
		if cost.FLOPs+cost.Read+cost.Write+cost.Workspace != 0 {
			t.Errorf("a node that does not compute costs %+v", cost)
		}
		return
	}
	// A copying operator (Expand) may read one element once for each
	// output element, never more.
	if cost.Read > max(read, write) {
		t.Errorf("reads %d bytes, inputs have %d and outputs %d", cost.Read, read, write)
	}
	if cost.Write != write {
		t.Errorf("writes %d bytes, outputs have %d", cost.Write, write)
	}
}

// TestAliases holds InPlace and View against the ports and the values.
func TestAliases(t *testing.T) { checkEach(t, aliasSample) }

func aliasSample(t testing.TB, op *ir.Op, s ir.Sample) {
	for _, a := range op.InPlace {
		if _, ok := port(op.In, a.In); !ok {
			t.Errorf("InPlace names input %d of %d", a.In, len(op.In))
		}
		if _, ok := port(op.Out, a.Out); !ok {
			t.Errorf("InPlace names output %d of %d", a.Out, len(op.Out))
		}
	}
	if op.View == nil {
		return
	}
	b := mustBuild(t, op, s, asConstants)
	out := mustEval(t, b)
	for i := range b.node.Out {
		in := op.View(b.node, i)
		if in < 0 {
			continue
		}
		x, y := b.args[in].(*ir.Tensor), out[i].(*ir.Tensor)
		if !bytes.Equal(x.Data, y.Data) {
			t.Errorf("output %d is declared a view of input %d but holds other bytes", i, in)
		}
	}
}

// TestRegisterRefuses deletes one mandatory field after the other.
func TestRegisterRefuses(t *testing.T) {
	whole := *ir.Lookup("", "Add")
	whole.Domain = "test"
	for _, tc := range []struct {
		field  string
		remove func(*ir.Op)
	}{
		{"Name", func(op *ir.Op) { op.Name = "" }},
		{"Doc", func(op *ir.Op) { op.Doc = "" }},
		{"Since", func(op *ir.Op) { op.Since = nil }},
		{"Infer", func(op *ir.Op) { op.Infer = nil }},
		{"Axes", func(op *ir.Op) { op.Axes = nil }},
		{"Cost", func(op *ir.Op) { op.Cost = nil }},
		{"Grad", func(op *ir.Op) { op.Grad = ir.Grad{} }},
		{"Recompute", func(op *ir.Op) { op.Recompute = ir.Recompute{} }},
		{"Eval", func(op *ir.Op) { op.Eval = nil }},
		{"Kernel", func(op *ir.Op) { op.Kernel = ir.KernelRule{} }},
		{"Samples", func(op *ir.Op) { op.Samples = nil }},
	} {
		op := whole
		tc.remove(&op)
		message := func() (r any) {
			defer func() { r = recover() }()
			ir.Register(op)
			return nil
		}()
		text := fmt.Sprint(message)
		if !strings.Contains(text, tc.field) || op.Name != "" && !strings.Contains(text, "test::Add") {
			t.Errorf("without %s: got %v, want a panic naming operator and field", tc.field, message)
		}
	}
}

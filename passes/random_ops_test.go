package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/onnx"
	"memoc/passes"
	"memoc/passes/cost"
)

// opsGraph is a random valid graph with values for its inputs. Equal seeds
// and sizes give equal graphs, and a smaller size gives a beginning of it.
type opsGraph struct {
	model *ir.Model
	in    map[string]ir.Datum
	loss  string // "" if nothing in it is differentiable
}

// randomMaker makes graphs of the samples of all operators, glued to one
// another by moves of data, and of plain nodes of random shapes.
type randomMaker struct {
	r     *rand.Rand
	g     *ir.Graph
	b     *ir.Builder
	in    map[string]ir.Datum
	float ir.DType
	pool  []*ir.Value // tensors of the type float
	other []*ir.Value // all others
	extra int
	only  func(*ir.Op) bool
}

// randomChoice is an operator with a sample of it.
type randomChoice struct {
	op *ir.Op
	s  ir.Sample
}

func hasSubgraphs(s ir.Sample) bool {
	return len(s.Seqs) > 0 || slices.ContainsFunc(s.Attrs, func(a ir.Attr) bool { return a.Kind == ir.AttrGraph || a.Kind == ir.AttrGraphs })
}

func (k *randomMaker) choices() []randomChoice {
	var out []randomChoice
	for _, op := range ir.Operators() {
		if k.only != nil && !k.only(op) {
			continue
		}
		opset, imported := k.g.Opsets[op.Domain]
		if !imported || op.Younger(opset) {
			continue
		}
		for _, s := range op.Samples() {
			if hasSubgraphs(s) || s.Version != 0 && op.SinceVersion(s.Version) != op.SinceVersion(opset) ||
				s.Version == 0 && op.SinceVersion(opset) != op.Since[len(op.Since)-1] {
				continue
			}
			out = append(out, randomChoice{op, s})
		}
	}
	return out
}

// trains reports whether a gradient passes an operator or stops at it by
// rights.
func trains(op *ir.Op) bool {
	return !strings.HasSuffix(op.Name, "Grad") && !strings.HasSuffix(op.Name, "Grad_13") && op.Name != "YieldOp" && op.Name != "BiasDropout" &&
		(op.Grad.Rule != nil || ir.IsCut(op.Grad.None))
}

// inDouble is a sample with its floats as doubles, where the operator has a
// form for them.
func inDouble(c randomChoice) (randomChoice, bool) {
	for _, set := range c.op.Types {
		if set.Has(ir.Float) && !set.Has(ir.Double) {
			return c, false
		}
	}
	if len(c.s.NoGradCheck) > 0 {
		return c, false
	}
	if slices.ContainsFunc(c.s.Attrs, func(a ir.Attr) bool { return a.Kind == ir.AttrTensor || a.Name == "to" || a.Name == "dtype" }) {
		return c, false
	}
	c.s.In = slices.Clone(c.s.In)
	for i, x := range c.s.In {
		if x == nil {
			continue
		}
		if x.DType == ir.Float {
			c.s.In[i] = ir.FromFloats(ir.Double, x.Floats(), x.Dims...)
		} else if x.DType.IsFloat() && x.DType != ir.Double {
			return c, false
		}
	}
	return c, true
}

func makeRandom(seed uint64, size int, only func(*ir.Op) bool) *opsGraph {
	return makeRandomOf(seed, size, only, 0)
}

func makeRandomOf(seed uint64, size int, only func(*ir.Op) bool, float ir.DType) *opsGraph {
	out, err := tryRandom(seed, size, only, float)
	if err != nil {
		panic(err)
	}
	return out
}

func tryRandom(seed uint64, size int, only func(*ir.Op) bool, float ir.DType) (out *opsGraph, err error) {
	defer ir.Catch(&err)
	r := rand.New(rand.NewPCG(seed, 7))
	opset := []int{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23}[r.IntN(15)]
	g := ir.NewGraph("random", map[string]int{"": opset, ir.MsDomain: 1, ir.MemocDomain: 1})
	k := &randomMaker{r: r, g: g, in: map[string]ir.Datum{}, float: ir.Float, only: only}
	k.b = ir.NewBuilder(ir.NewEdit(g))
	if r.IntN(5) == 0 {
		k.float = ir.Double
	}
	if float != 0 {
		k.float = float
	}
	for range 1 + r.IntN(3) {
		k.leaf(k.dims())
	}
	list := k.choices()
	if float == ir.Double {
		var doubles []randomChoice
		for _, c := range list {
			if d, ok := inDouble(c); ok {
				doubles = append(doubles, d)
			}
		}
		list = doubles
	}
	for i := range size {
		k.extra = i
		k.step(list)
	}
	k.b.Edit.Done()
	out = &opsGraph{model: &ir.Model{IRVersion: 10, Opsets: g.Opsets, Graph: g}, in: k.in}
	k.outputs(out)
	return out, nil
}

func (k *randomMaker) dims() []int64 {
	var dims []int64
	for range k.r.IntN(4) {
		dims = append(dims, []int64{1, 2, 3, 4, 5, 8, 64}[k.r.IntN(7)])
	}
	if k.r.IntN(40) == 0 && len(dims) > 0 {
		dims[k.r.IntN(len(dims))] = 0
	}
	return dims
}

func (k *randomMaker) tensor(dims []int64) *ir.Tensor {
	t := ir.NewTensor(k.float, dims...)
	vals := make([]float64, t.Len())
	for i := range vals {
		vals[i] = k.r.Float64()*2 - 1
	}
	ir.SetFloats(t, vals)
	return t
}

// leaf is a weight, a constant or an input.
func (k *randomMaker) leaf(dims []int64) *ir.Value {
	v := k.leafOf(k.tensor(dims), "x")
	k.keep(v)
	return v
}

func (k *randomMaker) leafOf(t *ir.Tensor, base string) *ir.Value {
	switch k.r.IntN(3) {
	case 0:
		v := k.g.AddInput(k.g.Fresh(base), t.Type())
		k.in[v.Name] = t
		return v
	}
	return k.g.AddInit(k.g.Fresh(base+"_w"), ir.WeightOf(t))
}

func (k *randomMaker) keep(v *ir.Value) {
	if v.Type.IsTensor() && v.Type.DType == k.float {
		if _, ok := v.Type.Shape.Static(); ok {
			k.pool = append(k.pool, v)
			return
		}
	}
	k.other = append(k.other, v)
}

// pick is a value of the pool, the youngest by preference.
func (k *randomMaker) pick() *ir.Value {
	if n := len(k.pool); n > 3 && k.r.IntN(2) == 0 {
		return k.pool[n-1-k.r.IntN(3)]
	}
	return k.pool[k.r.IntN(len(k.pool))]
}

func (k *randomMaker) step(list []randomChoice) {
	if k.r.IntN(3) == 0 {
		k.sample(list[k.r.IntN(len(list))])
		return
	}
	k.plain()
}

func dimsOf(v *ir.Value) []int64 {
	dims, _ := v.Type.Shape.Static()
	return dims
}

func count(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// fit makes a tensor of the given shape out of v by moving data.
func (k *randomMaker) fit(v *ir.Value, dims []int64) *ir.Value {
	if slices.Equal(dimsOf(v), dims) {
		return v
	}
	have, want := count(dimsOf(v)), count(dims)
	if want == 0 || have == 0 {
		return k.g.AddInit(k.g.Fresh("fill"), ir.WeightOf(k.tensor(dims)))
	}
	flat := k.b.Reshape(v, have)
	switch {
	case have > want:
		at := k.r.Int64N(have - want + 1)
		flat = k.b.SliceAxis(flat, 0, at, at+want, 1)
	case have < want && k.r.IntN(2) == 0:
		flat = k.b.Op("Tile", []*ir.Value{flat, k.b.Int64s((want + have - 1) / have)})
		flat = k.b.SliceAxis(flat, 0, 0, want, 1)
	case have < want:
		flat = k.b.Pad(flat, []int64{0}, []int64{want - have})
	}
	return k.b.Reshape(flat, dims...)
}

// sample appends a sample's node, its floating-point inputs moved a little by
// what is in the pool.
func (k *randomMaker) sample(c randomChoice) {
	var in []*ir.Value
	for i, x := range c.s.In {
		if x == nil || slices.Contains(c.s.Absent, i) {
			in = append(in, nil)
			continue
		}
		switch {
		case x.DType == k.float && k.r.IntN(3) > 0 && len(k.pool) > 0:
			moved := k.fit(k.pick(), x.Dims)
			bounded := k.b.MulScalar(k.b.Op("Tanh", []*ir.Value{moved}), 1.0/64)
			in = append(in, k.b.Add(k.g.AddInit(k.g.Fresh("s_w"), ir.WeightOf(x)), bounded))
		case x.DType.IsFloat():
			in = append(in, k.leafOf(x, "s"))
		default:
			in = append(in, k.g.AddInit(k.g.Fresh("i"), ir.WeightOf(x)))
		}
	}
	n := max(c.s.NumOut, 0)
	if n == 0 {
		for _, p := range c.op.Out {
			if !p.Optional {
				n++
			}
		}
	}
	var out []string
	for i := range n {
		out = append(out, k.g.Fresh(fmt.Sprintf("%s%d.%d", c.op.Name, k.extra, i)))
	}
	k.add(c.op.Domain, c.op.Name, in, out, c.s.Attrs...)
}

func (k *randomMaker) add(domain, op string, in []*ir.Value, out []string, attrs ...ir.Attr) {
	for _, v := range k.b.Node(domain, op, in, out, slices.Clone(attrs)...).Out {
		if v != nil {
			k.keep(v)
		}
	}
}

func (k *randomMaker) op(op string, in []*ir.Value, attrs ...ir.Attr) {
	k.add("", op, in, []string{k.g.Fresh(fmt.Sprintf("%s%d", op, k.extra))}, attrs...)
}

// broadcastable is a random shape that broadcasts with dims.
func (k *randomMaker) broadcastable(dims []int64) []int64 {
	out := slices.Clone(dims[k.r.IntN(len(dims)+1):])
	for i := range out {
		if k.r.IntN(3) == 0 {
			out[i] = 1
		}
	}
	return out
}

func (k *randomMaker) plain() {
	v := k.pick()
	dims := dimsOf(v)
	rank := int64(len(dims))
	axis := func() int64 {
		a := k.r.Int64N(rank)
		if k.r.IntN(2) == 0 {
			a -= rank
		}
		return a
	}
	partner := func(dims []int64) *ir.Value {
		if k.r.IntN(2) == 0 {
			return k.leaf(dims)
		}
		return k.fit(k.pick(), dims)
	}
	kind := k.r.IntN(24)
	if rank == 0 && kind > 8 {
		kind = k.r.IntN(8)
	}
	switch kind {
	case 0, 1:
		ops := []string{"Relu", "Tanh", "Sigmoid", "Neg", "Identity", "Erf", "Softplus", "Abs", "Elu"}
		if k.float == ir.Double {
			ops = ops[:5]
		}
		k.op(ops[k.r.IntN(len(ops))], []*ir.Value{v})
	case 2, 3:
		a, b := v, partner(k.broadcastable(dims))
		if k.r.IntN(2) == 0 {
			a, b = b, a
		}
		k.op([]string{"Add", "Sub", "Mul"}[k.r.IntN(3)], []*ir.Value{a, b})
	case 4:
		k.op("Add", []*ir.Value{v, v})
	case 5:
		w := partner(k.broadcastable(dims))
		c := k.b.Greater(v, w)
		k.keep(c)
		k.op("Where", []*ir.Value{c, v, w})
	case 6:
		k.op("Sum", []*ir.Value{v, partner(dims), partner(k.broadcastable(dims))})
	case 7:
		k.keep(k.b.Unsqueeze(v, k.r.Int64N(rank+1)))
	case 8:
		if count(dims) > 0 {
			k.keep(k.b.Reshape(v, count(dims)))
		}
	case 9:
		m := 1 + k.r.Int64N(6)
		k.op("MatMul", []*ir.Value{v, partner([]int64{dims[rank-1], m})})
	case 10:
		if rank < 2 {
			v = k.b.Unsqueeze(v, 0)
			dims = dimsOf(v)
			rank = 2
		}
		w := append(slices.Clone(dims[:rank-2]), dims[rank-1], 1+k.r.Int64N(5))
		k.op("MatMul", []*ir.Value{v, partner(w)})
	case 11:
		var perm []int64
		for _, p := range k.r.Perm(int(rank)) {
			perm = append(perm, int64(p))
		}
		k.op("Transpose", []*ir.Value{v}, ir.IntsAttr("perm", perm...))
	case 12:
		a := axis()
		n := dims[(a+rank)%rank]
		if n == 0 {
			return
		}
		lo := k.r.Int64N(n)
		step := 1 + k.r.Int64N(2)
		if k.b.Opset() < 10 {
			a, step = (a+rank)%rank, 1
		}
		k.keep(k.b.SliceAxis(v, a, lo, lo+1+k.r.Int64N(n), step))
	case 13:
		if k.b.Opset() < 10 {
			return
		}
		k.keep(k.b.ReverseAxis(v, k.r.Int64N(rank)))
	case 14:
		k.op("Concat", []*ir.Value{v, partner(dims), v}[:2+k.r.IntN(2)], ir.IntAttr("axis", axis()))
	case 15:
		a := axis()
		if k.b.Opset() < 11 {
			a = (a + rank) % rank
		}
		n := dims[(a+rank)%rank]
		if n < 2 {
			return
		}
		cut := 1 + k.r.Int64N(n-1)
		out := []string{k.g.Fresh(fmt.Sprintf("Split%d.0", k.extra)), k.g.Fresh(fmt.Sprintf("Split%d.1", k.extra))}
		if k.b.Opset() < 13 {
			k.add("", "Split", []*ir.Value{v}, out, ir.IntAttr("axis", a), ir.IntsAttr("split", cut, n-cut))
			return
		}
		k.add("", "Split", []*ir.Value{v, k.b.Int64s(cut, n-cut)}, out, ir.IntAttr("axis", a))
	case 16:
		a := axis()
		n := dims[(a+rank)%rank]
		if n == 0 {
			return
		}
		idx := make([]int64, 1+k.r.IntN(4))
		for i := range idx {
			idx[i] = k.r.Int64N(2*n) - n
		}
		k.op("Gather", []*ir.Value{v, k.b.Int64s(idx...)}, ir.IntAttr("axis", a))
	case 17:
		a := axis()
		if dims[(a+rank)%rank] == 0 {
			return
		}
		switch k.r.IntN(3) {
		case 0:
			k.keep(k.b.ReduceSum(v, k.r.IntN(2) == 0, a))
		case 1:
			k.keep(k.b.ReduceMean(v, k.r.IntN(2) == 0, a))
		default:
			k.keep(k.b.ReduceMax(v, k.r.IntN(2) == 0, a))
		}
	case 18:
		k.op([]string{"Softmax", "LogSoftmax"}[k.r.IntN(2)], []*ir.Value{v}, ir.IntAttr("axis", axis()))
	case 19:
		if k.b.Opset() < 17 || dims[rank-1] == 0 {
			return
		}
		k.op("LayerNormalization", []*ir.Value{v, partner(dims[rank-1:]), partner(dims[rank-1:])}, ir.IntAttr("axis", -1))
	case 20:
		big := append([]int64{2}, dims...)
		k.op("Expand", []*ir.Value{v, k.b.Int64s(big...)})
	case 21:
		n := len(dims)
		i := k.r.IntN(n)
		if i+1 < n && count(dims) > 0 {
			k.keep(k.b.Reshape(v, slices.Concat(dims[:i], []int64{dims[i] * dims[i+1]}, dims[i+2:])...))
			return
		}
		k.op("Flatten", []*ir.Value{v}, ir.IntAttr("axis", int64(i)))
	case 22:
		if k.b.Opset() < 12 || k.only != nil && !k.only(ir.Lookup("", "Dropout")) {
			return
		}
		out := []string{k.g.Fresh(fmt.Sprintf("Dropout%d.0", k.extra)), k.g.Fresh(fmt.Sprintf("Dropout%d.1", k.extra))}
		k.add("", "Dropout", []*ir.Value{v, k.b.Scalar(ir.Float, 0.25), k.b.Const(ir.FromInts(ir.Bool, []int64{1}))}, out[:1+k.r.IntN(2)])
	case 23:
		if rank != 2 {
			v = k.b.Op("Flatten", []*ir.Value{v}, ir.IntAttr("axis", k.r.Int64N(rank+1)))
			dims = dimsOf(v)
		}
		n := 1 + k.r.Int64N(5)
		k.op("Gemm", []*ir.Value{v, partner([]int64{n, dims[1]}), partner(k.broadcastable([]int64{dims[0], n}))}, ir.IntAttr("transB", 1), ir.FloatAttr("alpha", 0.5))
	}
}

// outputs chooses outputs and makes a loss: the sum of what nothing reads (or
// some of it), each weighted, so that every gradient counts.
func (k *randomMaker) outputs(out *opsGraph) {
	k.b = ir.NewBuilder(ir.NewEdit(k.g))
	var loss *ir.Value
	for _, v := range k.pool {
		if len(v.Uses()) > 0 && k.r.IntN(6) > 0 || count(dimsOf(v)) == 0 {
			continue
		}
		part := k.b.Mul(v, k.g.AddInit(k.g.Fresh("lw"), ir.WeightOf(k.tensor(dimsOf(v)))))
		part = k.b.Reshape(part, count(dimsOf(v)))
		part = k.b.ReduceSum(part, false, 0)
		if loss == nil {
			loss = part
		} else {
			loss = k.b.Add(loss, part)
		}
	}
	all := slices.Concat(k.pool, k.other)
	for range 1 + k.r.IntN(4) {
		v := all[k.r.IntN(len(all))]
		if v.Type.IsTensor() && !slices.Contains(k.g.Outputs, v) {
			k.g.Outputs = append(k.g.Outputs, v)
		}
	}
	if loss != nil {
		out.loss = loss.Name
		if !slices.Contains(k.g.Outputs, loss) {
			k.g.Outputs = append(k.g.Outputs, loss)
		}
	}
	k.b.Edit.Done()
}

// randomDevice is a profile with odd rates.
func randomDevice(t testing.TB, r *rand.Rand) *cost.Device {
	base, err := cost.LoadDevice("h100")
	if err != nil {
		t.Fatal(err)
	}
	d := *base
	pick := func(xs ...float64) float64 { return xs[r.IntN(len(xs))] }
	d.OutGBps, d.InGBps = pick(1e-3, 0.1, 55, 1e6), pick(1e-3, 0.1, 55, 1e6)
	d.CopyLatency, d.Launch = int64(pick(0, 1, 10, 10000)), int64(pick(0, 1, 3000, 100000))
	d.MemoryGBps = pick(0.01, 1, 3350)
	return &d
}

type randomRun struct {
	t    testing.TB
	seed uint64
	size int
	only func(*ir.Op) bool
}

func (x *randomRun) fresh() *opsGraph { return makeRandom(x.seed, x.size, x.only) }

// how runs the case and says what is wrong with it, "" if nothing.
func (x *randomRun) how() (how string) {
	defer func() {
		if p := recover(); p != nil {
			how = fmt.Sprintf("panic: %v", p)
		}
	}()
	r := rand.New(rand.NewPCG(x.seed, 99))
	s := x.fresh()
	if err := ir.Verify(s.model.Graph); err != nil {
		return "generator: " + err.Error()
	}
	original, err := eval.Graph(s.model.Graph, s.in, eval.Options{})
	if err != nil {
		return "the graph does not run: " + err.Error()
	}
	train := s.loss != "" && r.IntN(4) > 0
	opt := passes.Options{Train: train, Loss: s.loss, Device: randomDevice(x.t, r), HostBudget: -1}
	throughFile := r.IntN(2) == 0
	compileAt := func(stage passes.Stage, b passes.Budget, host int64) (*passes.Context, error) {
		m := x.fresh().model
		if throughFile {
			data, err := onnx.Encode(m)
			if err != nil {
				return nil, fmt.Errorf("BUG: encode: %w", err)
			}
			if m, _, err = onnx.Decode(data, "", onnx.Options{}); err != nil {
				return nil, fmt.Errorf("BUG: decode: %w", err)
			}
		}
		o := opt
		o.Budget, o.HostBudget = b, host
		c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
		return c, (&passes.Runner{}).RunUntil(c, stage)
	}
	base, err := compileAt(passes.Analyze, passes.Budget{}, -1)
	if err != nil && os.Getenv("MEMOC_RANDOM") != "" {
		fmt.Printf("note: seed %d: %.300v\n", x.seed, err)
	}
	if err != nil && train && acceptable(err) {
		train, opt.Train, opt.Loss = false, false, ""
		base, err = compileAt(passes.Analyze, passes.Budget{}, -1)
	}
	if err != nil {
		if acceptable(err) {
			return ""
		}
		return "compile: " + err.Error()
	}
	want := make([]map[string]ir.Datum, 2)
	for i := range want {
		if want[i], err = eval.Graph(base.Graph, s.in, eval.Options{Step: uint64(i)}); err != nil {
			return "the compiled graph does not run: " + err.Error()
		}
	}
	if how := sameForward(s, original, want[0], train); how != "" {
		return how
	}
	return x.budgets(r, s, compileAt, want)
}

func (x *randomRun) budgets(r *rand.Rand, s *opsGraph, compileAt func(passes.Stage, passes.Budget, int64) (*passes.Context, error), want []map[string]ir.Datum) string {
	for _, host := range []int64{-1, 0, int64(r.IntN(4096))} {
		_, err := compileAt(passes.Place+1, passes.Budget{Bytes: 1}, host)
		var inf *passes.Infeasible
		budgets := []passes.Budget{{}, {Share: r.Float64()}}
		if errors.As(err, &inf) {
			if inf.Smallest > 0 {
				budgets = append(budgets, passes.Budget{Bytes: inf.Smallest})
			}
		} else if err != nil && !acceptable(err) {
			return fmt.Sprintf("host %d, budget 1: %v", host, err)
		}
		for _, b := range budgets {
			c, err := compileAt(passes.Place+1, b, host)
			if errors.As(err, &inf) && b.Share > 0 {
				continue
			}
			if err != nil && acceptable(err) && inf == nil {
				return ""
			}
			if err != nil {
				return fmt.Sprintf("host %d, budget %+v: %v", host, b, err)
			}
			for _, o := range []eval.Options{{Steps: 2}, {Order: 1 + r.Uint64N(1000)}, {Order: 1 + r.Uint64N(1000), Steps: 2}, {Order: 1 + r.Uint64N(1000), Blind: true, Steps: 2}} {
				if how := sameOutputs(c.Program, s.in, want[max(o.Steps, 1)-1], o); how != "" {
					return fmt.Sprintf("host %d, budget %+v, order %+v: %s", host, b, o, how)
				}
			}
		}
	}
	return ""
}

// acceptable are refusals by design: a gradient nobody derived, and types that
// are planned by no one.
func acceptable(err error) bool {
	return !bytes.Contains([]byte(err.Error()), []byte("BUG"))
}

// sameForward compares outputs before and after the passes that change the
// graph, up to rounding.
func sameForward(s *opsGraph, before, after map[string]ir.Datum, train bool) string {
	for name, a := range before {
		b, ok := after[name]
		if !ok {
			if train {
				continue // only the loss stays
			}
			return fmt.Sprintf("output %q is gone", name)
		}
		x, ok := a.(*ir.Tensor)
		y, ok2 := b.(*ir.Tensor)
		if !ok || !ok2 {
			continue
		}
		if !x.Type().Equal(y.Type()) {
			return fmt.Sprintf("output %q had the type %s and has %s", name, x.Type(), y.Type())
		}
		if !x.DType.IsFloat() {
			if !bytes.Equal(x.Data, y.Data) {
				return fmt.Sprintf("output %q differs after the passes", name)
			}
			continue
		}
		xs, ys := x.Floats(), y.Floats()
		for i := range xs {
			if !(math.Abs(xs[i]-ys[i]) <= 1e-4*(1+math.Abs(xs[i]))) && !(math.IsNaN(xs[i]) && math.IsNaN(ys[i])) && xs[i] != ys[i] {
				return fmt.Sprintf("output %q: element %d was %v and is %v after the passes", name, i, xs[i], ys[i])
			}
		}
	}
	return ""
}

// TestRandomOperators: whatever valid graph comes, differentiated where it can
// be, its plan at any budget on any device computes what the graph does, bit
// for bit. MEMOC_RANDOM=from:to runs other seeds.
func TestRandomOperators(t *testing.T) {
	from, to := randomSeeds(60)
	for seed := from; seed <= to; seed++ {
		x := &randomRun{t: t, seed: seed, size: 4 + int(seed%20)}
		if seed%2 == 1 {
			x.only = trains
		}
		how := x.how()
		if how == "" {
			continue
		}
		for size := 1; size < x.size; size++ { // the smallest beginning that fails
			y := *x
			y.size = size
			if h := y.how(); h != "" {
				how, x = h, &y
				break
			}
		}
		t.Errorf("seed %d, size %d: %.2000s", seed, x.size, how)
		if os.Getenv("MEMOC_RANDOM") != "" {
			fmt.Printf("seed %d, size %d: %.1200s\n", seed, x.size, how)
		}
		if os.Getenv("MEMOC_RANDOM_PRINT") != "" {
			t.Logf("%s", ir.PrintGraph(x.fresh().model.Graph, ir.TextOptions{}))
		}
	}
}

// randomSeeds is the range of seeds to run.
func randomSeeds(n uint64) (from, to uint64) {
	from, to = 1, n
	if a, b, ok := strings.Cut(os.Getenv("MEMOC_RANDOM"), ":"); ok {
		from, _ = strconv.ParseUint(a, 10, 64)
		to, _ = strconv.ParseUint(b, 10, 64)
	}
	return from, to
}

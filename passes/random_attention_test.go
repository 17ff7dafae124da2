package passes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// randomAttention is attention spelled out in one of very many ways, some of
// which are attention only nearly: another axis, a mask off by one, a mask
// that does not hide, scores that are read elsewhere.
func randomAttention(seed uint64) (out *opsGraph, err error) {
	defer ir.Catch(&err)
	r := rand.New(rand.NewPCG(seed, 11))
	g := ir.NewGraph("attention", map[string]int{"": []int{13, 17, 18, 20}[r.IntN(4)], ir.MsDomain: 1, ir.MemocDomain: 1})
	k := &randomMaker{r: r, g: g, in: map[string]ir.Datum{}, float: ir.Double}
	b := ir.NewBuilder(ir.NewEdit(g))
	k.b = b
	B, H, S, D := int64(1+r.IntN(2)), int64(1+r.IntN(3)), int64(2+r.IntN(4)), int64(1+r.IntN(4))
	T := S
	if r.IntN(3) == 0 {
		T = int64(2 + r.IntN(4))
	}
	one := func(p int) bool { return r.IntN(p) == 0 }
	weight := func(dims ...int64) *ir.Value { return g.AddInit(g.Fresh("w"), ir.WeightOf(k.tensor(dims))) }
	x := g.AddInput("x", ir.TensorOf(ir.Double, ir.Ints64(B, S, H*D)))
	k.in["x"] = k.tensor([]int64{B, S, H * D})
	heads := func(v *ir.Value, n int64) *ir.Value {
		return b.Transpose(b.Reshape(v, B, n, H, D), 0, 2, 1, 3)
	}
	q := heads(b.MatMul(x, weight(H*D, H*D)), S)
	var kk, v *ir.Value
	if T == S {
		kk, v = heads(b.MatMul(x, weight(H*D, H*D)), T), heads(b.MatMul(x, weight(H*D, H*D)), T)
	} else {
		kk, v = weight(B, H, T, D), weight(B, H, T, D)
	}
	if one(4) {
		kk = q
		T = S
		v = heads(x, S)
	}
	c := math.Sqrt(math.Sqrt(float64(D)))
	scale := func(s *ir.Value, by float64) *ir.Value {
		if one(2) {
			return b.Div(s, b.Scalar(ir.Double, 1/by))
		}
		return b.Mul(s, b.Scalar(ir.Double, by))
	}
	how := r.IntN(5)
	if how == 1 || how == 3 {
		q = scale(q, 1/c)
	}
	kt := b.Transpose(kk, 0, 1, 3, 2)
	if how == 1 {
		kt = scale(kt, 1/c)
	}
	scores := b.MatMul(q, kt)
	if how == 2 || how == 3 {
		scores = scale(scores, []float64{1 / (c * c), 1 / c, -0.5}[r.IntN(3)])
	}
	if how == 4 && one(2) {
		scores = b.Mul(scores, weight(H, 1, 1))
	}
	raw := scores
	hide := []float64{-1e9, math.Inf(-1), -1e4, -1, -math.MaxFloat32, 0}[r.IntN(6)]
	swallows := hide == -math.MaxFloat32
	off := int64(r.IntN(3)) - 1
	for range r.IntN(3) {
		shape := [][]int64{{S, T}, {1, 1, S, T}, {B, 1, S, T}, {B, 1, 1, T}, {1, H, S, T}, {T}}[r.IntN(6)]
		n := count(shape)
		on := make([]int64, n)
		kind := r.IntN(3)
		if swallows {
			kind = 1 // a row of nothing but swallowed scores has a gradient that no difference shows
		}
		for i := range on {
			row, col := int64(i)/T%S, int64(i)%T
			switch {
			case kind == 0 && len(shape) >= 2 && shape[len(shape)-2] == S:
				if col <= row+max(off, 0) {
					on[i] = 1
				}
			case kind == 1:
				if col == 0 || r.IntN(3) > 0 {
					on[i] = 1
				}
			default:
				on[i] = 1
			}
		}
		mask := ir.FromInts(ir.Bool, on, shape...)
		var cond *ir.Value
		if one(2) {
			cond = g.AddInput(g.Fresh("mask"), mask.Type())
			k.in[cond.Name] = mask
		} else {
			cond = b.Const(mask)
		}
		neg := b.Scalar(ir.Double, hide)
		switch r.IntN(4) {
		case 0:
			scores = b.Where(cond, scores, neg)
		case 1:
			scores = b.Where(b.Not(cond), neg, scores)
		case 2:
			scores = b.Add(scores, b.Where(cond, b.Scalar(ir.Double, 0), neg))
		case 3:
			if math.IsInf(hide, 0) {
				neg = b.Scalar(ir.Double, -1e5)
			}
			scores = b.Add(scores, b.Mul(b.Sub(b.Scalar(ir.Double, 1), b.Cast(cond, ir.Double)), neg))
		}
	}
	if one(3) {
		bias := weight([][]int64{{H, S, T}, {T}, {1, 1, S, T}, {S, 1}}[r.IntN(4)]...)
		scores = b.Add(scores, bias)
	}
	axis := int64(-1)
	switch a := r.IntN(8); {
	case a == 0 && !swallows:
		axis = 2
	case a == 1 || a == 2:
		axis = 3
	}
	p := b.Op("Softmax", []*ir.Value{scores}, ir.IntAttr("axis", axis))
	probs := p
	if one(8) {
		probs = b.Mul(p, p)
	}
	y := b.MatMul(probs, v)
	if one(2) {
		y = b.Reshape(b.Transpose(y, 0, 2, 1, 3), B, S, H*D)
		if one(2) {
			y = b.MatMul(y, weight(H*D, 3))
		}
	}
	k.pool = []*ir.Value{y}
	if one(6) {
		k.pool = append(k.pool, p)
	}
	if one(6) {
		k.pool = append(k.pool, raw)
	}
	var loss *ir.Value
	for _, v := range k.pool {
		part := b.ReduceSum(b.Reshape(b.Mul(v, g.AddInit(g.Fresh("lw"), ir.WeightOf(k.tensor(dimsOf(v))))), count(dimsOf(v))), false, 0)
		if loss == nil {
			loss = part
		} else {
			loss = b.Add(loss, part)
		}
	}
	g.Outputs = []*ir.Value{loss}
	if one(4) {
		g.Outputs = append(g.Outputs, p)
	}
	b.Edit.Done()
	return &opsGraph{model: &ir.Model{IRVersion: 10, Opsets: g.Opsets, Graph: g}, in: k.in, loss: loss.Name}, nil
}

// TestRandomAttention: whatever is taken for attention has its loss and its
// gradients.
func TestRandomAttention(t *testing.T) {
	from, to := randomSeeds(150)
	compared, fused := 0, 0
	for seed := from; seed <= to; seed++ {
		how, n, f := checkAttention(t, seed)
		compared += n
		fused += f
		if how != "" {
			t.Errorf("seed %d: %s", seed, how)
			if os.Getenv("MEMOC_RANDOM") != "" {
				fmt.Printf("seed %d: %.600s\n", seed, how)
			}
			if os.Getenv("MEMOC_RANDOM_PRINT") != "" {
				s, _ := randomAttention(seed)
				fmt.Println(ir.PrintGraph(s.model.Graph, ir.TextOptions{}))
			}
		}
	}
	t.Logf("%d gradients compared, %d graphs fused", compared, fused)
	if compared < 20 || fused < 5 {
		t.Errorf("%d gradients compared, %d graphs fused", compared, fused)
	}
}

func checkAttention(t *testing.T, seed uint64) (how string, compared, fused int) {
	s, err := randomAttention(seed)
	if err != nil {
		return "generator: " + err.Error(), 0, 0
	}
	f, _ := randomAttention(seed)
	forward := f.model.Graph
	original, err := eval.Graph(forward, s.in, eval.Options{})
	if err != nil {
		return "the graph does not run: " + err.Error(), 0, 0
	}
	c := &passes.Context{Model: s.model, Graph: s.model.Graph,
		Options: passes.Options{Train: true, Loss: s.loss, Device: setup{}.options(t).Device, HostBudget: -1}}
	if err := (&passes.Runner{}).RunUntil(c, passes.Analyze); err != nil {
		if acceptable(err) {
			return "", 0, 0
		}
		return err.Error(), 0, 0
	}
	for _, n := range c.Graph.Nodes {
		if n.Op == "FlashAttention" {
			fused = 1
		}
	}
	out, err := eval.Graph(c.Graph, s.in, eval.Options{})
	if err != nil {
		return "the compiled graph does not run: " + err.Error(), 0, fused
	}
	if how := sameForward(s, original, out, true); how != "" {
		return how, 0, fused
	}
	r := rand.New(rand.NewPCG(seed, 3))
	for _, w := range forward.Inits {
		g, ok := out[w.Name+"_grad"].(*ir.Tensor)
		if !ok {
			continue
		}
		h, n := alongRandom(forward, s, w, g, r)
		if h != "" {
			return h, compared, fused
		}
		compared += n
	}
	return "", compared, fused
}

// A mask that replaces scores, beside one that is added and hides nothing, is
// kept: a query may see no key, and the operator has one form for that.
func TestMaskBesideNothingIsKept(t *testing.T) {
	const src = `g (double[1,1,3,4] q, double[1,1,3,4] k, double[1,1,3,4] v) => (double[1,1,3,4] y)
<bool[1,1,3,3] all = {1,1,1,1,1,1,1,1,1}, double low = {-3.4028234663852886e+38}, double one = {1}, bool[3] keys = {1,0,1}> {
 kt = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, kt) c = Cast <to = 11> (all) d = Sub (one, c) e = Mul (d, low)
 a = Add (s, e) w = Where (keys, a, low) p = Softmax <axis = -1> (w) y = MatMul (p, v) }`
	m := text(t, src)
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	in, err := eval.RandomInputs(m.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := run(t, m.Graph, in)
	c, _, err := compileUntil(t, text(t, src), setup{}, passes.Analyze)
	if err != nil {
		t.Fatal(err)
	}
	if how := sameForward(nil, want, run(t, c.Graph, in), false); how != "" {
		t.Error(how)
	}
}

package mask

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	_ "memoc/ir/ops"
)

// graph parses nodes that make "mask" for B batches, S queries and T keys. The
// inputs are int64 pad[B,T], seg[B,S], pos[B,S] and float free[B,1,S,T].
func graph(t *testing.T, nodes string, b, s, k string) *ir.Graph {
	t.Helper()
	text := fmt.Sprintf(`<ir_version: 10, opset_import: ["" : 18]> g (int64[B,T] pad, int64[B,S] seg, float[B,1,S,T] free, float[1,1,S,S] square) => (mask)
	<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 minus = {-1}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64[1] a3 = {3}, int64[1] last = {-1},
	 float fzero = {0}, float fone = {1}, float low = {-3.4028234663852886e38}, float tenthousand = {-10000}>
	{ sp0 = Shape<start=0, end=1> (pad) sp1 = Shape<start=1, end=2> (pad) ss1 = Shape<start=1, end=2> (seg)
	  S0 = Squeeze (ss1, a0) T0 = Squeeze (sp1, a0)
	  is = Range (zero, S0, one) js = Range (zero, T0, one) i = Unsqueeze (is, last) j = Unsqueeze (js, a0)
	  full = Concat<axis=0> (sp0, a1, ss1, sp1)
	  keypad = Cast<to=9> (pad) keypad4a = Unsqueeze (keypad, a1) keypad4 = Unsqueeze (keypad4a, a2)
	  %s }`, nodes)
	text = strings.NewReplacer("[B,T]", "["+b+","+k+"]", "[B,S]", "["+b+","+s+"]", "[B,1,S,T]", "["+b+",1,"+s+","+k+"]", "[1,1,S,S]", "[1,1,"+s+","+s+"]").Replace(text)
	m, err := ir.Parse("mask", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		t.Fatal(err)
	}
	return m.Graph
}

var cases = []struct {
	name, nodes string
	class       string // with as many keys as queries; "" where there is none
	rect        string // with other numbers of keys and queries, "-" where the graph is for squares only
}{
	{"all", `m = ConstantOfShape (full) mz = Cast<to=9> (m) mask = Not (mz)`, "none", "none"},
	{"causal", `mask = LessOrEqual (j, i)`, "causal", "causal"},
	{"causal, expanded", `m = LessOrEqual (j, i) mask = Expand (m, full)`, "causal", "causal"},
	{"causal, not greater", `m = Greater (j, i) mask = Not (m)`, "causal", "causal"},
	{"causal, additive", `m = LessOrEqual (j, i) e = Expand (m, full) mask = Where (e, fzero, low)`, "causal", "causal"},
	{"causal, from one minus", `m = LessOrEqual (j, i) f = Cast<to=1> (m) g = Sub (fone, f) mask = Mul (g, low)`, "causal", "causal"},
	{"causal, tril of ones", `o = ConstantOfShape<value: tensor = float {1}> (full) m = Trilu<upper=0> (o) mask = Cast<to=9> (m)`, "causal", "causal"},
	{"causal, triu above", `o = ConstantOfShape<value: tensor = float {-inf}> (full) mask = Trilu<upper=1> (o, one)`, "causal", "causal"},
	{"last aligned", `d = Sub (T0, S0) k = Add (i, d) mask = LessOrEqual (j, k)`, "causal", "causal"},
	{"strictly before", `mask = Less (j, i)`, "window[,-1]", "window[,-1]"},
	{"one ahead", `k = Add (i, one) mask = LessOrEqual (j, k)`, "window[,1]", "window[,1]"},
	{"swapped", `mask = LessOrEqual (i, j)`, "window[0,]", "window[0,]"},
	{"window", `d = Sub (i, j) a = LessOrEqual (j, i) b = Less (d, two) mask = And (a, b)`, "window[-1,0]", "window[-1,0]"},
	{"window, both sides", `d = Sub (i, j) b = LessOrEqual (d, two) c = GreaterOrEqual (d, minus) mask = And (b, c)`, "window[-2,1]", "window[-2,1]"},
	{"two bounds", `a = LessOrEqual (j, i) k = Add (i, one) b = LessOrEqual (j, k) mask = And (a, b)`, "causal", "causal"},
	{"keys", `mask = Expand (keypad4, full)`, "keys", "keys"},
	{"keys, additive", `e = Expand (keypad4, full) mask = Where (e, fzero, low)`, "bias", "bias"},
	{"keys, ten thousand", `f = Cast<to=1> (keypad4) g = Sub (fone, f) mask = Mul (g, tenthousand)`, "bias", "bias"},
	{"keys, looked up", `b0 = Squeeze (sp0, a0) bs = Range (zero, b0, one) b3 = Unsqueeze (bs, a1) b4 = Unsqueeze (b3, a2) b5 = Unsqueeze (b4, a3)
		j4a = Unsqueeze (j, a0) j4 = Unsqueeze (j4a, a0) x = Max (b5, j4) sh = Shape (x) eb = Expand (b5, sh) ej = Expand (j4, sh) ub = Unsqueeze (eb, last) uj = Unsqueeze (ej, last)
		idx = Concat<axis=-1> (ub, uj) m = GatherND (keypad, idx) mask = Expand (m, full)`, "keys", "keys"},
	{"causal and keys", `a = LessOrEqual (j, i) m = And (a, keypad4) mask = Expand (m, full)`, "causal+keys", "causal+keys"},
	{"causal and keys, summed", `a = LessOrEqual (j, i) e = Expand (a, full) x = Where (e, fzero, low) f = Cast<to=1> (keypad4) g = Sub (fone, f) y = Mul (g, low) mask = Add (x, y)`, "causal+bias", "causal+bias"},
	{"one padded key", `c = Equal (j, two) n = Not (c) a = LessOrEqual (j, i) mask = And (a, n)`, "causal+keys", "causal+keys"},
	{"segments", `x = Unsqueeze (seg, a2) y = Unsqueeze (seg, a1) m = Equal (x, y) mask = Unsqueeze (m, a1)`, "segments", "-"},
	{"causal segments", `x = Unsqueeze (seg, a2) y = Unsqueeze (seg, a1) m = Equal (y, x) u = Unsqueeze (m, a1) a = LessOrEqual (j, i) mask = And (a, u)`, "causal+segments", "-"},
	{"segments of jumps", `s1 = Slice (seg, a1, i64max, a1) s0 = Slice (seg, a0, last, a1) d = Sub (s1, s0) ne = Equal (d, one) n = Not (ne) k = Cast<to=7> (n) c = CumSum (k, minus)
		pz = Slice (c, a0, a1, a1) z = Sub (pz, pz) cs = Concat<axis=1> (z, c) x = Unsqueeze (cs, a2) y = Unsqueeze (cs, a1) m = Equal (x, y) mask = Unsqueeze (m, a1)`, "segments", "-"},
	{"jumps there are none", `u = Unsqueeze (is, a0) f = Slice (u, a0, a1, a1) p = Sub (f, one) cat = Concat<axis=1> (p, u) lo = Slice (cat, a0, last, a1) hi = Slice (cat, a1, i64max, a1)
		d = Sub (hi, lo) e = Equal (d, one) n = Not (e) k = Cast<to=7> (n) c = CumSum (k, minus) x = Unsqueeze (c, a2) y = Unsqueeze (c, a1) m = Equal (x, y) a = LessOrEqual (j, i) mask = And (a, m)`, "causal", "-"},
	{"a jump at one", `u = Unsqueeze (is, a0) f = Slice (u, a0, a1, a1) cat = Concat<axis=1> (f, u) lo = Slice (cat, a0, last, a1) hi = Slice (cat, a1, i64max, a1)
		d = Sub (hi, lo) e = Equal (d, one) n = Not (e) k = Cast<to=7> (n) c = CumSum (k, minus) x = Unsqueeze (c, a2) y = Unsqueeze (c, a1) m = Equal (x, y) a = LessOrEqual (j, i) mask = And (a, m)`, "causal+segments", "-"},
	{"whole queries hidden", `x = Cast<to=9> (seg) x3 = Unsqueeze (x, a2) x4 = Unsqueeze (x3, a1) m = And (x4, keypad4) mask = Expand (m, full)`, "", ""},
	{"a choice of masks", `a = LessOrEqual (j, i) b = Less (i, j) e = Expand (a, full) f = Where (keypad4, a, b) mask = Expand (f, full)`, "", ""},
	{"every other key ahead", `a = LessOrEqual (j, i) d = Sub (j, i) r = Mod (d, two) z = Equal (r, zero) mask = Or (a, z)`, "", ""},
	{"given", `mask = Identity (free)`, "", ""},
	{"given and causal", `a = LessOrEqual (j, i) z = Where (a, fzero, low) mask = Add (z, free)`, "", ""},
	{"not low enough is still a class", `a = LessOrEqual (j, i) z = Where (a, fzero, tenthousand) mask = Expand (z, full)`, "causal", "causal"},
}

func TestOf(t *testing.T) {
	for _, c := range cases {
		nodes := strings.ReplaceAll(c.nodes, "i64max", "big")
		nodes = "big = Constant<value_ints=[9223372036854775807]> () " + nodes
		for _, size := range [][3]string{{"batch", "seq", "seq"}, {"2", "seq", "seq"}, {"2", "5", "5"}, {"1", "4", "4"}, {"3", "7", "7"}, {"2", "4", "6"}, {"2", "6", "4"}, {"batch", "new", "all"}} {
			want := c.class
			if size[1] != size[2] {
				want = c.rect
			}
			if want == "-" || strings.Contains(c.name, "jump") && size[1] == "seq" {
				continue // the length of a slice of unknown extent is not inferred
			}
			t.Run(fmt.Sprintf("%s/%v", c.name, size), func(t *testing.T) { check(t, nodes, size, want) })
		}
	}
}

// check classifies the mask and holds the class against the executed mask.
func check(t *testing.T, nodes string, size [3]string, want string) {
	g := graph(t, nodes, size[0], size[1], size[2])
	pad, seg, v := g.Inputs[0].Type.Shape.Dims, g.Inputs[1].Type.Shape.Dims, g.Outputs[0]
	class, why := Of([]Part{{V: v, Low: math.Inf(-1)}}, pad[0], ir.N(3), seg[1], pad[1])
	switch {
	case want == "":
		if class != nil {
			t.Fatalf("classified as %s", class)
		}
		return
	case class == nil:
		t.Fatalf("not classified: %s", why)
	case class.String() != want:
		t.Errorf("class %s, want %s", class, want)
	}
	against(t, g, class, v, size)
}

// against holds a class against the executed mask v.
func against(t *testing.T, g *ir.Graph, class *Class, v *ir.Value, size [3]string) {
	pad, seg := g.Inputs[0].Type.Shape.Dims, g.Inputs[1].Type.Shape.Dims
	emit := &Emitter{Builder: ir.NewBuilder(ir.NewEdit(g)), Extent: func(axis int) *ir.Value {
		return map[int]*ir.Value{Batch: byName(g, "sp0"), Query: byName(g, "ss1"), Key: byName(g, "sp1")}[axis]
	}}
	outputs := map[string]*Expr{"keys": class.Keys, "segq": class.SegQ, "segk": class.SegK, "bias": class.Bias}
	for name, e := range outputs {
		if e != nil {
			x := emit.Cast(emit.Emit(e, ir.Float), ir.Double)
			g.Outputs = append(g.Outputs, emit.Node("", "Identity", []*ir.Value{x}, []string{name}).Out[0])
		}
	}
	emit.Edit.Done()
	sizes := [][3]int64{{2, 5, 5}, {1, 1, 1}, {3, 6, 6}}
	if size[1] != size[2] {
		sizes = [][3]int64{{2, 3, 5}, {1, 5, 2}}
	}
	for _, n := range sizes {
		for k, d := range []ir.Dim{pad[0], seg[1], pad[1]} {
			if m, ok := d.Int(); ok {
				n[k] = m
			}
		}
		for seed := range int64(3) {
			execute(t, g, class, v, n, seed)
		}
	}
}

// TestRandom composes masks at random: whatever gets a class has the right one.
func TestRandom(t *testing.T) {
	classes := map[string]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := "x = Unsqueeze (seg, a2) y = Unsqueeze (seg, a1) own0 = Equal (x, y) own = Unsqueeze (own0, a1) "
		conds := []string{"own", "keypad4"}
		number := func() string { return []string{"zero", "one", "two", "minus"}[r.IntN(4)] }
		for k := range 8 {
			name := fmt.Sprint("c", k)
			any := func() string { return conds[r.IntN(len(conds))] }
			switch r.IntN(7) {
			case 0, 1:
				op := []string{"Less", "LessOrEqual", "Greater", "GreaterOrEqual"}[r.IntN(4)]
				nodes += fmt.Sprintf("i%d = Add (i, %s) j%d = Sub (j, %s) %s = %s (j%d, i%d) ", k, number(), k, number(), name, op, k, k)
			case 2:
				nodes += fmt.Sprintf("%s = Not (%s) ", name, any())
			case 3:
				nodes += fmt.Sprintf("%s = Or (%s, %s) ", name, any(), any())
			case 4:
				nodes += fmt.Sprintf("f%d = Cast<to=1> (%s) g%d = Sub (fone, f%d) h%d = Mul (g%d, low) %s = Greater (h%d, tenthousand) ", k, any(), k, k, k, k, name, k)
			case 5:
				nodes += fmt.Sprintf("%s = Where (%s, %s, %s) ", name, any(), any(), any())
			default:
				nodes += fmt.Sprintf("%s = And (%s, %s) ", name, any(), any())
			}
			conds = append(conds, name)
		}
		nodes += "mask = Expand (c7, full)"
		size := [3]string{"2", "4", "4"}
		if seed%3 == 0 {
			size = [3]string{"batch", "seq", "seq"}
		}
		g := graph(t, nodes, size[0], size[1], size[2])
		pad, seg, v := g.Inputs[0].Type.Shape.Dims, g.Inputs[1].Type.Shape.Dims, g.Outputs[0]
		class, _ := Of([]Part{{V: v, Low: math.Inf(-1)}}, pad[0], ir.N(3), seg[1], pad[1])
		if class == nil {
			classes["a tensor"]++
			continue
		}
		classes[class.String()]++
		against(t, g, class, v, size)
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, nodes)
		}
	}
	t.Log(classes)
	if len(classes) < 8 {
		t.Errorf("the masks show too little: %v", classes)
	}
}

func byName(g *ir.Graph, name string) *ir.Value {
	for _, n := range g.Nodes {
		for _, o := range n.Out {
			if o.Name == name {
				return o
			}
		}
	}
	return nil
}

func execute(t *testing.T, g *ir.Graph, class *Class, v *ir.Value, n [3]int64, seed int64) {
	t.Helper()
	B, S, T := n[0], n[1], n[2]
	ints := func(mod int64, dims ...int64) *ir.Tensor {
		vals := make([]int64, ir.Elems(dims))
		for i := range vals {
			vals[i] = (int64(i)*7 + seed*5 + int64(i)*int64(i)) / 3 % mod
		}
		return ir.FromInts(ir.Int64, vals, dims...)
	}
	out, err := eval.Graph(g, map[string]ir.Datum{"pad": ints(2, B, T), "seg": ints(3, B, S), "free": ir.NewTensor(ir.Float, B, 1, S, T), "square": ir.NewTensor(ir.Float, 1, 1, S, S)}, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string, b, i, j int64) float64 {
		x := out[name].(*ir.Tensor)
		at, vals := int64(0), []float64(nil)
		if x.DType.IsFloat() {
			vals = x.Floats()
		} else {
			for _, k := range x.Ints() {
				vals = append(vals, float64(k))
			}
		}
		place := []int64{b, 0, i, j}
		for k, d := range x.Dims {
			p := place[4-len(x.Dims)+k]
			if d == 1 {
				p = 0
			}
			at = at*d + p
		}
		return vals[at]
	}
	for x := range B * S * T {
		b, i, j := x/T/S, x/T%S, x%T
		seen, bias := true, 0.0
		env := map[string]ir.Dim{"seq": ir.N(S), "new": ir.N(S), "all": ir.N(T)}
		if class.Hi != nil {
			hi, _ := class.Hi.Bind(env).Int()
			seen = seen && j <= i+hi
		}
		if class.Lo != nil {
			lo, _ := class.Lo.Bind(env).Int()
			seen = seen && j >= i+lo
		}
		if class.Keys != nil {
			seen = seen && read("keys", b, i, j) != 0
		}
		if class.SegQ != nil {
			seen = seen && read("segq", b, i, j) == read("segk", b, i, j)
		}
		if class.Bias != nil {
			bias = read("bias", b, i, j)
		}
		want := bias
		if !seen {
			want = max(class.Hidden, -math.MaxFloat32) + bias
		}
		got := read("mask", b, i, j)
		if v.Type.DType == ir.Bool {
			got, want = 1-got, map[bool]float64{true: 0, false: 1}[seen]
		}
		if got != want && !(math.IsInf(class.Hidden, -1) && !seen && math.IsInf(got, -1)) && !(want < -math.MaxFloat32 && math.IsInf(got, -1)) {
			t.Fatalf("size %v: batch %d query %d key %d: mask %g, class %s gives %g", n, b, i, j, got, class, want)
		}
		if j == T-1 && !class.Empty && v.Type.DType == ir.Bool {
			any := false
			for k := range T {
				any = any || read("mask", b, i, k) != 0
			}
			if !any {
				t.Fatalf("query %d of batch %d sees no key", i, b)
			}
		}
	}
}

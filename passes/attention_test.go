package passes

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/diag"
	"memoc/ir/eval"
	"memoc/ir/onnx"
)

// attentionForm is one way to write attention: nodes that make y from q, kt
// (the keys transposed), k and v, all of rank 4 with 4 heads. The mask pad is
// [B,T] of 0 and 1, its first batch element with a hole and its second all
// zero; left hides the first keys.
type attentionForm struct {
	name, nodes string
	fused       bool
	attrs       string // of the FlashAttention: "is_causal=2 mask", …
	why         string // part of the warning, where there is one
}

var attentionForms = []attentionForm{
	{"plain", `s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v)`, true, "scale=1", ""},
	{"scaled", `s = MatMul (q, kt) t = Mul (s, c) p = Softmax (t) y = MatMul (p, v)`, true, "scale=0.5", ""},
	{"divided", `s = MatMul (q, kt) t = Div (s, two) p = Softmax (t) y = MatMul (p, v)`, true, "scale=0.5", ""},
	{"scaled before", `a = Mul (q, c) b = Mul (kt, c) s = MatMul (a, b) p = Softmax (s) y = MatMul (p, v)`, true, "scale=1", ""},
	{"keys transposed from positions first", `kp = Transpose<perm=[0,2,1,3]> (k) kq = Transpose<perm=[0,2,3,1]> (kp) s = MatMul (q, kq) p = Softmax (s) y = MatMul (p, v)`, true, "scale=1", ""},
	{"casts", `s = MatMul (q, kt) d = Cast<to=11> (s) p = Softmax (d) f = Cast<to=1> (p) y = MatMul (f, v)`, true, "scale=1", ""},
	{"rank 3", `q3 = Reshape (q, r3) k3 = Reshape (kt, rt) v3 = Reshape (v, r3) s3 = MatMul (q3, k3) s = Reshape (s3, r4) t = Mul (s, c) m = Add (t, causal) p = Softmax (m) p3 = Reshape (p, rp)
		y3 = MatMul (p3, v3) y = Reshape (y3, ry)`, true, "is_causal=2 scale=0.5", ""},
	{"rank 3 throughout", `q3 = Reshape (q, r3) k3 = Reshape (kt, rt) v3 = Reshape (v, r3) s3 = MatMul (q3, k3) p = Softmax (s3) y3 = MatMul (p, v3) y = Reshape (y3, ry)`, true, "scale=1", ""},
	{"causal, added", `s = MatMul (q, kt) m = Add (causal, s) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=1", ""},
	{"causal, chosen", `s = MatMul (q, kt) m = Where (seen, s, low) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=1", ""},
	{"causal, filled", `n = Not (seen) s = MatMul (q, kt) m = Where (n, low, s) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=1", ""},
	{"causal, chosen, then scaled", `s = MatMul (q, kt) m = Where (seen, s, low) t = Mul (m, c) p = Softmax (t) y = MatMul (p, v)`, true, "is_causal=2 scale=0.5", ""},
	{"added, then scaled", `s = MatMul (q, kt) m = Add (s, causal) t = Mul (m, c) p = Softmax (t) y = MatMul (p, v)`, false, "", "scaled after the mask"},
	{"causal by -inf", `neg = Where (seen, fzero, inf) s = MatMul (q, kt) m = Add (s, neg) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=1", ""},
	{"causal by -10000", `neg = Where (seen, fzero, tenthousand) s = MatMul (q, kt) m = Add (s, neg) p = Softmax (m) y = MatMul (p, v)`, true, "scale=1 mask", "not low enough"},
	{"causal chosen by -10000", `s = MatMul (q, kt) m = Where (seen, s, tenthousand) p = Softmax (m) y = MatMul (p, v)`, false, "", "not low enough"},
	{"keys, added", `s = MatMul (q, kt) m = Add (s, padding) p = Softmax (m) y = MatMul (p, v)`, true, "scale=1 mask", ""},
	{"keys, added by -10000", `b = Sub (fone, padf) d = Mul (b, tenthousand) s = MatMul (q, kt) m = Add (s, d) p = Softmax (m) y = MatMul (p, v)`, true, "scale=1 mask", ""},
	{"keys, chosen", `s = MatMul (q, kt) m = Where (pad4, s, low) p = Softmax (m) y = MatMul (p, v)`, true, "empty_rows=2 scale=1 mask", ""},
	{"keys by -inf", `s = MatMul (q, kt) m = Where (pad4, s, inf) p = Softmax (m) y = MatMul (p, v)`, false, "", "which makes NaN"},
	{"keys by -inf, guarded", `s = MatMul (q, kt) m = Where (pad4, s, inf) p = Softmax (m) n = IsNaN (p) g = Where (n, fzero, p) y = MatMul (g, v)`, true, "scale=1 mask", ""},
	{"padded on the left, added", `b = And (seen, left4) d = Where (b, fzero, low) s = MatMul (q, kt) m = Add (s, d) p = Softmax (m) y = MatMul (p, v)`, true, "empty_rows=1 is_causal=2 scale=1 mask", ""},
	{"padded on the left, chosen", `b = And (seen, left4) s = MatMul (q, kt) m = Where (b, s, low) p = Softmax (m) y = MatMul (p, v)`, true, "empty_rows=2 is_causal=2 scale=1 mask", ""},
	{"two masks", `s = MatMul (q, kt) m = Add (s, causal) n = Add (m, padding) p = Softmax (n) y = MatMul (p, v)`, true, "scale=1 mask", "several masks"},
	{"segments", `a = Unsqueeze (pad, a2) b = Unsqueeze (pad, a1) e = Equal (a, b) f = Unsqueeze (e, a1) g = And (f, seen) s = MatMul (q, kt) m = Where (g, s, low) p = Softmax (m) y = MatMul (p, v)`,
		true, "is_causal=2 scale=1 segments", ""},
	{"a mask of any kind", `s = MatMul (q, kt) m = Add (s, free) p = Softmax (m) y = MatMul (p, v)`, true, "scale=1 mask", "stays a tensor"},
	{"capped", `s = MatMul (q, kt) a = Mul (s, c) d = Div (a, two) t = Tanh (d) u = Mul (t, two) m = Add (u, causal) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=0.5 softcap=2", ""},
	{"tanh that is no cap", `s = MatMul (q, kt) d = Div (s, two) t = Tanh (d) u = Mul (t, c) p = Softmax (u) y = MatMul (p, v)`, false, "", "no cap"},
	{"grouped heads", `ku = Unsqueeze (kg, a2) ke = Expand (ku, five) kr = Reshape (ke, r4v) k2 = Transpose<perm=[0,1,3,2]> (kr) vu = Unsqueeze (vg, a2) ve = Expand (vu, five) vr = Reshape (ve, r4v)
		s = MatMul (q, k2) m = Add (s, causal) p = Softmax (m) y = MatMul (p, vr)`, true, "is_causal=2 scale=1 groups=2", ""},
	{"one head of keys", `k1 = Slice (k, zero1, a1, a1) v1 = Slice (v, zero1, a1, a1) kt1 = Transpose<perm=[0,1,3,2]> (k1) s = MatMul (q, kt1) m = Add (s, causal) p = Softmax (m) y = MatMul (p, v1)`, true, "is_causal=2 scale=1 groups=1", ""},
	{"turned and scaled by the product", `s = com.microsoft.FusedMatMul<transB=1, alpha=0.25> (q, k) m = Add (s, causal) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=0.25", ""},
	{"strictly before by -inf", `n = Less (j, i) neg = Where (n, fzero, inf) s = MatMul (q, kt) m = Add (s, neg) p = Softmax (m) y0 = MatMul (p, v) nan = IsNaN (y0) y = Where (nan, fzero, y0)`, false, "", "which makes NaN"},
	{"strictly before, guarded", `n = Less (j, i) neg = Where (n, fzero, inf) s = MatMul (q, kt) m = Add (s, neg) p = Softmax (m) g = IsNaN (p) p0 = Where (g, fzero, p) y = MatMul (p0, v)`, true, "scale=1 mask", "cannot express"},
	{"one ahead", `i2 = Add (i, one) n = LessOrEqual (j, i2) s = MatMul (q, kt) m = Where (n, s, low) p = Softmax (m) y = MatMul (p, v)`, true, "right_window_size=1 scale=1", ""},
	{"window", `i2 = Sub (i, one) n = LessOrEqual (i2, j) b = And (n, seen) s = MatMul (q, kt) m = Where (b, s, low) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 left_window_size=1 scale=1", ""},
	{"equations", `s = Einsum<equation="bhid,bhjd->bhij"> (q, k) m = Add (s, causal) p = Softmax (m) y = Einsum<equation="bhij,bhjd->bhid"> (p, v)`, true, "is_causal=2 scale=1", ""},
	{"equations, positions first", `s = Einsum<equation="bind, bjnd -> bnij"> (q4, k4) m = Add (s, causal) p = Softmax (m) y = Einsum<equation="bnij,bjnd->bind"> (p, v4)`, true, "is_causal=2 scale=1", ""},
	{"equations of rank 3", `q3 = Reshape (q, r3) k3 = Reshape (k, r3) v3 = Reshape (v, r3) s = Einsum<equation="bid,bjd->bij"> (q3, k3) t = Mul (s, c) p = Softmax (t) y3 = Einsum<equation="bij,bjd->bid"> (p, v3) y = Reshape (y3, ry)`, true, "scale=0.5", ""},
	{"an equation of another kind", `s = Einsum<equation="bhid,bhjd->bhij"> (q, k) p = Softmax (s) y = Einsum<equation="bhij,bhid->bhjd"> (p, v)`, false, "", ""},
	{"a turned equation", `s = Einsum<equation="bhjd,bhid->bhij"> (k, q) m = Add (s, causal) p = Softmax (m) y = MatMul (p, v)`, true, "is_causal=2 scale=1", ""},
	{"dropout of nothing", `s = MatMul (q, kt) p = Softmax (s) d = Dropout (p, fzero, yes) y = MatMul (d, v)`, true, "scale=1", ""},
	{"dropout", `s = MatMul (q, kt) p = Softmax (s) d = Dropout (p, c, yes) y = MatMul (d, v)`, false, "", "at random"},
	{"weights are read", `s = MatMul (q, kt) p = Softmax (s) y0 = MatMul (p, v) z = ReduceSum (p, last) y = Add (y0, z)`, false, "", "read"},
	{"scores are read", `s = MatMul (q, kt) p = Softmax (s) y0 = MatMul (p, v) z = ReduceSum (s, last) y = Add (y0, z)`, false, "", "read elsewhere"},
	{"softmax of another axis", `s = MatMul (q, kt) p = Softmax<axis=2> (s) y = MatMul (p, v)`, false, "", ""},
	{"no attention", `p = Softmax (q) y = MatMul (p, w8)`, false, "", ""},
}

func attentionText(nodes string) string {
	return fmt.Sprintf(`<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]> g (float[2,6,32] x, int64[2,6] pad, float[2,1,6,6] free) => (loss)
	<float[32,32] wq = ["elided": ""], float[32,32] wk = ["elided": ""], float[32,32] wv = ["elided": ""], float[32,16] wkg = ["elided": ""], float[32,16] wvg = ["elided": ""], float[8,8] w8 = ["elided": ""],
	 float c = {0.5}, float two = {2}, float fzero = {0}, float fone = {1}, float low = {-3.4028234663852886e38}, float inf = {-inf}, float tenthousand = {-10000},
	 int64[4] split = {0, 0, -1, 8}, int64[3] r3 = {8, 6, 8}, int64[3] rt = {8, 8, 6}, int64[3] rp = {8, 6, 6}, int64[4] r4 = {2, 4, 6, 6}, int64[4] ry = {2, 4, 6, 8}, int64[4] r4v = {2, 4, 6, 8}, int64[5] five = {2, 2, 2, 6, 8},
	 int64[1] a0 = {0}, int64[1] zero1 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64[1] last = {-1}, int64 zero = {0}, int64 one = {1}, int64 six = {6}, int64[4] full = {2, 1, 6, 6}, bool yes = {1}>
	{ xq = MatMul (x, wq) xk = MatMul (x, wk) xv = MatMul (x, wv) q4 = Reshape (xq, split) k4 = Reshape (xk, split) v4 = Reshape (xv, split)
	  q = Transpose<perm=[0,2,1,3]> (q4) k = Transpose<perm=[0,2,1,3]> (k4) v = Transpose<perm=[0,2,1,3]> (v4) kt = Transpose<perm=[0,2,3,1]> (k4)
	  xkg = MatMul (x, wkg) xvg = MatMul (x, wvg) kg4 = Reshape (xkg, split) vg4 = Reshape (xvg, split) kg = Transpose<perm=[0,2,1,3]> (kg4) vg = Transpose<perm=[0,2,1,3]> (vg4)
	  i1 = Range (zero, six, one) i = Unsqueeze (i1, a1) j = Unsqueeze (i1, a0) tri = LessOrEqual (j, i) seen = Expand (tri, full) causal = Where (seen, fzero, low)
	  padb = Cast<to=9> (pad) padb3 = Unsqueeze (padb, a1) pad4 = Unsqueeze (padb3, a1) padf = Cast<to=1> (pad4) pade = Expand (pad4, full) padding = Where (pade, fzero, low)
	  cum = CumSum (pad, last) left = Cast<to=9> (cum) left3 = Unsqueeze (left, a1) left4 = Unsqueeze (left3, a1)
	  %s
	  yy = Mul (y, y) loss0 = ReduceSum<keepdims=0> (yy) loss = Identity (loss0) }`, nodes)
}

// attentionRun runs the passes up to the analysis and then the graph.
func attentionRun(t *testing.T, m *ir.Model, train, off bool, in map[string]ir.Datum, dims map[string]ir.Dim) (g *ir.Graph, out map[string]ir.Datum, warnings []string) {
	t.Helper()
	c := &Context{Model: m, Graph: m.Graph, Options: Options{Train: train, Loss: "loss", Dims: dims, Debug: Debug{"attention": {Off: off, Limit: -1}}},
		Report: func(d *diag.Diagnostic) {
			if d.ID == "attention" {
				warnings = append(warnings, d.Message)
			}
		}}
	if err := (&Runner{}).RunUntil(c, Analyze); err != nil {
		t.Fatal(err)
	}
	out, err := eval.Graph(c.Graph, in, eval.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Graph, out, warnings
}

func attentionModel(t *testing.T, nodes string) *ir.Model {
	t.Helper()
	m, err := ir.Parse("attention", attentionText(nodes))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range m.Graph.Inits {
		if v.Name[0] == 'w' {
			dims, _ := v.Type.Shape.Static()
			w := make([]float64, ir.Elems(dims))
			for i := range w {
				w[i] = math.Sin(float64(i*(k+3)))*0.4 + 0.05
			}
			v.Init = ir.WeightOf(ir.FromFloats(ir.Float, w, dims...))
		}
	}
	return m
}

// describe is the attributes and the masks of the graph's FlashAttention.
func describe(g *ir.Graph) string {
	for _, n := range g.Nodes {
		if n.Op != "FlashAttention" {
			continue
		}
		var parts []string
		for _, a := range n.Attrs {
			if a.Kind == ir.AttrFloat {
				parts = append(parts, fmt.Sprintf("%s=%g", a.Name, a.F))
			} else {
				parts = append(parts, fmt.Sprintf("%s=%d", a.Name, a.I))
			}
		}
		slices.Sort(parts)
		if d := n.In[1].Type.Shape.Dims[1]; !d.Equal(n.In[0].Type.Shape.Dims[1]) {
			parts = append(parts, "groups="+d.String())
		}
		if len(n.In) > 3 && n.In[3] != nil {
			parts = append(parts, "mask")
		}
		if len(n.In) > 4 && n.In[4] != nil {
			parts = append(parts, "segments")
		}
		return strings.Join(parts, " ")
	}
	return ""
}

// TestAttentionForms fuses every form and compares values and gradients with
// the graph as it was.
func TestAttentionForms(t *testing.T) {
	x := make([]float64, 2*6*32)
	for i := range x {
		x[i] = math.Cos(float64(i * i))
	}
	free := make([]float64, 72)
	for i := range free {
		free[i] = math.Sin(float64(3 * i))
	}
	in := map[string]ir.Datum{"x": ir.FromFloats(ir.Float, x, 2, 6, 32), "free": ir.FromFloats(ir.Float, free, 2, 1, 6, 6),
		"pad": ir.FromInts(ir.Int64, []int64{0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0}, 2, 6)}
	for _, f := range attentionForms {
		for _, train := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", f.name, train), func(t *testing.T) {
				g, got, warnings := attentionRun(t, attentionModel(t, f.nodes), train, false, in, nil)
				_, want, _ := attentionRun(t, attentionModel(t, f.nodes), train, true, in, nil)
				attrs := describe(g)
				if (attrs != "") != f.fused || attrs != f.attrs {
					t.Errorf("fused as %q, want %q (%v); warnings %q", attrs, f.attrs, f.fused, warnings)
				}
				if all := strings.Join(warnings, "\n"); (f.why == "") != (all == "") || !strings.Contains(all, f.why) {
					t.Errorf("warnings %q, want %q", all, f.why)
				}
				if !strings.Contains(f.name, "dropout") || f.fused {
					tolerance := 1e-4
					if strings.Contains(f.name, "10000") {
						tolerance = 1e-3 // the digits that scores near -10000 have left
					}
					sameValues(t, got, want, tolerance)
				}
			})
		}
	}
}

// TestAttentionTraced fuses forward and backward written as one graph.
func TestAttentionTraced(t *testing.T) {
	const forward = `i1 = Range (zero, six, one) i = Unsqueeze (i1, a1) j = Unsqueeze (i1, a0) seen = LessOrEqual (j, i) causal = Where (seen, fzero, low) `
	const added = forward + `kt = Transpose<perm=[0,1,3,2]> (k) s = MatMul (q, kt) t = Mul (s, c) m = Add (t, causal) p = Softmax (m) y = MatMul (p, v) `
	const tail = ` dsc = Mul (ds, c) dq = MatMul (dsc, k) qt = Transpose<perm=[0,1,3,2]> (q) dkt = MatMul (qt, dsc) dk = Transpose<perm=[0,1,3,2]> (dkt) `
	const back = `pt = Transpose<perm=[0,1,3,2]> (p) dv = MatMul (pt, dy) vt = Transpose<perm=[0,1,3,2]> (v) dp = MatMul (dy, vt) `
	const whole = `pd = Mul (p, dp) z = ReduceSum (pd, last) pz = Mul (z, p) ds = Sub (pd, pz) `
	for _, c := range []struct {
		name, nodes string
		fused       bool
	}{
		{"as traced", added + back + whole + tail, true},
		{"difference first", added + back + `pd = Mul (dp, p) z = ReduceSum (pd, last) d = Sub (dp, z) ds = Mul (p, d) ` + tail, true},
		{"scores' gradient turned", added + back + whole + `dsc = Mul (ds, c) dq = MatMul (dsc, k) dst = Transpose<perm=[0,1,3,2]> (dsc) dk = MatMul (dst, q) `, true},
		{"operators of ONNX Runtime", added + `dv = com.microsoft.FusedMatMul<transA=1> (p, dy) dp = com.microsoft.FusedMatMul<transB=1> (dy, v) ds = com.microsoft.SoftmaxGrad_13<axis=-1> (dp, p)
			dq = com.microsoft.FusedMatMul<transB=1, alpha=0.5> (ds, kt) dkt = com.microsoft.FusedMatMul<transA=1, alpha=0.5> (q, ds) dk = Transpose<perm=[0,1,3,2]> (dkt) `, true},
		{"mask that replaces", forward + `kt = Transpose<perm=[0,1,3,2]> (k) s = MatMul (q, kt) t = Mul (s, c) m = Where (seen, t, low) p = Softmax (m) y = MatMul (p, v) ` + back +
			`pd = Mul (p, dp) z = ReduceSum (pd, last) pz = Mul (z, p) d0 = Sub (pd, pz) ds = Where (seen, d0, fzero) ` + tail, true},
		{"rank 3", forward + `q3 = Reshape (q, r3) k3 = Reshape (k, r3) v3 = Reshape (v, r3) kt = Transpose<perm=[0,2,1]> (k3) s3 = MatMul (q3, kt) s = Reshape (s3, r4) t = Mul (s, c) m = Add (t, causal) p = Softmax (m)
			p3 = Reshape (p, rp) y3 = MatMul (p3, v3) y = Reshape (y3, ry) dy3 = Reshape (dy, r3) pt = Transpose<perm=[0,2,1]> (p3) dv3 = MatMul (pt, dy3) dv = Reshape (dv3, ry) vt = Transpose<perm=[0,2,1]> (v3)
			dp3 = MatMul (dy3, vt) dp = Reshape (dp3, r4) ` + whole + `dsc = Mul (ds, c) ds3 = Reshape (dsc, rp) dq3 = MatMul (ds3, k3) dq = Reshape (dq3, ry) qt = Transpose<perm=[0,2,1]> (q3) dkt = MatMul (qt, ds3)
			dk3 = Transpose<perm=[0,2,1]> (dkt) dk = Reshape (dk3, ry) `, true},
		{"another scale", added + back + whole + `two = Constant<value_float=2.0> () dsc = Mul (ds, two) dq = MatMul (dsc, k) qt = Transpose<perm=[0,1,3,2]> (q) dkt = MatMul (qt, dsc) dk = Transpose<perm=[0,1,3,2]> (dkt) `, false},
		{"another sum", added + back + `pd = Mul (p, dp) z = ReduceSum (pd, a2) pz = Mul (z, p) ds = Sub (pd, pz) ` + tail, false},
		{"sum of another product", added + back + `pp = Mul (p, p) z = ReduceSum (pp, last) pd = Mul (p, dp) pz = Mul (z, p) ds = Sub (pd, pz) ` + tail, false},
		{"subtracted the other way", added + back + `pd = Mul (p, dp) z = ReduceSum (pd, last) pz = Mul (z, p) ds = Sub (pz, pd) ` + tail, false},
		{"keys in the place of values", added + `pt = Transpose<perm=[0,1,3,2]> (p) dv = MatMul (pt, dy) dp = MatMul (dy, kt) ` + whole + tail, false},
		{"values in the place of keys", added + back + whole + `dsc = Mul (ds, c) dq = MatMul (dsc, v) qt = Transpose<perm=[0,1,3,2]> (q) dkt = MatMul (qt, dsc) dk = Transpose<perm=[0,1,3,2]> (dkt) `, false},
		{"another gradient of the output", added + `e = Neg (dy) pt = Transpose<perm=[0,1,3,2]> (p) dv = MatMul (pt, e) vt = Transpose<perm=[0,1,3,2]> (v) dp = MatMul (dy, vt) ` + whole + tail, false},
		{"weights that somebody else reads", added + back + whole + tail + `more = Exp (p) `, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf(`<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]> g (float[2,4,6,8] x, float[2,4,6,8] k, float[2,4,6,8] v, float[2,4,6,8] dy) => (y, dq, dk, dv)
				<float c = {0.5}, float fzero = {0}, float low = {-3.4028234663852886e38}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64[1] last = {-1}, int64 zero = {0}, int64 one = {1}, int64 six = {6},
				 int64[3] r3 = {8, 6, 8}, int64[3] rp = {8, 6, 6}, int64[4] r4 = {2, 4, 6, 6}, int64[4] ry = {2, 4, 6, 8}> { q = Identity (x) %s }`, c.nodes)
			run := func(off bool) (*ir.Graph, map[string]ir.Datum) {
				m, err := ir.Parse("traced", text)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(c.nodes, "more = ") {
					last := m.Graph.Nodes[len(m.Graph.Nodes)-1]
					m.Graph.Outputs = append(m.Graph.Outputs, last.Out[0])
				}
				in, err := eval.RandomInputs(m.Graph, 3)
				if err != nil {
					t.Fatal(err)
				}
				g, out, _ := attentionRun(t, m, false, off, in, nil)
				return g, out
			}
			g, got := run(false)
			_, want := run(true)
			sameValues(t, got, want, 1e-4)
			ops := map[string]int{}
			for _, n := range g.Nodes {
				ops[n.Op]++
			}
			if fused := ops["FlashAttentionGrad"] == 1; fused != c.fused || fused && ops["MatMul"]+ops["FusedMatMul"]+ops["Softmax"] > 0 {
				t.Errorf("fused %v, want %v; operators %v", fused, c.fused, ops)
			}
		})
	}
}

// TestAttentionLimit stops after so many.
func TestAttentionLimit(t *testing.T) {
	path := sharedFile(t, "llama_dynamo18", "model.onnx")
	for limit, want := range []int{0, 1, 2, 2} {
		m, _, err := onnx.Load(path, onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := &Context{Model: m, Graph: m.Graph, Options: Options{Train: true, Loss: "loss", Debug: Debug{"attention": {Limit: limit}}}}
		if err := (&Runner{}).RunUntil(c, Analyze); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, n := range c.Graph.Nodes {
			if n.Op == "FlashAttention" {
				got++
			}
		}
		if got != want {
			t.Errorf("limit %d: %d attentions are replaced", limit, got)
		}
	}
}

// An output of the graph that the attention makes keeps its name.
func TestAttentionOutput(t *testing.T) {
	m := attentionModel(t, `s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v)`)
	for _, n := range m.Graph.Nodes {
		if n.Out[0].Name == "y" {
			m.Graph.Outputs[0] = n.Out[0]
		}
	}
	c := &Context{Model: m, Graph: m.Graph, Options: Options{}}
	if err := (&Runner{}).RunUntil(c, Analyze); err != nil {
		t.Fatal(err)
	}
	if y := c.Graph.Outputs[0]; y.Name != "y" || y.Def.Op != "FlashAttention" {
		t.Errorf("the output is %q of %s", y.Name, y.Def)
	}
}

// sameValues compares outputs to a share of the largest element.
func sameValues(t *testing.T, got, want map[string]ir.Datum, tolerance float64) {
	t.Helper()
	scale := 0.0
	for name, d := range want {
		if w, ok := d.(*ir.Tensor); ok && w.DType.IsFloat() && name != "loss" {
			for _, x := range w.Floats() {
				scale = max(scale, math.Abs(x))
			}
		}
	}
	for name, d := range want {
		w, ok := d.(*ir.Tensor)
		if !ok || !w.DType.IsFloat() {
			continue
		}
		x, ok := got[name].(*ir.Tensor)
		if !ok {
			t.Errorf("output %q is missing", name)
			continue
		}
		a, b, top, worst := x.Floats(), w.Floats(), 1e-5*scale, 0.0
		for i := range b {
			top = max(top, math.Abs(b[i]))
			if math.IsNaN(a[i]) != math.IsNaN(b[i]) {
				worst = math.Inf(1)
			}
			worst = max(worst, math.Abs(a[i]-b[i]))
		}
		if worst > tolerance*top {
			t.Errorf("output %q differs by %g of %g", name, worst, top)
		}
	}
}

// sharedFile is a file of the model cases beside the repository, "" where they
// are not there.
func sharedFile(t *testing.T, path ...string) string {
	t.Helper()
	p := filepath.Join(append([]string{"..", "..", "shared", "models"}, path...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skip("the model cases are not there")
	}
	return p
}

// TestAttentionModels fuses exported models.
func TestAttentionModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		fused int
		train bool
	}{
		{"gpt2_dynamo18", 2, true}, {"gpt2_script17", 2, true}, {"gpt2_sdpa_dynamo23", 2, true}, {"llama_dynamo18", 2, true}, {"llama_script17", 2, true},
		{"llama_sdpa_dynamo23", 2, true}, {"llama_bf16_dynamo20", 2, true}, {"bert_mlm_dynamo20", 2, true}, {"t5_script17", 6, true}, {"vit_script14", 2, true},
		{"step_torch_gpt2_dynamo18", 2, false}, {"step_torch_llama_dynamo18", 2, false}, {"gpt2_dropout_script17", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := sharedFile(t, c.name, "model.onnx")
			load := func() *ir.Model {
				m, _, err := onnx.Load(path, onnx.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			dims := map[string]ir.Dim{"batch": ir.N(2), "seq": ir.N(7)}
			bound := load()
			if err := ir.InferGraph(bound.Graph, ir.InferOptions{Dims: dims}); err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(bound.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			g, got, _ := attentionRun(t, load(), c.train, false, in, nil)
			_, want, _ := attentionRun(t, load(), c.train, true, in, nil)
			fused := 0
			for _, n := range g.Nodes {
				if n.Op == "FlashAttention" {
					fused++
				}
			}
			if fused != c.fused {
				t.Errorf("%d attentions are fused, want %d", fused, c.fused)
			}
			tolerance := 1e-4
			if strings.Contains(c.name, "bf16") {
				tolerance = 4e-2
				delete(want, "where_grad") // the mask: no parameter once it is known for what it is
			}
			if c.fused > 0 {
				sameValues(t, got, want, tolerance)
			}
		})
	}
}

// TestAttentionFull: no tensor of queries by keys is left in the models of real
// size.
func TestAttentionFull(t *testing.T) {
	for _, c := range []struct {
		file   string
		train  bool
		seq    int64
		layers int
	}{
		{"llama2_7b_step_torch_opset18.onnx", false, 4096, 32},
		{"llama3_8b_loss_opset23.onnx", true, 8192, 32},
		{"gpt_7b_loss_dynamic_opset18.onnx", true, 9000, 32},
		{"tinyllama_1b_loss_dynamic_opset23.onnx", true, 9000, 22},
	} {
		t.Run(c.file, func(t *testing.T) {
			m, _, err := onnx.Load(sharedFile(t, "full", c.file), onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx := &Context{Model: m, Graph: m.Graph, Report: func(d *diag.Diagnostic) {
				if d.ID == "attention" {
					t.Error(d.Message)
				}
			}, Options: Options{Train: c.train, Loss: "loss"}}
			if c.seq == 9000 {
				ctx.Options.Dims = map[string]ir.Dim{"seq": ir.N(c.seq)}
				if strings.HasPrefix(c.file, "tiny") {
					ctx.Options.Dims["batch"] = ir.N(3)
				}
			}
			if err := (&Runner{}).RunUntil(ctx, Analyze); err != nil {
				t.Fatal(err)
			}
			flash := map[string]int{}
			for _, n := range ctx.Graph.Nodes {
				flash[n.Op]++
				for _, v := range n.Out {
					if v == nil {
						continue
					}
					// In one model the hidden size is the sequence's length: rank
					// tells a weight from scores there.
					d := v.Type.Shape.Dims
					if r := len(d); r >= 3 && d[r-1].Equal(ir.N(c.seq)) && d[r-2].Equal(ir.N(c.seq)) && !d[r-3].Equal(ir.N(1)) || r == 4 && d[3].Equal(ir.N(c.seq)) && d[2].Equal(ir.N(c.seq)) {
						t.Errorf("%s makes %q of type %s", n, v.Name, v.Type)
					}
				}
			}
			if flash["FlashAttention"] != c.layers || flash["FlashAttentionGrad"] != c.layers {
				t.Errorf("%d attentions and %d gradients, want %d", flash["FlashAttention"], flash["FlashAttentionGrad"], c.layers)
			}
		})
	}
}

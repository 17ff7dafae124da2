package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/check"
)

// randomGraph is a graph of everything that planning treats in its own way:
// views and chains of them, in-place operators, several results of which some
// are not read, random operators, absent outputs, inputs and weights that are
// outputs, tensors of no elements.
func randomGraph(seed uint64, train bool) string {
	r := rand.New(rand.NewPCG(seed, 42))
	shapes := []string{"4,8", "8,4", "32", "1,32", "4,8", "16,16", "256"}
	sizeOf := map[string]int{"4,8": 32, "8,4": 32, "32": 32, "1,32": 32, "16,16": 256, "256": 256, "0,4": 0}
	type val struct{ name, shape string }
	var vals []val
	var nodes, inits strings.Builder
	for i := range 2 + r.IntN(2) {
		vals = append(vals, val{fmt.Sprintf("x%d", i), shapes[r.IntN(len(shapes))]})
	}
	inputs := len(vals)
	for i := range 2 {
		s := shapes[r.IntN(len(shapes))]
		var data []string
		for range sizeOf[s] {
			data = append(data, fmt.Sprintf("%.2f", r.Float64()*2-1))
		}
		fmt.Fprintf(&inits, "float[%s] w%d = {%s},", s, i, strings.Join(data, ","))
		vals = append(vals, val{fmt.Sprintf("w%d", i), s})
	}
	pick := func() val { return vals[max(r.IntN(len(vals)), r.IntN(len(vals)))] }
	like := func(shape string) val {
		for range 20 {
			if v := pick(); v.shape == shape {
				return v
			}
		}
		return val{}
	}
	emit := func(shape, format string, args ...any) {
		v := val{fmt.Sprintf("v%d", len(vals)), shape}
		fmt.Fprintf(&nodes, "%s = %s\n", v.name, fmt.Sprintf(format, args...))
		vals = append(vals, v)
	}
	for range 8 + r.IntN(40) {
		v := pick()
		switch r.IntN(14) {
		case 0, 1, 2:
			emit(v.shape, "%s (%s)", []string{"Relu", "Tanh", "Neg", "Sigmoid", "Softmax", "Identity"}[r.IntN(6)], v.name)
		case 3, 4, 5:
			if w := like(v.shape); w.name != "" {
				emit(v.shape, "%s (%s, %s)", []string{"Add", "Mul", "Sub"}[r.IntN(3)], v.name, w.name)
			}
		case 6, 7: // a view
			for range 8 {
				s := shapes[r.IntN(len(shapes))]
				if s != v.shape && sizeOf[s] == sizeOf[v.shape] {
					emit(s, "Reshape (%s, s%s)", v.name, strings.ReplaceAll(s, ",", "_"))
					break
				}
			}
		case 8:
			if v.shape == "4,8" {
				emit("8,4", "Transpose <perm = [1,0]> (%s)", v.name)
			}
		case 9:
			if v.shape == "16,16" {
				if w := like("16,16"); w.name != "" {
					emit("16,16", "MatMul (%s, %s)", v.name, w.name)
				}
			}
		case 10:
			if v.shape == "32" { // one half is not read
				n := len(vals)
				fmt.Fprintf(&nodes, "v%d, u%d = Split (%s)\nv%d = Concat <axis = 0> (v%d, v%d)\n", n, n, v.name, n+1, n, n)
				vals = append(vals, val{fmt.Sprintf("v%d", n), "16"}, val{fmt.Sprintf("v%d", n+1), "32"})
			}
		case 11:
			emit(v.shape, "RandomNormalLike (%s)", v.name)
		case 12:
			emit(v.shape, "Dropout (%s, ratio, training)", v.name)
		case 13:
			if v.shape == "1,32" {
				emit("4,32", "Expand (%s, wide)", v.name)
				emit("1,32", "ReduceSum (%s, zero)", vals[len(vals)-1].name)
			}
		}
	}
	var ins, outs []string
	for _, v := range vals[:inputs] {
		ins = append(ins, fmt.Sprintf("float[%s] %s", v.shape, v.name))
	}
	if !train {
		for i := range 1 + r.IntN(4) {
			v := vals[r.IntN(len(vals))]
			if i == 0 {
				v = vals[len(vals)-1]
			}
			if o := fmt.Sprintf("float[%s] %s", v.shape, v.name); !strings.Contains(strings.Join(outs, "; ")+";", o+";") {
				outs = append(outs, o)
			}
		}
	} else {
		last := vals[len(vals)-1]
		fmt.Fprintf(&nodes, "l0 = Reshape (w0, all) l1 = Reshape (%s, all) l2 = ReduceMean <keepdims = 0> (l0) l3 = ReduceMean <keepdims = 0> (l1) l4 = Add (l2, l3) l = Mul (l4, l4)\n", last.name)
		outs = append(outs, "float l")
	}
	return fmt.Sprintf(`g (%s) => (%s) <%s int64[2] s4_8 = {4,8}, int64[2] s8_4 = {8,4}, int64[1] s32 = {32}, int64[2] s1_32 = {1,32}, int64[2] s16_16 = {16,16}, int64[1] s256 = {256},
		int64[1] all = {-1}, int64[2] wide = {4,32}, int64[1] zero = {0}, float ratio = {0.5}, bool training = {1}> { %s }`,
		strings.Join(ins, ", "), strings.Join(outs, ", "), inits.String(), nodes.String())
}

// TestRandomGraphs plans random graphs under random limits, and holds the
// planned step against the plain graph bit for bit.
func TestRandomGraphs(t *testing.T) {
	seeds := uint64(60)
	if long() {
		seeds = 2000
	}
	moved, again := 0, 0
	for seed := range seeds {
		s := setup{}
		if seed%3 == 0 {
			s.train = "l"
		}
		src := randomGraph(seed, s.train != "")
		plain, _, err := compileUntil(t, text(t, src), s, passes.Analyze)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, src)
		}
		in, err := eval.RandomInputs(plain.Graph, seed)
		if err != nil {
			t.Fatal(err)
		}
		want, err := eval.Graph(plain.Graph, in, eval.Options{Step: 1})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, src)
		}
		budgets := []setup{s}
		for _, host := range []int64{0, noHost, 700} {
			s.budget, s.host = "1", host
			_, _, err := compile(t, text(t, src), s)
			var inf *passes.Infeasible
			if errors.As(err, &inf) {
				s.budget = fmt.Sprint(inf.Smallest)
				budgets = append(budgets, s)
			} else if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, src)
			}
		}
		for _, s := range budgets {
			c, _, err := compile(t, text(t, src), s)
			if err != nil {
				t.Fatalf("seed %d, budget %s, host %d: %v\n%s", seed, s.budget, s.host, err, src)
			}
			moved += len(movedOut(c.Program))
			again += len(clones(c.Program))
			if how := judgePeaks(planfile.FromProgram(c.Program)); how != "" {
				t.Errorf("seed %d, budget %s, host %d: %s\n%s", seed, s.budget, s.host, how, src)
			}
			if how := fromFiles(t, c, in, want); how != "" {
				t.Errorf("seed %d, budget %s, host %d, from the files: %s\n%s", seed, s.budget, s.host, how, src)
			}
			for order := range uint64(5) {
				if how := sameOutputs(c.Program, in, want, eval.Options{Order: order, Steps: 2}); how != "" {
					t.Fatalf("seed %d, budget %s, host %d, order %d: %s\n%s\n%s", seed, s.budget, s.host, order, how, src, ir.PrintGraph(c.Graph, ir.TextOptions{}))
				}
			}
		}
	}
	if moved == 0 || again == 0 {
		t.Errorf("%d copies and %d clones: the graphs show too little", moved, again)
	}
}

// fromFiles is what a compiled folder is worth: the checker judges plan and
// model from what is written, the plan runs over the model that is read again,
// and the model gives the same values where nothing of memoc's is known.
func fromFiles(t *testing.T, c *passes.Context, in, want map[string]ir.Datum) string {
	b, err := planfile.FromProgram(c.Program).Encode()
	if err != nil {
		return err.Error()
	}
	plan, err := planfile.Decode(b)
	if err != nil {
		return err.Error()
	}
	m := written(t, c)
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		return err.Error()
	}
	if err := check.Model(plan, m.Graph); err != nil {
		return err.Error()
	}
	p, err := plan.Program(m.Graph)
	if err != nil {
		return err.Error()
	}
	if how := sameOutputs(p, in, want, eval.Options{Order: 3, Steps: 2}); how != "" {
		return how
	}
	m = written(t, c)
	if err := ir.Inline(m); err != nil {
		return err.Error()
	}
	if err := ir.InferGraph(m.Graph, ir.InferOptions{}); err != nil {
		return err.Error()
	}
	got, err := eval.Graph(m.Graph, in, eval.Options{Step: 1})
	if err != nil {
		return err.Error()
	}
	for name, d := range want {
		if x, ok := got[name].(*ir.Tensor); !ok || !bytes.Equal(x.Data, d.(*ir.Tensor).Data) {
			return fmt.Sprintf("output %q of the written model differs", name)
		}
	}
	return ""
}

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

// randomGradient differentiates a random graph of doubles and compares every
// gradient with central differences along random directions.
func randomGradient(t testing.TB, seed uint64, size int) (how string, compared int) {
	defer func() {
		if p := recover(); p != nil {
			how = fmt.Sprintf("panic: %v", p)
		}
	}()
	s := makeRandomOf(seed, size, trains, ir.Double)
	if s.loss == "" {
		return "", 0
	}
	forward := makeRandomOf(seed, size, trains, ir.Double).model.Graph
	opt := passes.Options{Train: true, Loss: s.loss, Device: setup{}.options(t).Device, HostBudget: -1}
	c := &passes.Context{Model: s.model, Graph: s.model.Graph, Options: opt}
	if err := (&passes.Runner{}).RunUntil(c, passes.Analyze); err != nil {
		if acceptable(err) {
			if os.Getenv("MEMOC_RANDOM") != "" {
				fmt.Printf("note: seed %d: %.300v\n", seed, err)
			}
			return "", 0
		}
		return err.Error(), 0
	}
	out, err := eval.Graph(c.Graph, s.in, eval.Options{})
	if err != nil {
		return "the compiled graph does not run: " + err.Error(), 0
	}
	r := rand.New(rand.NewPCG(seed, 3))
	for _, w := range forward.Inits {
		g, ok := out[w.Name+"_grad"].(*ir.Tensor)
		if !ok {
			continue
		}
		h, n := alongRandom(forward, s, w, g, r)
		if h != "" {
			return h, compared
		}
		compared += n
	}
	return "", compared
}

func alongRandom(forward *ir.Graph, s *opsGraph, w *ir.Value, g *ir.Tensor, r *rand.Rand) (how string, compared int) {
	x, _ := w.Init.Tensor()
	base := x.Floats()
	dir := make([]float64, len(base))
	want := 0.0
	for i, gi := range g.Floats() {
		dir[i] = r.Float64()*2 - 1
		want += dir[i] * gi
	}
	defer func(old *ir.Weight) { w.Init = old }(w.Init)
	at := func(h float64) float64 {
		vals := make([]float64, len(base))
		for i := range vals {
			vals[i] = base[i] + h*dir[i]
		}
		c := ir.WeightOf(ir.FromFloats(ir.Double, vals, x.Dims...))
		w.Init = c
		out, err := eval.Graph(forward, s.in, eval.Options{})
		if err != nil {
			how = err.Error()
			return math.NaN()
		}
		return out[s.loss].(*ir.Tensor).Floats()[0]
	}
	zero := at(0)
	var est []float64
	for _, h := range []float64{1e-4, 1e-5} {
		up, down := at(h), at(-h)
		est = append(est, (up-zero)/h, (zero-down)/h, (up-down)/(2*h))
	}
	if how != "" {
		return how, 0
	}
	lo, hi := est[0], est[0]
	for _, e := range est {
		if math.IsNaN(e) || math.IsInf(e, 0) {
			return "", 0
		}
		lo, hi = min(lo, e), max(hi, e)
	}
	scale := 1 + math.Abs(est[5])
	if hi-lo > 1e-2*scale {
		return "", 0 // not smooth here
	}
	if d := math.Abs(want - est[5]); !(d <= 1e-4*scale+2*math.Abs(est[5]-est[2])+math.Abs(zero)*1e-9) {
		return fmt.Sprintf("weight %q: along a direction the loss changes by %v, the gradient says %v (%v)", w.Name, est[5], want, est), 0
	}
	return "", 1
}

// TestRandomGradients: see randomGradient. MEMOC_RANDOM=from:to runs other
// seeds.
func TestRandomGradients(t *testing.T) {
	from, to := randomSeeds(40)
	compared := 0
	for seed := from; seed <= to; seed++ {
		size := 2 + int(seed%12)
		how, n := randomGradient(t, seed, size)
		compared += n
		if how == "" {
			continue
		}
		for smaller := 1; smaller < size; smaller++ {
			if h, _ := randomGradient(t, seed, smaller); h != "" {
				how, size = h, smaller
				break
			}
		}
		t.Errorf("seed %d, size %d: %.2000s", seed, size, how)
		if os.Getenv("MEMOC_RANDOM") != "" {
			fmt.Printf("seed %d, size %d: %.1200s\n", seed, size, how)
		}
		if os.Getenv("MEMOC_RANDOM_PRINT") != "" {
			fmt.Printf("%s", ir.PrintGraph(makeRandomOf(seed, size, trains, ir.Double).model.Graph, ir.TextOptions{}))
		}
	}
	if compared < 20 {
		t.Errorf("%d gradients compared", compared)
	}
	t.Logf("%d gradients compared", compared)
}

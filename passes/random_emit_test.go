package passes_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"memoc/codegen/cuda"
	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// randomEmit compiles a random graph at its smallest budget, builds the
// emitted program with g++ and compares it with the interpreter.
func randomEmit(t testing.TB, seed uint64, size int) (how string) {
	defer func() {
		if p := recover(); p != nil {
			how = fmt.Sprintf("panic: %v", p)
		}
	}()
	only := func(op *ir.Op) bool { return op.Kernel.None == "" && trains(op) }
	s := makeRandom(seed, size, only)
	s.loss = pick(s.loss, seed)
	r := rand.New(rand.NewPCG(seed, 99))
	device := randomDevice(t, r)
	compileAt := func(b passes.Budget) (*passes.Context, error) {
		m := makeRandom(seed, size, only).model
		c := &passes.Context{Model: m, Graph: m.Graph, Options: passes.Options{Train: s.loss != "", Loss: s.loss, Device: device, HostBudget: -1, Budget: b}}
		return c, (&passes.Runner{}).Run(c)
	}
	_, err := compileAt(passes.Budget{Bytes: 1})
	inf, ok := err.(*passes.Infeasible)
	if !ok {
		return ""
	}
	c, err := compileAt(passes.Budget{Bytes: inf.Smallest})
	if err != nil {
		return err.Error()
	}
	want, err := eval.Program(c.Program, s.in, eval.Options{Steps: 2})
	if err != nil {
		return err.Error()
	}
	files, err := cuda.Emit(c.Program)
	if err != nil {
		if acceptable(err) {
			return ""
		}
		return "emit: " + err.Error()
	}
	dir, err := os.MkdirTemp("", "memoc-random-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := cuda.WriteDir(dir, files); err != nil {
		t.Fatal(err)
	}
	exe, err := cuda.BuildHost(context.Background(), dir, "")
	if err != nil {
		return "build: " + err.Error()
	}
	var in []cuda.Named
	for _, name := range slices.Sorted(maps.Keys(s.in)) {
		in = append(in, cuda.Named{Name: name, Tensor: s.in[name].(*ir.Tensor)})
	}
	for _, o := range []cuda.RunOptions{{Steps: 2, Paranoid: true}, {Steps: 2, Schedules: 20}} {
		got, err := exe.Run(context.Background(), in, o)
		if err != nil {
			return fmt.Sprintf("run %+v: %v", o, err)
		}
		for _, g := range got {
			w, ok := want[g.Name].(*ir.Tensor)
			if !ok {
				return fmt.Sprintf("the program has an output %q", g.Name)
			}
			if how := unlike(g.Tensor, w); how != "" {
				return fmt.Sprintf("output %q: %s", g.Name, how)
			}
		}
		if len(got) != len(want) {
			return fmt.Sprintf("%d outputs, want %d", len(got), len(want))
		}
	}
	return ""
}

// pick leaves the loss out in one case of four.
func pick(loss string, seed uint64) string {
	if seed%4 == 0 {
		return ""
	}
	return loss
}

// unlike says how values differ by more than rounding.
func unlike(got, want *ir.Tensor) string {
	if !got.Type().Equal(want.Type()) {
		return fmt.Sprintf("the type is %s, want %s", got.Type(), want.Type())
	}
	if want.DType == ir.String || !want.DType.IsFloat() && !want.DType.IsInt() && want.DType != ir.Bool {
		return ""
	}
	if !want.DType.IsFloat() {
		if !slices.Equal(got.Ints(), want.Ints()) {
			return "integers differ"
		}
		return ""
	}
	a, b := got.Floats(), want.Floats()
	largest := 1.0
	for _, x := range b {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			largest = max(largest, math.Abs(x))
		}
	}
	for i := range b {
		if !(math.Abs(a[i]-b[i]) <= 1e-3*largest) && a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			return fmt.Sprintf("element %d is %v, want %v", i, a[i], b[i])
		}
	}
	return ""
}

// TestRandomPrograms: see randomEmit. MEMOC_RANDOM=from:to runs other seeds.
func TestRandomPrograms(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil || testing.Short() {
		t.Skip("compiles C++")
	}
	from, to := randomSeeds(4)
	var wg sync.WaitGroup
	slots := make(chan bool, 2)
	for seed := from; seed <= to; seed++ {
		wg.Go(func() {
			slots <- true
			defer func() { <-slots }()
			size := 10 + int(seed%25)
			if how := randomEmit(t, seed, size); how != "" {
				t.Errorf("seed %d, size %d: %.2000s", seed, size, how)
				if os.Getenv("MEMOC_RANDOM") != "" {
					fmt.Printf("seed %d, size %d: %.1500s\n", seed, size, how)
				}
			}
		})
	}
	wg.Wait()
}

package passes_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes"
)

// wideLayer writes a random feed-forward layer in double precision: tokens in
// one of the layouts of exporters, products as MatMul or as Gemm of merged
// tokens, one or several projections, random token-wise nodes between, now and
// then a scale for each token, a residual, or a layer twice over.
type wideLayer struct {
	r     *rand.Rand
	nodes []string
	inits []string
	dims  []int64 // of the tokens' axes
	count int
}

func (w *wideLayer) fresh() string {
	w.count++
	return fmt.Sprintf("t%d", w.count)
}

func (w *wideLayer) op(format string, args ...any) string {
	out := w.fresh()
	w.nodes = append(w.nodes, out+" = "+fmt.Sprintf(format, args...))
	return out
}

func (w *wideLayer) init(typ string, vals []string) string {
	name := "i" + w.fresh()
	w.inits = append(w.inits, typ+" "+name+" = {"+strings.Join(vals, ",")+"}")
	return name
}

func (w *wideLayer) weight(dims ...int64) string {
	n, shape := int64(1), []string{}
	for _, d := range dims {
		n *= d
		shape = append(shape, fmt.Sprint(d))
	}
	vals := make([]string, n)
	for i := range vals {
		vals[i] = fmt.Sprintf("%.3f", w.r.Float64()-0.5)
	}
	return w.init("double["+strings.Join(shape, ",")+"]", vals)
}

func (w *wideLayer) shape(dims ...int64) string {
	var vals []string
	for _, d := range dims {
		vals = append(vals, fmt.Sprint(d))
	}
	return w.init(fmt.Sprintf("int64[%d]", len(dims)), vals)
}

// product is x, from wide, to wide.
func (w *wideLayer) product(x string, from, to int64) string {
	switch w.r.IntN(4) {
	case 0:
		tokens := int64(1)
		for _, d := range w.dims {
			tokens *= d
		}
		flat := w.op("Reshape (%s, %s)", x, w.shape(tokens, from))
		y := w.op("Gemm <transB = 1> (%s, %s, %s)", flat, w.weight(to, from), w.weight(to))
		return w.op("Reshape (%s, %s)", y, w.shape(append(append([]int64{}, w.dims...), to)...))
	case 1:
		return w.op("MatMul (%s, %s)", x, w.op("Transpose <perm = [1, 0]> (%s)", w.weight(to, from)))
	case 2:
		return w.op("Add (%s, %s)", w.op("MatMul (%s, %s)", x, w.weight(from, to)), w.weight(to))
	}
	return w.op("MatMul (%s, %s)", x, w.weight(from, to))
}

// between is a random token-wise function of x, of the same width.
func (w *wideLayer) between(x string, width int64) string {
	switch w.r.IntN(9) {
	case 0:
		return w.op("Mul (%s, %s)", x, w.op("Sigmoid (%s)", x))
	case 1:
		return w.op("Softmax <axis = -1> (%s)", x)
	case 2:
		return w.op("Mul (%s, %s)", x, w.op("Tanh (%s)", w.op("MatMul (%s, %s)", x, w.weight(width, 1))))
	case 3:
		a, b := w.fresh(), w.fresh()
		w.nodes = append(w.nodes, fmt.Sprintf("%s, %s = Split <axis = -1> (%s, %s)", a, b, x, w.shape(width/2, width/2)))
		return w.op("Concat <axis = -1> (%s, %s)", b, w.op("Mul (%s, %s)", a, b))
	case 4:
		return w.op("Sub (%s, %s)", x, w.op("ReduceMean <axes = [-1], keepdims = 1> (%s)", x))
	case 5:
		return w.op("Mul (%s, %s)", x, w.weight(width))
	case 6:
		heads := w.op("Reshape (%s, %s)", x, w.shape(append(append([]int64{}, w.dims...), 4, width/4)...))
		return w.op("Reshape (%s, %s)", w.op("Sin (%s)", heads), w.shape(append(append([]int64{}, w.dims...), width)...))
	case 7:
		return w.product(w.op("Tanh (%s)", x), width, width)
	}
	return w.op("Erf (%s)", x)
}

func randomLayer(seed uint64) string {
	w := &wideLayer{r: rand.New(rand.NewPCG(seed, 1))}
	w.dims = [][]int64{{1, 12}, {2, 6}, {9}, {7, 2}, {2, 3, 4}}[w.r.IntN(5)]
	const h = 4
	x := "x"
	for range 1 + w.r.IntN(2) {
		x = w.op("Tanh (%s)", w.op("MatMul (%s, %s)", x, w.weight(h, h)))
		wide := h * int64(2+2*w.r.IntN(2))
		y := w.product(x, h, wide)
		for range 1 + w.r.IntN(3) {
			y = w.between(y, wide)
		}
		if w.r.IntN(2) == 0 {
			y = w.op("Mul (%s, %s)", y, w.product(x, h, wide))
		}
		y = w.product(y, wide, h)
		if w.r.IntN(2) == 0 {
			y = w.op("Add (%s, %s)", x, y)
		}
		x = y
	}
	shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(append(append([]int64{}, w.dims...), h)), " ", ","), "[]")
	return fmt.Sprintf("g (double[%s] x) => (double loss) <%s> {\n%s\nq = Mul (%s, %s) loss = ReduceMean <keepdims = 0> (q) }",
		shape, strings.Join(w.inits, ",\n"), strings.Join(w.nodes, "\n"), x, x)
}

// Random layers give the same loss and gradients whole and in chunks, unplanned
// and planned.
func TestRandomLayersInChunks(t *testing.T) {
	seeds, found := uint64(40), 0
	if long() {
		seeds = 400
	}
	for seed := range seeds {
		g := randomLayer(seed)
		whole, _, err := compileUntil(t, text(t, g), setup{train: "loss", mlpChunks: 1}, passes.Analyze)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, g)
		}
		in, err := eval.RandomInputs(whole.Graph, seed)
		if err != nil {
			t.Fatal(err)
		}
		want := run(t, whole.Graph, in)
		count := int(2 + seed%3)
		chunked, _, err := compileUntil(t, text(t, g), setup{train: "loss", mlpChunks: count}, passes.Analyze)
		if err != nil {
			t.Fatalf("seed %d in %d: %v\n%s", seed, count, err, g)
		}
		found += chunked.Metrics.ChunkedLayers
		got := run(t, chunked.Graph, in)
		for out, v := range want {
			compareTensors(t, fmt.Sprintf("seed %d in %d: %s", seed, count, out), got[out], v, 1e-12)
		}
		if seed%4 == 0 {
			c := tightest(t, func() *ir.Model { return text(t, g) }, setup{train: "loss", mlpChunks: count})
			if how := sameOutputs(c.Program, in, got, eval.Options{Order: seed, Steps: 1}); how != "" {
				t.Errorf("seed %d in %d, planned: %s", seed, count, how)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d in %d:\n%s", seed, count, g)
		}
	}
	if found < int(seeds)*3/4 {
		t.Errorf("%d layers of %d models ran in chunks: the cases show too little", found, seeds)
	}
}

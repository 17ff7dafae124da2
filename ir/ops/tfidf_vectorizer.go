package ops

import (
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
)

var _ = ir.Register(ir.Op{
	Name:  "TfIdfVectorizer",
	Doc:   "Counts the n-grams of a pool in each row, weighted.",
	Since: []int{9},
	In:    ir.Ports("X:T"), Out: ir.Ports("Y:tensor(float)"),
	Types: map[string]ir.DTypeSet{"T": ir.SetOf(ir.String, ir.Int32, ir.Int64)},
	Infer: func(c *ir.InferCtx) error {
		v, err := tfidfOf(c.Node)
		if err != nil {
			return err
		}
		x := c.Shape(0)
		switch {
		case !x.Ranked:
			c.SetTensor(0, ir.Float, x)
		case x.Rank() == 2:
			c.SetTensor(0, ir.Float, ir.Dims(x.Dims[0], ir.N(v.width)))
		case x.Rank() < 2:
			c.SetTensor(0, ir.Float, ir.Ints64(v.width))
		default:
			return c.Errorf("input %s is neither [n] nor [rows, n]", x)
		}
		return nil
	},
	Axes:      ir.NoAxes,
	Cost:      stringCost,
	Grad:      ir.NoGrad("integers or strings come in"),
	Recompute: ir.Pure,
	Eval: func(c *ir.EvalCtx) error {
		v, err := tfidfOf(c.Node)
		if err != nil {
			return err
		}
		x := c.In(0)
		items := x.Strings
		if x.DType != ir.String {
			for _, n := range x.Ints() {
				items = append(items, fmt.Sprint(n))
			}
		}
		rows, dims := int64(1), []int64{v.width}
		if len(x.Dims) == 2 {
			rows, dims = x.Dims[0], []int64{x.Dims[0], v.width}
		}
		out := make([]float64, rows*v.width)
		for r := range rows {
			n := int64(len(items)) / rows
			v.count(items[r*n:(r+1)*n], out[r*v.width:(r+1)*v.width])
		}
		c.Set(0, ir.FromFloats(ir.Float, out, dims...))
		return nil
	},
	Kernel: ir.NoKernel("it is a lookup of n-grams made on the host"),
	Samples: func() []ir.Sample {
		ints := func(name string, v ...int64) ir.Attr { return ir.IntsAttr(name, v...) }
		attrs := []ir.Attr{ir.StringAttr("mode", "TF"), ir.IntAttr("min_gram_length", 1), ir.IntAttr("max_gram_length", 2), ir.IntAttr("max_skip_count", 1),
			ints("ngram_counts", 0, 2), ints("ngram_indexes", 0, 1, 2), ints("pool_int64s", 2, 3, 5, 4)}
		x := ir.FromInts(ir.Int32, []int64{2, 5, 1, 4, 5, 4}, 6)
		return []ir.Sample{{Name: "skips", In: []*ir.Tensor{x}, Attrs: attrs, Want: []*ir.Tensor{ir.FromFloats(ir.Float, []float64{1, 0, 2}, 3)}}}
	},
})

// tfidf is the pool of n-grams, by their items joined, with output positions
// and weights.
type tfidf struct {
	columns          map[string]int64
	width            int64
	minGram, maxGram int64
	maxSkip          int64
	presence         bool // IDF: whether, not how often
	weights          []float32
}

func gramKey(items []string) string { return strings.Join(items, "\x00") }

func tfidfOf(n *ir.Node) (*tfidf, error) {
	v := &tfidf{columns: map[string]int64{}, minGram: n.Int("min_gram_length", 1), maxGram: n.Int("max_gram_length", 1), maxSkip: n.Int("max_skip_count", 0)}
	var pool []string
	if a := n.Attr("pool_strings"); a != nil {
		pool = a.Strings
	}
	ints, _ := n.IntList("pool_int64s")
	for _, i := range ints {
		pool = append(pool, fmt.Sprint(i))
	}
	counts, _ := n.IntList("ngram_counts")
	columns, _ := n.IntList("ngram_indexes")
	if len(columns) == 0 || slices.Min(columns) < 0 || slices.Max(columns) > 1<<31 || v.minGram < 1 || v.maxGram < v.minGram || v.maxSkip < 0 {
		return nil, n.Errorf("shape", "ngram_indexes %v for n-grams of %d to %d items", columns, v.minGram, v.maxGram)
	}
	v.width = slices.Max(columns) + 1
	switch mode := n.Str("mode", ""); mode {
	case "TF":
	case "IDF":
		v.presence = true
		fallthrough
	case "TFIDF":
		if a := n.Attr("weights"); a != nil {
			v.weights = a.Floats
		}
	default:
		return nil, n.Errorf("shape", "unknown mode %q", mode)
	}
	if v.weights != nil && int64(len(v.weights)) < v.width {
		return nil, n.Errorf("shape", "%d weights for %d columns", len(v.weights), v.width)
	}
	id := 0
	for size := int64(1); size <= int64(len(counts)); size++ {
		start, end := counts[size-1], int64(len(pool))
		if size < int64(len(counts)) {
			end = counts[size]
		}
		if start < 0 || end > int64(len(pool)) || start > end {
			return nil, n.Errorf("shape", "ngram_counts %v do not fit a pool of %d", counts, len(pool))
		}
		for at := start; at+size <= end; at += size {
			if id >= len(columns) {
				return nil, n.Errorf("shape", "more n-grams than the %d of ngram_indexes", len(columns))
			}
			v.columns[gramKey(pool[at:at+size])] = columns[id]
			id++
		}
	}
	return v, nil
}

// count adds up the n-grams of a row: of neighbours, and of items that are
// up to maxSkip apart (single items are counted once).
func (v *tfidf) count(row []string, out []float64) {
	smallest := v.minGram
	for step := int64(1); step <= v.maxSkip+1; step++ {
		for start := range int64(len(row)) {
			var gram []string
			for at := start; at < int64(len(row)) && int64(len(gram)) < v.maxGram; at += step {
				gram = append(gram, row[at])
				if int64(len(gram)) < smallest {
					continue
				}
				if col, ok := v.columns[gramKey(gram)]; ok {
					out[col]++
				}
			}
		}
		if smallest == 1 {
			if smallest = 2; smallest > v.maxGram {
				break
			}
		}
	}
	for i := range out {
		if v.presence {
			out[i] = min(out[i], 1)
		}
		if v.weights != nil {
			out[i] *= float64(v.weights[i])
		}
	}
}

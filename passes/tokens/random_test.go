package tokens_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"memoc/ir"
	"memoc/passes/tokens"
)

// TestRandomGraphs builds graphs that move, merge, split, add, multiply and
// normalize tensors of few different extents at random, and runs every node by
// token along every axis.
func TestRandomGraphs(t *testing.T) {
	ran, merged := 0, 0
	for seed := range uint64(400) {
		b := &randomGraph{r: rand.New(rand.NewPCG(seed, 1)), g: ir.NewGraph("random", map[string]int{ir.OnnxDomain: 18})}
		for k := range 2 {
			b.vals = append(b.vals, b.g.AddInput(fmt.Sprintf("x%d", k), b.shape(24)))
		}
		for range 14 {
			b.step()
		}
		b.g.Outputs = b.vals
		vals := runAll(t, b.g, seed)
		for _, i := range tokens.Each(b.g) {
			ran += checkRanges(t, i, b.g, vals, [][2]int64{{0, 1}, {i.Tokens() / 2, i.Tokens()}})
			for _, v := range b.vals {
				if a, ok := i.Axis(v); ok && a.Outer*a.Inner > 1 {
					merged++
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, ir.Print(&ir.Model{Graph: b.g, Opsets: b.g.Opsets}, ir.TextOptions{}))
		}
	}
	if ran < 5000 || merged < 500 {
		t.Errorf("only %d nodes ran by token, %d values have the tokens inside a dimension", ran, merged)
	}
}

type randomGraph struct {
	r    *rand.Rand
	g    *ir.Graph
	vals []*ir.Value
}

// shape is a random shape of that many elements.
func (b *randomGraph) shape(elems int64) ir.Type {
	return ir.TensorOf(ir.Float, ir.Ints64(b.dims(elems)...))
}

// dims is one to four extents with that product.
func (b *randomGraph) dims(elems int64) []int64 {
	dims := []int64{1, 1, 1, 1}[:1+b.r.IntN(4)]
	for p := int64(2); elems > 1; p++ {
		for ; elems%p == 0; elems /= p {
			dims[b.r.IntN(len(dims))] *= p
		}
	}
	return dims
}

func (b *randomGraph) pick() *ir.Value { return b.vals[b.r.IntN(len(b.vals))] }

func (b *randomGraph) ints(ns ...int64) *ir.Value {
	return b.g.AddInit(b.g.Fresh("ints"), ir.WeightOf(ir.FromInts(ir.Int64, ns, int64(len(ns)))))
}

// add appends a node; what it makes is built on unless it is large.
func (b *randomGraph) add(op string, in []*ir.Value, attrs ...ir.Attr) *ir.Value {
	name := b.g.Fresh(op)
	v := appended(b.g, ir.NodeSpec{Name: name, Op: op, In: in, Out: []string{name + "_out"}, Attrs: attrs})
	if n, ok := v.Type.Shape.Static(); ok && ir.Elems(n) <= 96 {
		b.vals = append(b.vals, v)
	}
	return v
}

func (b *randomGraph) step() {
	x := b.pick()
	dims, _ := x.Type.Shape.Static()
	axis := int64(b.r.IntN(len(dims)))
	switch b.r.IntN(10) {
	case 0, 1:
		b.add("Reshape", []*ir.Value{x, b.ints(b.dims(ir.Elems(dims))...)})
	case 2:
		var perm []int64
		for _, k := range b.r.Perm(len(dims)) {
			perm = append(perm, int64(k))
		}
		b.add("Transpose", []*ir.Value{x}, ir.IntsAttr("perm", perm...))
	case 3, 4:
		var alike []*ir.Value
		for _, y := range b.vals {
			if y.Type.Equal(x.Type) {
				alike = append(alike, y)
			}
		}
		b.add("Add", []*ir.Value{x, alike[b.r.IntN(len(alike))]})
	case 5:
		b.add("Softmax", []*ir.Value{x}, ir.IntAttr("axis", axis))
	case 6:
		b.add("ReduceMax", []*ir.Value{x}, ir.IntsAttr("axes", axis))
	case 7:
		w := b.g.AddInput(b.g.Fresh("w"), ir.TensorOf(ir.Float, ir.Ints64(dims[len(dims)-1], dims[len(dims)-1])))
		b.add("MatMul", []*ir.Value{x, w})
	case 8:
		rest := slices.Clone(dims)
		rest[axis] = 1
		y := b.g.AddInput(b.g.Fresh("row"), ir.TensorOf(ir.Float, ir.Ints64(rest...)))
		b.add("Mul", []*ir.Value{x, y})
	case 9: // the elements in another order, in the same shape
		d := int64(2 + b.r.IntN(5))
		if n := ir.Elems(dims); n%d == 0 {
			y := b.add("Reshape", []*ir.Value{x, b.ints(d, n/d)})
			y = b.add("Transpose", []*ir.Value{y}, ir.IntsAttr("perm", 1, 0))
			b.add("Reshape", []*ir.Value{y, b.ints(dims...)})
		}
	}
}

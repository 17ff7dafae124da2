// Package handmade holds Programs laid out by hand, whose tensors are split
// along the token axis: for the tests of everything that reads a Program. It
// knows nothing of passes.
package handmade

import (
	"fmt"
	"slices"
	"strings"

	"memoc/ir"
)

// Case is a Program and the graph before planning.
type Case struct {
	Plain   *ir.Graph
	Program *ir.Program
}

// Tokens is the extent of the token axis in Split, of which Head are swapped.
const (
	Tokens = 8
	Head   = 5
	width  = 64 // bytes of a token are 4*width
)

const plainText = `split (float[B,8,64] x) => (float[B*8,64] y) <float[64] w = ["elided": ""], float[64,64] v = ["elided": ""], int64[2] flat = {B*8,64}> {
  [a] a = Tanh (x)
  [h] h = Mul (a, w)
  [f] f = Reshape (h, flat)
  [m] m = MatMul (f, v)
  [q] q = Exp (m)
  [z] z = Sqrt (q)
  [d] d = Relu (z)
  [e] e = Add (q, f)
  [y] y = Mul (e, d)
}`

// splitText is the planned step: of h and q the first five tokens travel
// through host memory, the last three are made again on that range alone. h is
// cut as it is, q, whose tokens are merged with the batch, through views.
const splitText = `split (float[B,8,64] x) => (float[B*8,64] y)
<float[64] w = ["elided": ""], float[64,64] v = ["elided": ""], int64[2] flat = {B*8,64}, int64[2] flat3 = {B*3,64}, int64[3] deep = {B,8,64}, int64[3] deep3 = {B,3,64},
 int64[1] zero = {0}, int64[1] five = {5}, int64[1] most = {9223372036854775807}, int64[1] axis = {1}, int64[1] axisBack = {-2}> {
  [a] a = Tanh (x)
  [h] h = Mul (a, w)
  ["h.head"] "h.head" = Slice (h, zero, five, axis)
  ["h.out"] "h.out" = ai.memoc.SwapOut ("h.head")
  [f] f = Reshape (h, flat)
  [m] m = MatMul (f, v)
  [q] q = Exp (m)
  ["q.deep"] "q.deep" = Reshape (q, deep)
  ["q.head"] "q.head" = Slice ("q.deep", zero, five, axisBack)
  ["q.out"] "q.out" = ai.memoc.SwapOut ("q.head")
  [z] z = Sqrt (q)
  [d] d = Relu (z)
  ["h.in"] "h.in" = ai.memoc.SwapIn ("h.out")
  ["x.tail"] "x.tail" = Slice (x, five, most, axis)
  ["a.tail"] "a.tail" = Tanh ("x.tail")
  ["h.tail"] "h.tail" = Mul ("a.tail", w)
  ["h.whole"] "h.whole" = Concat <axis = 1> ("h.in", "h.tail")
  ["f.whole"] "f.whole" = Reshape ("h.whole", flat)
  ["h.range"] "h.range" = Slice ("h.whole", five, most, axisBack)
  ["f.range"] "f.range" = Reshape ("h.range", flat3)
  ["m.tail"] "m.tail" = MatMul ("f.range", v)
  ["q.tail"] "q.tail" = Exp ("m.tail")
  ["q.tail.deep"] "q.tail.deep" = Reshape ("q.tail", deep3)
  ["q.in"] "q.in" = ai.memoc.SwapIn ("q.out")
  ["q.join"] "q.join" = Concat <axis = -2> ("q.in", "q.tail.deep")
  ["q.whole"] "q.whole" = Reshape ("q.join", flat)
  [e] e = Add ("q.whole", "f.whole")
  [y] y = Mul (e, d)
}`

// Split is a step that splits two tensors. With one row of tokens (a batch of
// 1) parts are contiguous, and slices and joins move nothing; with more rows
// parts lie in as many pieces and are packed and unpacked.
func Split(batch int64) (*Case, error) {
	plain, err := parse(plainText, batch)
	if err != nil {
		return nil, err
	}
	g, err := parse(splitText, batch)
	if err != nil {
		return nil, err
	}
	l := newLayout(g)
	for _, v := range slices.Concat(g.Inputs, g.Inits) {
		l.buffer(v, ir.DeviceArena, ir.Persistent)
	}
	l.run("a", ir.Transient)
	l.run("h", ir.Skeletal)
	l.part("h.head", "h", batch, 0, Head)
	l.copyOut("h.out")
	l.view("f", "h")
	l.run("m", ir.Transient)
	l.run("q", ir.Skeletal)
	l.view("q.deep", "q")
	l.part("q.head", "q", batch, 0, Head)
	l.copyOut("q.out")
	l.run("z", ir.Transient)
	l.run("d", ir.Transient)
	l.restore("h", batch)
	if batch == 1 {
		l.part("x.tail", "x", batch, Head, Tokens)
	} else {
		l.run("x.tail", ir.Transient)
	}
	l.run("a.tail", ir.Transient)
	l.tail("h", "h.tail", batch)
	l.join("h.whole", batch)
	l.view("f.whole", "h.whole")
	if batch == 1 {
		l.part("h.range", "h.whole", batch, Head, Tokens)
	} else {
		l.run("h.range", ir.Transient)
	}
	l.view("f.range", "h.range")
	l.run("m.tail", ir.Transient)
	l.restore("q", batch)
	l.tail("q", "q.tail", batch)
	l.view("q.tail.deep", "q.tail")
	l.join("q.join", batch)
	l.view("q.whole", "q.join")
	l.run("e", ir.Transient)
	l.run("y", ir.Output)
	l.finish()
	return &Case{plain, l.p}, nil
}

// Input is the step's input.
func Input(batch int64) map[string]ir.Datum {
	return map[string]ir.Datum{"x": wave(0.013, batch, Tokens, width)}
}

func wave(step float64, dims ...int64) *ir.Tensor {
	vals := make([]float64, ir.Elems(dims))
	for i := range vals {
		vals[i] = float64(i%97)*step - 0.4
	}
	return ir.FromFloats(ir.Float, vals, dims...)
}

func parse(text string, batch int64) (*ir.Graph, error) {
	for _, f := range []int64{8, 3} {
		text = strings.ReplaceAll(text, fmt.Sprintf("B*%d", f), fmt.Sprint(batch*f))
	}
	text = strings.NewReplacer("[B,", fmt.Sprintf("[%d,", batch), "{B,", fmt.Sprintf("{%d,", batch)).Replace(text)
	g, err := ir.ParseGraph("split", text, map[string]int{"": 17, ir.MemocDomain: 1})
	if err != nil {
		return nil, err
	}
	for _, v := range g.Inits {
		switch v.Name {
		case "w":
			v.Init = ir.WeightOf(wave(0.021, width))
		case "v":
			v.Init = ir.WeightOf(wave(0.003, width, width))
		}
	}
	return g, ir.InferGraph(g, ir.InferOptions{})
}

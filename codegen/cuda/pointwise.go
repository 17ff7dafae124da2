package cuda

import (
	"fmt"
	"strings"

	"memoc/ir"
)

// indexing is how a pointwise loop finds an input's element for output i.
type indexing uint8

const (
	whole   indexing = iota // element i
	single                  // the only element
	suffix                  // i % n: repeated along leading axes
	prefix                  // i / n: repeated along trailing axes
	general                 // by strides
)

// loop is a pointwise kernel in the making: the parameters of its function,
// the arguments of this call, and the lines that load one element of each
// input.
type loop struct {
	params, args []string
	loads        strings.Builder
	dims         []int64 // of the output, collapsed
	needDims     bool
}

// addPointwise makes the loop of an expression over broadcast inputs. The loop
// depends on types and on how each input is broadcast, not on sizes, so that
// one serves all layers and shapes of a kind. Each x has the compute type of
// its input; acc_t is that of the output, or of the first input where the
// output is bool.
func (e *emitter) addPointwise(r *row, c *ir.NodeCtx, expr string) error {
	n := r.step.Node
	for _, v := range append([]*ir.Value{n.Out[0]}, n.In...) {
		if v != nil && cppTypes[v.Type.DType] == "" {
			return n.Errorf("no-kernel", "tensor %q has elements of type %s, which the emitted program cannot hold", v.Name, v.Type.DType)
		}
	}
	out := n.Out[0].Type.DType
	text, err := e.argText(r, ir.OutArg(0))
	if err != nil {
		return err
	}
	l := &loop{params: []string{"Stream& s", "int64_t n", cppTypes[out] + "* y"}, args: []string{"s", intText(ir.Elems(c.OutShape(0))), text}}
	var strides [][]int64
	l.dims, strides = collapse(c)
	x := 0 // counts the present inputs
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if text, err = e.argText(r, ir.InArg(i)); err != nil {
			return err
		}
		if text == "nullptr" {
			return n.Errorf("no-kernel", "BUG: input %q has no place", v.Name)
		}
		if err := l.addInput(x, v.Type.DType, text, strides[i]); err != nil {
			return n.Errorf("no-kernel", "%v", err)
		}
		x++
	}
	acc, result := accType(out), "to<acc_t>("+expr+")"
	if out == ir.Bool {
		result = "bool(" + expr + ")"
		if c.Has(0) {
			acc = accType(c.InDType(0))
		}
	}
	if l.needDims {
		text, _ := dimsText(l.dims)
		l.params, l.args = append(l.params, "Dims d"), append(l.args, text)
	}
	body := fmt.Sprintf("(%s) {\n  parallel_for(s, n, [=] MEMOC_DEVICE(int64_t i) {\n    using acc_t [[maybe_unused]] = %s;\n%s    y[i] = to<%s>(%s);\n  });\n}",
		strings.Join(l.params, ", "), acc, l.loads.String(), cppTypes[out], result)
	name := e.kernels.addPointwise(body)
	r.launch = e.kernels.addLaunch(n.FullOp(), "k::"+name+"("+strings.Join(l.args, ", ")+");")
	return nil
}

// addInput adds the x-th input, found at ptr and walked by strides.
func (l *loop) addInput(x int, d ir.DType, ptr string, strides []int64) error {
	l.params = append(l.params, fmt.Sprintf("const %s* p%d", cppTypes[d], x))
	l.args = append(l.args, ptr)
	mode, m := classify(l.dims, strides)
	index := "i"
	switch mode {
	case single:
		index = "0"
	case suffix, prefix:
		index = fmt.Sprintf("%s(i, n%d)", map[indexing]string{suffix: "remainder", prefix: "quotient"}[mode], x)
		l.params, l.args = append(l.params, fmt.Sprintf("int64_t n%d", x)), append(l.args, intText(m))
	case general:
		text, err := dimsText(strides)
		if err != nil {
			return err
		}
		l.needDims = true
		index = fmt.Sprintf("offset_of(i, d, d%d)", x)
		l.params, l.args = append(l.params, fmt.Sprintf("Dims d%d", x)), append(l.args, text)
	}
	fmt.Fprintf(&l.loads, "    [[maybe_unused]] const auto x%d = to<%s>(p%d[%s]);\n", x, accType(d), x, index)
	return nil
}

func (ks *kernelSet) addPointwise(body string) string {
	if name, ok := ks.pointwise[body]; ok {
		return name
	}
	name := fmt.Sprintf("pointwise_%d", len(ks.pointwise))
	ks.pointwise[body] = name
	ks.sources = append(ks.sources, "inline void "+name+body)
	return name
}

// collapse sees the broadcast of a node's inputs to its output with as few
// axes as possible: axes of size 1 are dropped, and neighbours that every
// input walks as one are merged. strides is by input; nil for an absent one.
func collapse(c *ir.NodeCtx) (dims []int64, strides [][]int64) {
	out := c.OutShape(0)
	strides = make([][]int64, len(c.Node.In))
	full := make([][]int64, len(c.Node.In))
	for k := range full {
		if c.Has(k) {
			full[k] = broadcastStrides(c.InShape(k), out)
		}
	}
	for a, d := range out {
		if d == 1 {
			continue
		}
		merge := len(dims) > 0
		for k := range full {
			if merge && full[k] != nil && strides[k][len(dims)-1] != full[k][a]*d {
				merge = false
			}
		}
		if merge {
			dims[len(dims)-1] *= d
		} else {
			dims = append(dims, d)
		}
		for k := range full {
			switch {
			case full[k] == nil:
			case merge:
				strides[k][len(dims)-1] = full[k][a]
			default:
				strides[k] = append(strides[k], full[k][a])
			}
		}
	}
	return dims, strides
}

// broadcastStrides is the step in elements through a tensor of shape in for
// every axis of out, 0 where it is broadcast.
func broadcastStrides(in, out []int64) []int64 {
	strides := make([]int64, len(out))
	step := int64(1)
	for a := len(in) - 1; a >= 0; a-- {
		if in[a] != 1 {
			strides[a+len(out)-len(in)] = step
		}
		step *= in[a]
	}
	return strides
}

// classify finds the cheapest way to walk strides over dims; m is the divisor
// of suffix and prefix.
func classify(dims, strides []int64) (mode indexing, m int64) {
	dense := make([]bool, len(dims)+1) // dense[t]: strides[t:] walk dims[t:] without gaps
	zero := make([]bool, len(dims)+1)  // zero[t]: strides[t:] are all 0
	dense[len(dims)], zero[len(dims)] = true, true
	step := int64(1)
	for a := len(dims) - 1; a >= 0; a-- {
		dense[a] = dense[a+1] && strides[a] == step
		zero[a] = zero[a+1] && strides[a] == 0
		step *= dims[a]
	}
	if zero[0] {
		return single, 0
	}
	if dense[0] {
		return whole, 0
	}
	for t := 1; t < len(dims); t++ {
		head := strides[:t]
		if dense[t] && allZero(head) {
			return suffix, ir.Elems(dims[t:])
		}
		if zero[t] && isDense(dims[:t], head) {
			return prefix, ir.Elems(dims[t:])
		}
	}
	return general, 0
}

func allZero(xs []int64) bool {
	for _, x := range xs {
		if x != 0 {
			return false
		}
	}
	return true
}

func isDense(dims, strides []int64) bool {
	step := int64(1)
	for a := len(dims) - 1; a >= 0; a-- {
		if strides[a] != step {
			return false
		}
		step *= dims[a]
	}
	return true
}

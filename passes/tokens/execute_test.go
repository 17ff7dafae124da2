package tokens_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/passes/tokens"
)

// values is every value of one run of a graph.
type values map[*ir.Value]*ir.Tensor

// runAll runs g on random inputs and keeps all tensors of its top level.
func runAll(t testing.TB, g *ir.Graph, seed uint64) values {
	t.Helper()
	in, err := eval.RandomInputs(g, seed)
	if err != nil {
		t.Fatal(err)
	}
	return runOn(t, g, in)
}

func runOn(t testing.TB, g *ir.Graph, in map[string]ir.Datum) values {
	t.Helper()
	vals := values{}
	_, err := eval.Graph(g, in, eval.Options{Observe: func(n *ir.Node, out []ir.Datum) {
		for o, d := range out {
			if x, ok := d.(*ir.Tensor); ok && o < len(n.Out) && n.Out[o] != nil && n.Graph == g {
				vals[n.Out[o]] = x
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Inputs {
		if x, ok := in[v.Name].(*ir.Tensor); ok {
			vals[v] = x
		}
	}
	for _, v := range g.Inits {
		if vals[v] == nil {
			if vals[v], err = v.Init.Tensor(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return vals
}

// cut copies tokens [from,to) of x.
func cut(x *ir.Tensor, a tokens.Axis, from, to int64) *ir.Tensor {
	dims := slices.Clone(x.Dims)
	dims[a.Dim] = a.Outer * (to - from) * a.Inner
	y := ir.NewTensor(x.DType, dims...)
	token := a.Inner * ir.Elems(x.Dims[a.Dim+1:]) * int64(x.DType.Bits()) / 8
	at := int64(0)
	for row := range ir.Elems(x.Dims[:a.Dim]) * a.Outer {
		at += int64(copy(y.Data[at:], x.Data[(row*a.Tokens+from)*token:(row*a.Tokens+to)*token]))
	}
	return y
}

// onRange runs n on tokens [from,to) of its inputs in a graph of its own, as a
// rewriter would make it.
func onRange(i *tokens.Info, n *ir.Node, vals values, from, to int64) (map[string]ir.Datum, error) {
	in, ok := i.Range(n)
	if !ok {
		return nil, fmt.Errorf("%s", i.Why(n))
	}
	spec, err := i.OnRange(n, from, to)
	if err != nil {
		return nil, err
	}
	g := ir.NewGraph("range", n.Graph.Opsets)
	s := ir.NodeSpec{Name: n.Name, Domain: n.Domain, Op: n.Op, Version: n.Version, Attrs: spec.Attrs, Origin: n.Origin}
	given := map[string]ir.Datum{}
	for p, v := range n.In {
		name := fmt.Sprintf("in%d", p)
		k := slices.IndexFunc(spec.Consts, func(c tokens.Const) bool { return c.Port == p })
		switch {
		case v == nil:
			s.In = append(s.In, nil)
		case k >= 0:
			ints := spec.Consts[k].Ints
			s.In = append(s.In, g.AddInit(name, ir.WeightOf(ir.FromInts(ir.Int64, ints, int64(len(ints))))))
		case in[p]:
			a, ok := i.Axis(v)
			if !ok {
				return nil, fmt.Errorf("%q is to be cut, but has no token axis", v.Name)
			}
			x := cut(vals[v], a, from, to)
			given[name] = x
			s.In = append(s.In, g.AddInput(name, x.Type()))
		default:
			s.In = append(s.In, g.AddInit(name, ir.WeightOf(vals[v])))
		}
	}
	for o, v := range n.Out {
		name := ""
		if v != nil {
			name = fmt.Sprintf("out%d", o)
		}
		s.Out = append(s.Out, name)
	}
	made := g.Append(s)
	if err := ir.InferNode(g, made); err != nil {
		return nil, err
	}
	for _, v := range made.Out {
		if v != nil {
			g.Outputs = append(g.Outputs, v)
		}
	}
	return eval.Graph(g, given, eval.Options{})
}

// checkRanges runs every node that may run by token on slices of its inputs
// and compares with slices of its outputs, bit for bit. It returns how many
// nodes that were.
func checkRanges(t testing.TB, i *tokens.Info, g *ir.Graph, vals values, cuts [][2]int64) int {
	t.Helper()
	nodes := 0
	for _, n := range g.Nodes {
		if _, ok := i.Range(n); !ok {
			if i.Why(n) == "" {
				t.Errorf("%s does not run by token, without a reason", n)
			}
			continue
		}
		nodes++
		for _, c := range cuts {
			out, err := onRange(i, n, vals, c[0], c[1])
			if err != nil {
				t.Errorf("%s on tokens %v: %v", n, c, err)
				break
			}
			for o, v := range n.Out {
				if v == nil {
					continue
				}
				a, _ := i.Axis(v)
				got, want := out[fmt.Sprintf("out%d", o)].(*ir.Tensor), cut(vals[v], a, c[0], c[1])
				if !got.Type().Equal(want.Type()) || !bytes.Equal(got.Data, want.Data) {
					t.Errorf("%s on tokens %v of %d: %q is not the slice of the whole (%+v)", n, c, i.Tokens(), v.Name, a)
				}
			}
		}
	}
	return nodes
}

// cutsOf is ranges of n tokens: single ones, halves, all but the ends, all.
func cutsOf(n int64) [][2]int64 {
	out := [][2]int64{{0, 1}, {n - 1, n}, {0, n / 2}, {n / 2, n}, {n / 3, n/3 + 1}, {1, n}, {0, n - 1}, {0, n}}
	slices.SortFunc(out, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	return slices.DeleteFunc(slices.Compact(out), func(c [2]int64) bool { return c[0] >= c[1] })
}

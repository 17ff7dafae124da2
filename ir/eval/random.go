package eval

import (
	"fmt"
	"math"
	"strings"

	"memoc/ir"
	"memoc/ir/diag"
)

// RandomInputs makes a value for every input of g that is no initializer.
// Floats lie in [-1, 1). Integers lie where their consumers can take them: an
// index stays within its table, a label within its classes, a mask is 0 or 1.
// Equal seeds give equal values whatever else the graph holds.
func RandomInputs(g *ir.Graph, seed uint64) (map[string]ir.Datum, error) {
	out := map[string]ir.Datum{}
	for _, v := range g.Inputs {
		if v.Init != nil {
			continue
		}
		d, err := randomDatum(v, ir.RandomStream{Seed: ir.RandomKey(seed, v.Name)})
		if err != nil {
			return nil, &diag.Diagnostic{ID: "input-random", Severity: diag.Error, Loc: diag.Location{Value: v.Name},
				Message: fmt.Sprintf("no random value can be made for the input: %v", err)}
		}
		out[v.Name] = d
	}
	return out, nil
}

func randomDatum(v *ir.Value, r ir.RandomStream) (ir.Datum, error) {
	switch v.Type.Kind {
	case ir.OptionalKind:
		return nil, nil
	case ir.SequenceKind:
		return ir.Sequence{}, nil
	}
	if v.Type.IsTensor() && v.Type.DType == ir.String && v.Type.Shape.Ranked {
		dims, ok := v.Type.Shape.Static()
		if !ok {
			return nil, fmt.Errorf("the shape %s is not static", v.Type.Shape)
		}
		return ir.NewTensor(ir.String, dims...), nil
	}
	if _, err := v.Type.Bytes(); err != nil {
		return nil, err
	}
	dims, _ := v.Type.Shape.Static()
	t := ir.NewTensor(v.Type.DType, dims...)
	n := t.Len()
	switch d := v.Type.DType; {
	case d.IsFloat():
		lo := floatLow(v)
		vals := make([]float64, n)
		for i := range vals {
			vals[i] = lo + (1-lo)*float64(r.Uniform(uint64(i)))
		}
		ir.SetFloats(t, vals)
	case d.IsInt() || d == ir.Bool || d == ir.Int4 || d == ir.Uint4:
		lo, hi := intRange(v)
		vals := make([]int64, n)
		for i := range vals {
			vals[i] = lo + int64(r.Words(uint64(i))[0])%(hi-lo)
		}
		ir.SetInts(t, vals)
	default:
		return nil, fmt.Errorf("elements of type %s are not supported", d)
	}
	return t, nil
}

// floatLow is 0 for a value that goes where negative numbers have no place (a
// root, a logarithm, a dropout ratio, a second moment or a variance), else -1.
func floatLow(v *ir.Value) float64 {
	for _, u := range v.Uses() {
		n := len(u.Node.In)
		switch op := u.Node.Op; {
		case op == "Sqrt", op == "Log", op == "Dropout" && u.Port == 1,
			op == "BatchNormalization" && u.Port == 4,
			op == "Adam" && u.Port >= 2+(n-2)/4*3, op == "Adagrad" && u.Port >= 2+(n-2)/3*2:
			return 0
		}
	}
	return -1
}

// Where nothing says how large an integer may be: small, and not 0, which is
// no divisor and no extent.
const (
	defaultLow  = 1
	defaultHigh = 8
)

// intRange is the half-open range of integers that v's consumers can take.
func intRange(v *ir.Value) (lo, hi int64) {
	if v.Type.DType == ir.Bool || strings.Contains(strings.ToLower(v.Name), "mask") {
		return 0, 2
	}
	b := bounds{limit: math.MaxInt32, seen: map[*ir.Value]bool{}}
	b.follow(v)
	if b.limit == math.MaxInt32 {
		return defaultLow, defaultHigh
	}
	return 0, max(b.limit, 1)
}

// bounds follows an integer forward to the tables it indexes.
type bounds struct {
	limit int64
	seen  map[*ir.Value]bool
}

func (b *bounds) follow(v *ir.Value) {
	if v == nil || b.seen[v] {
		return
	}
	b.seen[v] = true
	for _, u := range v.Uses() {
		if u.Port < 0 {
			b.followInto(u.Node, v)
			continue
		}
		b.use(u.Node, u.Port)
	}
}

// followInto looks for the readers of a captured value inside a node's
// subgraphs.
func (b *bounds) followInto(owner *ir.Node, v *ir.Value) {
	for _, sub := range owner.Subgraphs() {
		sub.Walk(func(n *ir.Node) {
			for i, in := range n.In {
				if in == v {
					b.use(n, i)
				}
			}
		})
	}
}

// use narrows the limit by one reader, or goes on behind an operator that
// passes integers through.
func (b *bounds) use(n *ir.Node, port int) {
	if t := tableOf(n, port); t != nil {
		b.narrow(t)
		return
	}
	if !passesInts[n.Op] {
		return
	}
	for _, out := range n.Out {
		if out != nil && (out.Type.DType.IsInt() || out.Type.Kind == ir.NoType) {
			b.follow(out)
		}
	}
}

func (b *bounds) narrow(t *table) {
	if t.limit > 0 {
		b.limit = min(b.limit, t.limit)
		return
	}
	if t.of == nil || !t.of.Type.Shape.Ranked {
		return
	}
	dims := t.of.Type.Shape.Dims
	axis, ok := ir.NormAxis(t.axis, len(dims))
	if !ok {
		return
	}
	for i := axis; i < min(axis+t.axes, len(dims)); i++ {
		if n, ok := dims[i].Int(); ok {
			b.limit = min(b.limit, n)
		}
	}
}

var passesInts = map[ir.OpName]bool{
	"Identity": true, "Cast": true, "Reshape": true, "Flatten": true, "Squeeze": true, "Unsqueeze": true,
	"Slice": true, "Transpose": true, "Expand": true, "Concat": true, "Split": true, "Pad": true, "Tile": true,
	"Where": true, "Gather": true, "GatherND": true, "Clip": true, "Max": true, "Min": true, "Add": true, "Sub": true,
}

// table is what an index counts in: the extents of axes [axis, axis+axes) of a
// value, or a number.
type table struct {
	of    *ir.Value
	axis  int64
	axes  int
	limit int64
}

// tableOf is what input port of n indexes, nil if it is no index.
func tableOf(n *ir.Node, port int) *table {
	in := func(i int) *ir.Value {
		if i < len(n.In) {
			return n.In[i]
		}
		return nil
	}
	axisOf := func(i int) *table { return &table{of: in(i), axis: n.Int("axis", 0), axes: 1} }
	switch n.Op {
	case "Gather", "GatherElements", "ScatterElements", "Scatter", "TensorScatter":
		if port == 1 {
			return axisOf(0)
		}
	case "GatherND", "ScatterND":
		if port == 1 {
			return &table{of: in(0), axis: n.Int("batch_dims", 0), axes: math.MaxInt16}
		}
	case "GatherGrad":
		if port == 1 {
			return &table{limit: constAt(in(0), n.Int("axis", 0))}
		}
	case "OneHot":
		if port == 0 {
			return &table{limit: constAt(in(1), 0)}
		}
	case "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLossInternal":
		if port == 1 {
			return &table{of: in(0), axis: 1, axes: 1}
		}
	case "SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossInternalGrad":
		if port == 2 {
			return &table{of: in(1), axis: 1, axes: 1}
		}
	case "SparseSoftmaxCrossEntropy":
		if port == 1 {
			return &table{of: in(0), axis: -1, axes: 1}
		}
	case "EmbedLayerNormalization":
		if port == 0 {
			return &table{of: in(2), axes: 1}
		}
		if port == 1 {
			return &table{of: in(4), axes: 1}
		}
	}
	return nil
}

// constAt is element i of a known integer tensor, 0 if it is not known.
func constAt(v *ir.Value, i int64) int64 {
	if v == nil {
		return 0
	}
	if i >= 0 && int(i) < len(v.Ints) {
		n, _ := v.Ints[i].Int()
		return n
	}
	if t := v.Const(); t != nil && t.DType.IsInt() && i >= 0 && i < t.Len() {
		return t.Ints()[i]
	}
	return 0
}

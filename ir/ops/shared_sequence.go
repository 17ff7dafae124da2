package ops

import "memoc/ir"

// Sequences are lists of tensors. They live in the interpreter alone: a plan
// has no room for what has no fixed size, so graphs that plan have them
// simplified away.
const noSequenceKernel = "a sequence of tensors has no fixed place in memory"

const noSequenceGrad = "not derived yet: gradients of sequences of tensors"

// joinTypes is the type that holds values of both types: extents that differ
// are fresh symbols, ranks that differ are unknown, an optional holds what its
// element type does. ok is false where no type holds both.
func joinTypes(c *ir.InferCtx, a, b ir.Type) (t ir.Type, ok bool) {
	switch {
	case a.Kind == ir.NoType || b.Kind == ir.NoType:
		return ir.Type{}, true
	case a.Kind == ir.OptionalKind && b.Kind != ir.OptionalKind:
		e, ok := joinTypes(c, *a.Elem, b)
		return ir.OptionalOf(e), ok
	case b.Kind == ir.OptionalKind && a.Kind != ir.OptionalKind:
		return joinTypes(c, b, a)
	case a.Kind != b.Kind:
		return ir.Type{}, false
	case a.Elem != nil && b.Elem != nil:
		e, ok := joinTypes(c, *a.Elem, *b.Elem)
		a.Elem = &e
		return a, ok
	case a.DType != b.DType && a.DType != ir.Undefined && b.DType != ir.Undefined:
		return ir.Type{}, false
	}
	if a.DType == ir.Undefined {
		a.DType = b.DType
	}
	if !a.Shape.Ranked || !b.Shape.Ranked || a.Shape.Rank() != b.Shape.Rank() {
		a.Shape = ir.Shape{}
		return a, true
	}
	dims := make([]ir.Dim, a.Shape.Rank())
	for i, d := range a.Shape.Dims {
		dims[i] = d
		if !d.Equal(b.Shape.Dims[i]) {
			dims[i] = c.FreshDim()
		}
	}
	a.Shape = ir.Dims(dims...)
	return a, true
}

// elemOf is the element type of input i, a sequence.
func elemOf(c *ir.InferCtx, i int) (ir.Type, error) {
	t := c.In(i)
	switch {
	case t.Kind == ir.NoType:
		return ir.Type{}, nil
	case t.Kind != ir.SequenceKind:
		return t, c.Errorf("input %d must be a sequence, not %s", i, t)
	}
	return *t.Elem, nil
}

// sequenceIn is input i at run time.
func sequenceIn(c *ir.EvalCtx, i int) (ir.Sequence, error) {
	s, ok := c.InDatum(i).(ir.Sequence)
	if !ok {
		return nil, c.Errorf("input %d is no sequence", i)
	}
	return s, nil
}

// positionIn is input i as a position in a list of n; negative ones count from
// the end. last is what an absent input means.
func positionIn(c *ir.EvalCtx, i, n, last int) (int, error) {
	if !c.Has(i) {
		return last, nil
	}
	if c.In(i).Len() != 1 {
		return 0, c.Errorf("the position must be one number")
	}
	p := c.In(i).Ints()[0]
	at := p
	if at < 0 {
		at += int64(n)
	}
	if at < 0 || at > int64(last) {
		return 0, c.Errorf("position %d is out of range for %d elements", p, n)
	}
	return int(at), nil
}

// sampleSequence is two matrices with equal columns.
func sampleSequence() ir.Sequence {
	return ir.Sequence{floats([]int64{2, 2}, 1, 2, 3, 4), floats([]int64{1, 2}, 5, 6)}
}

// noCost is the cost of list keeping: tensors are not copied.
func noCost(*ir.CostCtx) ir.Cost { return ir.Cost{Unit: ir.NoCompute} }

package ir

// Elementwise operators by their names.
func (b *Builder) Exp(x *Value) *Value     { return b.Op("Exp", []*Value{x}) }
func (b *Builder) Log(x *Value) *Value     { return b.Op("Log", []*Value{x}) }
func (b *Builder) Sqrt(x *Value) *Value    { return b.Op("Sqrt", []*Value{x}) }
func (b *Builder) Tanh(x *Value) *Value    { return b.Op("Tanh", []*Value{x}) }
func (b *Builder) Sigmoid(x *Value) *Value { return b.Op("Sigmoid", []*Value{x}) }
func (b *Builder) Not(x *Value) *Value     { return b.Op("Not", []*Value{x}) }
func (b *Builder) And(x, y *Value) *Value  { return b.Op("And", []*Value{x, y}) }

// Greater and Less compare elements; both are false where either is NaN.
func (b *Builder) Greater(x, y *Value) *Value { return b.Op("Greater", []*Value{x, y}) }
func (b *Builder) Less(x, y *Value) *Value    { return b.Op("Less", []*Value{x, y}) }

// Same is x == y for numbers, in a form that opsets before 11, whose Equal
// takes no floats, have too. What NaN gives is not specified.
func (b *Builder) Same(x, y *Value) *Value {
	if b.Opset() >= 11 {
		return b.Op("Equal", []*Value{x, y})
	}
	return b.And(b.Not(b.Less(x, y)), b.Not(b.Greater(x, y)))
}

// Zero is a rank-0 zero of x's type.
func (b *Builder) Zero(x *Value) *Value { return b.Scalar(x.Type.DType, 0) }

// Where picks x where cond holds and y elsewhere. Before opset 9, which
// brought the operator, it is cond*x + (1-cond)*y: the same for finite values.
func (b *Builder) Where(cond, x, y *Value) *Value {
	if b.Opset() >= 9 {
		return b.Op("Where", []*Value{cond, x, y})
	}
	d := x.Type.DType
	yes, no := b.Cast(cond, d), b.Cast(b.Not(cond), d)
	return b.Add(b.Mul(yes, x), b.Mul(no, y))
}

// Sign is -1, 0 or 1. Before opset 9, which brought the operator, it is made
// of two comparisons.
func (b *Builder) Sign(x *Value) *Value {
	if b.Opset() >= 9 {
		return b.Op("Sign", []*Value{x})
	}
	d, zero := x.Type.DType, b.Zero(x)
	return b.Sub(b.Cast(b.Greater(x, zero), d), b.Cast(b.Less(x, zero), d))
}

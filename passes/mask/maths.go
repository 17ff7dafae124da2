package mask

import (
	"math"

	"memoc/ir"
)

// maths are the pointwise operators, on elements.
var maths = map[ir.OpName]func(w *walk, n *ir.Node, in []*Expr) *Expr{
	"Cast":     mathCast,
	"CastLike": mathCast,
	"Add":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.arith(n, '+', in[0], in[1]) },
	"Sub":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.arith(n, '-', in[0], in[1]) },
	"Mul":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.arith(n, '*', in[0], in[1]) },
	"Div":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.arith(n, '/', in[0], in[1]) },
	"Max":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.extreme(n, '>', in) },
	"Min":      func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.extreme(n, '<', in) },
	"Neg": func(w *walk, n *ir.Node, in []*Expr) *Expr {
		return w.arith(n, '-', constantExpr(n.Out[0].Type.DType, 0), in[0])
	},
	"Less":           func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.compare(in[0], in[1], w.less) },
	"Greater":        func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.compare(in[1], in[0], w.less) },
	"LessOrEqual":    func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.negated(w.compare(in[1], in[0], w.less)) },
	"GreaterOrEqual": func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.negated(w.compare(in[0], in[1], w.less)) },
	"Equal":          func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.compare(in[0], in[1], w.equals) },
	"Not":            func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.negated(in[0]) },
	"And":            func(w *walk, n *ir.Node, in []*Expr) *Expr { return andOf(in[0], in[1]) },
	"Or":             func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.orOf(in[0], in[1]) },
	"Where":          func(w *walk, n *ir.Node, in []*Expr) *Expr { return w.pickOf(in[0], in[1], in[2]) },
}

func (w *walk) negated(e *Expr) *Expr {
	if e == nil {
		return nil
	}
	return w.notOf(e)
}

func isConst(e *Expr) bool { return e.kind == number || e.kind == truth || e.constant() }

func mathCast(w *walk, n *ir.Node, in []*Expr) *Expr {
	return w.cast(in[0], n.In[0].Type.DType, n.Out[0].Type.DType)
}

func (w *walk) cast(e *Expr, from, to ir.DType) *Expr {
	switch {
	case from == to:
		return e
	case e.kind == pick:
		a, b := w.cast(e.a, from, to), w.cast(e.b, from, to)
		if a == nil || b == nil {
			return nil
		}
		return w.pickOf(e.cond, a, b)
	case e.kind == truth:
		return constantExpr(to, map[bool]float64{true: 1}[e.yes])
	case from == ir.Bool && e.kind != leaf:
		return w.pickOf(e, constantExpr(to, 1), constantExpr(to, 0))
	case e.kind == number && to.IsFloat():
		return numberOf(round(to, e.x))
	case e.kind == number && to == ir.Bool:
		return truthOf(e.x != 0)
	case e.kind == number && to.IsInt() && e.asAffine() != nil:
		return e.asAffine()
	case e.constant() && to.IsFloat():
		if n, ok := e.c.Int(); ok {
			return numberOf(round(to, float64(n)))
		}
	case e.constant() && to == ir.Bool:
		if n, ok := e.c.Int(); ok {
			return truthOf(n != 0)
		}
	case e.kind == affine && to.IsFloat():
		return w.exact(e, to)
	case e.kind == affine && (to == ir.Int64 || to == ir.Int32):
		return e
	}
	return nil
}

// arith is a op b: of integer forms, of numbers, and of choices between them.
func (w *walk) arith(n *ir.Node, op byte, a, b *Expr) *Expr {
	d := n.Out[0].Type.DType
	switch {
	case a == nil || b == nil:
		return nil
	case a.kind == pick:
		return w.choice(a, func(side *Expr) *Expr { return w.arith(n, op, side, b) })
	case b.kind == pick:
		return w.choice(b, func(side *Expr) *Expr { return w.arith(n, op, a, side) })
	case d.IsFloat() && a.kind == number && b.kind == number:
		return numberOf(round(d, numeric(op, a.x, b.x)))
	}
	x, y := a.asAffine(), b.asAffine()
	if x == nil || y == nil {
		return nil
	}
	var out *Expr
	switch op {
	case '+':
		out = x.plus(y, 1)
	case '-':
		out = x.plus(y, -1)
	case '*':
		if x.constant() {
			x, y = y, x
		}
		if k, ok := y.c.Int(); ok && y.constant() {
			out = intOf(0).plus(x, k)
		}
	}
	if out == nil {
		return nil
	}
	return w.exact(out, d)
}

// choice applies f to both sides of a pick.
func (w *walk) choice(e *Expr, f func(*Expr) *Expr) *Expr {
	a, b := f(e.a), f(e.b)
	if a == nil || b == nil {
		return nil
	}
	return w.pickOf(e.cond, a, b)
}

func numeric(op byte, x, y float64) float64 {
	switch op {
	case '+':
		return x + y
	case '-':
		return x - y
	case '*':
		return x * y
	}
	return x / y
}

// extreme is the largest or smallest of constants.
func (w *walk) extreme(n *ir.Node, op byte, in []*Expr) *Expr {
	out := in[0]
	for _, e := range in[1:] {
		out = w.extremeOf(op, out, e)
		if out == nil {
			return nil
		}
	}
	return out
}

func (w *walk) extremeOf(op byte, a, b *Expr) *Expr {
	switch {
	case a == nil || b == nil:
		return nil
	case a.same(b):
		return a
	case a.kind == pick:
		return w.choice(a, func(side *Expr) *Expr { return w.extremeOf(op, side, b) })
	case b.kind == pick:
		return w.choice(b, func(side *Expr) *Expr { return w.extremeOf(op, a, side) })
	case a.kind == number && b.kind == number:
		if op == '>' {
			return numberOf(math.Max(a.x, b.x))
		}
		return numberOf(math.Min(a.x, b.x))
	}
	return nil
}

// compare applies a comparison, to both sides of a choice if need be.
func (w *walk) compare(a, b *Expr, f func(a, b *Expr) *Expr) *Expr {
	switch {
	case a.kind == pick && isConst(a.a) && isConst(a.b):
		return w.choice(a, func(side *Expr) *Expr { return w.compare(side, b, f) })
	case b.kind == pick && isConst(b.a) && isConst(b.b):
		return w.choice(b, func(side *Expr) *Expr { return w.compare(a, side, f) })
	case a.kind == number && b.kind == number && (a.asAffine() == nil || b.asAffine() == nil):
		switch {
		case math.IsNaN(a.x) || math.IsNaN(b.x):
			return nil
		case a.x < b.x:
			return f(intOf(0), intOf(1))
		case a.x > b.x:
			return f(intOf(1), intOf(0))
		}
		return f(intOf(0), intOf(0))
	}
	return f(a, b)
}

func (w *walk) less(a, b *Expr) *Expr {
	x, y := a.asAffine(), b.asAffine()
	if x == nil || y == nil {
		return nil
	}
	return w.atMostZero(x.plus(y, -1).plus(intOf(1), 1))
}

func (w *walk) equals(a, b *Expr) *Expr {
	if x, y := a.asAffine(), b.asAffine(); x != nil && y != nil {
		d := x.plus(y, -1)
		return andOf(w.atMostZero(d), w.atMostZero(intOf(0).plus(d, -1)))
	}
	switch {
	case a.kind == leaf && a.v.Type.DType.IsFloat() || b.kind == leaf && b.v.Type.DType.IsFloat():
		return nil // NaN is not equal to itself
	case a.same(b):
		return truthOf(true)
	case a.isBool() || b.isBool() || a.kind == pick || b.kind == pick:
		return nil
	}
	return made(&Expr{kind: equal, a: a, b: b}, a, b)
}

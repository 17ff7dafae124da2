package ops

import (
	"math"

	"memoc/ir"
)

// reduceTypes are the element types of the reductions; the logarithms lost
// the integers in opset 28.
var (
	reduceTypes = ir.Floats | ir.SetOf(ir.Int32, ir.Int64, ir.Uint32, ir.Uint64)
	orderTypes  = reduceTypes | ir.SetOf(ir.Int8, ir.Uint8, ir.Bool)
)

var _ = registerReductions(
	reduction{name: "ReduceSum", doc: "Sum over axes.", since: []int{1, 11, 13}, axesInput: 13, types: reduceTypes,
		flops: 1, sums: true, kernel: "reduce_sum",
		eval: sumOf, evalInt: func(_ ir.DType, x []int64) int64 { return sumInts(x) },
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value { return c.ExpandLike(r.dy, r.x) }},
	reduction{name: "ReduceMean", doc: "Mean over axes.", since: []int{1, 11, 13, 18}, axesInput: 18, types: reduceTypes,
		flops: 1, kernel: "reduce_mean",
		eval:    func(x []float64) float64 { return sumOf(x) / float64(len(x)) },
		evalInt: func(d ir.DType, x []int64) int64 { return divInt(d, sumInts(x), int64(len(x))) },
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value {
			return c.ExpandLike(divideByCount(c, r.dy, r.x, r.y), r.x)
		}},
	reduction{name: "ReduceMax", doc: "Maximum over axes.", since: []int{1, 11, 12, 13, 18, 20}, axesInput: 18, types: orderTypes,
		flops: 1, kernel: "reduce_max", eval: maxOfLine, evalInt: maxIntOfLine, grad: shareAmongEqual},
	reduction{name: "ReduceMin", doc: "Minimum over axes.", since: []int{1, 11, 12, 13, 18, 20}, axesInput: 18, types: orderTypes,
		flops: 1, kernel: "reduce_min", eval: minOfLine, evalInt: minIntOfLine, grad: shareAmongEqual},
	reduction{name: "ReduceProd", doc: "Product over axes.", since: []int{1, 11, 13, 18}, axesInput: 18, types: reduceTypes,
		flops: 1, kernel: "reduce_prod",
		eval: func(x []float64) float64 {
			p := 1.0
			for _, v := range x {
				p *= v
			}
			return p
		},
		evalInt: func(_ ir.DType, x []int64) int64 {
			p := int64(1)
			for _, v := range x {
				p *= v
			}
			return p
		},
		grad: prodGrad},
	reduction{name: "ReduceL1", doc: "Sum of absolute values over axes.", since: []int{1, 11, 13, 18}, axesInput: 18, types: reduceTypes,
		flops: 2, sums: true, kernel: "reduce_l1",
		eval: func(x []float64) float64 { return sumOver(x, math.Abs) },
		evalInt: func(d ir.DType, x []int64) int64 {
			return sumOver(x, func(v int64) int64 { return absInt(d, v) })
		},
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value { return c.Mul(r.dy, c.Sign(r.x)) }},
	reduction{name: "ReduceL2", doc: "Square root of the sum of squares over axes.", since: []int{1, 11, 13, 18}, axesInput: 18, types: reduceTypes,
		flops: 2, kernel: "reduce_l2",
		eval: func(x []float64) float64 { return math.Sqrt(sumOver(x, square)) },
		evalInt: func(_ ir.DType, x []int64) int64 {
			return int64(math.Sqrt(float64(sumOver(x, func(v int64) int64 { return v * v }))))
		},
		// At the origin, where the norm has no derivative, 0 as training frameworks do.
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value {
			y, zero := r.keptY(c), c.Zero(r.y)
			return c.Mul(c.Where(c.Greater(y, zero), c.Div(r.dy, y), zero), r.x)
		}},
	reduction{name: "ReduceLogSum", doc: "Logarithm of the sum over axes.", since: []int{1, 11, 13, 18, 28}, axesInput: 18, types: reduceTypes,
		flops: 1, kernel: "reduce_log_sum",
		eval:    func(x []float64) float64 { return math.Log(sumOf(x)) },
		evalInt: func(_ ir.DType, x []int64) int64 { return truncate(math.Log(float64(sumInts(x)))) },
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value {
			return c.ExpandLike(c.Div(r.dy, c.ReduceSum(r.x, true, r.axes...)), r.x)
		}},
	reduction{name: "ReduceLogSumExp", doc: "Logarithm of the sum of exponentials over axes.", since: []int{1, 11, 13, 18, 28}, axesInput: 18, types: reduceTypes,
		flops: 10, kernel: "reduce_log_sum_exp", linewise: true,
		eval: logSumExp,
		evalInt: func(_ ir.DType, x []int64) int64 {
			f := make([]float64, len(x))
			for i, v := range x {
				f[i] = float64(v)
			}
			return truncate(logSumExp(f))
		},
		grad: func(c *ir.GradCtx, r reduceGrad) *ir.Value { return c.Mul(r.dy, c.Exp(c.Sub(r.x, r.keptY(c)))) }},
	reduction{name: "ReduceSumSquare", doc: "Sum of squares over axes.", since: []int{1, 11, 13, 18}, axesInput: 18, types: reduceTypes,
		flops: 2, sums: true, kernel: "reduce_sum_square",
		eval:    func(x []float64) float64 { return sumOver(x, square) },
		evalInt: func(_ ir.DType, x []int64) int64 { return sumOver(x, func(v int64) int64 { return v * v }) },
		grad:    func(c *ir.GradCtx, r reduceGrad) *ir.Value { return c.Mul(r.dy, c.MulScalar(r.x, 2)) }},
)

// divideByCount divides v by how many elements of x reduce to one of y. Half
// types go through float: the count may be beyond what they hold.
func divideByCount(c *ir.GradCtx, v, x, y *ir.Value) *ir.Value {
	d := v.Type.DType
	work := d
	if d.Bits() < 32 {
		work = ir.Float
	}
	return c.Cast(c.Div(c.Cast(v, work), countRatio(c, work, x, y)), d)
}

// shareAmongEqual: the elements equal to the extremum share the gradient in
// equal parts, which is also what a central difference of a tie of two gives.
func shareAmongEqual(c *ir.GradCtx, r reduceGrad) *ir.Value {
	d := r.x.Type.DType
	work := d
	if d.Bits() < 32 { // a count of ties may be beyond what a half type holds
		work = ir.Float
	}
	hit := c.Same(r.x, r.keptY(c))
	count := c.ReduceSum(c.Cast(hit, work), true, r.axes...)
	share := c.Cast(c.Div(c.Cast(r.dy, work), count), d)
	return c.Where(hit, share, c.Zero(r.x))
}

// prodGrad is dy times the product of the others, which is y/x only where no
// element of the line is zero. With one zero, that element alone has a
// gradient; with two, none has.
func prodGrad(c *ir.GradCtx, r reduceGrad) *ir.Value {
	d := r.x.Type.DType
	zero, one := c.Zero(r.x), c.Scalar(d, 1)
	isZero := c.Same(r.x, zero)
	zeros := c.ReduceSum(c.Cast(isZero, d), true, r.axes...)
	filled := c.Where(isZero, one, r.x)
	p := reduceKept(c, "ReduceProd", filled, r.axes)
	atZero := c.Where(c.Less(zeros, c.Scalar(d, 1.5)), p, zero)
	elsewhere := c.Where(c.Less(zeros, c.Scalar(d, 0.5)), c.Div(p, filled), zero)
	return c.Mul(r.dy, c.Where(isZero, atZero, elsewhere))
}

func truncate(x float64) int64 {
	if x != x || math.IsInf(x, 0) {
		return 0
	}
	return int64(x)
}

func square(x float64) float64 { return x * x }

func sumOver[E int64 | float64](x []E, f func(E) E) E {
	var sum E
	for _, v := range x {
		sum += f(v)
	}
	return sum
}

func sumOf(x []float64) float64 { return sumOver(x, func(v float64) float64 { return v }) }
func sumInts(x []int64) int64   { return sumOver(x, func(v int64) int64 { return v }) }

func maxOfLine(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = maxOf(top, v)
	}
	return top
}

func minOfLine(x []float64) float64 {
	low := math.Inf(1)
	for _, v := range x {
		low = minOf(low, v)
	}
	return low
}

func maxIntOfLine(d ir.DType, x []int64) int64 {
	top := lowestInt(d)
	for _, v := range x {
		if lessInt(d, top, v) {
			top = v
		}
	}
	return top
}

func minIntOfLine(d ir.DType, x []int64) int64 {
	low := highestInt(d)
	for _, v := range x {
		if lessInt(d, v, low) {
			low = v
		}
	}
	return low
}

// lessInt orders integers of type d; uint64 arrives as its bits.
func lessInt(d ir.DType, a, b int64) bool {
	if d == ir.Uint64 {
		return uint64(a) < uint64(b)
	}
	return a < b
}

func lowestInt(d ir.DType) int64 {
	if d == ir.Bool || d.IsUnsigned() {
		return 0
	}
	return -1 << (d.Bits() - 1)
}

func highestInt(d ir.DType) int64 {
	switch {
	case d == ir.Bool:
		return 1
	case d == ir.Uint64:
		return -1
	case d.IsUnsigned():
		return 1<<d.Bits() - 1
	}
	return 1<<(d.Bits()-1) - 1
}

// logSumExp subtracts the maximum first, so that nothing overflows.
func logSumExp(x []float64) float64 {
	top := maxOfLine(x)
	if math.IsInf(top, 0) || top != top {
		return top
	}
	return top + math.Log(sumOver(x, func(v float64) float64 { return math.Exp(v - top) }))
}

package ops

import "memoc/ir"

var _ = registerBinary(binaryOp{
	name:  "Add",
	doc:   "Elementwise sum with broadcasting.",
	since: []int{1, 6, 7, 13, 14},
	types: ir.Numeric,
	f:     func(x, y float64) float64 { return x + y },
	g:     func(_ ir.DType, x, y int64) int64 { return x + y },
	expr:  "x0 + x1",
	grad:  binaryGrad(passGrad, passGrad),
})

// passGrad is the gradient of the output as it is.
func passGrad(_ *ir.GradCtx, g *ir.Value) *ir.Value { return g }

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "Scatter",
	Doc:   "The older name of ScatterElements.",
	Since: []int{9, 11},
	In:    ir.Ports("data:T, indices:Tind, updates:T"), Out: ir.Ports("output:T"),
	Types:     map[string]ir.DTypeSet{"T": ir.AnyDType, "Tind": ir.Indices},
	Infer:     scatterElementsInfer,
	Axes:      scatterElementsAxes,
	Cost:      scatterCost,
	Grad:      ir.GradOf(scatterElementsGrad),
	Recompute: ir.Pure,
	Eval:      scatterElementsEval,
	Kernel:    ir.KernelOf(scatterElementsKernel),
	InPlace:   []ir.Alias{{In: 0, Out: 0}},
	Samples:   func() []ir.Sample { return scatterElementsSamples(nil) },
})

package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Domain: ir.MsDomain,
	Name:   "BatchNormInternal",
	Doc:    "BatchNormalization that also gives mean and inverse deviation of the batch, which its gradient reads.",
	Since:  []int{1},
	In:     ir.Ports("X:T, scale:S, B:S, input_mean:M, input_var:M"),
	Out:    ir.Ports("Y:T, running_mean:M?, running_var:M?, saved_mean:M?, saved_inv_std:M?"),
	Types:  map[string]ir.DTypeSet{"T": ir.Floats, "S": ir.Floats, "M": ir.Floats},
	Infer:  batchNormInfer, Axes: batchNormAxes, Cost: batchNormCost, Grad: ir.GradOf(batchNormGrad),
	Recompute: ir.Never(batchNormNever),
	Eval:      batchNormEval,
	Kernel:    ir.KernelOf(batchNormKernel),
	InPlace:   []ir.Alias{{In: 3, Out: 1}, {In: 4, Out: 2}},
	Samples: func() []ir.Sample {
		return []ir.Sample{
			{Name: "training", In: batchNormInputs(), NumOut: 5, Attrs: []ir.Attr{ir.FloatAttr("momentum", 0.75)}},
			{Name: "inference", In: batchNormInputs(), NumOut: 1, Attrs: []ir.Attr{ir.IntAttr("training_mode", 0)}},
		}
	},
})

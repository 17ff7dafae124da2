package ops

import "memoc/ir"

var _ = ir.Register(ir.Op{
	Name:  "BatchNormalization",
	Doc:   "Normalizes every channel by given statistics, or in training by those of the batch.",
	Since: []int{1, 6, 7, 9, 14, 15},
	In:    ir.Ports("X:T, scale:S, B:S, input_mean:M, input_var:M"),
	Out:   ir.Ports("Y:T, running_mean:M?, running_var:M?, saved_mean:M?, saved_var:M?"),
	Types: map[string]ir.DTypeSet{"T": ir.Floats, "S": ir.Floats, "M": ir.Floats},
	Infer: batchNormInfer, Axes: batchNormAxes, Cost: batchNormCost, Grad: ir.GradOf(batchNormGrad),
	Recompute: ir.Never(batchNormNever),
	Eval:      batchNormEval,
	Kernel:    ir.KernelOf(batchNormKernel),
	InPlace:   []ir.Alias{{In: 3, Out: 1}, {In: 4, Out: 2}},
	Samples: func() []ir.Sample {
		in := batchNormInputs()
		flat := append([]*ir.Tensor{ramp(4, 3)}, in[1:]...)
		train := ir.IntAttr("training_mode", 1)
		return []ir.Sample{
			{Name: "inference", In: in},
			{Name: "no batch", In: append([]*ir.Tensor{ramp(0, 3, 2)}, in[1:]...)},
			{Name: "no spatial axis", Version: 9, In: flat, Attrs: []ir.Attr{ir.FloatAttr("epsilon", 0.25)}},
			{Name: "training", In: in, NumOut: 3, Attrs: []ir.Attr{train, ir.FloatAttr("momentum", 0.75)}},
			{Name: "training, one output", In: in, Attrs: []ir.Attr{train}},
			{Name: "training of opset 9", Version: 9, In: in, NumOut: 5},
		}
	},
})

// batchNormInputs are x [2, 3, 2, 2], scale, bias, mean and a positive variance.
func batchNormInputs() []*ir.Tensor {
	return []*ir.Tensor{ramp(2, 3, 2, 2), floats([]int64{3}, 1.5, -0.5, 2), floats([]int64{3}, 0.25, 1, -1),
		floats([]int64{3}, 0.1, -0.2, 0.3), floats([]int64{3}, 0.5, 1.25, 2)}
}

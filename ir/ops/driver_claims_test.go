package ops

import (
	"testing"

	"memoc/ir"
)

// unclaimed lists the operators of which Axes claims nothing in any sample.
var unclaimed = map[string]string{
	"AffineGrid":                             "makes a grid of a size it is told",
	"Bernoulli":                              isRandom,
	"BlackmanWindow":                         "makes a table of a size it is told",
	"ConcatFromSequence":                     isSequences,
	"Constant":                               "has no input",
	"ConstantOfShape":                        "makes a tensor of a shape it is told",
	"ConvInteger":                            isInference,
	"DFT":                                    "not looked at; signal processing",
	"DynamicQuantizeLinear":                  "the scale is that of all elements",
	"EyeLike":                                "of the input the shape alone matters",
	"GRU":                                    isRecurrent,
	"HammingWindow":                          "makes a table of a size it is told",
	"HannWindow":                             "makes a table of a size it is told",
	"If":                                     isSubgraphs,
	"ImageDecoder":                           "is refused",
	"LSTM":                                   isRecurrent,
	"Loop":                                   isSubgraphs,
	"MSELoss":                                "the loss is a mean over all elements",
	"MSELossGrad":                            "the divisor is the number of all elements",
	"MatMulInteger":                          isInference,
	"MaxUnpool":                              "indices are those of the whole tensor",
	"MelWeightMatrix":                        "makes a table of a size it is told",
	"Multinomial":                            isRandom,
	"NonMaxSuppression":                      "the number of results depends on all boxes",
	"NonZero":                                "the number of results depends on all elements",
	"Optional":                               isSequences,
	"OptionalGetElement":                     isSequences,
	"OptionalHasElement":                     isSequences,
	"QLinearConv":                            isInference,
	"QLinearMatMul":                          isInference,
	"RNN":                                    isRecurrent,
	"RandomNormal":                           isRandom,
	"RandomNormalLike":                       isRandom,
	"RandomUniform":                          isRandom,
	"RandomUniformLike":                      isRandom,
	"Range":                                  "makes a list of a length it is told",
	"Scan":                                   isSubgraphs,
	"SequenceAt":                             isSequences,
	"SequenceConstruct":                      isSequences,
	"SequenceEmpty":                          isSequences,
	"SequenceErase":                          isSequences,
	"SequenceInsert":                         isSequences,
	"SequenceLength":                         isSequences,
	"SequenceMap":                            isSequences,
	"Shape":                                  "of the input the shape alone matters",
	"Size":                                   "of the input the shape alone matters",
	"SplitToSequence":                        isSequences,
	"StringNormalizer":                       "the number of results depends on all strings",
	"StringSplit":                            "the number of results depends on all strings",
	"TfIdfVectorizer":                        isInference,
	"Unique":                                 "the number of results depends on all elements",
	"ai.onnx.preview.training::Gradient":     "is replaced by the nodes of the gradient",
	"com.microsoft::AdamWOptimizer":          isSequences,
	"com.microsoft::Attention":               isInference,
	"com.microsoft::BeamSearch":              "is refused",
	"com.microsoft::BroadcastGradientArgs":   "of the inputs the elements are shapes",
	"com.microsoft::EmbedLayerNormalization": isInference,
	"com.microsoft::MultiHeadAttention":      isInference,
	"com.microsoft::SGDOptimizerV2":          isSequences,
	"com.microsoft::YieldOp":                 "stands for what happens outside of the graph",
}

const (
	isRandom    = "a slice would draw the numbers of other elements"
	isSequences = "works on sequences or optional values"
	isRecurrent = "every step needs those before it, and batches are not looked at"
	isSubgraphs = "what it does is in its subgraphs"
	isInference = "no part of training steps; not looked at"
)

// notRun lists the operators whose claims of that form are held against
// execution with other values elsewhere, but never run on slices alone.
var notRun = map[string]map[ir.AxisRel]string{
	"Softmax":                                            {ir.Whole: isWhole},
	"LogSoftmax":                                         {ir.Whole: isWhole},
	"Hardmax":                                            {ir.Whole: isWhole},
	"ai.memoc::SoftmaxGrad":                              {ir.Whole: isWhole},
	"ai.memoc::LogSoftmaxGrad":                           {ir.Whole: isWhole},
	"com.microsoft::SoftmaxGrad":                         {ir.Whole: isWhole},
	"com.microsoft::LogSoftmaxGrad":                      {ir.Whole: isWhole},
	"com.microsoft::SoftmaxGrad_13":                      {ir.Whole: isWhole},
	"com.microsoft::LogSoftmaxGrad_13":                   {ir.Whole: isWhole},
	"Dropout":                                            {ir.Whole: isRandom},
	"com.microsoft::BiasDropout":                         {ir.Follow: isRandom, ir.Whole: isRandom},
	"CumProd":                                            {ir.Whole: "which part is needed is an input"},
	"CumSum":                                             {ir.Whole: "which part is needed is an input"},
	"ai.memoc::FlashAttention":                           {ir.Whole: isWhole},
	"ai.memoc::FlashAttentionGrad":                       {ir.Whole: isWhole},
	"ai.memoc::LinearCrossEntropy":                       {ir.Whole: isWhole},
	"ai.memoc::SoftmaxCrossEntropyLossGrad":              {ir.Whole: isWhole},
	"com.microsoft::SoftmaxCrossEntropyLossInternal":     {ir.Follow: "log_prob depends on no label, but its node needs as many of them"},
	"com.microsoft::SoftmaxCrossEntropyLossGrad":         {ir.Whole: isWhole},
	"com.microsoft::SoftmaxCrossEntropyLossInternalGrad": {ir.Whole: isWhole},
	"AveragePool":                                        {ir.Window: isWindow},
	"Conv":                                               {ir.Window: isWindow},
	"LRN":                                                {ir.Window: isWindow},
	"LpPool":                                             {ir.Window: isWindow},
	"MaxPool":                                            {ir.Window: isWindow},
	"Pad":                                                {ir.Window: isWindow},
}

const (
	isWhole  = "a slice would not have the whole axis"
	isWindow = "a slice would be padded at other places"
)

// TestAxesAreClaimed keeps the list of what nothing is claimed of, and of
// claims that TestAxes cannot run on slices.
func TestAxesAreClaimed(t *testing.T) {
	sums := 0
	for _, op := range selected(t) {
		name := ir.FullOp(op.Domain, op.Name)
		c := &claims{}
		for _, s := range op.Samples() {
			checkClaims(t, op, s, c)
		}
		sums += c.sums
		why, listed := unclaimed[name]
		if nothing := len(c.linked) == 0 && c.free == 0; nothing != (listed && why != "") {
			t.Errorf("%s: claims nothing of its axes: %v; listed as such: %v", name, nothing, listed)
		}
		for _, rel := range []ir.AxisRel{ir.Follow, ir.Window, ir.Prefix, ir.Merge, ir.Split, ir.Whole} {
			if left := c.linked[rel] > 0 && c.run[rel] == 0; left != (notRun[name][rel] != "") {
				t.Errorf("%s: links of form %d: %d checked, %d on slices alone; listed as never run: %q", name, rel, c.linked[rel],
					c.run[rel], notRun[name][rel])
			}
		}
	}
	if *opsFlag == "" && sums == 0 {
		t.Error("no sum over an axis was checked")
	}
}

package passes_test

import (
	"strings"
	"testing"

	"memoc/ir"
)

// Operators whose second execution is another one: chance, state, updates in
// place, and decisions that a rounded input can turn. None may be marked as one
// that a plan makes again.
func TestB10OperatorsThatAreNeverMadeAgain(t *testing.T) {
	for domain, ops := range map[string]string{
		ir.OnnxDomain: "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout BatchNormalization TopK ArgMax ArgMin Unique NonZero NonMaxSuppression",
		ir.MsDomain:   "InPlaceAccumulator InPlaceAccumulatorV2 AdamOptimizer AdamWOptimizer SGDOptimizerV2 BitmaskDropout BiasDropout",
	} {
		for _, op := range strings.Fields(ops) {
			decl := ir.Lookup(domain, op)
			if decl == nil {
				continue // unknown operators are never made again: "unknown" above
			}
			if ok, why := decl.Recompute.OK(); ok || why == "" {
				t.Errorf("%s may be made again (%q)", ir.FullOp(domain, op), why)
			}
		}
	}
}

// B13 with the graph that showed it: a node's output without a reader must not
// lie in what another node still uses.
func TestB13OutputWithoutConsumers(t *testing.T) {
	for _, name := range []string{"avoid_reuse_of_buffer_for_node_output_with_no_consumers.onnx", "alloc_tensor_reuse.onnx"} {
		t.Run(name, func(t *testing.T) {
			path := shared("corpus/ort/memory/" + name)
			if path == "" {
				t.Skip("the shared corpus is not there")
			}
			dims := map[string]ir.Dim{}
			for _, v := range load(t, path).Graph.Inputs {
				for _, d := range v.Type.Shape.Dims {
					for _, s := range d.Symbols() {
						dims[s] = ir.N(4)
					}
				}
			}
			plannedEqualsPlain(t, func() *ir.Model { return load(t, path) }, setup{dims: dims})
		})
	}
}

// A tensor is copied to the host while its last reader before that could
// overwrite it: the copy reads on another stream, so the bytes must stay until
// it is done.
func TestB14NotOverwrittenUnderACopy(t *testing.T) {
	c := plannedEqualsPlain(t, func() *ir.Model {
		return text(t, `g () => (float early, float late, float big, float w, float v) {
			r = RandomNormal <shape = [16384], seed = 1.0> () a = Tanh (r) early = ReduceSum <keepdims = 0> (a) `+busy("w")+`
			b0 = RandomNormal <shape = [65536], seed = 9.0> () b1 = Softmax (b0) b2 = Mul (b0, b1) big = ReduceSum <keepdims = 0> (b2) `+busy("v")+`
			z = Sigmoid (r) late = ReduceSum <keepdims = 0> (z) }`)
	}, setup{asIs: true})
	if moved := movedOut(c.Program); moved["r"] != 65536 {
		t.Fatalf("moved out %v: the case shows too little", moved)
	}
	for out, s := range c.Program.Steps {
		if s.Kind != ir.CopyOutStep || s.Node.In[0].Name != "r" {
			continue
		}
		from := s.Reads[0].Buffer
		for _, w := range c.Program.Steps[out+1:] {
			for _, x := range w.Writes {
				if x.Buffer == from && w.Kind == ir.RunStep {
					t.Errorf("%s writes the buffer that is being copied", w.Node)
				}
			}
		}
	}
}

// The head whose scores are the peak works in chunks unless told otherwise:
// nothing of their size is left.
func TestB21LogitsInChunks(t *testing.T) {
	c := mustCompile(t, text(t, lossPeak), setup{train: "loss"})
	const logits, sum = 2101346304, 4 * 4096 * 128256 // the logits in float16, the weight's gradient in float
	for _, n := range c.Graph.Nodes {
		for _, v := range n.Out {
			if v == nil {
				continue
			}
			if bytes, err := v.Type.Bytes(); err != nil || bytes >= logits {
				t.Errorf("%s makes %q of %d bytes (%v)", n, v.Name, bytes, err)
			}
		}
	}
	for _, s := range c.Program.Steps {
		if s.Workspace >= 0 && s.Node.Op == "LinearCrossEntropy" && c.Program.Buffers[s.Workspace].Size > sum+logits/4 {
			t.Errorf("%s works in %d bytes", s.Node, c.Program.Buffers[s.Workspace].Size)
		}
	}
	if !hasOp(c.Graph, "LinearCrossEntropy") {
		t.Error("the head does not work in chunks")
	}
}

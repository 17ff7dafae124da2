package conformance

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/npz"
	"memoc/ir/onnx"
)

// TestTrainingRuns repeats recorded training runs: graphs that hold forward
// and backward pass, fed step by step, with the file of the optimizer between
// the steps. The recorded losses and weights are those of another framework.
func TestTrainingRuns(t *testing.T) {
	for _, c := range []struct {
		name       string
		accumulate int // steps whose gradients add up before an update
		steps      int // of those recorded; more would only take longer
		// Relative to the loss and to a tensor's largest element: single
		// precision in another order of operations. The biases of the deep
		// network start at zero and get sums that cancel to a hundredth.
		loss, weights float64
	}{
		{"simplemlp", 8, 32, 1e-5, 1e-5},
		{"autoencoder", 1, 2, 1e-5, 1e-5},
		{"tinytransformer", 4, 100, 1e-5, 1e-5},
		{"cct", 1, 4, 1e-5, 1e-5},
		{"mobilenetv1", 4, 4, 1e-5, 1e-1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTrainingRun(t, c.name)
			want := r.out.Get("loss").Floats()
			last := min(c.steps, len(want))
			for step := range last {
				loss := r.step(step, step%c.accumulate == 0)
				if math.Abs(loss-want[step]) > c.loss*max(1, math.Abs(want[step])) {
					t.Errorf("loss of step %d is %v, recorded %v", step, loss, want[step])
				}
				if (step+1)%c.accumulate == 0 {
					r.update()
				}
			}
			if last == len(want) {
				r.compareWeights(c.weights)
			}
		})
	}
}

type trainingRun struct {
	t                *testing.T
	train, optimizer *ir.Graph
	in, out          *npz.Archive
	values           map[string]ir.Datum // weights, buffers and the data of one step
	batches          int                 // distinct data
	data             []string            // inputs that change with every step
}

func newTrainingRun(t *testing.T, name string) *trainingRun {
	r := &trainingRun{t: t, values: map[string]ir.Datum{}}
	load := func(folder string) *ir.Graph {
		m, _, err := onnx.Load(shared(t, filepath.Join("corpus/deeploy", folder, "network.onnx")), onnx.Options{})
		if err == nil {
			err = ir.InferGraph(m.Graph, ir.InferOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.Graph
	}
	read := func(file string) *npz.Archive {
		a, err := npz.Read(shared(t, filepath.Join("corpus/deeploy", name+"_train", file)))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	r.train, r.optimizer = load(name+"_train"), load(name+"_optimizer")
	r.in, r.out = read("inputs.npz"), read("outputs.npz")
	// arr_0000, … are the inputs in order, accumulators left out; a later step
	// has its own data as mb1_arr_0000, ….
	k := 0
	for _, v := range r.train.Inputs {
		if strings.HasSuffix(v.Name, ".accumulation.buffer") {
			dims, _ := v.Type.Shape.Static()
			r.values[v.Name] = ir.NewTensor(v.Type.DType, dims...)
			continue
		}
		r.values[v.Name] = r.in.Get(fmt.Sprintf("arr_%04d", k))
		if r.in.Get(fmt.Sprintf("mb1_arr_%04d", k)) != nil {
			r.data = append(r.data, v.Name)
		}
		k++
	}
	for r.batches = 1; r.in.Get(fmt.Sprintf("mb%d_arr_0000", r.batches)) != nil; r.batches++ {
	}
	return r
}

// step runs forward and backward pass on the data of that step and keeps the
// accumulators; reset starts them anew.
func (r *trainingRun) step(i int, reset bool) float64 {
	prefix := ""
	if b := i % r.batches; b > 0 {
		prefix = fmt.Sprintf("mb%d_", b)
	}
	for k, name := range r.data {
		r.values[name] = r.in.Get(fmt.Sprintf("%sarr_%04d", prefix, k))
	}
	flag := ir.NewTensor(ir.Bool, 1)
	if reset {
		flag.Data[0] = 1
	}
	r.values["lazy_reset_grad"] = flag
	out := r.run(r.train)
	for name, d := range out {
		if base, ok := strings.CutSuffix(name, ".accumulation.out"); ok {
			r.values[base+".accumulation.buffer"] = d
		}
	}
	return out[r.train.Outputs[0].Name].(*ir.Tensor).Floats()[0]
}

// update runs the optimizer's graph and keeps the weights.
func (r *trainingRun) update() {
	for name, d := range r.run(r.optimizer) {
		r.values[strings.TrimSuffix(name, "_updated")] = d
	}
}

func (r *trainingRun) run(g *ir.Graph) map[string]ir.Datum {
	in := map[string]ir.Datum{}
	for _, v := range g.Inputs {
		if r.values[v.Name] == nil {
			r.t.Fatalf("input %q has no value", v.Name)
		}
		in[v.Name] = r.values[v.Name]
	}
	out, err := eval.Graph(g, in, eval.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// compareWeights holds the trained weights against the recorded ones.
func (r *trainingRun) compareWeights(tolerance float64) {
	for _, v := range r.optimizer.Outputs {
		name := strings.TrimSuffix(v.Name, "_updated")
		want := r.out.Get(name)
		if want == nil {
			continue
		}
		got, w := r.values[name].(*ir.Tensor).Floats(), want.Floats()
		worst, scale := 0.0, 0.0
		for i := range w {
			worst, scale = max(worst, math.Abs(got[i]-w[i])), max(scale, math.Abs(w[i]))
		}
		if worst > tolerance*scale+1e-8 { // what is zero by mathematics is noise
			r.t.Errorf("weight %s differs by %v from the recorded one, largest element %v", name, worst, scale)
		}
	}
}

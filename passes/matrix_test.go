package passes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/cost"
	"memoc/passes/plan"
)

// subject is a model of the matrix.
type subject struct {
	name  string
	path  string
	train string
	dims  map[string]ir.Dim
	long  bool // only with MEMOC_LONG=1
}

// subjects lists the models of testdata, and those of the shared data that are
// there. The rest of the folders is covered by MEMOC_LONG.
func subjects(t testing.TB) []subject {
	own, err := filepath.Glob("../testdata/models/*.onnx")
	if err != nil || len(own) == 0 {
		t.Fatalf("no testdata/models: %v", err)
	}
	var out []subject
	for _, path := range own {
		out = append(out, subject{name: filepath.Base(path), path: path, train: "loss"})
	}
	for _, s := range []subject{
		{name: "deeploy/simplemlp_train", path: "corpus/deeploy/simplemlp_train/network.onnx"},
		{name: "deeploy/tinytransformer_train", path: "corpus/deeploy/tinytransformer_train/network.onnx"},
		{name: "deeploy/autoencoder_train", path: "corpus/deeploy/autoencoder_train/network.onnx"},
		{name: "deeploy/cct_train", path: "corpus/deeploy/cct_train/network.onnx", long: true},
		{name: "deeploy/mobilenetv1_train", path: "corpus/deeploy/mobilenetv1_train/network.onnx", long: true},
		{name: "gpt2_dynamo18", path: "models/gpt2_dynamo18/model.onnx", train: "loss", dims: batchSeq, long: true},
		{name: "gpt2_script17", path: "models/gpt2_script17/model.onnx", train: "loss", dims: batchSeq, long: true},
		{name: "gpt2_sdpa_dynamo23", path: "models/gpt2_sdpa_dynamo23/model.onnx", train: "loss", long: true},
		{name: "gpt2_dropout_script17", path: "models/gpt2_dropout_script17/model.onnx", train: "loss", dims: batchSeq},
		{name: "llama_dynamo18", path: "models/llama_dynamo18/model.onnx", train: "loss", dims: batchSeq, long: true},
		{name: "llama_script17", path: "models/llama_script17/model.onnx", train: "loss", long: true},
		{name: "llama_sdpa_dynamo23", path: "models/llama_sdpa_dynamo23/model.onnx", train: "loss", long: true},
		{name: "llama_bf16_dynamo20", path: "models/llama_bf16_dynamo20/model.onnx", train: "loss", long: true},
		{name: "bert_mlm_dynamo20", path: "models/bert_mlm_dynamo20/model.onnx", train: "loss", long: true},
		{name: "conv_script17", path: "models/conv_script17/model.onnx", train: "loss"},
		{name: "t5_script17", path: "models/t5_script17/model.onnx", train: "loss", long: true},
		{name: "unet_dynamo20", path: "models/unet_dynamo20/model.onnx", train: "loss", long: true},
		{name: "vit_script14", path: "models/vit_script14/model.onnx", train: "loss", long: true},
		{name: "zoo_dynamo20", path: "models/zoo_dynamo20/model.onnx", train: "loss"},
		{name: "step_torch_gpt2_dynamo18", path: "models/step_torch_gpt2_dynamo18/model.onnx", long: true},
		{name: "step_torch_llama_dynamo18", path: "models/step_torch_llama_dynamo18/model.onnx", long: true},
	} {
		if s.path = shared(s.path); s.path != "" {
			out = append(out, s)
		}
	}
	return out
}

var batchSeq = map[string]ir.Dim{"batch": ir.N(2), "seq": ir.N(8)}

// long asks for the whole matrix, which takes minutes.
func long() bool { return os.Getenv("MEMOC_LONG") != "" }

// TestMatrix compiles every model under a ladder of budgets, with and without
// host memory, and holds the planned step against the unplanned graph bit for
// bit, its peak against a liveness of the emitted order, and its time against
// that of smaller budgets.
func TestMatrix(t *testing.T) {
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.long && !long() {
				t.Skip("set MEMOC_LONG=1")
			}
			t.Parallel()
			base, _, err := compileUntil(t, load(t, s.path), setup{train: s.train, dims: s.dims}, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(base.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			want := []map[string]ir.Datum{}
			for step := range uint64(2) {
				out, err := eval.Graph(base.Graph, in, eval.Options{Step: step})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, out)
			}
			for policy := range len(plan.PolicyNames()) {
				for _, host := range []int64{0, noHost} {
					if plan.Policy(policy) == plan.Auto || long() && host != noHost {
						m := &row{t: t, s: s, setup: setup{train: s.train, dims: s.dims, host: host, policy: plan.Policy(policy)}, in: in, want: want}
						m.run()
					}
				}
			}
		})
	}
}

// TestMoreBudgetIsNeverSlower walks budgets in small steps over a network whose
// copies take long, on a fast and on a slow link.
func TestMoreBudgetIsNeverSlower(t *testing.T) {
	for _, device := range []string{"h100", "rtx4090", "a100"} {
		dev, err := cost.LoadDevice(device)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []int64{-1, 4 << 20, 0} {
			compileAt := func(b passes.Budget) (*passes.Context, error) {
				m := text(t, chainText(6, 512))
				c := &passes.Context{Model: m, Graph: m.Graph, Options: passes.Options{Train: true, Loss: "loss", Device: dev, HostBudget: host, Budget: b}}
				return c, (&passes.Runner{}).Run(c)
			}
			_, err := compileAt(passes.Budget{Bytes: 1})
			var inf *passes.Infeasible
			if !errors.As(err, &inf) {
				t.Fatal(err)
			}
			all, err := compileAt(passes.Budget{})
			if err != nil {
				t.Fatal(err)
			}
			before, plans := int64(0), map[int64]bool{}
			const cells = 12
			for i := range int64(cells + 1) {
				budget := inf.Smallest + (all.Metrics.PeakUnplanned-inf.Smallest)*i/cells
				c, err := compileAt(passes.Budget{Bytes: budget})
				if err != nil {
					t.Fatalf("%s, host %d, budget %d: %v", device, host, budget, err)
				}
				if before != 0 && c.Metrics.Time > before {
					t.Errorf("%s, host %d, budget %d: takes %d ns, a smaller budget took %d", device, host, budget, c.Metrics.Time, before)
				}
				before = c.Metrics.Time
				plans[before] = true
			}
			if len(plans) < 3 {
				t.Errorf("%s, host %d: %d different plans: the case shows too little", device, host, len(plans))
			}
		}
	}
}

// chainText is layers of MatMul, Gelu-like pointwise work and a residual, wide
// enough that times are more than launches.
func chainText(layers, width int) string {
	var inits, nodes strings.Builder
	for i := range layers {
		fmt.Fprintf(&inits, "float[%d,%d] w%d = [\"elided\": \"\"],", width, width, i)
		fmt.Fprintf(&nodes, "m%d = MatMul (h%d, w%d) t%d = Tanh (m%d) s%d = Softmax (t%d) h%d = Add (s%d, h%d)\n", i, i, i, i, i, i, i, i+1, i, i)
	}
	return fmt.Sprintf(`g (float[1024,%d] x) => (float loss) <%s float one = {1}> { h0 = Identity (x) %s p = Mul (h%d, h%d) loss = ReduceMean <keepdims = 0> (p) }`,
		width, inits.String(), nodes.String(), layers, layers)
}

// row is the budgets of one model with one host budget and one policy.
type row struct {
	t     *testing.T
	s     subject
	setup setup
	in    map[string]ir.Datum
	want  []map[string]ir.Datum // of the first and the second step
	time  int64                 // of the budget before, which is smaller
	last  string                // the steps and places of the budget before
}

// run tries the budgets from the smallest that has a plan to where everything
// is kept, in four steps or eight, and none.
func (r *row) run() {
	s := r.setup
	s.budget = "1"
	c, _, err := compile(r.t, load(r.t, r.s.path), s)
	var inf *passes.Infeasible
	if !errors.As(err, &inf) {
		r.t.Fatalf("a budget of one byte gives %v", err)
	}
	cells := int64(4)
	if long() {
		cells = 8
	}
	for i := range cells + 1 {
		r.cell(fmt.Sprint(inf.Smallest + max(c.Metrics.PeakUnplanned-inf.Smallest, 0)*i/cells))
	}
	r.cell("")
}

func (r *row) cell(budget string) {
	t := r.t
	r.setup.budget = budget
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("policy %v, budget %q, host %d: %s", r.setup.policy, budget, r.setup.host, fmt.Sprintf(format, args...))
	}
	c, _, err := compile(t, load(t, r.s.path), r.setup)
	if err != nil {
		fail("%v", err)
		return
	}
	m := &c.Program.Metrics
	if c.Schedule.Time > m.Time {
		fail("takes %d ns, the search thought %d and no faster", m.Time, c.Schedule.Time)
	}
	if m.Budget > 0 && m.Peak > m.Budget {
		fail("peak %d exceeds the budget %d", m.Peak, m.Budget)
	}
	if r.setup.host == noHost && m.HostPeak != 0 {
		fail("%d bytes of host memory, allowed none", m.HostPeak)
	}
	if how := judgePeaks(planfile.FromProgram(c.Program)); how != "" {
		fail("%s", how)
	}
	if budget != "" {
		if r.time != 0 && m.Time > r.time {
			fail("takes %d ns, a smaller budget %d", m.Time, r.time)
		}
		r.time = m.Time
	}
	if same := fmt.Sprint(c.Program.Places, planfile.FromProgram(c.Program).Steps); same != r.last {
		r.last = same
	} else {
		return // the plan of the budget before, which was run
	}
	for _, o := range laneOrders() {
		if how := sameOutputs(c.Program, r.in, r.want[max(o.Steps, 1)-1], o); how != "" {
			fail("order %d: %s", o.Order, how)
			break
		}
	}
}

// laneOrders are the ways in which a plan is run: with the lanes in step and
// against each other, once and twice in a row.
func laneOrders() []eval.Options {
	orders := []eval.Options{{Order: 1}, {Order: 2, Steps: 2}}
	if long() {
		orders = append(orders, eval.Options{}, eval.Options{Order: 3}, eval.Options{Order: 4}, eval.Options{Order: 5, Steps: 2})
	}
	return orders
}

// judgePeaks computes, from the list of steps alone, when every buffer is first
// and last touched and what that adds up to, and compares lifetimes, lower
// bound and peaks with what the plan states. A buffer that a copy moves to the
// host may be held until the copy is predicted to be over.
func judgePeaks(p *planfile.Plan) string {
	first, last := make([]int, len(p.Buffers)), make([]int, len(p.Buffers))
	leaves := make([]bool, len(p.Buffers))
	for i := range first {
		first[i], last[i] = -1, -1
	}
	buffer := map[string]int{}
	for _, v := range p.Values {
		buffer[v.Name] = v.Buffer
	}
	touch := func(b, step int) {
		if b >= 0 {
			if first[b] < 0 {
				first[b] = step
			}
			last[b] = step
		}
	}
	for i, s := range p.Steps {
		for _, name := range append(append([]string{}, s.Reads...), s.Writes...) {
			touch(buffer[name], i)
			if s.Kind != "run" {
				leaves[buffer[name]] = true
			}
		}
		touch(s.Workspace, i)
	}
	for _, name := range p.Outputs {
		touch(buffer[name], len(p.Steps)-1)
	}
	pad := func(n int64) int64 { return (n + 255) / 256 * 256 }
	live := make([][]int64, len(p.Arenas))
	fixed, height := make([]int64, len(p.Arenas)), make([]int64, len(p.Arenas))
	for a := range live {
		live[a] = make([]int64, len(p.Steps))
	}
	for i, b := range p.Buffers {
		height[b.Arena] = max(height[b.Arena], b.Offset+pad(b.Size))
		if b.Class == "persistent" {
			fixed[b.Arena] += pad(b.Size)
			continue
		}
		if b.Size > 0 && (first[i] != b.First || last[i]+1 > b.End || last[i]+1 < b.End && !leaves[i]) {
			return fmt.Sprintf("buffer %d (%s, %s) is touched in steps [%d,%d) and stated to live in [%d,%d)", i, b.Name, b.Class, first[i], last[i]+1, b.First, b.End)
		}
		for s := b.First; s < b.End; s++ {
			live[b.Arena][s] += pad(b.Size)
		}
	}
	for a, arena := range p.Arenas {
		peak := fixed[a]
		for _, x := range live[a] {
			peak = max(peak, fixed[a]+x)
		}
		if peak != arena.LowerBound {
			return fmt.Sprintf("arena %s: the largest sum of live bytes is %d, stated %d", arena.Name, peak, arena.LowerBound)
		}
		if height[a] != arena.Size {
			return fmt.Sprintf("arena %s: buffers reach up to %d, stated %d", arena.Name, height[a], arena.Size)
		}
	}
	if p.Metrics.Peak != p.Arenas[0].Size || p.Metrics.LowerBound != p.Arenas[0].LowerBound || p.Metrics.HostPeak != p.Arenas[1].Size {
		return fmt.Sprintf("the metrics %+v do not agree with the arenas %+v", p.Metrics, p.Arenas)
	}
	return ""
}

package passes_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"memoc/ir"
	"memoc/ir/eval"
	"memoc/ir/models"
	"memoc/ir/planfile"
	"memoc/passes"
	"memoc/passes/plan"
)

// splitAll cuts every tensor that waits and may be cut after so many eighths of
// its tokens.
func splitAll(eighths int) func(*plan.Problem) []plan.Choice {
	return func(p *plan.Problem) []plan.Choice {
		c := p.Initial()
		for t := range c {
			if c[t] == plan.Keep && p.Splittable(t) && !p.Tensors[t].Output {
				c[t] = plan.SplitAt(p.Tiles() * eighths / 8)
			}
		}
		return c
	}
}

// splitMixed treats every tensor that waits in a way drawn for it.
func splitMixed(seed uint64) func(*plan.Problem) []plan.Choice {
	return func(p *plan.Problem) []plan.Choice {
		r := rand.New(rand.NewPCG(seed, 1))
		c := p.Initial()
		for t := range c {
			way, head := r.IntN(8), r.IntN(p.Tiles()+1)
			if c[t] != plan.Keep || p.Tensors[t].Output {
				continue
			}
			switch {
			case way < 5 && p.Splittable(t):
				c[t] = plan.SplitAt(head)
			case way == 5 && !p.Tensors[t].Derived && !p.Tensors[t].Spread:
				c[t] = plan.Swap
			case way == 6 && p.Splittable(t):
				c[t] = plan.Recompute
			}
		}
		return c
	}
}

// splitCase is one way to cut a model.
type splitCase struct {
	name   string
	choose func(*plan.Problem) []plan.Choice
	often  bool // also without MEMOC_LONG
}

func splitCases() []splitCase {
	var out []splitCase
	for e := range 9 {
		out = append(out, splitCase{fmt.Sprintf("%d/8", e), splitAll(e), e == 3})
	}
	for seed := range uint64(8) {
		out = append(out, splitCase{fmt.Sprintf("mixed %d", seed), splitMixed(seed), seed == 1})
	}
	return out
}

// splitSubject is a model to cut.
type splitSubject struct {
	name  string
	make  func(t testing.TB) *ir.Model
	setup setup
	often bool
}

// splitSubjects are the models of the matrix, those with symbolic dims also
// with one batch row, and the generated ones also with one.
func splitSubjects(t testing.TB) []splitSubject {
	var out []splitSubject
	for _, s := range subjects(t) {
		read := func(t testing.TB) *ir.Model { return load(t, s.path) }
		often := s.name == "gpt-tiny.onnx" || s.name == "llama-tiny.onnx" || s.name == "llama_dynamo18"
		out = append(out, splitSubject{s.name, read, setup{train: s.train, dims: s.dims}, often})
		if s.dims != nil {
			one := map[string]ir.Dim{"batch": ir.N(1), "seq": ir.N(11)}
			out = append(out, splitSubject{s.name + ", one row", read, setup{train: s.train, dims: one}, s.name == "gpt2_dynamo18"})
		}
	}
	for _, c := range []models.Config{
		{Arch: "gpt", Layers: 3, Hidden: 16, Heads: 2, Vocab: 32, Seq: 21, Batch: 1, DType: ir.Float, InlineLimit: -1, Seed: 4},
		{Arch: "llama", Layers: 3, Hidden: 16, Heads: 4, KVHeads: 2, FFN: 24, Vocab: 32, Seq: 19, Batch: 1, DType: ir.Float, InlineLimit: -1, Seed: 5},
	} {
		build := func(t testing.TB) *ir.Model {
			m, err := models.Build(c)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		out = append(out, splitSubject{c.Arch + ", one row", build, setup{train: "loss"}, true})
	}
	chunks := setup{train: "loss", mlpChunks: 2, wide: 1, chunks: true}
	for _, name := range []string{"gpt-tiny", "llama-tiny"} {
		read := func(t testing.TB) *ir.Model { return load(t, "../testdata/models/"+name+".onnx") }
		out = append(out, splitSubject{name + " in chunks", read, chunks, name == "llama-tiny"})
	}
	return out
}

// TestSplits cuts the tensors of whole models along their tokens, in every
// share and mixed, and holds the planned step against the unplanned graph bit
// for bit, in several orders of the lanes; and the rewritten graph, too.
func TestSplits(t *testing.T) {
	for _, s := range splitSubjects(t) {
		t.Run(s.name, func(t *testing.T) {
			if !s.often && !long() {
				t.Skip("set MEMOC_LONG=1")
			}
			t.Parallel()
			base, _, err := compileUntil(t, s.make(t), s.setup, passes.Analyze)
			if err != nil {
				t.Fatal(err)
			}
			in, err := eval.RandomInputs(base.Graph, 1)
			if err != nil {
				t.Fatal(err)
			}
			var want []map[string]ir.Datum
			for step := range uint64(2) {
				out, err := eval.Graph(base.Graph, in, eval.Options{Step: step})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, out)
			}
			splits := 0
			for _, k := range splitCases() {
				if k.often || long() {
					r := &splitRun{t, s, k, in, want, 0}
					r.run()
					splits += r.splits
				}
			}
			if s.often && splits < 40 {
				t.Errorf("%d tensors are split: the case shows too little", splits)
			}
		})
	}
}

type splitRun struct {
	t    *testing.T
	s    splitSubject
	k    splitCase
	in   map[string]ir.Datum
	want []map[string]ir.Datum // of the first and the second step

	splits int // tensors that are split
}

func (r *splitRun) run() {
	t := r.t
	m := r.s.make(t)
	o := r.s.setup.options(t)
	o.Choose = r.k.choose
	c := &passes.Context{Model: m, Graph: m.Graph, Options: o}
	if err := (&passes.Runner{}).Run(c); err != nil {
		t.Errorf("%s: %v", r.k.name, err)
		return
	}
	fail := func(format string, args ...any) { t.Errorf("%s: %s", r.k.name, fmt.Sprintf(format, args...)) }
	if c.Schedule.Time > c.Metrics.Time {
		fail("takes %d ns, the schedule says %d and no faster", c.Metrics.Time, c.Schedule.Time)
	}
	if how := judgePeaks(planfile.FromProgram(c.Program)); how != "" {
		fail("%s", how)
	}
	if how := r.count(c); how != "" {
		fail("%s", how)
	}
	for _, o := range []eval.Options{{Order: 1}, {Order: 2, Steps: 2}, {Order: 3, Steps: 2}} {
		if how := sameOutputs(c.Program, r.in, r.want[max(o.Steps, 1)-1], o); how != "" {
			fail("order %d: %s", o.Order, how)
		}
	}
	got, err := eval.Graph(c.Graph, r.in, eval.Options{})
	if err != nil {
		fail("the rewritten graph: %v", err)
		return
	}
	for name, d := range r.want[0] {
		if !bytes.Equal(got[name].(*ir.Tensor).Data, d.(*ir.Tensor).Data) {
			fail("output %q of the rewritten graph differs", name)
		}
	}
}

// count counts the split tensors, and holds what the plan says of them against
// the copies in the graph: each one's head goes to the host in as many bytes as
// stated.
func (r *splitRun) count(c *passes.Context) string {
	heads := map[string]int64{}
	for _, n := range c.Graph.Nodes {
		if n.Op == "SwapOut" {
			size, err := n.Out[0].Type.Bytes()
			if err != nil {
				return err.Error()
			}
			heads[n.Out[0].Name] = size
		}
	}
	for _, d := range c.Program.Decisions {
		if d.Kind != ir.SplitTokens {
			continue
		}
		r.splits++
		if head := heads[d.Tensor+".head.out"]; head == 0 || head != d.Head || head >= d.Bytes {
			return fmt.Sprintf("the head of %q has %d bytes of %d, the decision says %d", d.Tensor, head, d.Bytes, d.Head)
		}
	}
	return ""
}

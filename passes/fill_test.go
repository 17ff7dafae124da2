package passes_test

import (
	"testing"

	"memoc/ir"
	"memoc/ir/models"
	"memoc/passes"
	"memoc/passes/plan"
)

// With recomputation alone, a deep model leaves no room unused that a tensor of
// one layer would have fitted in twice: what is made again in vain costs an
// attention.
func TestRecomputationLeavesNoRoom(t *testing.T) {
	const seq, hidden = 1 << 20, 4096
	m, err := models.Build(models.Config{Arch: "gpt", Layers: 32, Hidden: hidden, Heads: 32, Vocab: 50257, Seq: seq, Batch: 1, DType: ir.BFloat16, InlineLimit: 1 << 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := compileUntil(t, m, setup{train: "loss", host: noHost}, passes.Plan)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Problem.Search(plan.Options{Policy: plan.RecomputeOnly})
	if err != nil {
		t.Fatal(err)
	}
	least := l.Rungs[0].Peak
	for _, r := range l.Rungs {
		least = min(least, r.Peak)
	}
	looked := 0
	for budget := least; ; budget += 20 << 30 {
		i := 0
		for l.Rungs[i].Peak > budget {
			i++
		}
		r := &l.Rungs[i]
		if r.Extra*50 < r.Time { // only what is cheap is made again
			break
		}
		looked++
		if room := budget - r.Peak; room > 2*2*seq*hidden {
			t.Errorf("of %d GiB, %d are left while %.1f %% of the step is spent on making tensors again", budget>>30, room>>30, float64(r.Extra)/float64(r.Time)*100)
		}
	}
	if looked < 10 {
		t.Errorf("%d budgets looked at", looked)
	}
}

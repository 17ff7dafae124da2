package plan

import (
	"slices"
	"testing"
)

// The large tensor 0 is read by op 1, whose result waits, and then by op 3.
// Running op 3 first frees it before op 2 makes another large one: by hand,
// 100+10+10 instead of 100+60+60.
func TestReorderFreesEarly(t *testing.T) {
	p := &Problem{
		Tensors: []Tensor{{Bytes: 100}, {Bytes: 60}, {Bytes: 60, Output: true}, {Bytes: 10, Output: true}},
		Ops: []Op{
			{Out: []int{0}, Clone: true},
			{In: []int{0}, Out: []int{1}, Clone: true},
			{In: []int{1}, Out: []int{2}, Clone: true},
			{In: []int{0}, Out: []int{3}, Clone: true},
		},
	}
	order, changed := p.Reorder(32)
	if !changed || !slices.Equal(order, []int{0, 3, 1, 2}) {
		t.Fatalf("order %v, changed %t", order, changed)
	}
	before, _ := p.Build(p.Initial())
	q := p.Permuted(order)
	after, err := q.Build(q.Initial())
	if err != nil || before.Peak != 220 || after.Peak != 170 {
		t.Errorf("peak %d before and %v after (%v), want 220 and 170", before.Peak, after, err)
	}
	p.Ops[3].Clone = false
	if _, changed := p.Reorder(32); changed {
		t.Error("an operation that must run where it stands was moved")
	}
}

// On random problems the new order is an order (every tensor before its
// readers) and never has a higher peak.
func TestReorderIsSound(t *testing.T) {
	better := 0
	for seed := range uint64(200) {
		p := random(seed)
		order, changed := p.Reorder(40)
		q := p.Permuted(order)
		if err := q.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		before, err1 := p.Build(p.Initial())
		after, err2 := q.Build(q.Initial())
		if err1 != nil || err2 != nil {
			continue
		}
		if after.Peak > before.Peak || changed != (after.Peak < before.Peak) {
			t.Fatalf("seed %d: peak %d became %d, changed %t", seed, before.Peak, after.Peak, changed)
		}
		if changed {
			better++
		}
	}
	if better == 0 {
		t.Error("no random problem was improved: the test shows nothing")
	}
}

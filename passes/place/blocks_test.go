package place

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// layerBlocks collects the short-lived buffers of a training step by layer and
// pass. The kept ones, and those of the last layer that ends with the step, stay
// outside.
func layerBlocks(p *Problem, layers int) []Block {
	const perPass = 90
	blocks := make([]Block, 2*layers)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		pass := b.Start / perPass
		if !strings.Contains(b.ID, ".") || (b.End-1)/perPass != pass || pass >= 2*layers {
			continue
		}
		blocks[pass].Buffers = append(blocks[pass].Buffers, i)
	}
	for n := range blocks {
		if n >= layers {
			blocks[n].Class = 1
		}
	}
	return blocks
}

func TestBlocks(t *testing.T) {
	p := trainingStep(6, false)
	blocks := layerBlocks(p, 6)
	s, err := SolveBlocks(context.Background(), p, blocks, Options{Work: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(p, s.Offsets); err != nil {
		t.Fatal(err)
	}
	first := map[int]Block{}
	for _, b := range blocks {
		f, ok := first[b.Class]
		if !ok {
			first[b.Class] = b
			continue
		}
		for n := range b.Buffers {
			inner := s.Offsets[b.Buffers[n]] - s.Offsets[b.Buffers[0]]
			if want := s.Offsets[f.Buffers[n]] - s.Offsets[f.Buffers[0]]; inner != want {
				t.Fatalf("buffer %d of a block is %d from its first, %d in another block", n, inner, want)
			}
		}
	}
	if s.Gap() > 0.25 || s.Height < s.LowerBound {
		t.Errorf("height %d, bound %d", s.Height, s.LowerBound)
	}
}

func TestBadBlocks(t *testing.T) {
	p := &Problem{Buffers: []Buffer{{Size: 1, End: 1}, {Size: 2, End: 1}, {Size: 1, End: 1, Fixed: true}}}
	for want, blocks := range map[string][]Block{
		"block 0: there is no buffer 3":                                        {{0, []int{3}}},
		"block 1: buffer 0 is there twice, or in another block":                {{0, []int{0}}, {1, []int{0}}},
		"block 0: buffer 2 has a fixed offset":                                 {{0, []int{2}}},
		"block 0: class 1 comes before class 0":                                {{1, []int{0}}},
		"block 1: its buffers differ from those of the first block of class 0": {{0, []int{0}}, {0, []int{1}}},
	} {
		_, err := SolveBlocks(context.Background(), p, blocks, Options{})
		if err == nil || err.Error() != fmt.Sprint("place: ", want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
